// A native modal dialog: the browser keeps the focus in it, and gives it back.
const { h } = Vue;

export default {
  props: { title: String, open: Boolean, wide: Boolean },
  emits: ["close"],
  mounted() {
    this.obey();
  },
  watch: {
    open() {
      this.obey();
    },
  },
  methods: {
    obey() {
      const dialog = this.$el;
      if (this.open && !dialog.open) dialog.showModal();
      else if (!this.open && dialog.open) dialog.close();
    },
  },
  render() {
    const titled = `${this.$attrs.id ?? "dialog"}-title`;
    return h(
      "dialog",
      { class: ["dialog", { wide: this.wide }], "aria-labelledby": titled, onClose: () => this.$emit("close") },
      [h("h2", { id: titled }, this.title), this.$slots.default?.()],
    );
  },
};
