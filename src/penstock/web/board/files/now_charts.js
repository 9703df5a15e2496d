// The queue by priority, what it waits for, and the last hour: small pictures, each with its figures as text.
const { h } = Vue;
import { now_s, shortMoment, spoken } from "/board/files/clock.js";
import { swatch, waitColour, whole } from "/board/files/now_words.js";
import { URGENCY } from "/board/words.js";

// Colours of Okabe and Ito, which everybody can tell apart; what did not go well is hatched or dotted besides.
const STATES = [
  ["done", "var(--ended-done)"],
  ["failed", "var(--ended-failed)", "hatched"],
  ["blocked", "var(--ended-blocked)", "dotted"],
  ["cancelled", "var(--line-strong)"],
];

// A list of names, bars and figures.
function bars(label, rows) {
  const most = Math.max(1, ...rows.map((row) => row.value));
  return h("ul", { class: "bars", "aria-label": label }, rows.map((row) =>
    h("li", { key: row.key }, [
      h("span", { class: "bar-name" }, row.name),
      h("span", { class: "bar-track", "aria-hidden": "true" },
        h("i", { style: { width: `${(row.value / most) * 100}%`, background: row.colour } })),
      h("span", { class: "bar-value num" }, row.told),
    ]),
  ));
}

export function byPriority(priorities) {
  const rows = URGENCY.map((word, priority) => {
    const value = priorities[priority] ?? 0;
    const href = `/board/queue?state=queued&priority=${priority}`;
    return { key: priority, value, told: whole(value), colour: "var(--accent)",
      name: h("a", { href }, [String(priority), h("span", { class: "soft" }, ` ${word}`)]) };
  });
  return bars("Queued tasks by priority", rows);
}

export function byReason(reasons) {
  const all = Object.entries(reasons).sort(([, a], [, b]) => b - a);
  if (!all.length) return h("p", { class: "soft" }, "Nothing waits.");
  const rows = all.map(([reason, value]) => ({ key: reason, value, told: whole(value), colour: waitColour(reason), name: [swatch(reason), reason] }));
  return bars("Queued tasks by what they wait for", rows);
}

export function waitsOfHour(waits, hour) {
  if (!hour.is_known) return h("p", { class: "soft" }, "Being worked out…");
  const all = Object.entries(waits).filter(([, seconds]) => seconds >= 1).sort(([, a], [, b]) => b - a);
  if (!all.length) return h("p", { class: "soft" }, "No task waited in the last hour.");
  const rows = all.slice(0, 8).map(([reason, value]) => ({ key: reason, value, told: spoken(value), colour: waitColour(reason), name: [swatch(reason), reason] }));
  const note = hour.cut_short ? `Of the newest ${whole(hour.tasks)} tasks, all their waiting added up.` : "The waiting of all tasks added up.";
  return [bars("Waiting in the last hour by reason", rows), h("p", { class: "soft small" }, note)];
}

const WIDTH = 600;
const HEIGHT = 90;
const BAR = WIDTH / 60;

const inWords = (counts) => STATES.filter(([state]) => counts[state]).map(([state]) => `${whole(counts[state])} ${state}`).join(", ");

const patterns = () => h("defs", STATES.filter(([, , look]) => look).map(([state, fill, look]) =>
  h("pattern", { id: `ended-${state}`, width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: look === "hatched" ? "rotate(45)" : undefined }, [
    h("rect", { width: 4, height: 4, style: { fill } }),
    h("rect", { width: look === "hatched" ? 4 : 2, height: 1.5, style: { fill: "var(--panel)" } }),
  ])));

function column(place, counts, most, minute) {
  let top = HEIGHT;
  const parts = STATES.filter(([state]) => counts[state]).map(([state, colour, look]) => {
    const height = Math.max(2, (counts[state] / most) * (HEIGHT - 6));
    top -= height;
    return h("rect", { key: state, class: "ended", x: place * BAR + 1, y: top, width: BAR - 2, height: height - 0.75, style: { fill: look ? `url(#ended-${state})` : colour } });
  });
  if (!parts.length) return null;
  const when = new Date(minute * 60_000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const wholeHeight = h("rect", { key: "all", x: place * BAR, y: 0, width: BAR, height: HEIGHT, fill: "transparent" });
  return h("g", { key: minute }, [h("title", `${when}: ${inWords(counts)}`), wholeHeight, ...parts]);
}

// Ended tasks in each of the last sixty minutes; the last one is not over.
export function throughput(ended, hour) {
  const last = Math.floor(now_s.value / 60);
  const minutes = Array.from({ length: 60 }, (_, place) => ended[last - 59 + place] ?? {});
  const sums = minutes.map((counts) => Object.values(counts).reduce((sum, n) => sum + n, 0));
  const most = Math.max(1, ...sums);
  const totals = STATES.map(([state, colour, look]) => [state, minutes.reduce((sum, counts) => sum + (counts[state] ?? 0), 0), colour, look]);
  const told = totals.filter(([state, n]) => n || state === "done").map(([state, n]) => `${whole(n)} ${state}`).join(", ");
  const label = `Tasks ended per minute: ${told}; ${whole(sums[58])} in the last whole minute, ${whole(most)} at most.`;
  const short = hour.ended_since > now_s.value - 3500 ? `Since ${shortMoment(hour.ended_since)}: ` : "";
  return [
    h("svg", { class: "throughput", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, [
      h("line", { class: "ground", x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5 }),
      patterns(),
      ...minutes.map((counts, place) => column(place, counts, most, last - 59 + place)),
    ]),
    h("p", { class: "axis soft", "aria-hidden": "true" }, [h("span", "an hour ago"), h("span", `most: ${whole(most)} a minute`), h("span", "now")]),
    h("ul", { class: "legend" }, [
      short ? h("li", { class: "soft" }, short) : null,
      ...totals.filter(([state, n]) => n || state === "done").map(([state, n, colour, look]) =>
        h("li", { key: state }, [h("i", { class: ["swatch", look], "aria-hidden": "true", style: { backgroundColor: colour } }), ` ${whole(n)} ${state}`])),
      h("li", { class: "soft" }, `${whole(sums[58])} in the last whole minute`),
    ]),
  ];
}
