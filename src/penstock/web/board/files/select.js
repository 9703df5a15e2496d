// One of several, as the browser offers it.
const { h } = Vue;
import { SHARED, bound, labelled } from "/board/files/labelled.js";

export default {
  props: { ...SHARED, value: String, options: Array }, // of [value, words]
  emits: ["change"],
  data() {
    return { chosen: this.value };
  },
  watch: {
    turn() {
      this.chosen = this.value;
    },
  },
  methods: {
    choose(event) {
      this.chosen = event.target.value;
      this.$emit("change", this.chosen);
    },
  },
  render() {
    const options = this.options.map(([value, words]) =>
      h("option", { value, selected: value === this.chosen, key: value }, words),
    );
    return labelled(this, h("select", { ...bound(this), value: this.chosen, onChange: this.choose }, options), "select");
  },
};
