// Runs before the first paint: the colours that the reader chose, if he chose any.
(() => {
  try {
    const chosen = localStorage.getItem("penstock-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage may be forbidden; the system's colours do then.
  }
})();
