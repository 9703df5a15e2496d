// The curve of one knob: its value against the makespan, the knee marked; hover or focus tells a point, a table all of them.
// Where no value lets the run end, the mean wait is drawn.
const { h } = Vue;
import { seconds } from "/board/files/spans_of_time.js";

const HEIGHT = 260, LEFT = 64, RIGHT = 24, TOP = 22, BOTTOM = 40;
const MOST = 16, NEAR_EDGE = 40;
const MAKESPAN = { key: "makespan_s", words: "Makespan" }, WAIT = { key: "waited_s", words: "Mean wait" };

// The values that a curve is drawn of, those near where the knob stands first.
export function stops(knob, at) {
  const { least, most } = knob;
  const every = most - least + 1;
  const wanted = new Set();
  for (let n = 0; n < Math.min(every, MOST); n++) {
    const share = every <= MOST ? n / Math.max(1, every - 1) : (n / (MOST - 1)) ** 1.6; // denser where it matters
    wanted.add(Math.round(least + share * (most - least)));
  }
  const near = at ?? most;
  for (const one of [at, knob.was]) if (one !== null && one <= most) wanted.add(one);
  return [...wanted].sort((a, b) => Math.abs(a - near) - Math.abs(b - near));
}

export function curve(page) {
  const knob = page.knob;
  if (!knob) return h("section", { class: "part" }, [h("p", { class: "soft" }, "Move a slider: what its other values would bring is drawn here.")]);
  const points = Object.values(page.points[page.curveName] || {}).sort((a, b) => a.value - b.value);
  const { knee = null, notes = [] } = page.known[page.curveName] || {};
  const measure = !points.length || points.some((point) => point.makespan_s !== null) ? MAKESPAN : WAIT;
  const title = `${measure.words} by ${knob.label} of ${knob.group}`;
  const coming = page.drawing ? `${points.length} of ${page.drawing.wanted.length} values played…` : "";
  return h("section", { class: "part curve stack", "aria-label": title }, [
    h("div", { class: "part-head" }, [h("h2", title), h("p", { class: "soft", role: "status" }, coming || reading(page, points, knee))]),
    page.curveError ? h("p", { class: "problem", role: "alert" }, page.curveError) : null,
    measure === WAIT && !coming ? h("p", { class: "soft" }, "With none of these values the run would end, so the mean wait is drawn.") : null,
    points.length ? chart(page, knob, points, knee, title, measure.key) : null,
    notes.length ? h("ul", { class: "notes" }, notes.map((words) => h("li", words))) : null,
    asTable(knob, points, knee),
  ]);
}

function reading(page, points, knee) {
  const shown = points.find((point) => Number(point.value) === page.hovered);
  if (shown) return `${shown.value}: ${shown.makespan}, mean wait ${shown.waited}${shown.is_guess ? ", a guess" : ""}`;
  return knee === null ? "" : `the knee is at ${knee}`;
}

function chart(page, knob, points, knee, title, key) {
  const width = page.width;
  const known = points.filter((point) => point[key] !== null);
  const highest = Math.max(...known.map((point) => point[key]), 0), top = (highest || 1) * 1.08;
  const values = points.map((point) => Number(point.value));
  const low = Math.min(knob.least, ...values), high = Math.max(knob.most, ...values);
  const x = (value) => LEFT + ((value - low) / Math.max(1, high - low)) * (width - LEFT - RIGHT);
  const y = (amount) => HEIGHT - BOTTOM - (amount / top) * (HEIGHT - TOP - BOTTOM);
  const at = page.values[knob.key];
  return h("svg", { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `${title}${knee === null ? "" : `; the knee is at ${knee}`}. The table below has the figures.`,
    onMousemove: (event) => (page.hovered = nearest(event, values, x, width)), onMouseleave: () => (page.hovered = null) }, [
    ...levels(highest).map((amount) => levelLine(width, y(amount), amount ? seconds(amount) : "0")),
    ...ticks(low, high, Math.min(16, width / 40)).map((value) => h("text", { x: x(value), y: HEIGHT - BOTTOM + 18, class: "tick", "text-anchor": "middle" }, value)),
    h("text", { x: LEFT + (width - LEFT - RIGHT) / 2, y: HEIGHT - 4, class: "tick", "text-anchor": "middle" }, knob.label),
    at !== null && at <= high ? h("line", { x1: x(at), x2: x(at), y1: TOP, y2: HEIGHT - BOTTOM, class: "at" }) : null,
    at !== null && at <= high ? h("text", { x: x(at), y: TOP - 8, class: "tick strong", "text-anchor": anchor(x(at), width) }, `set to ${at}`) : null,
    h("polyline", { class: "line", points: known.map((point) => `${x(point.value)},${y(point[key])}`).join(" ") }),
    ...known.map((point) => dot(point, x(point.value), y(point[key]), knob, page.hovered)),
    knee === null ? null : kneeMark(known.find((point) => Number(point.value) === knee), x, y, width),
  ]);
}

// Round amounts, some four of them.
function levels(highest) {
  if (!highest) return [0];
  const rough = highest / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((times) => times * power >= rough) * power;
  return Array.from({ length: Math.floor((highest * 1.08) / step) + 1 }, (_, place) => place * step);
}

function levelLine(width, at, words) {
  return h("g", [h("line", { x1: LEFT, x2: width - RIGHT, y1: at, y2: at, class: "level" }), h("text", { x: LEFT - 8, y: at + 4, class: "tick", "text-anchor": "end" }, words)]);
}

// Words at the edge stay inside.
function anchor(x, width) {
  return x > width - NEAR_EDGE ? "end" : x < NEAR_EDGE ? "start" : "middle";
}

function dot(point, x, y, knob, hovered) {
  const value = Number(point.value);
  return h("circle", { class: ["dot", { guess: point.is_guess, was: value === knob.was, hovered: value === hovered }], cx: x, cy: y, r: value === hovered ? 6 : 4, "data-value": value }, [
    h("title", `${value}: ${point.makespan}, mean wait ${point.waited}${point.is_guess ? " (a guess)" : ""}`),
  ]);
}

function kneeMark(point, x, y, width) {
  if (!point) return null;
  const left = x(point.value), top = y(point.makespan_s) + 10;
  return h("g", { class: "knee" }, [
    h("path", { d: `M${left},${top} l6,10 h-12 z` }),
    h("text", { x: left, y: top + 23, "text-anchor": anchor(left, width) }, "the knee"),
  ]);
}

function ticks(low, high, most) {
  const step = Math.max(1, Math.ceil((high - low) / most));
  const found = [];
  for (let value = low; value <= high; value += step) found.push(value);
  return found;
}

function nearest(event, values, x, width) {
  const box = event.currentTarget.getBoundingClientRect();
  const at = ((event.clientX - box.left) / box.width) * width;
  return values.reduce((best, value) => (Math.abs(x(value) - at) < Math.abs(x(best) - at) ? value : best), values[0]);
}

function asTable(knob, points, knee) {
  const cost = points.some((point) => point.cost_usd);
  const notDone = ["failed", "cancelled", "blocked", "left"].filter((name) => points.some((point) => point[name]));
  return h("details", [
    h("summary", "As a table"),
    h("div", { class: "table tall", tabindex: "0", role: "region", "aria-label": "The curve as a table" }, [
      h("table", [
        h("caption", { class: "unseen" }, `Makespan by ${knob.label} of ${knob.group}`),
        h("thead", [h("tr", [knob.label, "makespan", "mean wait", ...(cost ? ["cost"] : []), ...notDone, ""].map((name) => h("th", { scope: "col", class: name ? "num" : undefined }, name)))]),
        h("tbody", points.map((point) => h("tr", { key: point.value }, [
          h("th", { scope: "row", class: "num" }, point.value),
          h("td", { class: "num" }, point.makespan),
          h("td", { class: "num" }, point.waited),
          ...(cost ? [h("td", { class: "num" }, `$${point.cost_usd.toPrecision(4)}`)] : []),
          ...notDone.map((name) => h("td", { class: "num" }, point[name])),
          h("td", [Number(point.value) === knee ? "◀ the knee" : "", point.is_guess ? " a guess" : ""]),
        ]))),
      ]),
    ]),
  ]);
}
