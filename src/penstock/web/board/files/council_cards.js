// The cards of a council's members, side by side: who it is, what it does, and what it says as it says it.
import { AnswerText } from "/board/files/answer_text.js";
import { seconds, signOf, stateOf } from "/board/files/council_course.js";

const { h } = Vue;

// What a member says; it stays at the end while text comes, unless the reader has scrolled up.
const Said = {
  props: { name: String, text: String, cited: Object, grows: Boolean },
  data: () => ({ atEnd: true }),
  updated() {
    if (this.grows && this.atEnd) this.$el.scrollTop = this.$el.scrollHeight;
  },
  render() {
    const onScroll = () => {
      this.atEnd = this.$el.scrollHeight - this.$el.scrollTop - this.$el.clientHeight < 24;
    };
    const reach = { class: "said", tabindex: 0, role: "group", "aria-label": `What ${this.name} says`, onScroll };
    return h("div", reach, h(AnswerText, { text: this.text, cited: this.cited }));
  },
};

export function cards(course, steps, cited) {
  const made = [...course.members.values()].map((one, place) => memberCard(course, one, steps[`member/${one.name}`], cited, place));
  return h("section", { class: "members", "aria-label": "Members" }, [
    h("h2", ["Members ", h("span", { class: "count" }, tally(course))]),
    h("div", { class: "cards" }, made),
  ]);
}

function tally(course) {
  const all = [...course.members.values()];
  const count = all.filter((one) => one.response?.success).length;
  return `${count} of ${all.length} answered`;
}

function memberCard(course, one, step, cited, place) {
  const id = `member-${place}`;
  const grows = one.state === "started";
  const words = stateOf(course, one, step?.why);
  return h("section", { class: ["card", one.state], "aria-labelledby": id, key: one.name }, [
    h("header", [
      h("h3", { id }, [one.emoji ? h("span", { "aria-hidden": "true", class: "emoji" }, one.emoji) : null, one.name]),
      one.role ? h("p", { class: "role" }, one.role) : null,
      h("p", { class: "where" }, placeOf(one, step)),
      h("p", { class: "state" }, [h("span", { class: "state-sign", "aria-hidden": "true" }, signOf(one)), ` ${words}`]),
    ]),
    one.text ? h(Said, { name: one.name, text: one.text, cited, grows }) : null,
    notes(one),
  ]);
}

function placeOf(one, step) {
  const told = [one.model, one.host ? `on ${one.host}` : ""].filter(Boolean).join(" ");
  const task = step?.task ? h("a", { href: `/board/tasks/${encodeURIComponent(step.task)}` }, "task") : null;
  return [told, told && task ? " · " : "", task];
}

function notes(one) {
  const response = one.response;
  if (!response?.success) return null;
  const told = [
    response.tokens === null || response.tokens === undefined ? "" : `${Math.round(response.tokens).toLocaleString()} tokens`,
    money(response.cost),
    typeof response.confidence === "number" ? `${response.confidence} % sure, by its own word` : "",
    (response.attempts ?? 1) > 1 ? `${response.attempts} attempts` : "",
    ...(response.cut ?? []),
  ].filter(Boolean);
  return told.length ? h("p", { class: "notes" }, told.join(" · ")) : null;
}

export function money(value) {
  if (value === null || value === undefined) return "";
  return value < 1 ? `$${value.toFixed(4)}` : `$${value.toFixed(2)}`;
}

// ---- how far the question has come

const STAGES = [
  ["retrieve", "Documents"],
  ["members", "Answers"],
  ["review", "Review"],
  ["agreement", "Agreement"],
  ["synthesis", "Summing up"],
];

export function stages(course, mode) {
  const ended = (name) => isEnded(course, name);
  const shown = STAGES.filter(([name]) => course.stages.has(name) || ended(name) || expected(name, mode, course));
  return h("ol", { class: "stages", "aria-label": "Stages" }, shown.map(([name, title]) => {
    const state = ended(name) ? "ended" : course.over ? "skipped" : course.stages.get(name) ?? "waiting";
    const word = { ended: "done", started: "under way", queued: "queued", waiting: "to come", skipped: "left out" }[state];
    return h("li", { class: state }, [title, h("span", ` ${word}`)]);
  }));
}

function isEnded(course, name) {
  if (name === "members") return course.over !== null || [...course.members.values()].every((one) => one.response);
  if (name === "retrieve") return Boolean(course.retrieval?.used);
  if (name === "review") return Boolean(course.review) || (course.ballots.size > 0 && [...course.reviewers.values()].every((state) => state === "ended"));
  return name === "agreement" ? Boolean(course.agreement?.measured) : Boolean(course.synthesis);
}

function expected(name, mode, course) {
  if (course.over) return false;
  return name === "members" || name === "synthesis" || (name === "review" && mode === "thorough");
}

export function figures(course) {
  const record = course.record;
  if (!record) return null;
  const told = [
    `${record.success_count ?? 0} of ${record.total_fighters ?? 0} answered`,
    record.quorum && !record.quorum.met ? `quorum of ${record.quorum.needed} not met` : "",
    seconds(record.total_time),
    typeof record.tokens === "number" ? `${Math.round(record.tokens).toLocaleString()} tokens` : "",
    money(record.cost),
  ].filter(Boolean);
  return h("p", { class: "sums" }, told.join(" · "));
}
