// A timeline on the board: the same scripts that draw the page of `penstock timeline --html`, fed by the board's own data.
// It follows what happens: bars that have not ended grow each second here, and what was recorded is fetched, the less
// often the more it costs to make.
import { Picture } from "/board/timeline_scripts.js";
const { h } = Vue;

const LEAST_MS = 1000, MOST_MS = 60000, AGAIN_MS = 3000, SHARE = 5; // of the time, one part in so many goes into making it
const taskPath = (id) => `/board/tasks/${encodeURIComponent(id)}`;

export default {
  props: { query: String, label: String, marks: Array },
  data: () => ({ message: "Drawing…", failed: false }),
  created() {
    this.picture = null;
    this.event = null; // up to here the picture tells
    this.clock = null; // the server's time when it came, and ours
    this.ended = new AbortController();
  },
  mounted() {
    const { signal } = this.ended;
    this.watching = new MutationObserver(() => this.picture?.dress());
    this.watching.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    this.ticking = setInterval(() => this.grow(), 1000);
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.look(); }, { signal });
    this.look();
  },
  unmounted() {
    this.ended.abort();
    clearInterval(this.ticking);
    clearTimeout(this.next);
    this.watching.disconnect();
    this.picture?.remove();
  },
  watch: {
    query() {
      this.picture?.remove();
      this.picture = null;
      this.event = null;
      this.look();
    },
    marks() {
      this.picture?.mark(this.marks ?? []);
    },
  },
  methods: {
    now() {
      return this.clock.server + (performance.now() - this.clock.here) / 1000;
    },
    grow() {
      if (this.picture && this.follows && !document.hidden) this.picture.grow(this.now());
    },
    // Fetches what has become of it, and when to look again.
    async look() {
      clearTimeout(this.next);
      if (document.hidden && this.picture) return; // again when somebody looks
      const turn = (this.turn = (this.turn ?? 0) + 1), query = this.query;
      let wait = LEAST_MS;
      try {
        wait = await this.fetched(query, () => turn === this.turn);
      } catch (error) {
        if (error.name === "AbortError" || turn !== this.turn) return;
        this.tell("The server does not answer; what is shown may be old. Trying again…", true);
        wait = AGAIN_MS;
      }
      if (turn === this.turn && wait !== null) this.next = setTimeout(() => this.look(), wait);
    },
    async fetched(query, isWanted) {
      const after = this.event === null ? "" : `&after=${this.event}`;
      const reply = await fetch(`/board/data/timeline?${query}${after}`, { signal: this.ended.signal, headers: { accept: "application/json" } });
      if (reply.status === 204) {
        this.tell("", false);
        return LEAST_MS;
      }
      const told = await reply.json();
      if (!isWanted()) return null;
      if (!reply.ok) {
        this.tell(told.error?.message ?? `The server answered ${reply.status}.`, true);
        return reply.status >= 500 || reply.status === 429 ? AGAIN_MS : null;
      }
      const began = performance.now();
      this.show(told);
      const drawing = performance.now() - began, made = told.built_s * 1000;
      return this.follows ? Math.min(MOST_MS, Math.max(LEAST_MS, (made + drawing) * SHARE)) : null;
    },
    show(told) {
      this.clock = { server: told.now, here: performance.now() };
      this.event = told.event;
      this.follows = told.follows;
      if (this.picture) this.picture.update(told.data);
      else {
        this.picture = new Picture(this.$refs.picture, told.data, {
          prefix: "timeline-", label: this.label, linkTo: taskPath, open: (id) => window.location.assign(taskPath(id)), quiet: true,
        });
        this.picture.mark(this.marks ?? []);
      }
      this.$refs.picture.dataset.event = told.event;
      this.tell(told.data.tasks.id.length ? "" : "Nothing ran or waited in this time.", false);
    },
    tell(message, failed) {
      this.message = message;
      this.failed = failed;
    },
  },
  render() {
    const message = h("p", { class: ["picture-message", { bad: this.failed }], role: "status", hidden: !this.message }, this.message);
    return h("div", { class: "picture" }, [message, h("div", { ref: "picture", key: "picture" })]);
  },
};
