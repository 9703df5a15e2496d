// Runs before the first paint: `data-theme` is always light or dark, as the reader chose or else as the system has it.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try {
    chosen = localStorage.getItem("penstock-theme");
  } catch {
    // Storage may be forbidden; the system's colours do then.
  }
  function dress() {
    const picked = root.dataset.chosenTheme;
    root.dataset.theme = picked === "auto" ? (system.matches ? "dark" : "light") : picked;
  }
  root.dataset.chosenTheme = chosen === "light" || chosen === "dark" ? chosen : "auto";
  dress();
  system.addEventListener("change", dress);
  new MutationObserver(dress).observe(root, { attributes: true, attributeFilter: ["data-chosen-theme"] });
})();
