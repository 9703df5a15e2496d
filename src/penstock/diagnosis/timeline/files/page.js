// The page that is one file: its data stands in it, and it remembers whether it was light or dark.

// Some browsers keep nothing for a page from the disk, and say so with an error: the choice then lasts as long as the page.
const THEME = "penstock-timeline-theme";

function remember(theme) {
  try { localStorage.setItem(THEME, theme); } catch { /* not kept */ }
}

function remembered() {
  try { return localStorage.getItem(THEME); } catch { return null; }
}

function toggleTheme() {
  const theme = view.dark ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  remember(theme);
  picture.dress();
}

if (["light", "dark"].includes(remembered())) document.documentElement.dataset.theme = remembered();
const picture = new Picture(document.getElementById("picture"), JSON.parse(document.getElementById("data").textContent), {
  heading: document.getElementById("title"), keysOn: document, theme: toggleTheme,
});
const { view, data } = picture;
