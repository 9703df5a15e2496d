// A line or several to type in. What is typed lives here; Python hears of it after a pause, and when it is done.
const { h } = Vue;
import { SHARED, bound, labelled } from "/board/files/labelled.js";

const PASSED = ["placeholder", "min", "max", "step", "rows", "required", "autocomplete", "maxlength", "name", "spellcheck"];

export default {
  props: {
    ...SHARED,
    value: { type: String, default: "" },
    kind: { type: String, default: "text" },
    pause_ms: { type: Number, default: 250 },
    options: { type: Array, default: () => [] },
    attributes: { type: Object, default: () => ({}) },
  },
  emits: ["input", "change", "enter"],
  data() {
    return { typed: this.value };
  },
  watch: {
    turn() {
      this.forget();
      this.typed = this.value;
    },
  },
  beforeUnmount() {
    this.forget();
  },
  methods: {
    forget() {
      clearTimeout(this.timer);
      this.timer = null;
    },
    typing(event) {
      this.typed = event.target.value;
      this.forget();
      this.timer = setTimeout(() => {
        this.timer = null;
        this.$emit("input", this.typed);
      }, this.pause_ms);
    },
    done(event) {
      this.typed = event.target.value;
      this.forget();
      this.$emit("change", this.typed);
    },
    pressed(event) {
      const sent = event.key === "Enter" && !event.isComposing && (this.kind !== "multiline" || event.ctrlKey || event.metaKey);
      if (!sent) return;
      this.forget();
      this.$emit("enter", event.target.value);
    },
  },
  render() {
    const listed = this.options.length > 0;
    const set = bound(this);
    const passed = Object.fromEntries(Object.entries(this.attributes).filter(([name]) => PASSED.includes(name)));
    const shared = { ...passed, ...set, value: this.typed, onInput: this.typing, onChange: this.done, onKeydown: this.pressed };
    const control =
      this.kind === "multiline"
        ? h("textarea", shared)
        : h("input", { type: this.kind, ...shared, list: listed ? `${set.id}-list` : undefined });
    const list = listed
      ? h("datalist", { id: `${set.id}-list` }, this.options.map((value) => h("option", { value })))
      : null;
    return labelled(this, list ? h("span", { class: "pair" }, [control, list]) : control, this.kind);
  },
};
