// Several panels in one place. Tab reaches each, and the arrows go along as they do elsewhere.
const { h } = Vue;

export default {
  props: { label: String, names: Array, chosen: { type: Number, default: 0 }, turn: { type: Number, default: 0 } },
  emits: ["change"],
  data() {
    return { at: this.chosen };
  },
  watch: {
    turn() {
      this.at = this.chosen;
    },
  },
  methods: {
    choose(place) {
      if (place === this.at) return;
      this.at = place;
      this.$emit("change", place);
    },
    pressed(event) {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      this.choose((this.at + step + this.names.length) % this.names.length);
      this.$nextTick(() => this.$el.querySelector("[role=tab][aria-selected=true]").focus());
    },
  },
  render() {
    const id = this.$attrs.id;
    const tab = (name, place) =>
      h(
        "button",
        {
          type: "button",
          role: "tab",
          id: `${id}-tab-${place}`,
          "aria-selected": String(place === this.at),
          "aria-controls": `${id}-panel-${place}`,
          onClick: () => this.choose(place),
        },
        name,
      );
    const panel = (_, place) =>
      h(
        "div",
        { role: "tabpanel", id: `${id}-panel-${place}`, "aria-labelledby": `${id}-tab-${place}`, hidden: place !== this.at },
        this.$slots[`panel${place}`]?.(),
      );
    return h("div", { class: "tabs" }, [
      h("div", { role: "tablist", "aria-label": this.label, onKeydown: this.pressed }, this.names.map(tab)),
      ...this.names.map(panel),
    ]);
  },
};
