// The page at work: the view, what changes it, and what is said about it.

const data = readData(JSON.parse(document.getElementById("data").textContent));
const by = (id) => document.getElementById(id);
const bars = by("bars"), under = by("under"), frame = by("under-frame"), story = by("story");
const FILTERS = ["lane", "host", "kind", "state", "reason"];
const TALLEST = 40, MOST_LEGEND = 24, MOST_MARKED = 50;

const view = {
  from: 0, to: 1, top: 0, rowHeight: 16, rows: new Uint32Array(), selected: -1, order: "arrival", gutter: [], filtered: false, deepest: 0,
  left: 170, plot: 1, width: 1, height: 1, ratio: 1, dark: false, underTop: 0, underHeight: 1,
};
let looks = [], colours = {}, depths = [], waiting = false, kept = false, drawnUnder = [];

// ---- view

const margin = () => Math.max(data.span * 0.01, data.raw.unit * 10);
const shownRows = () => (view.height - AXIS) / view.rowHeight;
const leastHeight = () => Math.min(24, (view.height - AXIS) / Math.max(1, view.rows.length));

function keepInside() {
  const least = Math.max(data.raw.unit * 20, 1e-6), whole = data.span + 2 * margin();
  const span = Math.min(whole, Math.max(least, view.to - view.from));
  const from = Math.min(data.span + margin() - span, Math.max(-margin(), view.from));
  view.from = from;
  view.to = from + span;
  view.rowHeight = Math.min(TALLEST, Math.max(leastHeight(), view.rowHeight));
  view.top = Math.max(0, Math.min(view.rows.length - shownRows(), view.top));
}

function zoomTime(factor, x = view.left + view.plot / 2) {
  const share = Math.min(1, Math.max(0, (x - view.left) / view.plot));
  const at = view.from + share * (view.to - view.from), span = (view.to - view.from) * factor;
  view.from = at - share * span;
  view.to = view.from + span;
  redraw();
}

function zoomRows(factor, y = AXIS + (view.height - AXIS) / 2) {
  const row = view.top + (y - AXIS) / view.rowHeight;
  view.rowHeight = Math.min(TALLEST, Math.max(leastHeight(), view.rowHeight * factor));
  view.top = row - (y - AXIS) / view.rowHeight;
  redraw();
}

function panTime(share) {
  const by = share * (view.to - view.from);
  view.from += by;
  view.to += by;
  redraw();
}

function panRows(rows) {
  view.top += rows;
  redraw();
}

function fit() {
  view.from = -margin();
  view.to = data.span + margin();
  view.rowHeight = leastHeight();
  view.top = 0;
  redraw();
}

function select(row) {
  if (!view.rows.length) return;
  row = Math.min(view.rows.length - 1, Math.max(0, row));
  const task = view.rows[row];
  view.selected = task;
  if (view.rowHeight < 12) zoomRows(12 / view.rowHeight);
  if (row < view.top + 1) view.top = row - 1;
  if (row > view.top + shownRows() - 2) view.top = row - shownRows() + 2;
  if (data.ended[task] < view.from || data.begun[task] > view.to) {
    const span = view.to - view.from;
    view.from = data.begun[task] - span / 10;
    view.to = view.from + span;
  }
  keepInside();
  kept = true;
  const y = AXIS + (row - view.top + 1) * view.rowHeight + bars.getBoundingClientRect().top;
  showStory(taskStory(data, task, looks, view.ratio), view.left + 20, y);
  by("spoken").textContent = spokenStory(data, task);
  redraw();
}

function zoomToSelected() {
  if (view.selected < 0) return;
  const from = data.begun[view.selected], to = data.ended[view.selected], more = Math.max((to - from) * 0.1, margin() / 10);
  view.from = from - more;
  view.to = to + more;
  redraw();
}

// ---- drawing

function redraw() {
  keepInside();
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(draw);
}

function draw() {
  waiting = false;
  const began = performance.now();
  drawBars(bars, data, view, looks, colours);
  // What is underneath knows no rows: scrolling leaves it as it is.
  const now = [view.from, view.to, view.width, view.ratio, view.rows, looks, view.underTop, view.underHeight];
  if (now.some((value, place) => value !== drawnUnder[place])) drawUnder(under, data, view, looks, colours, depths);
  drawnUnder = now;
  const told = bars.dataset;
  told.from = view.from;
  told.to = view.to;
  told.rows = view.rows.length;
  told.rowHeight = view.rowHeight;
  told.top = view.top;
  told.drawMs = performance.now() - began;
  const shown = view.filtered ? `${view.rows.length.toLocaleString("en")} of ${counted(data.count, "task")}` : counted(data.count, "task");
  by("status").textContent = `${shown} · ${seconds(Math.max(0, view.from))} to ${seconds(Math.min(data.span, view.to))}`;
}

function measure() {
  const whole = view.rowHeight <= leastHeight() * 1.001;
  view.ratio = window.devicePixelRatio || 1;
  view.underHeight = Math.round(Math.min(underHeight(data), window.innerHeight * 0.34));
  under.style.height = `${view.underHeight}px`;
  frame.style.height = `${view.underHeight + 1}px`;  // its border is inside
  by("under-space").style.height = `${underHeight(data) - view.underHeight}px`;
  view.width = frame.clientWidth;
  view.height = bars.getBoundingClientRect().height;
  view.left = view.width < 700 ? 90 : 170;
  view.plot = Math.max(50, view.width - view.left - 12);
  if (whole) view.rowHeight = 0;
  redraw();
}

function dress() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  colours = Object.fromEntries(["ground", "panel", "ink", "soft", "line", "mark"].map((name) => [name, read(name)]));
  view.dark = hexBytes(colours.ground)[0] < 128;
  looks = makeLooks(data, view.dark, view.ratio);
  drawLegend();
  redraw();
}

function drawLegend() {
  const total = data.raw.reasons.reduce((sum, [, spent]) => sum + spent, 0) || 1;
  const waits = data.raw.reasons.slice(0, MOST_LEGEND).map(([place, spent]) => {
    const name = data.raw.whats[place].name || "no reason told";
    return legendItem(looks[place], `${name} ${seconds(spent)}, ${Math.round((spent / total) * 100)} %`);
  });
  const used = data.raw.hosts.filter((host) => host.what >= 0), coloured = data.raw.colours.by;
  const hosts = used.slice(0, MOST_LEGEND).map((host) => legendItem(looks[host.what], host.host));
  if (data.raw.reasons.length > MOST_LEGEND) waits.push(element("li", `and ${counted(data.raw.reasons.length - MOST_LEGEND, "more reason")}`));
  if (used.length > MOST_LEGEND) hosts.push(element("li", `and ${counted(used.length - MOST_LEGEND, "more host")}`));
  by("legend-waits").replaceChildren(...waits);
  if (coloured !== "host") {  // one host: its attempts are told apart by lane or kind
    const names = data.raw[`${coloured}s`];
    hosts.splice(0, hosts.length, ...names.slice(0, MOST_LEGEND).map((name, place) => legendItem(looks.groups[place], name)));
    if (names.length > MOST_LEGEND) hosts.push(element("li", `and ${counted(names.length - MOST_LEGEND, `more ${coloured}`)}`));
  }
  by("running").textContent = coloured === "host" ? "Running, by host" : `Running on ${used[0].host}, by ${coloured}`;
  by("legend-hosts").replaceChildren(...hosts);
}

function legendItem(look, text) {
  const item = element("li");
  item.append(swatch(look.fill, 22, 12, view.ratio), element("span", text));
  return item;
}

// ---- filters

function readFilter() {
  const filter = { search: by("search").value, order: by("order").value, outliers: by("outliers").checked };
  for (const name of FILTERS) filter[name] = by(name).value;
  return filter;
}

function refilter() {
  const filter = readFilter(), whole = view.rowHeight <= leastHeight() * 1.001;
  view.rows = chosenRows(data, filter);
  view.order = filter.order;
  view.filtered = view.rows.length !== data.count;
  depths = sortedEnds(data, view.rows);
  view.deepest = deepest(depths.filter((_, place) => data.sorts[place] === WAITING));
  if (whole) view.rowHeight = leastHeight();
  hideStory();
  redraw();
}

function fillSelect(name, all, entries) {
  const none = element("option", all);
  none.value = "";
  by(name).replaceChildren(none, ...entries.map(([value, text]) => {
    const option = element("option", text);
    option.value = value;
    return option;
  }));
}

function fillControls() {
  const numbered = (names) => names.map((name, place) => [place, name]);
  const whats = (sort) => numbered(data.raw.whats).filter(([, what]) => what.sort === sort).map(([place, what]) => [place, what.name || "no reason told"]);
  fillSelect("lane", "all", numbered(data.raw.lanes));
  fillSelect("kind", "all", numbered(data.raw.kinds));
  fillSelect("state", "all", numbered(data.raw.states));
  fillSelect("host", "all", whats(RUNNING));
  fillSelect("reason", "anything", whats(WAITING));
  const parts = [counted(data.count, "task"), seconds(data.span) + (data.raw.live ? " so far" : ""), `from ${clock(data, 0)}`];
  by("told").textContent = parts.join(" · ");
  if (!data.outliers.size) return;
  const marked = by("marked"), list = marked.querySelector("ul");
  marked.hidden = false;
  marked.querySelector("summary").textContent = counted(data.outliers.size, "outlier");
  marked.querySelector("p").textContent = data.raw.rule;
  const total = (task) => data.ended[task] - data.begun[task];
  for (const [task, words] of [...data.outliers].sort(([a], [b]) => total(b) - total(a)).slice(0, MOST_MARKED)) {
    const item = element("li"), button = element("button", `◆ ${nameOf(data, task)}: ${words.join("; ")}`);
    button.type = "button";
    button.addEventListener("click", () => { clearFilter(); select(view.rows.indexOf(task)); });
    item.append(button);
    list.append(item);
  }
}

function clearFilter() {
  for (const name of FILTERS) by(name).value = "";
  by("search").value = "";
  by("outliers").checked = false;
  refilter();
}

// ---- the story

function showStory(content, x, y) {
  story.replaceChildren(content);
  story.hidden = false;
  story.classList.toggle("kept", kept);
  const box = story.getBoundingClientRect();
  const left = x + 16 + box.width > innerWidth ? Math.max(4, x - 16 - box.width) : x + 16;
  const top = y + 12 + box.height > innerHeight ? Math.max(4, y - 12 - box.height) : y + 12;
  story.style.left = `${left}px`;
  story.style.top = `${top}px`;
}

function hideStory() {
  kept = false;
  story.hidden = true;
  if (view.selected >= 0) { view.selected = -1; redraw(); }
}

function rowAt(event) {
  const row = Math.floor(view.top + (event.offsetY - AXIS) / view.rowHeight);
  return event.offsetY >= AXIS && row >= 0 && row < view.rows.length ? row : -1;
}

function hover(event) {
  if (kept) return;
  const row = rowAt(event);
  if (row < 0) story.hidden = true;
  else showStory(taskStory(data, view.rows[row], looks, view.ratio), event.clientX, event.clientY);
}

function hoverUnder(event) {
  if (kept) return;
  const hosts = data.raw.hosts;
  const place = event.offsetY < AXIS ? -1 : Math.floor((event.offsetY - AXIS + view.underTop) / chartHeight(data));
  const time = view.from + ((event.offsetX - view.left) / view.plot) * (view.to - view.from);
  if (place < 0 || event.offsetX < view.left) { story.hidden = true; return; }
  const content = place > 0 && place <= hosts.length ? hostStory(data, hosts[place - 1], time) : queueStory(data, depths, time);
  showStory(content, event.clientX, event.clientY);
}

// ---- mouse and keys

let grip = null;

function grab(event) {
  if (event.button !== 0) return;
  const scroll = event.offsetX > view.width - 12;
  grip = { x: event.clientX, y: event.clientY, moved: false, scroll };
  bars.setPointerCapture(event.pointerId);
}

function move(event) {
  if (!grip) { hover(event); return; }
  const dx = event.clientX - grip.x, dy = event.clientY - grip.y;
  if (!grip.moved && Math.hypot(dx, dy) < 4) return;
  if (!grip.moved && !kept) story.hidden = true;
  grip.moved = true;
  bars.classList.add("dragging");
  grip.x = event.clientX;
  grip.y = event.clientY;
  if (grip.scroll) panRows((dy / (view.height - AXIS)) * view.rows.length);
  else {
    panRows(-dy / view.rowHeight);
    panTime(-dx / view.plot);
  }
}

function release(event) {
  if (grip && !grip.moved && event.type === "pointerup") {
    const row = rowAt(event);
    if (row < 0 || view.rows[row] === view.selected) hideStory();
    else {
      kept = true;
      view.selected = view.rows[row];
      showStory(taskStory(data, view.selected, looks, view.ratio), event.clientX, event.clientY);
      redraw();
    }
  }
  grip = null;
  bars.classList.remove("dragging");
}

function wheel(event) {
  event.preventDefault();
  const amount = (event.deltaY || event.deltaX) * (event.deltaMode === 1 ? 30 : 1);
  if (event.shiftKey) panRows(amount / view.rowHeight);
  else if (event.ctrlKey || event.altKey) zoomRows(Math.exp(-amount * 0.0025), event.offsetY);
  else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) panTime(event.deltaX / view.plot);
  else zoomTime(Math.exp(amount * 0.0025), event.offsetX);
}

const selectedRow = () => view.rows.indexOf(view.selected);

const KEYS = {
  ArrowLeft: () => panTime(-0.1), ArrowRight: () => panTime(0.1),
  ArrowUp: () => panRows(-Math.max(1, shownRows() / 10)), ArrowDown: () => panRows(Math.max(1, shownRows() / 10)),
  PageUp: () => panRows(-shownRows() * 0.9), PageDown: () => panRows(shownRows() * 0.9),
  Home: () => { view.to += -margin() - view.from; view.from = -margin(); redraw(); },
  End: () => { view.from += data.span + margin() - view.to; view.to = data.span + margin(); redraw(); },
  "+": () => zoomTime(1 / 1.5), "=": () => zoomTime(1 / 1.5), "-": () => zoomTime(1.5),
  "]": () => zoomRows(1.5), "[": () => zoomRows(1 / 1.5), 0: fit,
  n: () => select(view.selected < 0 ? Math.ceil(view.top) : selectedRow() + 1),
  p: () => select(view.selected < 0 ? Math.ceil(view.top) : selectedRow() - 1),
  Enter: zoomToSelected, Escape: hideStory, "/": () => by("search").focus(),
};

// Wherever the focus is; but what is written into a field or chosen in a list is no command, and a button, a summary or
// a part that scrolls keeps the keys that work it.
const WRITES = "input:not([type=checkbox]), select, textarea", WORKED = "button, summary, input, a[href]";
const SCROLLS = ["ArrowUp", "ArrowDown", "PageUp", "PageDown", "Home", "End"];

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const at = event.target;
  if (event.key !== "Escape" && at.closest?.(WRITES)) return;
  if (event.key === "Enter" && at.closest?.(WORKED)) return;
  if (at === frame && SCROLLS.includes(event.key)) return;
  const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

function listen() {
  bars.addEventListener("pointerdown", grab);
  bars.addEventListener("pointermove", move);
  bars.addEventListener("pointerup", release);
  bars.addEventListener("pointercancel", release);
  bars.addEventListener("pointerleave", () => { if (!kept) story.hidden = true; });
  bars.addEventListener("wheel", wheel, { passive: false });
  under.addEventListener("pointermove", hoverUnder);
  under.addEventListener("pointerleave", () => { if (!kept) story.hidden = true; });
  document.addEventListener("keydown", key);
  by("controls").addEventListener("submit", (event) => event.preventDefault());
  for (const name of [...FILTERS, "order", "outliers"]) by(name).addEventListener("change", refilter);
  by("search").addEventListener("input", refilter);
  const buttons = {
    "zoom-in": () => zoomTime(1 / 1.5), "zoom-out": () => zoomTime(1.5), taller: () => zoomRows(1.5), flatter: () => zoomRows(1 / 1.5),
    fit, reset: clearFilter, theme: toggleTheme,
  };
  for (const [id, act] of Object.entries(buttons)) by(id).addEventListener("click", act);
  frame.addEventListener("scroll", () => { view.underTop = frame.scrollTop; redraw(); });
  window.addEventListener("resize", measure);
  new ResizeObserver(measure).observe(by("bars"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", dress);
}

function toggleTheme() {
  const theme = view.dark ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  remember(theme);
  dress();
}

// Some browsers keep nothing for a page from the disk, and say so with an error: the choice then lasts as long as the page.
const THEME = "penstock-timeline-theme";

function remember(theme) {
  try { localStorage.setItem(THEME, theme); } catch { /* not kept */ }
}

function remembered() {
  try { return localStorage.getItem(THEME); } catch { return null; }
}

if (["light", "dark"].includes(remembered())) document.documentElement.dataset.theme = remembered();
fillControls();
view.ratio = window.devicePixelRatio || 1;
dress();
view.rowHeight = 0;  // as flat as shows all of them
measure();
refilter();
if (leastHeight() < NAMED_ROWS && new Set(data.raw.tasks[groupedBy(data)]).size > 1) {  // no room for names: those of groups
  by("order").value = "lane";
  refilter();
}
fit();
listen();
bars.dataset.ready = "yes";
