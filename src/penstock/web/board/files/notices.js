// What is told to the reader as it happens: in a corner, and aloud. Errors stay until they are closed.
const { h } = Vue;
import { prose } from "/board/files/prose.js";
const SHOWN_MS = 8000;
const SIGNS = { good: "✓", info: "i", warning: "!", error: "✕" };

export default {
  props: { notices: Array }, // of { id, kind, text }
  emits: ["gone"],
  created() {
    this.timers = new Map();
  },
  mounted() {
    this.time();
  },
  updated() {
    this.time();
  },
  methods: {
    time() {
      for (const { id, kind } of this.notices) {
        if (kind === "error" || this.timers.has(id)) continue;
        this.timers.set(id, setTimeout(() => this.$emit("gone", id), SHOWN_MS));
      }
    },
    one({ id, kind, text }) {
      return h("div", { key: id, class: ["notice", kind] }, [
        h("span", { class: "mark", "aria-hidden": "true" }, SIGNS[kind]),
        h("p", [kind === "error" ? h("span", { class: "unseen" }, "Error: ") : null, ...prose(text)]),
        h("button", { type: "button", class: "sign", "aria-label": "Close this notice", onClick: () => this.$emit("gone", id) }, "×"),
      ]);
    },
  },
  render() {
    return h("div", { class: "notices", role: "status", "aria-live": "polite" }, this.notices.map(this.one));
  },
};
