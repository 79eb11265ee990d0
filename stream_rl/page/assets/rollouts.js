// The browser of rollouts: groups newest first, and one rollout with its turns, tags and tokens.

import { get } from "./api.js";
import { byId, el, number, row, words } from "./dom.js";

const CHOICES = { advantage: "advantage", logprob: "log-probability", version: "policy version" };

let before = null;
let shown = null;
let colour = "advantage";

export function setWorlds(names) {
  const select = byId("filter").elements.environment;
  select.append(...names.map((name) => el("option", {}, name)));
}

export function startRollouts() {
  byId("filter").addEventListener("submit", (event) => {
    event.preventDefault();
    list(false);
  });
  byId("older").addEventListener("click", () => list(true));
  return list(false);
}

async function list(older) {
  const { purpose, environment, state } = Object.fromEntries(new FormData(byId("filter")));
  const body = byId("groups").tBodies[0];
  try {
    const page = await get("groups", { purpose, environment, state, before: older && before ? before : 0 });
    const rows = page.groups.map(groupRow);
    if (older) body.append(...rows);
    else body.replaceChildren(...(rows.length ? rows : [el("tr", {}, el("td", { colspan: 5 }, "no groups yet"))]));
    before = page.before;
    byId("older").hidden = before === null;
  } catch (error) {
    body.replaceChildren(el("tr", {}, el("td", { colspan: 5 }, error.message)));
  }
}

function groupRow(group) {
  const members = group.members.map((member) => {
    const kind = member.error ? "invalid" : member.success ? "solved" : "failed";
    const name = member.id.slice(member.id.lastIndexOf("/") + 1);
    return el("button", {
      type: "button", class: kind, "aria-pressed": "false", "aria-label": `Rollout ${member.id}, ${kind}`,
      title: `${kind}, reward ${number(member.reward)}, ${member.tokens} tokens`, on: { click: (event) => choose(event.currentTarget, member.id) },
    }, name);
  });
  const state = group.reason ? `${group.state}: ${words(group.reason)}` : group.state;
  return row(group.id, el("td", {}, group.environment), el("td", { class: "number" }, group.round === null ? "-" : number(group.round)),
    el("td", {}, state), el("td", {}, el("div", { class: "members" }, ...members)));
}

async function choose(button, id) {
  for (const other of document.querySelectorAll(".members [aria-pressed=true]")) other.setAttribute("aria-pressed", "false");
  button.setAttribute("aria-pressed", "true");
  try {
    shown = await get("rollout", { id });
    drawEpisode();
  } catch (error) {
    byId("episode").replaceChildren(el("p", {}, error.message));
  }
}

function drawEpisode() {
  const e = shown;
  const outcome = e.error ? `invalid: ${e.error}` : e.success ? "solved" : "not solved";
  const facts = `${e.task}, ${outcome}, reward ${number(e.reward)}, score ${number(e.score)}, ${number(e.seconds)} s`;
  byId("episode").replaceChildren(
    el("h3", {}, e.id), el("p", {}, facts),
    ...(e.guidance.length ? [el("p", {}, `Guidance: ${e.guidance.join(", ")}`)] : []),
    ...(e.hint.length ? [el("p", {}, `Teacher's hint: ${e.hint.join(", ")}`)] : []),
    colouring(e), el("pre", {}, e.prompt), ...turns(e), tagTable(e));
}

function colouring(e) {
  const has = { advantage: e.turns.some((t) => t.advantage !== null), logprob: e.turns.some((t) => t.tokens.length) };
  has.version = has.logprob;
  const options = Object.entries(CHOICES).filter(([key]) => has[key]);
  if (!options.length) return "";
  if (!has[colour]) colour = options[0][0];
  const pick = (event) => {
    colour = event.target.value;
    drawEpisode();
  };
  return el("p", {}, el("label", {}, "Tokens coloured by ", el("select", { id: "colour", on: { change: pick } },
    ...options.map(([key, text]) => el("option", { value: key, selected: key === colour }, text)))));
}

function turns(e) {
  const largest = Math.max(1e-9, ...e.turns.map((t) => Math.abs(t.advantage ?? 0)));
  const versions = e.turns.flatMap((t) => t.versions);
  const [oldest, newest] = [Math.min(...versions), Math.max(...versions)];
  const shade = (turn, token) => {
    if (colour === "logprob" && token) return ["other", Math.min(1, -token.logprob / 4)];
    if (colour === "version" && token) return ["other", newest > oldest ? (token.version - oldest) / (newest - oldest) : 0.3];
    if (colour !== "advantage" || turn.advantage === null) return ["other", 0];
    return [turn.advantage >= 0 ? "up" : "down", Math.abs(turn.advantage) / largest];
  };
  return e.turns.map((turn, i) => {
    const said = [`turn ${i + 1}`, turn.valid ? null : "not understood", turn.cut ? "cut" : null,
      turn.reward ? `reward ${number(turn.reward)}` : null, turn.advantage === null ? null : `advantage ${number(turn.advantage)}`,
      turn.versions.length ? `version ${turn.versions.join(", ")}` : null];
    const piece = (text, token) => {
      const [kind, heat] = shade(turn, token);
      const title = token && `log-probability ${number(token.logprob)}, version ${token.version}, advantage ${number(turn.advantage)}`;
      return el("span", { class: `token ${kind}`, title, vars: { "--heat": heat } }, text);
    };
    // A token without text, as the end of a turn, is one all the same: it is drawn as the empty set.
    const action = turn.tokens.length ? turn.tokens.map((token) => piece(token.text || "\u2205", token)) : [piece(turn.action, null)];
    return el("div", { class: "turn" }, el("header", {}, said.filter(Boolean).join(", ")),
      el("div", { class: "action" }, ...action), el("p", {}, turn.observation));
  });
}

function tagTable(e) {
  if (!e.tags.length) return el("p", {}, "No verdict.");
  const rows = e.tags.map((tag) => row(tag.rubric, el("td", { class: `tag-${tag.value}` }, words(tag.value)), el("td", {}, tag.reason)));
  const head = el("tr", {}, ...["Rubric", "Tag", "Reason"].map((text) => el("th", { scope: "col" }, text)));
  return el("div", { class: "scroll tall" }, el("table", { id: "tags" }, el("caption", {}, `Tags by ${e.judge || "the judge"}`),
    el("thead", {}, head), el("tbody", {}, ...rows)));
}
