// Keys for the whole board: "g" and a letter goes to a page, "/" to the search, "?" shows them all.
const { h } = Vue;
const PATIENCE_MS = 1500;

function typing(target) {
  return target instanceof Element && target.closest("input, textarea, select, [contenteditable], dialog[open]");
}

export default {
  props: { pages: Array }, // of { key, title, href }
  created() {
    this.going = -Infinity; // when "g" was pressed
  },
  mounted() {
    document.addEventListener("keydown", this.pressed);
  },
  unmounted() {
    document.removeEventListener("keydown", this.pressed);
  },
  methods: {
    pressed(event) {
      if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || typing(event.target)) return;
      if (event.timeStamp - this.going < PATIENCE_MS) {
        this.going = -Infinity;
        const page = this.pages.find((one) => one.key === event.key);
        if (page) {
          event.preventDefault();
          window.location.assign(page.href);
        }
      } else if (event.key === "g") {
        this.going = event.timeStamp;
      } else if (event.key === "?") {
        event.preventDefault();
        this.$refs.dialog.showModal();
      } else if (event.key === "/") {
        const search = document.querySelector("input[type=search]");
        if (search) {
          event.preventDefault();
          search.focus();
          search.select();
        }
      }
    },
    line(keys, told) {
      return h("div", [h("dt", keys.map((key) => h("kbd", key))), h("dd", told)]);
    },
  },
  render() {
    return h("dialog", { ref: "dialog", class: "dialog", "aria-labelledby": "keys-title" }, [
      h("form", { method: "dialog" }, [
        h("h2", { id: "keys-title" }, "Keys"),
        h("dl", { class: "keys" }, [
          ...this.pages.map((page) => this.line(["g", page.key], page.title)),
          this.line(["/"], "Search, where there is one"),
          this.line(["?"], "This list"),
          this.line(["Esc"], "Close a dialog"),
        ]),
        h("div", { class: "actions" }, [h("button", { type: "submit", class: "button" }, "Close")]),
      ]),
    ]);
  },
};
