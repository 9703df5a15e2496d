// One question to a council, as it is answered or as it was: follows its events and draws them.
//
// However many pieces of text come, the page is drawn once a frame. A screen reader hears who is done, no more.
import { answer, agreement, citedOf, listed, passages, review } from "/board/files/council_outcome.js";
import { AnswerText } from "/board/files/answer_text.js";
import { cards, figures, stages } from "/board/files/council_cards.js";
import { begin, fold, isLive } from "/board/files/council_course.js";

const { h } = Vue;

const EVENTS = ["stage", "step", "text", "again", "retrieval", "answer", "review", "agreement", "synthesis", "missed", "done", "failed", "cancelled"];
const ENDINGS = ["done", "failed", "cancelled"];
const TICK_MS = 500;
const AGAIN_MS = 2000;

export default {
  props: {
    council: String,
    question: String,
    query: String,
    mode: String,
    members: Array, // as configured, those that were asked
    steps: { type: Object, default: () => ({}) }, // step -> its task, and what that waits for
    address: String, // of this question: shown by the browser, and reached by its Back
    mayCancel: Boolean,
    mayAsk: Boolean,
    cancelling: Boolean,
    fresh: Boolean, // just asked here: it comes into sight, with the focus on it
  },
  emits: ["cancel", "follow", "over", "begun"],
  data: () => ({ drawn: 0, trouble: "", announced: "" }),
  created() {
    this.course = begin(this.members);
    this.life = null;
    this.frame = 0;
  },
  mounted() {
    const here = window.location.pathname + window.location.search;
    if (this.address && this.address !== here) window.history.pushState(null, "", this.address);
    this.onPopState = () => window.location.reload();
    window.addEventListener("popstate", this.onPopState);
    this.ticker = setInterval(() => isLive(this.course) && this.draw(), TICK_MS);
    this.follow();
    if (this.fresh) {
      this.$el.querySelector(".query").focus({ preventScroll: true });
      this.$el.scrollIntoView({ block: "start" });
    }
  },
  beforeUnmount() {
    window.removeEventListener("popstate", this.onPopState);
    clearInterval(this.ticker);
    clearTimeout(this.retry);
    cancelAnimationFrame(this.frame);
    this.source?.close();
  },
  methods: {
    follow() {
      const path = `/api/councils/${encodeURIComponent(this.council)}/questions/${encodeURIComponent(this.question)}/events`;
      this.source = new EventSource(path);
      this.source.onopen = () => { this.trouble = ""; };
      this.source.onerror = () => this.broken();
      for (const name of EVENTS) this.source.addEventListener(name, (message) => this.hear(name, message));
    },
    hear(name, message) {
      const life = message.lastEventId.slice(0, message.lastEventId.lastIndexOf("-"));
      if (this.life !== null && life !== this.life && life !== "record") this.course = begin(this.members);
      this.life = life;
      fold(this.course, { ...JSON.parse(message.data), event: name });
      if (ENDINGS.includes(name)) {
        this.source.close();
        this.$emit("over", name);
      }
      this.draw();
    },
    broken() {
      if (!isLive(this.course)) return;
      this.trouble = "The connection is lost; trying again.";
      if (this.source.readyState !== EventSource.CLOSED) return;
      this.retry = setTimeout(() => {
        this.course = begin(this.members); // all of it is told from the beginning
        this.life = null;
        this.follow();
      }, AGAIN_MS);
    },
    draw() {
      if (this.frame) return;
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        if (this.course.told.length) this.announced = this.course.told.splice(0).join(" ");
        this.drawn += 1;
      });
    },
    head() {
      const { over } = this.course;
      const word = over === null ? "being answered" : { done: "answered", failed: "failed", cancelled: "cancelled" }[over.event];
      const buttons = over === null
        ? [this.mayCancel ? h("button", { type: "button", class: "button danger", disabled: this.cancelling, onClick: () => this.$emit("cancel") }, this.cancelling ? "Cancelling …" : "Cancel") : null]
        : [
          this.mayAsk ? h("button", { type: "button", class: "button", onClick: () => this.$emit("follow") }, "Ask a follow-up") : null,
          ...this.reports(),
        ];
      return h("header", { class: "question-head" }, [
        h("div", { class: "question-line" }, [
          h("p", { class: ["told", "question-state", over?.event ?? "live"] }, [`${this.council} · ${this.mode} · `, h("strong", word)]),
          h("a", { href: `/board/tasks/${encodeURIComponent(this.question)}`, class: "where" }, "task of the question"),
          h("div", { class: "question-buttons" }, buttons),
        ]),
        h(AnswerText, { class: "query", text: this.query, role: "heading", "aria-level": "2", tabindex: "-1" }),
      ]);
    },
    reports() {
      if (!this.course.record?.success_count) return [];
      const base = `/board/data/council/${encodeURIComponent(this.council)}/${encodeURIComponent(this.question)}/report`;
      return [["md", "Markdown"], ["html", "HTML"]].map(([ending, name]) => h("a", { href: `${base}.${ending}`, download: `council-${this.question}.${ending}` }, `Report (${name})`));
    },
    notes() {
      const { course } = this;
      const told = [...(course.record?.limits ?? [])];
      if (course.record?.unfinished) told.unshift(`Unfinished: ${course.record.unfinished}`);
      if (course.missed) told.push(`${course.missed} events were forgotten before this page heard them; the record at the end is whole.`);
      return listed("Limits", told);
    },
  },
  render() {
    void this.drawn; // what is drawn lies beside Vue's own state
    const { course } = this;
    const cited = citedOf(course);
    const failed = course.over?.event === "failed" ? h("p", { class: "told warning" }, course.over.error) : null;
    return h("article", { class: "question", "aria-label": "Question" }, [
      this.head(),
      stages(course, this.mode),
      this.trouble ? h("p", { class: "told warning" }, this.trouble) : null,
      failed,
      answer(course, cited, this.steps),
      cards(course, this.steps, cited),
      review(course),
      agreement(course),
      passages(course),
      this.notes(),
      figures(course),
      h("p", { class: "unseen", role: "status", "aria-live": "polite" }, this.announced),
    ]);
  },
};
