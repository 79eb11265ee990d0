// The run at this moment: what its orchestrator says.

import { post } from "./api.js";
import { byId, el, number, percent, row } from "./dom.js";

let isPaused = false;

const clock = (s) => (s === undefined ? "-" : `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`);

export function drawLive(status) {
  const of = status.updates === undefined ? "" : ` of ${status.updates}`;
  byId("run-state").textContent = `${status.doing ?? status.phase}, version ${status.version}${of}`;
  const permits = status.permits;
  const held = status.eval?.success?.overall;
  const tiles = [
    ["Phase", status.phase],
    ["Version", `${status.version}${of}`],
    ["Training time", clock(status.train_s)],
    ["Training success", percent(status.success?.train)],
    ["Held-out success", held === undefined ? "-" : `${percent(held)} at ${status.eval.version}`],
    ["Lag at most", number(status.lag?.max)],
    ["Async depth", number(status.async_depth)],
    ["Permits taken", permits ? `${permits.taken} of ${permits.capacity}` : "-"],
    ...Object.entries(status.groups ?? {}).map(([stage, n]) => [`Groups ${stage}`, number(n)]),
    ["Transcripts waiting", number(status.judge?.waiting)],
  ];
  byId("tiles").replaceChildren(...tiles.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
  drawTuning(status);
  const learner = status.learner;
  const rows = (status.producers ?? []).map((p) =>
    row(p.name, el("td", {}, p.engine), cell(p.version), cell(`${p.rollouts} of ${p.capacity} rollouts`)));
  if (learner) rows.push(row("learner", el("td", {}, learner.waiting ? "waits for groups" : "trains"), cell(learner.version), cell("")));
  const none = el("tr", {}, el("td", { colspan: 4 }, status.running ? "nobody is connected yet" : "the run is not running"));
  byId("roles-now").tBodies[0].replaceChildren(...(rows.length ? rows : [none]));
}

function cell(text) {
  return el("td", {}, String(text));
}

export function drawEvents(events) {
  byId("event-list").replaceChildren(...events.map((event) => {
    const at = new Date(1000 * event.at);
    return el("li", {}, el("time", { datetime: at.toISOString() }, at.toLocaleTimeString()), event.text);
  }));
}

function drawTuning(status) {
  isPaused = Boolean(status.paused);
  byId("pause").textContent = isPaused ? "Go on" : "Pause";
  const field = byId("tune").elements.depth;
  if (document.activeElement !== field && status.async_depth !== undefined) field.value = status.async_depth;
  for (const control of byId("tune").elements) control.disabled = !status.running;
}

async function tune(body) {
  try {
    const now = await post("tune", body);
    isPaused = now.paused;
    byId("pause").textContent = isPaused ? "Go on" : "Pause";
    byId("tune-note").textContent = `Async depth ${now.async_depth}, ${now.paused ? "paused" : "going on"}.`;
  } catch (error) {
    byId("tune-note").textContent = error.message;
  }
}

export function startTuning() {
  byId("pause").addEventListener("click", () => tune({ paused: !isPaused }));
  byId("tune").addEventListener("submit", (event) => {
    event.preventDefault();
    tune({ async_depth: Number(event.target.elements.depth.value) });
  });
}
