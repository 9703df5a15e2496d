// Shows the keys to those who do not know the key for it.
const { h } = Vue;

export default {
  methods: {
    show() {
      document.dispatchEvent(new KeyboardEvent("keydown", { key: "?" }));
    },
  },
  render() {
    return h(
      "button",
      { type: "button", class: "sign", title: "Keys (?)", "aria-label": "Keys", onClick: this.show },
      [h("span", { "aria-hidden": "true" }, "?")],
    );
  },
};
