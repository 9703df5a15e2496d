// A number by sliding: shown as it moves, told to Python after a short pause while it moves and when it stops.
const { h } = Vue;
import { SHARED, bound, labelled } from "/board/files/labelled.js";

export default {
  props: {
    ...SHARED,
    value: Number,
    least: Number,
    most: Number,
    step: { type: Number, default: 1 },
    unit: { type: String, default: "" },
    was: { type: Number, default: null }, // marked, to see how far one has gone
    pause_ms: { type: Number, default: 120 },
  },
  emits: ["input", "change"],
  data() {
    return { at: this.value };
  },
  watch: {
    turn() {
      this.forget();
      this.at = this.value;
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
    moved(event) {
      this.at = Number(event.target.value);
      this.timer ??= setTimeout(() => {
        this.timer = null;
        this.$emit("input", this.at);
      }, this.pause_ms);
    },
    done(event) {
      this.forget();
      this.at = Number(event.target.value);
      this.$emit("change", this.at);
    },
  },
  render() {
    const set = bound(this);
    const unit = this.unit ? ` ${this.unit}` : "";
    const told = `${this.at}${unit}`;
    const changed = this.was !== null && this.was !== this.at;
    const control = h("div", { class: "pair" }, [
      h("input", {
        type: "range",
        ...set,
        min: this.least,
        max: this.most,
        step: this.step,
        value: this.at,
        "aria-valuetext": told,
        onInput: this.moved,
        onChange: this.done,
      }),
      h("output", { for: set.id, class: { changed } }, changed ? [told, h("small", ` was ${this.was}`)] : told),
    ]);
    return labelled(this, control, "slider");
  },
};
