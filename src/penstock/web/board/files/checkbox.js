// Yes or no.
const { h } = Vue;
import { SHARED, bound, labelled } from "/board/files/labelled.js";

export default {
  props: { ...SHARED, value: Boolean },
  emits: ["change"],
  data() {
    return { ticked: this.value };
  },
  watch: {
    turn() {
      this.ticked = this.value;
    },
  },
  methods: {
    tick(event) {
      this.ticked = event.target.checked;
      this.$emit("change", this.ticked);
    },
  },
  render() {
    const control = h("input", { type: "checkbox", ...bound(this), checked: this.ticked, onChange: this.tick });
    return labelled(this, control, "checkbox");
  },
};
