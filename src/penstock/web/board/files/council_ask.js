// The form to ask a council with: the question, how thoroughly, whom, with or without documents, at what cost.
//
// What is typed stays in the browser until it is asked. Ctrl+Enter asks.
const { h } = Vue;

const MEANT = {
  quick: "One or two members answer; the others are asked only if these are unsure or disagree.",
  council: "Every member answers, and the chair sums up.",
  thorough: "As council, and the members rank each other's answers before the chair sums up.",
};
const PAUSE_MS = 600;

export default {
  props: {
    council: Object, // as /api/councils tells it
    conversation: { type: String, default: "" },
    following: { type: String, default: "" }, // the question that this one would follow
    estimate: { type: String, default: "" },
    problem: { type: String, default: "" },
    busy: Boolean,
    asked: { type: Number, default: 0 }, // counts up when a question was taken in
    focus: { type: Number, default: 0 }, // counts up when the field is to be gone to
  },
  emits: ["ask", "estimate", "afresh"],
  data() {
    return { query: "", mode: this.council.mode, members: this.council.members.map((one) => one.name), useRag: true };
  },
  watch: {
    asked() { this.query = ""; },
    focus() { this.$nextTick(() => this.$refs.query.focus()); },
    conversation() { this.wonder(0); },
  },
  beforeUnmount() { clearTimeout(this.pause); },
  methods: {
    body() {
      const all = this.members.length === this.council.members.length;
      return {
        query: this.query,
        mode: this.mode,
        ...(all ? {} : { members: this.council.members.map((one) => one.name).filter((name) => this.members.includes(name)) }),
        ...(this.council.retrieval ? { use_rag: this.useRag } : {}),
      };
    },
    wonder(pause) {
      clearTimeout(this.pause);
      this.pause = setTimeout(() => { if (this.ready()) this.$emit("estimate", this.body()); }, pause);
    },
    ready() { return this.query.trim() !== "" && this.members.length > 0; },
    ask() { if (this.ready() && !this.busy) this.$emit("ask", this.body()); },
    picked(name, chosen) {
      this.members = chosen ? [...this.members, name] : this.members.filter((one) => one !== name);
      this.wonder(0);
    },
    modes() {
      const rows = this.council.modes.map((one) => h("label", { class: ["choice", one.mode === this.mode ? "chosen" : ""] }, [
        h("input", { type: "radio", name: "mode", value: one.mode, checked: one.mode === this.mode, onChange: () => { this.mode = one.mode; this.wonder(0); } }),
        h("span", { class: "choice-name" }, one.mode),
        h("span", { class: "choice-meant" }, [MEANT[one.mode] ?? "", limits(one)].filter(Boolean).join(" ")),
      ]));
      return h("fieldset", { class: "modes" }, [h("legend", "Mode"), ...rows]);
    },
    choices() {
      const rows = this.council.members.map((one) => h("label", { class: "tick", title: one.role || null }, [
        h("input", { type: "checkbox", checked: this.members.includes(one.name), onChange: (event) => this.picked(one.name, event.target.checked) }),
        one.emoji ? h("span", { "aria-hidden": "true" }, `${one.emoji} `) : null,
        one.name,
      ]));
      return h("fieldset", { class: "ticks" }, [h("legend", "Members"), ...rows]);
    },
    documents() {
      const { retrieval } = this.council;
      if (!retrieval) return h("p", { class: "told" }, "This council reads no documents.");
      return h("label", { class: "tick" }, [
        h("input", { type: "checkbox", checked: this.useRag, onChange: (event) => { this.useRag = event.target.checked; this.wonder(0); } }),
        `Show members passages of ${retrieval.collection}`,
      ]);
    },
  },
  render() {
    const onKeydown = (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.ask();
    };
    const lacking = !this.query.trim() ? "Write a question first." : this.members.length ? "" : "Choose a member first.";
    return h("form", { class: "ask part", "aria-label": `Ask ${this.council.name}`, onSubmit: (event) => { event.preventDefault(); this.ask(); } }, [
      this.conversation ? h("p", { class: "told following" }, [
        "Follows ", h("q", this.following), " ",
        h("button", { type: "button", class: "button", onClick: () => this.$emit("afresh") }, "Begin a new conversation"),
      ]) : null,
      h("div", { class: "field multiline" }, [
        h("label", { for: "query" }, this.conversation ? "Follow-up question" : "Question"),
        h("textarea", { id: "query", ref: "query", rows: 3, value: this.query, "aria-describedby": "query-how", onKeydown, onInput: (event) => { this.query = event.target.value; this.wonder(PAUSE_MS); } }),
      ]),
      h("div", { class: "ask-choices" }, [this.modes(), h("div", [this.choices(), this.documents()])]),
      h("div", { class: "ask-line" }, [
        h("button", { type: "submit", class: "button main", disabled: this.busy || Boolean(lacking), title: lacking || null }, this.busy ? "Asking …" : "Ask"),
        h("span", { id: "query-how", class: "told" }, "Ctrl+Enter asks."),
        h("span", { class: "told estimate", role: "status" }, this.estimate),
      ]),
      this.problem ? h("p", { class: "told warning", role: "alert" }, this.problem) : null,
    ]);
  },
};

function limits(one) {
  const told = [
    typeof one.cost_usd === "number" ? `$${one.cost_usd}` : "",
    typeof one.time_s === "number" ? `${one.time_s} s` : "",
  ].filter(Boolean);
  return told.length ? `At most ${told.join(" and ")}.` : "";
}
