// Keeps the page up to date while somebody looks at it: the next question follows the last answer, none is asked behind a hidden tab.

import { get } from "./api.js";
import { byId } from "./dom.js";
import { drawProgress, drawRoles, drawTime } from "./curves.js";
import { drawJudges, startJudges } from "./judges.js";
import { drawEvents, drawLive, startTuning } from "./live.js";
import { drawRubrics } from "./rubrics.js";
import { setWorlds, startRollouts } from "./rollouts.js";
import { Store } from "./store.js";

const PAUSE_MS = 2000;
const LONGEST_PAUSE_MS = 30000;
const SLOW = 5; // rounds between two looks at what changes slowly
const SLOWEST = 30;

const store = new Store();
let evaluations = [];
let depths = [];

function draw() {
  drawProgress(store, evaluations);
  drawTime(store, depths);
}

async function refresh(round) {
  const status = await get("live");
  drawLive(status);
  drawJudges(status);
  const before = `${store.epoch} ${store.rest.count}`;
  await store.refresh();
  const isNew = before !== `${store.epoch} ${store.rest.count}`;
  if (round % SLOW === 0 || isNew) {
    evaluations = await get("evaluations");
    drawEvents(await get("events"));
  }
  if (round % SLOWEST === 0) depths = await get("depths");
  if (isNew || round % SLOWEST === 0) draw();
  if (round % SLOW === 0) await count();
}

async function count() {
  let map = await get("rubrics");
  for (let calls = 0; !map.complete && calls < 20; calls += 1) map = await get("rubrics");
  drawRubrics(map);
}

async function keepUp() {
  let pause = PAUSE_MS;
  for (let round = 0; ; round += 1) {
    if (document.hidden) await new Promise((wake) => document.addEventListener("visibilitychange", wake, { once: true }));
    try {
      await refresh(round);
      byId("trouble").hidden = true;
      pause = PAUSE_MS;
    } catch (error) {
      const gone = error instanceof TypeError;
      byId("trouble").textContent = gone
        ? "Nobody answers: the page ends with its run. \"stream-rl page RUN\" shows it again."
        : error.message;
      byId("trouble").hidden = false;
      pause = Math.min(LONGEST_PAUSE_MS, 2 * pause);
    }
    await new Promise((wake) => setTimeout(wake, pause));
  }
}

async function start() {
  const { run, facts } = await get("run");
  document.title = `${run}, stream_rl`;
  byId("run-name").textContent = run;
  setWorlds(facts.environments);
  startTuning();
  startJudges();
  byId("time-span").addEventListener("change", () => drawRoles(store));
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    draw();
  }).observe(document.body);
  await startRollouts();
  await keepUp();
}

start();
