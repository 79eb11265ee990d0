// Judge endpoints: how they do, and attaching and detaching them while the run goes on.

import { post } from "./api.js";
import { byId, el, number, percent } from "./dom.js";

function say(text) {
  byId("judges-note").textContent = text;
}

async function act(path, body, done) {
  try {
    const { endpoints } = await post(path, body);
    drawEndpoints(endpoints);
    say(done);
    return true;
  } catch (error) {
    say(error.message);
    return false;
  }
}

function drawEndpoints(endpoints) {
  const focused = document.activeElement?.dataset?.url;
  const value = (text) => el("td", { class: "number" }, text);
  const rows = endpoints.map((e) => el("tr", {},
    el("th", { scope: "row", title: e.problem }, e.url), el("td", {}, e.model), el("td", {}, e.problem ? `${e.state}: ${e.problem}` : e.state),
    value(`${e.in_flight} of ${e.limit}`), value(number(e.p50_s)), value(number(e.p95_s)), value(percent(e.error_share)),
    value(percent(e.abstain_share)), value(number(e.prompt_tokens + e.completion_tokens)), value(number(e.price)),
    el("td", {}, el("button", {
      type: "button", "data-url": e.url, "aria-label": `Detach ${e.url}`,
      on: { click: () => act("judges/detach", { url: e.url }, `${e.url} is detached.`) },
    }, "Detach"))));
  const none = el("tr", {}, el("td", { colspan: 11 }, "no endpoint is attached"));
  const body = byId("endpoints").tBodies[0];
  body.replaceChildren(...(rows.length ? rows : [none]));
  if (focused) [...body.querySelectorAll("button")].find((button) => button.dataset.url === focused)?.focus();
}

export function drawJudges(status) {
  drawEndpoints(status.judge?.endpoints ?? []);
  for (const field of byId("attach").elements) field.disabled = !status.running;
  if (status.judge?.problem) say(status.judge.problem);
}

export function startJudges() {
  byId("attach").addEventListener("submit", async (event) => {
    event.preventDefault();
    const form = event.target;
    const fields = Object.fromEntries(new FormData(form));
    const body = { ...fields, concurrency: Number(fields.concurrency) };
    if (await act("judges/attach", body, `${body.url} is attached.`)) form.reset();
  });
}
