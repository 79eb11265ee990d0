// The rubric map: violations among the tags that apply, one row a skill, its rubrics folded away beneath it.

import { byId, el, percent } from "./dom.js";

const open = new Set();

function add(a, b) {
  return a.map((value, i) => value + b[i]);
}

function cell(counts) {
  if (!counts) return el("td", {}, "-");
  const [positive, violation, silent, abstained] = counts;
  const applies = positive + violation;
  const share = applies ? violation / applies : null;
  const title = `${violation} violations, ${positive} positive, ${silent} not applicable, ${abstained} abstained`;
  return el("td", { title, vars: { "--heat": share ?? 0 } }, percent(share));
}

export function drawRubrics(map) {
  const state = map.complete ? "" : ", more are being counted";
  byId("rubrics-note").textContent = map.counted ? `${map.counted.toLocaleString("en")} verdicts${state}.` : "No verdicts yet.";
  const table = byId("heat");
  table.tHead.replaceChildren(el("tr", {}, el("th", { scope: "col" }, "Skill"),
    ...map.environments.map((name) => el("th", { scope: "col" }, name))));
  const skills = new Map();
  for (const line of map.rows) skills.set(line.skill, [...(skills.get(line.skill) ?? []), line]);
  const rows = [];
  for (const [skill, members] of skills) {
    const pooled = (world) => members.map((m) => m.counts[world]).filter(Boolean).reduce(add, [0, 0, 0, 0]);
    const toggle = () => {
      if (!open.delete(skill)) open.add(skill);
      drawRubrics(map);
    };
    const button = el("button", { class: "plain", type: "button", "aria-expanded": open.has(skill), on: { click: toggle } },
      `${open.has(skill) ? "▾" : "▸"} ${skill}`);
    rows.push(el("tr", {}, el("th", { scope: "row" }, button), ...map.environments.map((world) => cell(pooled(world)))));
    if (!open.has(skill)) continue;
    for (const m of members) {
      rows.push(el("tr", { class: "rubric" }, el("th", { scope: "row", title: m.rubric }, m.name),
        ...map.environments.map((world) => cell(m.counts[world]))));
    }
  }
  table.tBodies[0].replaceChildren(...rows);
}
