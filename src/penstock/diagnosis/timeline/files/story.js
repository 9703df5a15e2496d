// The story of a task, of a host or of the queue, as elements. Text is put in as text, never as markup.

const MOST_PIECES = 40;

function element(name, text, style) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (style) made.className = style;
  return made;
}

function clock(data, at) {
  const date = new Date((data.raw.begin + at) * 1000);
  return `${date.toLocaleString(undefined, { hour12: false })}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

function swatch(fill, width, height, ratio) {
  const made = document.createElement("canvas");
  made.setAttribute("aria-hidden", "true");
  const pen = sized(made, width, height, ratio);
  pen.fillStyle = fill;
  pen.fillRect(0, 0, width, height);
  return made;
}

function taskStory(data, task, looks, ratio) {
  const tasks = data.raw.tasks, made = document.createDocumentFragment();
  made.append(element("h2", nameOf(data, task)));
  if (nameOf(data, task) !== tasks.id[task]) made.append(element("p", `task ${tasks.id[task]}`));
  const parts = [
    `kind ${data.raw.kinds[tasks.kind[task]]}`, `lane ${data.raw.lanes[tasks.lane[task]]}`,
    `priority ${tasks.priority[task]}`, data.raw.states[tasks.state[task]],
  ];
  made.append(element("p", parts.join(" · ")));
  for (const words of data.outliers.get(task) || []) made.append(element("p", `◆ ${words}`, "mark"));
  made.append(element("p", `queued ${clock(data, data.begun[task])}${windowOf(data.raw) ? "" : ` (+${seconds(data.begun[task])})`}`));
  made.append(pieceTable(data, task, looks, ratio));
  const total = data.ended[task] - data.begun[task];
  let sums = `total ${seconds(total)}: waited ${seconds(data.waited[task])}, ran ${seconds(data.ran[task])}`;
  if (tasks.cost[task]) sums += `, cost ${tasks.cost[task]} USD`;
  made.append(element("p", sums));
  const error = data.raw.texts[tasks.error[task]];
  if (error) made.append(element("p", `error: ${error}`, "mark"));
  return made;
}

function pieceTable(data, task, looks, ratio) {
  const table = element("table"), from = data.first[task], to = data.first[task + 1];
  const hidden = Math.max(0, to - from - MOST_PIECES), half = MOST_PIECES / 2;
  for (let p = from; p < to; p++) {
    if (hidden && p === from + half) {
      const row = table.insertRow();
      row.insertCell();
      const cell = row.insertCell();
      cell.colSpan = 3;
      cell.textContent = `… ${hidden} more …`;
      p += hidden;
    }
    table.append(pieceRow(data, task, p, looks, ratio));
  }
  return table;
}

function pieceRow(data, task, piece, looks, ratio) {
  const what = data.raw.whats[data.what[piece]], pieces = data.raw.pieces, row = element("tr");
  const detail = data.raw.texts[pieces.detail[piece]], verdict = data.raw.verdicts[pieces.verdict[piece]];
  row.insertCell().append(what.sort === RESTING ? "" : swatch(lookOf(data, looks, task, piece).fill, 14, 10, ratio));
  const time = row.insertCell();
  time.className = "number";
  time.textContent = seconds(data.end[piece] - data.start[piece]);
  const name = row.insertCell();
  name.className = "what";
  const text = row.insertCell();
  if (what.sort === WAITING) {
    name.textContent = what.name || "waiting, no reason told";
    text.textContent = detail;
  } else if (what.sort === RUNNING) {
    name.textContent = `attempt ${pieces.attempt[piece]} on ${what.name}`;
    text.textContent = detail ? `${verdict}: ${detail}` : verdict;
    if (data.raw.failed[pieces.verdict[piece]]) text.className = "mark";
  } else {
    name.textContent = "in no queue";
    text.textContent = "it had ended, and was revived later";
  }
  return row;
}

function hostStory(data, host, time) {
  const at = (steps) => { const place = upTo(steps.times, time) - 1; return place >= 0 ? steps.values[place] : 0; };
  const made = document.createDocumentFragment();
  made.append(element("h2", host.host));
  const room = host.available.times.length ? ` of ${at(host.available)}` : "";
  made.append(element("p", `at ${moment(data, time)}: ${at(host.used)}${room} slots in use${windowOf(data.raw) ? "" : " by this run"}`));
  if (host.others.values.some((value) => value > 0)) made.append(element("p", `${at(host.others)} by other runs`));
  for (const stall of data.raw.stalls) {
    if (stall.host !== host.host || time < stall.from || time > stall.to) continue;
    made.append(element("p", `user code kept its loop from turning for ${seconds(stall.to - stall.from)}${stall.task ? `: task ${stall.task}` : ""}`, "mark"));
  }
  return made;
}

function queueStory(data, depths, time) {
  const made = document.createDocumentFragment(), table = element("table");
  let total = 0;
  data.raw.whats.forEach((what, place) => {
    const count = what.sort === WAITING ? countAt(depths[place], time) : 0;
    if (!count) return;
    total += count;
    const row = table.insertRow();
    const cell = row.insertCell();
    cell.className = "number";
    cell.textContent = count.toLocaleString("en");
    row.insertCell().textContent = what.name || "no reason told";
  });
  made.append(element("h2", `${counted(total, "task")} waiting at ${moment(data, time)}`), table);
  return made;
}

// The same in one line, for those who hear the page.
function spokenStory(data, task) {
  const parts = [nameOf(data, task), data.raw.states[data.raw.tasks.state[task]]];
  for (let p = data.first[task]; p < Math.min(data.first[task + 1], data.first[task] + MOST_PIECES); p++) {
    const what = data.raw.whats[data.what[p]], time = seconds(data.end[p] - data.start[p]);
    if (what.sort === WAITING) parts.push(`waited ${time} for ${what.name || "no reason told"}`);
    if (what.sort === RUNNING) parts.push(`ran ${time} on ${what.name}, ${data.raw.verdicts[data.raw.pieces.verdict[p]]}`);
  }
  return [...parts, ...(data.outliers.get(task) || [])].join("; ");
}
