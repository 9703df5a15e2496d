// Rows by keyboard: j, k and the arrows go from task to task, space or x selects the row, Enter opens it (it is a link).
const STEPS = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 };

function busy(target) {
  return target instanceof Element && target.closest("input:not([type=checkbox]), textarea, select, dialog[open]");
}

export default {
  mounted() {
    document.addEventListener("keydown", this.pressed);
  },
  unmounted() {
    document.removeEventListener("keydown", this.pressed);
  },
  methods: {
    pressed(event) {
      if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || busy(event.target)) return;
      const rows = [...document.querySelectorAll(".queue-table tbody tr")];
      const row = event.target instanceof Element ? event.target.closest(".queue-table tbody tr") : null;
      const step = STEPS[event.key];
      if (step !== undefined) {
        if (event.key.startsWith("Arrow") && !row) return; // the page scrolls
        const next = rows[row ? rows.indexOf(row) + step : 0];
        next?.querySelector("th a")?.focus();
        event.preventDefault();
      } else if (row && (event.key === "x" || (event.key === " " && event.target.matches("a")))) {
        row.querySelector("input[type=checkbox]")?.click();
        event.preventDefault();
      }
    },
  },
  render() {
    return null;
  },
};
