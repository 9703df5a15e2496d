// Colours as the system has them, light, or dark: one button that goes round, kept by this browser.
const { h } = Vue;
const ORDER = ["auto", "light", "dark"];
const SIGNS = { auto: "◐", light: "☀", dark: "☾" };

export default {
  data: () => ({ theme: document.documentElement.dataset.chosenTheme }),
  methods: {
    turn() {
      this.theme = ORDER[(ORDER.indexOf(this.theme) + 1) % ORDER.length];
      document.documentElement.dataset.chosenTheme = this.theme;
      try {
        localStorage.setItem("penstock-theme", this.theme);
      } catch {
        // Storage may be forbidden: the choice lasts for this page then.
      }
    },
  },
  render() {
    const label = `Colours: ${this.theme}`;
    return h("button", { type: "button", class: "sign", title: label, "aria-label": label, onClick: this.turn }, [
      h("span", { "aria-hidden": "true" }, SIGNS[this.theme]),
    ]);
  },
};
