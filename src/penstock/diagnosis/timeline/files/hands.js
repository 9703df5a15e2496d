// Mouse, touch and keys: what they do to a picture.

function rowAt(view, event) {
  const row = Math.floor(view.top + (event.offsetY - AXIS) / view.rowHeight);
  return event.offsetY >= AXIS && row >= 0 && row < view.rows.length ? row : -1;
}

function hover(picture, event) {
  if (picture.kept) return;
  const { view, data } = picture, row = rowAt(view, event);
  if (row < 0) picture.part.story.hidden = true;
  else picture.showStory(taskStory(data, view.rows[row], picture.looks, view.ratio), event.clientX, event.clientY);
}

function hoverUnder(picture, event) {
  if (picture.kept) return;
  const { view, data } = picture, hosts = data.raw.hosts;
  const place = event.offsetY < AXIS ? -1 : Math.floor((event.offsetY - AXIS + view.underTop) / chartHeight(data));
  const time = view.from + ((event.offsetX - view.left) / view.plot) * (view.to - view.from);
  if (place < 0 || event.offsetX < view.left) { picture.part.story.hidden = true; return; }
  const content = place > 0 && place <= hosts.length ? hostStory(data, hosts[place - 1], time) : queueStory(data, picture.depths, time);
  picture.showStory(content, event.clientX, event.clientY);
}

// ---- a pointer that drags, or clicks

function grip(picture) {
  const { view, part: { bars, story } } = picture;
  let held = null;
  return {
    grab(event) {
      if (event.button !== 0) return;
      held = { x: event.clientX, y: event.clientY, moved: false, scroll: event.offsetX > view.width - 12 };
      bars.setPointerCapture(event.pointerId);
    },
    move(event) {
      if (!held) { hover(picture, event); return; }
      const dx = event.clientX - held.x, dy = event.clientY - held.y;
      if (!held.moved && Math.hypot(dx, dy) < 4) return;
      if (!held.moved && !picture.kept) story.hidden = true;
      held.moved = true;
      bars.classList.add("dragging");
      held.x = event.clientX;
      held.y = event.clientY;
      if (held.scroll) picture.panRows((dy / (view.height - AXIS)) * view.rows.length);
      else {
        picture.panRows(-dy / view.rowHeight);
        picture.panTime(-dx / view.plot);
      }
    },
    release(event) {
      if (held && !held.moved && event.type === "pointerup") click(picture, event);
      held = null;
      bars.classList.remove("dragging");
    },
  };
}

function click(picture, event) {
  const { view, data } = picture, row = rowAt(view, event);
  if (row >= 0 && picture.how.open) { picture.how.open(data.raw.tasks.id[view.rows[row]]); return; }
  if (row < 0 || view.rows[row] === view.selected) { picture.hideStory(); return; }
  picture.kept = true;
  view.selected = view.rows[row];
  picture.showStory(taskStory(data, view.selected, picture.looks, view.ratio), event.clientX, event.clientY);
  picture.redraw();
}

function wheel(picture, event) {
  event.preventDefault();
  const amount = (event.deltaY || event.deltaX) * (event.deltaMode === 1 ? 30 : 1);
  if (event.shiftKey) picture.panRows(amount / picture.view.rowHeight);
  else if (event.ctrlKey || event.altKey) picture.zoomRows(Math.exp(-amount * 0.0025), event.offsetY);
  else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) picture.panTime(event.deltaX / picture.view.plot);
  else picture.zoomTime(Math.exp(amount * 0.0025), event.offsetX);
}

// ---- keys

function keysOf(picture) {
  const { view } = picture, step = () => Math.max(1, picture.shownRows() / 10), { how } = picture;
  const go = (by) => picture.select(view.selected < 0 ? Math.ceil(view.top) : view.rowOf[view.selected] + by);
  const edge = (from) => { view.to += from - view.from; view.from = from; picture.redraw(); };
  return {
    ArrowLeft: () => picture.panTime(-0.1), ArrowRight: () => picture.panTime(0.1),
    ArrowUp: () => (how.open ? go(-1) : picture.panRows(-step())), ArrowDown: () => (how.open ? go(1) : picture.panRows(step())),
    PageUp: () => picture.panRows(-picture.shownRows() * 0.9), PageDown: () => picture.panRows(picture.shownRows() * 0.9),
    Home: () => edge(picture.data.home[0] - picture.margin()),
    End: () => edge(picture.data.home[1] + picture.margin() - (view.to - view.from)),
    "+": () => picture.zoomTime(1 / 1.5), "=": () => picture.zoomTime(1 / 1.5), "-": () => picture.zoomTime(1.5),
    "]": () => picture.zoomRows(1.5), "[": () => picture.zoomRows(1 / 1.5), 0: () => picture.fit(),
    n: () => go(1), p: () => go(-1), z: () => picture.zoomToSelected(),
    Enter: () => (how.open ? picture.openSelected() : picture.zoomToSelected()),
    Escape: () => picture.hideStory(), "/": () => picture.part.search.focus(),
  };
}

// Wherever the focus is; but what is written into a field or chosen in a list is no command, and a button, a summary or
// a part that scrolls keeps the keys that work it.
const WRITES = "input:not([type=checkbox]), select, textarea", WORKED = "button, summary, input, a[href]";
const SCROLLS = ["ArrowUp", "ArrowDown", "PageUp", "PageDown", "Home", "End"];

function key(picture, keys, event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const at = event.target;
  if (event.key !== "Escape" && at.closest?.(WRITES)) return;
  if (event.key === "Enter" && at.closest?.(WORKED)) return;
  if ((at === picture.part["under-frame"] || at.closest?.(".foot")) && SCROLLS.includes(event.key)) return;
  const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

// All that a picture listens to; what it gives back ends it.
function listen(picture) {
  const { part, how, view } = picture, ending = new AbortController(), held = grip(picture), keys = keysOf(picture);
  const on = (target, name, act, more = {}) => target.addEventListener(name, act, { signal: ending.signal, ...more });
  const leave = () => { if (!picture.kept) part.story.hidden = true; };
  on(part.bars, "pointerdown", held.grab);
  on(part.bars, "pointermove", held.move);
  on(part.bars, "pointerup", held.release);
  on(part.bars, "pointercancel", held.release);
  on(part.bars, "pointerleave", leave);
  on(part.bars, "wheel", (event) => wheel(picture, event), { passive: false });
  on(part.under, "pointermove", (event) => hoverUnder(picture, event));
  on(part.under, "pointerleave", leave);
  on(how.keysOn || picture.root, "keydown", (event) => key(picture, keys, event));
  on(part.controls, "submit", (event) => event.preventDefault());
  for (const name of [...FILTERS, "order", "outliers"]) on(part[name], "change", () => picture.refilter());
  on(part.search, "input", () => picture.refilter());
  on(part.table, "toggle", () => fillTable(picture));
  const buttons = {
    "zoom-in": () => picture.zoomTime(1 / 1.5), "zoom-out": () => picture.zoomTime(1.5),
    taller: () => picture.zoomRows(1.5), flatter: () => picture.zoomRows(1 / 1.5),
    fit: () => picture.fit(), reset: () => clearFilter(picture), ...(how.theme ? { theme: how.theme } : {}),
  };
  for (const [id, act] of Object.entries(buttons)) on(part[id], "click", act);
  on(part["under-frame"], "scroll", () => { view.underTop = part["under-frame"].scrollTop; picture.redraw(); });
  on(window, "resize", () => picture.measure());
  on(matchMedia("(prefers-color-scheme: dark)"), "change", () => picture.dress());
  const sizes = new ResizeObserver(() => picture.measure());
  sizes.observe(part.bars);
  return () => { ending.abort(); sizes.disconnect(); };
}
