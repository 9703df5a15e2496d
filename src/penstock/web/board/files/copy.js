// Copies a text, and says that it has.
const { h } = Vue;
const SAID_MS = 2000;

export default {
  props: { text: String, label: { type: String, default: "Copy" }, what: { type: String, default: "" } },
  data() {
    return { said: "" };
  },
  beforeUnmount() {
    clearTimeout(this.timer);
  },
  methods: {
    async copy() {
      try {
        await navigator.clipboard.writeText(this.text);
        this.said = "copied";
      } catch {
        this.said = this.byHand() ? "copied" : "select it and copy it by hand";
      }
      clearTimeout(this.timer);
      this.timer = setTimeout(() => (this.said = ""), SAID_MS);
    },
    // Pages that did not come by HTTPS or from this machine have no clipboard of their own.
    byHand() {
      const area = document.createElement("textarea");
      area.value = this.text;
      const around = this.$el.closest("dialog") ?? document.body; // beside a modal dialog nothing can be selected
      around.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      this.$refs.button.focus();
      return done;
    },
  },
  render() {
    return h("span", { class: "copy" }, [
      h(
        "button",
        { ref: "button", type: "button", class: "button quiet", "aria-label": this.what ? `${this.label} ${this.what}` : undefined, onClick: this.copy },
        this.label,
      ),
      h("span", { role: "status", class: "soft" }, this.said),
    ]);
  },
};
