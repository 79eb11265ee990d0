// Charts as SVG. Each figure has a caption, a legend, a read-out under the pointer and its newest numbers as a table.

import { el, number, svg } from "./dom.js";

const HEIGHT = 190;
const LEFT = 44;
const BOTTOM = 20;
const TOP = 8;
const RIGHT = 8;
const INKS = 8;

function extent(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length ? [Math.min(...known), Math.max(...known)] : null;
}

function ticks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}

function frame(figure, title, series, unit) {
  const old = figure.querySelector("details");
  const open = old?.open ?? false;
  const width = Math.max(240, figure.clientWidth - 24);
  const image = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": title });
  const legend = el("ul", { class: "legend" }, ...series.map((s, i) => el("li", { class: `i${i % INKS}` }, s.name)));
  const readout = el("p", { class: "readout" }, unit);
  const table = el("details", { open }, el("summary", {}, "Numbers"));
  figure.replaceChildren(el("figcaption", {}, title), image, legend, readout, table);
  return { image, readout, table, width };
}

function axes(image, width, x, y, xTicks, yTicks, xText, yText) {
  for (const at of yTicks) {
    image.append(svg("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: y(at), y2: y(at) }));
    image.append(svg("text", { class: "label", x: LEFT - 6, y: y(at) + 4, "text-anchor": "end" }, yText(at)));
  }
  for (const at of xTicks) {
    image.append(svg("text", { class: "label", x: x(at), y: HEIGHT - 5, "text-anchor": "middle" }, xText(at)));
  }
}

function path(xs, ys, x, y) {
  let out = "";
  let pen = false;
  for (let i = 0; i < xs.length; i += 1) {
    const value = ys[i];
    if (value === null || value === undefined) {
      pen = false;
      continue;
    }
    out += `${pen ? "L" : "M"}${x(xs[i]).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = true;
  }
  return out;
}

// series: [{name, x, y, low?, high?, dots?}]; `range`: fixed [low, high] of the y axis.
export function lines(figure, { title, series, unit = "", range, text = number }) {
  const shown = series.filter((s) => s.y.some((value) => value !== null && value !== undefined));
  const { image, readout, table, width } = frame(figure, title, shown, shown.length ? unit : "nothing measured yet");
  const xs = extent(shown.flatMap((s) => s.x));
  if (!xs) return;
  const [x0, x1] = xs[0] === xs[1] ? [xs[0] - 1, xs[1] + 1] : xs;
  let [y0, y1] = range ?? extent(shown.flatMap((s) => [...s.y, ...(s.low ?? []), ...(s.high ?? [])]));
  if (y0 === y1) [y0, y1] = [y0 - (Math.abs(y0) || 1) / 2, y1 + (Math.abs(y1) || 1) / 2];
  const x = (at) => LEFT + ((at - x0) / (x1 - x0)) * (width - LEFT - RIGHT);
  const y = (at) => TOP + (1 - (at - y0) / (y1 - y0)) * (HEIGHT - TOP - BOTTOM);
  axes(image, width, x, y, ticks(x0, x1, width / 90).filter(Number.isInteger), ticks(y0, y1, 4), number, text);
  shown.forEach((s, i) => {
    const ink = `i${i % INKS}`;
    if (s.low) {
      const back = path([...s.x].reverse(), [...s.low].reverse(), x, y).replace(/^M/, "L");
      image.append(svg("path", { class: `band ${ink}`, d: `${path(s.x, s.high, x, y)}${back}Z` }));
    }
    image.append(svg("path", { class: `curve ${ink}`, d: path(s.x, s.y, x, y) }));
    if (s.dots || s.x.length === 1) {
      s.x.forEach((at, k) => {
        if (s.y[k] !== null) image.append(svg("circle", { class: `dot ${ink}`, cx: x(at), cy: y(s.y[k]), r: 3 }));
      });
    }
  });
  const cursor = svg("line", { class: "axis", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  image.append(cursor);
  image.addEventListener("pointermove", (event) => {
    const box = image.getBoundingClientRect();
    const at = x0 + ((((event.clientX - box.left) / box.width) * width - LEFT) / (width - LEFT - RIGHT)) * (x1 - x0);
    const near = shown.map((s) => nearest(s.x, at));
    const said = shown.map((s, i) => `${s.name} ${text(s.y[near[i]])}`);
    const place = shown[0].x[near[0]];
    cursor.setAttribute("x1", x(place));
    cursor.setAttribute("x2", x(place));
    cursor.setAttribute("visibility", "visible");
    readout.textContent = `${place}: ${said.join(", ")}`;
  });
  image.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    readout.textContent = unit;
  });
  const newest = shown.map((s) => {
    const at = s.y.findLastIndex((value) => value !== null && value !== undefined);
    return el("tr", {}, el("th", { scope: "row" }, s.name), cell(number(s.x[at])), cell(text(s.y[at])));
  });
  table.append(numbersTable(["", "Update", "Newest"], newest));
}

// bars: [{label, parts: [{name, value}]}]; parts of one name share an ink.
export function bars(figure, { title, bars: all, unit = "", text = number }) {
  const names = [...new Set(all.flatMap((bar) => bar.parts.map((part) => part.name)))];
  const series = names.map((name) => ({ name }));
  const { image, readout, table, width } = frame(figure, title, series, all.length ? unit : "nothing measured yet");
  if (!all.length) return;
  const high = Math.max(...all.map((bar) => bar.parts.reduce((sum, part) => sum + part.value, 0))) || 1;
  const step = (width - LEFT - RIGHT) / all.length;
  const x = (at) => LEFT + step * (at + 0.5);
  const y = (at) => TOP + (1 - at / high) * (HEIGHT - TOP - BOTTOM);
  const every = Math.ceil(all.length / (width / 50));
  const marks = all.map((_, i) => i).filter((i) => i % every === 0);
  axes(image, width, x, y, marks, ticks(0, high, 4), (i) => all[i].label, text);
  all.forEach((bar, i) => {
    let base = 0;
    for (const part of bar.parts) {
      const wide = Math.min(60, step * 0.7);
      const said = `${bar.label}: ${part.name} ${text(part.value)}`;
      const shape = svg("rect", {
        class: `bar i${names.indexOf(part.name) % INKS}`, x: x(i) - wide / 2, width: wide,
        y: y(base + part.value), height: Math.max(0, y(base) - y(base + part.value)),
        on: { pointerenter: () => { readout.textContent = said; } },
      }, svg("title", {}, said));
      image.append(shape);
      base += part.value;
    }
  });
  const rows = all.flatMap((bar) => bar.parts.map((part) =>
    el("tr", {}, el("th", { scope: "row" }, bar.label), cell(part.name), cell(text(part.value)))));
  table.append(numbersTable(["", "", "Value"], rows));
}

function cell(text) {
  return el("td", { class: "number" }, text);
}

function numbersTable(heads, rows) {
  const head = el("tr", {}, ...heads.map((text) => el("th", { scope: "col" }, text)));
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)));
}

function nearest(xs, at) {
  let best = 0;
  for (let i = 1; i < xs.length; i += 1) if (Math.abs(xs[i] - at) < Math.abs(xs[best] - at)) best = i;
  return best;
}
