// A picture at work: the view, what changes it, and what is said about it.
//
//   const picture = new Picture(element, data, how)
//
// puts a timeline into the element, from the data that `page_data` makes. `how`, all of it optional:
//   prefix    of every id in it
//   heading   an element that names the picture, to stand at its top; or `label`, a text
//   keysOn    where keys are listened for: the element itself unless told
//   open      is called with a task's id when a bar is clicked or Enter pressed; without it a click keeps a story open
//   linkTo    gives a task's address, for the table
//   theme     is called when the reader asks for light or dark; without it there is no such button
//   quiet     what is in view is not announced: for a picture that follows what happens
//
// `update(data)` shows it as it has become, `grow(now)` lets what has not ended go on to this time, `mark(marks)` marks
// evidence (marks.js), `dress()` takes over the colours of the ground again, `remove()` lets go of everything.

const TALLEST = 40;

class Picture {
  constructor(root, raw, how = {}) {
    this.root = root;
    this.how = how;
    this.data = readData(raw);
    this.part = makeFrame(root, how);
    this.view = {
      from: 0, to: 1, top: 0, rowHeight: 16, rows: new Uint32Array(), rowOf: new Int32Array(), selected: -1, order: "arrival", gutter: [],
      filtered: false, deepest: 0, left: 170, plot: 1, width: 1, height: 1, ratio: window.devicePixelRatio || 1, dark: false, underTop: 0, underHeight: 1,
    };
    this.looks = [];
    this.colours = {};
    this.depths = [];
    this.marks = [];
    this.wanted = [];  // marks as they were asked for
    this.kept = false;
    this.waiting = 0;
    this.drawnUnder = [];
    fillControls(this);
    this.dress();
    this.view.rowHeight = 0;  // as flat as shows all of them
    this.measure();
    this.refilter();
    if (this.leastHeight() < NAMED_ROWS && new Set(this.data.raw.tasks[groupedBy(this.data)]).size > 1) {  // no room for names: those of groups
      this.part.order.value = "lane";
      this.refilter();
    }
    this.fit();
    this.unlisten = listen(this);
    this.part.bars.dataset.ready = "yes";
  }

  remove() {
    this.unlisten();
    cancelAnimationFrame(this.waiting);
    this.root.replaceChildren();
  }

  // ---- view

  margin() { const [from, to] = this.data.home; return Math.max((to - from) * 0.01, this.data.raw.unit * 10); }
  shownRows() { return (this.view.height - AXIS) / this.view.rowHeight; }
  leastHeight() { return Math.min(24, (this.view.height - AXIS) / Math.max(1, this.view.rows.length)); }
  showsAllRows() { return this.view.rowHeight <= this.leastHeight() * 1.001; }

  keepInside() {
    const { view, data } = this, least = Math.max(data.raw.unit * 20, 1e-6);
    const first = Math.min(0, data.home[0]) - this.margin(), last = Math.max(data.span, data.home[1]) + this.margin();
    const span = Math.min(last - first, Math.max(least, view.to - view.from));
    view.from = Math.min(last - span, Math.max(first, view.from));
    view.to = view.from + span;
    view.rowHeight = Math.min(TALLEST, Math.max(this.leastHeight(), view.rowHeight));
    view.top = Math.max(0, Math.min(view.rows.length - this.shownRows(), view.top));
  }

  zoomTime(factor, x = this.view.left + this.view.plot / 2) {
    const view = this.view, share = Math.min(1, Math.max(0, (x - view.left) / view.plot));
    const at = view.from + share * (view.to - view.from), span = (view.to - view.from) * factor;
    view.from = at - share * span;
    view.to = view.from + span;
    this.redraw();
  }

  zoomRows(factor, y = AXIS + (this.view.height - AXIS) / 2) {
    const view = this.view, row = view.top + (y - AXIS) / view.rowHeight;
    view.rowHeight = Math.min(TALLEST, Math.max(this.leastHeight(), view.rowHeight * factor));
    view.top = row - (y - AXIS) / view.rowHeight;
    this.redraw();
  }

  panTime(share) {
    const by = share * (this.view.to - this.view.from);
    this.view.from += by;
    this.view.to += by;
    this.redraw();
  }

  panRows(rows) {
    this.view.top += rows;
    this.redraw();
  }

  fit() {
    this.fitTime();
    this.view.rowHeight = this.leastHeight();
    this.view.top = 0;
    this.redraw();
  }

  fitTime() {
    this.view.from = this.data.home[0] - this.margin();
    this.view.to = this.data.home[1] + this.margin();
  }

  select(row) {
    const { view, data } = this;
    if (!view.rows.length) return;
    row = Math.min(view.rows.length - 1, Math.max(0, row));
    const task = view.rows[row];
    view.selected = task;
    this.bringIn(row, data.begun[task], data.ended[task]);
    this.kept = true;
    const y = AXIS + (row - view.top + 1) * view.rowHeight + this.part.bars.getBoundingClientRect().top;
    this.showStory(taskStory(data, task, this.looks, view.ratio), this.part.bars.getBoundingClientRect().left + view.left + 20, y);
    this.part.spoken.textContent = spokenStory(data, task);
    this.redraw();
  }

  // A row and a stretch of time come into view, if they are not there.
  bringIn(row, from, to) {
    const view = this.view;
    if (row >= 0) {
      if (view.rowHeight < 12) this.zoomRows(12 / view.rowHeight);
      if (row < view.top + 1) view.top = row - 1;
      if (row > view.top + this.shownRows() - 2) view.top = row - this.shownRows() + 2;
    }
    if (to < view.from || from > view.to) {
      const span = view.to - view.from;
      view.from = from - span / 10;
      view.to = view.from + span;
    }
    this.keepInside();
  }

  zoomTo(from, to) {
    const more = Math.max((to - from) * 0.1, this.margin() / 10);
    this.view.from = from - more;
    this.view.to = to + more;
    this.redraw();
  }

  zoomToSelected() {
    const task = this.view.selected;
    if (task >= 0) this.zoomTo(this.data.begun[task], this.data.ended[task]);
  }

  openSelected() {
    if (this.view.selected >= 0) this.how.open(this.data.raw.tasks.id[this.view.selected]);
  }

  // ---- evidence

  mark(marks) {
    this.wanted = marks;
    this.placeMarks();
    this.redraw();
  }

  placeMarks() {
    this.marks = this.wanted.length ? placedMarks(this.data, this.wanted, this.data.places()) : [];
    this.drawnUnder = [];
    fillEvidence(this);
  }

  // The mark of this place in the list comes into view.
  reveal(place) {
    const mark = this.marks[place];
    if (!mark) return;
    if (mark.task >= 0 && this.view.rowOf[mark.task] < 0) clearFilter(this);
    if (mark.task >= 0) this.bringIn(this.view.rowOf[mark.task], mark.from, mark.to);
    this.zoomTo(mark.from, mark.to);
    const host = mark.host === undefined ? -1 : this.data.raw.hosts.findIndex((one) => one.host === mark.host);
    if (host >= 0) this.part["under-frame"].scrollTop = host * chartHeight(this.data);
  }

  // ---- what becomes of it

  // Shows other data of the same run or window. What was looked at, chosen and pointed at stays.
  update(raw) {
    const { view, data: before } = this, following = this.following(), flat = this.showsAllRows();
    const anchor = before.raw.tasks.id[view.rows[Math.floor(view.top)]], part = view.top % 1;
    const selected = view.selected < 0 ? null : before.raw.tasks.id[view.selected];
    this.data = readData(raw);
    const moved = before.raw.begin - raw.begin;
    view.from += moved;
    view.to += moved;
    fillControls(this);
    this.looks = makeLooks(this.data, view.dark, view.ratio);
    drawLegend(this);
    const places = selected === null && (flat || anchor === undefined) ? null : this.data.places();
    view.selected = selected === null ? -1 : places.get(selected) ?? -1;
    this.choose();
    if (flat) view.rowHeight = this.leastHeight();
    else if (anchor !== undefined) view.top = this.rowOfId(places, anchor, Math.floor(view.top)) + part;
    if (this.kept) this.retell(selected !== null && view.selected < 0);
    this.placeMarks();
    this.follow(following, before.home[1] + moved);
    this.measure();
  }

  rowOfId(places, id, otherwise) {
    const place = places.get(id), row = place === undefined ? -1 : this.view.rowOf[place];
    return row < 0 ? otherwise : row;
  }

  // What has not ended goes on, to this time in seconds since 1970.
  grow(now) {
    const following = this.following(), before = this.data.home[1];
    if (!growData(this.data, now)) return;
    this.drawnUnder = [];
    if (this.kept && this.view.selected >= 0 && this.data.isOpen(this.view.selected)) this.retell(false);
    if (this.wanted.length) this.marks = placedMarks(this.data, this.wanted, this.data.places());
    this.follow(following, before);
    this.redraw();
    tell(this);
  }

  // Whether all of the time is in view, or its end.
  following() {
    const { view, data } = this, near = (view.to - view.from) * 1e-3;
    const end = view.to >= data.home[1] - near;
    return { end, whole: end && Math.abs(view.from - (data.home[0] - this.margin())) < near };
  }

  follow(following, before) {
    const by = this.data.home[1] - before;
    if (following.whole) this.fitTime();
    else if (following.end) { this.view.from += by; this.view.to += by; }
  }

  // ---- drawing

  redraw() {
    this.keepInside();
    if (!this.waiting) this.waiting = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.waiting = 0;
    const { view, data, looks, colours, part } = this, began = performance.now();
    drawBars(part.bars, data, view, looks, colours, this.marks);
    // What is underneath knows no rows: scrolling leaves it as it is.
    const now = [view.from, view.to, view.width, view.ratio, view.rows, looks, view.underTop, view.underHeight];
    if (now.some((value, place) => value !== this.drawnUnder[place])) drawUnder(part.under, data, view, looks, colours, this.depths, this.marks);
    this.drawnUnder = now;
    const told = part.bars.dataset;
    told.from = view.from;
    told.to = view.to;
    told.rows = view.rows.length;
    told.rowHeight = view.rowHeight;
    told.top = view.top;
    told.drawMs = performance.now() - began;
    part.bars.classList.toggle("all-rows", this.showsAllRows());
    const of = view.filtered ? `${view.rows.length.toLocaleString("en")} of ${counted(data.count, "task")}` : counted(data.count, "task");
    put(part.status, `${of} · ${moment(data, Math.max(Math.min(0, data.home[0]), view.from))} to ${moment(data, Math.min(data.span, view.to))}`);
  }

  measure() {
    const { view, data, part } = this, whole = this.showsAllRows(), frame = part["under-frame"];
    view.ratio = window.devicePixelRatio || 1;
    const room = frame.parentElement.clientHeight;  // the bars need more of it than what is underneath
    view.underHeight = Math.round(Math.min(underHeight(data), window.innerHeight * 0.34, Math.max(120, room * 0.45)));
    part.under.style.height = `${view.underHeight}px`;
    frame.style.height = `${view.underHeight + 1}px`;  // its border is inside
    part["under-space"].style.height = `${underHeight(data) - view.underHeight}px`;
    view.width = frame.clientWidth;
    view.height = part.bars.getBoundingClientRect().height;
    view.left = view.width < 700 ? 90 : 170;
    view.plot = Math.max(50, view.width - view.left - 12);
    if (whole) view.rowHeight = 0;
    this.redraw();
  }

  dress() {
    const style = getComputedStyle(this.root), read = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colours = Object.fromEntries(["ground", "panel", "ink", "soft", "line", "mark"].map((name) => [name, read(name)]));
    this.view.dark = hexBytes(this.colours.ground)[0] < 128;
    this.looks = makeLooks(this.data, this.view.dark, this.view.ratio);
    drawLegend(this);
    this.redraw();
  }

  // ---- rows

  refilter() {
    const whole = this.showsAllRows();
    this.choose();
    if (whole) this.view.rowHeight = this.leastHeight();
    this.hideStory();
    this.redraw();
  }

  choose() {
    const { view, data } = this, filter = readFilter(this);
    view.rows = chosenRows(data, filter);
    view.rowOf = new Int32Array(data.count).fill(-1);
    view.rows.forEach((task, row) => { view.rowOf[task] = row; });
    view.order = filter.order;
    view.filtered = view.rows.length !== data.count;
    this.depths = sortedEnds(data, view.rows);
    view.deepest = deepest(this.depths.filter((_, place) => data.sorts[place] === WAITING));
    fillTable(this);
  }

  // ---- the story

  showStory(content, x, y) {
    const story = this.part.story;
    story.replaceChildren(content);
    story.hidden = false;
    story.classList.toggle("kept", this.kept);
    const box = story.getBoundingClientRect();
    const left = x + 16 + box.width > innerWidth ? Math.max(4, x - 16 - box.width) : x + 16;
    const top = y + 12 + box.height > innerHeight ? Math.max(4, y - 12 - box.height) : y + 12;
    story.style.left = `${left}px`;
    story.style.top = `${top}px`;
  }

  // The story that is kept open, as it has become; gone with its task.
  retell(gone) {
    if (gone) this.hideStory();
    else if (this.view.selected >= 0) this.part.story.replaceChildren(taskStory(this.data, this.view.selected, this.looks, this.view.ratio));
  }

  hideStory() {
    this.kept = false;
    this.part.story.hidden = true;
    if (this.view.selected >= 0) { this.view.selected = -1; this.redraw(); }
  }
}

// Text that stays as it is costs no layout, and nobody hears it again.
function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
