"use strict";
// The page's data, made ready for drawing: columns as typed arrays, times in seconds from the begin of the run.

const WAITING = 0, RUNNING = 1, RESTING = 2;

function readData(raw) {
  const tasks = raw.tasks, count = tasks.id.length, all = raw.pieces.what.length;
  const first = new Uint32Array(count + 1), start = new Float64Array(all), end = new Float64Array(all);
  const waited = new Float64Array(count), ran = new Float64Array(count);
  const begun = new Float64Array(count), ended = new Float64Array(count), firstRun = new Float64Array(count);
  const sorts = Uint8Array.from(raw.whats, (what) => what.sort);
  const what = Uint32Array.from(raw.pieces.what);
  let piece = 0;
  for (let task = 0; task < count; task++) {
    first[task] = piece;
    let ticks = tasks.queued[task];
    begun[task] = ticks * raw.unit;
    firstRun[task] = Infinity;
    for (let left = tasks.pieces[task]; left > 0; left--, piece++) {
      start[piece] = ticks * raw.unit;
      ticks += raw.pieces.length[piece];
      end[piece] = ticks * raw.unit;
      const sort = sorts[what[piece]];
      if (sort === WAITING) waited[task] += end[piece] - start[piece];
      if (sort === RUNNING) {
        ran[task] += end[piece] - start[piece];
        firstRun[task] = Math.min(firstRun[task], start[piece]);
      }
    }
    ended[task] = ticks * raw.unit;
  }
  first[count] = piece;
  const outliers = new Map(raw.outliers), thin = new Set(raw.thin);
  const span = Math.max(raw.span * raw.unit, windowOf(raw) ? windowOf(raw)[1] - raw.begin : 0), open = new Set(raw.open);
  const windowFrom = windowOf(raw) ? windowOf(raw)[0] - raw.begin : 0, home = homeOf(raw, span, begun);
  return {
    raw, count, first, start, end, what, sorts, waited, ran, begun, ended, firstRun, outliers, thin, span, home, windowFrom, open,
    isOpen: (task) => open.has(task),
    places: () => new Map(tasks.id.map((id, place) => [id, place])),
  };
}

const windowOf = (raw) => raw.excerpt?.window;

const LEAST_HOME_S = 10;

// The stretch of time that is shown at first: all of it; of a window what is not empty before the first thing in it.
function homeOf(raw, span, begun) {
  if (!windowOf(raw)) return [0, span];
  const [from, to] = windowOf(raw).map((at) => at - raw.begin);
  return begun.length ? [Math.max(from, Math.min(begun.reduce((a, b) => Math.min(a, b)), to - LEAST_HOME_S)), to] : [from, to];
}

// What has not ended goes on to this time, in seconds since 1970. False where nothing is to be drawn anew.
function growData(data, now) {
  const at = now - data.raw.begin;
  if (at <= data.span || !(data.open.size || windowOf(data.raw))) return false;
  for (const task of data.open) {
    const last = data.first[task + 1] - 1, by = at - data.ended[task];
    if (last < data.first[task] || by <= 0) continue;
    data.end[last] = data.ended[task] = at;
    const sort = data.sorts[data.what[last]];
    if (sort === WAITING) data.waited[task] += by;
    if (sort === RUNNING) data.ran[task] += by;
  }
  for (const host of data.raw.hosts) for (const steps of [host.used, host.others]) holdLast(steps, data.span, at);
  data.windowFrom += at - data.home[1];
  data.home = windowOf(data.raw) ? [Math.max(data.windowFrom, data.home[0]), at] : [0, at];
  data.span = at;
  return true;
}

// At the end of what is told all slots are given back, which nobody has done: that step moves on.
function holdLast(steps, end, at) {
  const last = steps.times.length - 1;
  if (last >= 0 && steps.times[last] >= end - 1e-5 && steps.values[last] === 0) steps.times[last] = at;
}

// A step of a question is called by its member.
const nameOf = (data, task) => data.raw.tasks.name[task] || data.raw.tasks.id[task];

const ORDERS = {
  start: (data) => (a, b) => data.firstRun[a] - data.firstRun[b] || a - b,
  end: (data) => (a, b) => data.ended[a] - data.ended[b] || a - b,
  total: (data) => (a, b) => data.ended[b] - data.begun[b] - (data.ended[a] - data.begun[a]) || a - b,
  waited: (data) => (a, b) => data.waited[b] - data.waited[a] || a - b,
  ran: (data) => (a, b) => data.ran[b] - data.ran[a] || a - b,
  lane: (data) => (a, b) => {
    const tasks = data.raw.tasks;
    return tasks.lane[a] - tasks.lane[b] || tasks.kind[a] - tasks.kind[b] || a - b;
  },
};

// The tasks that a filter lets through, in the order asked for. A filter's field of "" lets all through.
function chosenRows(data, filter) {
  const tasks = data.raw.tasks, rows = [], text = filter.search.trim().toLowerCase();
  const by = (field) => (filter[field] === "" ? -1 : Number(filter[field]));
  const lane = by("lane"), kind = by("kind"), state = by("state"), host = by("host"), reason = by("reason");
  for (let task = 0; task < data.count; task++) {
    if (lane !== -1 && tasks.lane[task] !== lane) continue;
    if (kind !== -1 && tasks.kind[task] !== kind) continue;
    if (state !== -1 && tasks.state[task] !== state) continue;
    if (filter.outliers && !data.outliers.has(task)) continue;
    if (text && !`${tasks.id[task]} ${nameOf(data, task)}`.toLowerCase().includes(text)) continue;
    if (host !== -1 && !hasPiece(data, task, host)) continue;
    if (reason !== -1 && !hasPiece(data, task, reason)) continue;
    rows.push(task);
  }
  if (ORDERS[filter.order]) rows.sort(ORDERS[filter.order](data));
  return Uint32Array.from(rows);
}

function hasPiece(data, task, what) {
  for (let piece = data.first[task]; piece < data.first[task + 1]; piece++) if (data.what[piece] === what) return true;
  return false;
}

// When pieces of these tasks began and when they ended, for each thing waited for or run on: sorted, so that how many
// there were at a time is two searches.
function sortedEnds(data, rows) {
  const sizes = new Uint32Array(data.sorts.length);
  for (const task of rows) for (let p = data.first[task]; p < data.first[task + 1]; p++) sizes[data.what[p]]++;
  const ends = Array.from(sizes, (size) => ({ starts: new Float64Array(size), ends: new Float64Array(size) }));
  const at = new Uint32Array(sizes.length);
  for (const task of rows) {
    for (let p = data.first[task]; p < data.first[task + 1]; p++) {
      const place = at[data.what[p]]++;
      ends[data.what[p]].starts[place] = data.start[p];
      ends[data.what[p]].ends[place] = p === data.first[task + 1] - 1 && data.isOpen(task) ? Infinity : data.end[p];
    }
  }
  for (const one of ends) { one.starts.sort(); one.ends.sort(); }
  return ends;
}

function upTo(sorted, time) {  // how many are not after this time
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= time) low = middle + 1; else high = middle;
  }
  return low;
}

const countAt = (one, time) => upTo(one.starts, time) - upTo(one.ends, time);

// The most that were in any of these at once.
function deepest(ends) {
  const starts = joined(ends.map((one) => one.starts)), stops = joined(ends.map((one) => one.ends));
  let most = 0, open = 0, stop = 0;
  for (const start of starts) {
    while (stop < stops.length && stops[stop] <= start) { stop++; open--; }
    most = Math.max(most, ++open);
  }
  return most;
}

function joined(arrays) {
  const all = new Float64Array(arrays.reduce((sum, one) => sum + one.length, 0));
  let at = 0;
  for (const one of arrays) { all.set(one, at); at += one.length; }
  return all.sort();
}

// ---- words

function seconds(amount) {
  if (amount < 0.0995) return `${Math.max(0, amount * 1000).toFixed(amount < 0.00995 && amount > 0 ? 1 : 0)} ms`;
  if (amount < 9.95) return `${amount.toFixed(2)} s`;
  if (amount < 99.5) return `${amount.toFixed(1)} s`;
  const whole = Math.round(amount), pad = (number) => String(number).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)}m${pad(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${pad(Math.floor((whole % 3600) / 60))}m`;
  return `${Math.floor(whole / 86400)}d${pad(Math.floor((whole % 86400) / 3600))}h`;
}

const ROUND = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

function stepFor(span, most) {
  const wanted = span / Math.max(1, most);
  if (wanted > 1) return ROUND.find((step) => step >= wanted) || 86400 * 2 ** Math.ceil(Math.log2(wanted / 86400));
  const size = 10 ** Math.floor(Math.log10(wanted));
  return size * [1, 2, 5, 10].find((factor) => size * factor >= wanted * 0.999);
}

// All labels of an axis have the form that its last mark needs.
function tickLabel(at, step, last) {
  if (Math.abs(at) < step / 2) return "0";
  if (step < 1) return `${at.toFixed(Math.min(6, Math.max(1, Math.ceil(-Math.log10(step) - 1e-9))))} s`;
  const whole = Math.round(at), pad = (number) => String(number).padStart(2, "0");
  if (last < 120 && step < 60) return `${whole} s`;
  const ofMinute = step < 60 ? `${pad(whole % 60)}s` : "", ofHour = pad(Math.floor((whole % 3600) / 60));
  if (last < 3600) return ofMinute ? `${Math.floor(whole / 60)}m${ofMinute}` : `${whole / 60} min`;
  if (last < 86400) return `${Math.floor(whole / 3600)}h${ofHour}m${ofMinute}`;
  const days = `${Math.floor(whole / 86400)}d${pad(Math.floor((whole % 86400) / 3600))}h`;
  return step < 3600 ? `${days}${ofHour}m${ofMinute}` : days;
}

// A window is told by the clock of whoever reads it, a run from its begin.
const moment = (data, at) => (windowOf(data.raw) ? timeOfDay(data, at, 1) : seconds(at));

function timeOfDay(data, at, step) {
  const fine = step < 60 ? { second: "2-digit", ...(step < 1 ? { fractionalSecondDigits: 3 } : {}) } : {};
  return new Date((data.raw.begin + at) * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...fine });
}

// From here to the next time of day that is a multiple of so many seconds.
function untilRound(data, from, step) {
  const at = data.raw.begin + from, ofDay = at - new Date(at * 1000).getTimezoneOffset() * 60;
  return from + (Math.ceil(ofDay / step) * step - ofDay);
}

const counted = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
