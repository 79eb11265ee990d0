// Progress and time: what the metrics lines and the evaluations say.

import { bars, lines } from "./charts.js";
import { byId, el, number, percent, row, words } from "./dom.js";

const UNIT = { share: [0, 1] };

function over(store, names) {
  return names.map(([name, column]) => ({ name, x: store.step, y: store.column(column) }));
}

export function drawProgress(store, evaluations) {
  const worlds = store.names("success/by_env/");
  const each = worlds.length > 1 ? worlds.map((name) => [name.slice("success/by_env/".length), name]) : [];
  lines(byId("chart-success"), {
    title: "Success of training rollouts", unit: "share of rollouts, by update", range: UNIT.share, text: percent,
    series: over(store, [["all worlds", "success/train"], ...each]),
  });
  const versions = evaluations.map((e) => e.version);
  const names = [...new Set(evaluations.flatMap((e) => Object.keys(e.by_env)))].sort();
  lines(byId("chart-held-out"), {
    title: "Held-out success", unit: "share of rollouts with its 95 % interval, by version", range: UNIT.share, text: percent,
    series: [
      { name: "all worlds", x: versions, y: evaluations.map((e) => e.success), low: evaluations.map((e) => e.low),
        high: evaluations.map((e) => e.high), dots: true },
      ...(names.length > 1 ? names : []).map((name) =>
        ({ name, x: versions, y: evaluations.map((e) => e.by_env[name] ?? null) })),
    ],
  });
  const rewarded = [...new Set(evaluations.flatMap((e) => Object.keys(e.reward)))].sort();
  lines(byId("chart-reward"), {
    title: "Reward", unit: "mean reward of a rollout, by update or version",
    series: [
      ...over(store, [["training", "reward_mean"]]),
      ...rewarded.map((name) =>
        ({ name: `held out, ${name}`, x: versions, y: evaluations.map((e) => e.reward[name] ?? null), dots: true })),
    ],
  });
  lines(byId("chart-policy"), {
    title: "Policy", unit: "loss of a token, nats, by update",
    series: over(store, [["loss", "loss"], ["entropy", "entropy"], ["KL to the sampling policy", "kl_behavior"]]),
  });
}

export function drawTime(store, depths) {
  lines(byId("chart-wait"), {
    title: "The learner waits", unit: "share of the update's training time", range: UNIT.share, text: percent,
    series: over(store, [["for rollouts", "share/rollout_wait"], ["for verdicts alone", "share/judge_wait"]]),
  });
  bars(byId("chart-depth"), {
    title: "Rollout wait by async depth", text: percent,
    unit: "share of training time; runs of this configuration in the same folder",
    bars: depths.map((p) => ({
      label: `${p.depth}`, parts: [{ name: p.this ? "this run" : "other runs", value: p.wait_share }],
    })),
  });
  drawLag(store);
  const thrown = Object.entries(store.rest.totals.discarded ?? {});
  fillTable("discarded", thrown.map(([reason, n]) => row(words(reason), count(n))));
  fillTable("tokens", Object.entries(store.rest.totals.tokens ?? {}).map(([kind, n]) => row(words(kind), count(n))));
  drawRoles(store);
}

function drawLag(store) {
  const origins = Object.entries(store.rest.totals.lag_by_origin ?? {}).map(([key, n]) => [...key.split("/"), n]);
  const plain = Object.entries(store.rest.totals.lag ?? {}).map(([lag, n]) => ["groups", lag, n]);
  const found = origins.length ? origins : plain;
  const lags = [...new Set(found.map(([, lag]) => Number(lag)))].sort((a, b) => a - b);
  bars(byId("chart-lag"), {
    title: origins.length ? "Lag of trained groups, by where it arose" : "Lag of trained groups", unit: "groups, by lag in updates",
    bars: lags.map((lag) => ({
      label: `${lag}`,
      parts: found.filter(([, at]) => Number(at) === lag).map(([name, , n]) => ({ name: words(name), value: n })),
    })),
  });
  lines(byId("chart-lag-over"), {
    title: "Lag over time", unit: "updates",
    series: over(store, [["mean", "lag/mean"], ["largest", "lag/max"], ["async depth", "async_depth"]]),
  });
}

export function drawRoles(store) {
  const recent = byId("time-span").value === "recent";
  const roles = recent ? store.rest.recent_roles : store.rest.roles;
  const states = [...new Set(Object.values(roles).flatMap((seconds) => Object.keys(seconds)))];
  byId("role-bars").replaceChildren(...Object.entries(roles).map(([name, seconds]) => {
    const total = Object.values(seconds).reduce((sum, s) => sum + s, 0) || 1;
    const parts = Object.entries(seconds).filter(([, s]) => s > 0);
    const said = parts.map(([state, s]) => `${words(state)} ${percent(s / total)}`);
    return el("div", { class: "role" }, el("h3", {}, name),
      el("div", { class: "strip", role: "img", "aria-label": `${name}: ${said.join(", ")}` },
        ...parts.map(([state, s]) => el("span", {
          class: `i${states.indexOf(state) % 8}`, title: `${words(state)} ${number(s)} s`, vars: { "flex-grow": s / total },
        }))),
      el("ul", { class: "legend" }, ...parts.map(([state, s]) =>
        el("li", { class: `i${states.indexOf(state) % 8}` }, `${words(state)} ${percent(s / total)}`))));
  }));
}

function count(value) {
  return el("td", { class: "number" }, number(value));
}

function fillTable(id, rows) {
  const empty = el("tr", {}, el("td", { colspan: 2 }, "none so far"));
  byId(id).tBodies[0].replaceChildren(...(rows.length ? rows : [empty]));
}
