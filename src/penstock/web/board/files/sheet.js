// Nodes from Python as elements: { t: tag, a: attributes, c: nodes inside }, or text. Vue changes only what differs,
// so a refresh keeps what is focused, selected and scrolled to. Nothing here can run: no handlers, no markup.
const { h } = Vue;
import { exactMoment, shortMoment, spoken, ticking } from "/board/files/clock.js";

const TAGS = new Set(
  ("a b code br caption dd details div dl dt em h2 h3 i li ol p pre section small span strong summary " +
    "table tbody td th thead time tr ul").split(" "),
);
const ADDRESS = /^(?:\/board\/|#|https?:\/\/)/;

function attributes(given) {
  const kept = {};
  for (const [name, value] of Object.entries(given)) {
    const runs = name.toLowerCase().startsWith("on") || (name === "href" && !ADDRESS.test(value));
    if (!runs) kept[name] = value;
  }
  return kept;
}

function made(node) {
  if (typeof node === "string") return node;
  const { t, a, c } = node;
  if (t === "moment") {
    const iso = new Date(a.at * 1000).toISOString();
    return h("time", { datetime: iso, title: exactMoment(a.at) }, shortMoment(a.at));
  }
  if (t === "elapsed") {
    const told = (a.until ?? null) === null ? ticking(a.since, a.plus) : spoken(a.until - a.since);
    return h("time", { class: "elapsed", title: `since ${exactMoment(a.since)}` }, told);
  }
  return h(TAGS.has(t) ? t : "span", attributes(a), c.map(made));
}

export default {
  props: { nodes: Array },
  render() {
    return h("div", { class: "sheet" }, this.nodes.map(made));
  },
};
