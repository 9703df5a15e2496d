// Evidence, marked on a picture: tasks, stretches of time, and hosts. Each has a number, a dashed frame and an entry in a
// list under the picture, so that no colour is needed to find it.
//
//   picture.mark([{ task: ID }, { task: ID, from, to }, { host: NAME, from, to }, { from, to }])
//
// `from` and `to` are seconds since 1970, as records have them; without them a task is marked from end to end and a host
// all along. `words` says what an entry is evidence of. A task that is not in the picture is listed as not shown.
// `picture.mark([])` takes them away. `picture.reveal(place)` brings one into view, as its entry in the list does.

const MARK_INSET = 1.5;

// With times from the begin of the run, and the row's task where there is one.
function placedMarks(data, marks, places) {
  return marks.map((mark, at) => {
    const begin = data.raw.begin, task = mark.task === undefined ? -1 : places.get(mark.task) ?? -1;
    const whole = task < 0 ? [0, data.span] : [data.begun[task], data.ended[task]];
    const from = mark.from === undefined ? whole[0] : mark.from - begin, to = mark.to === undefined ? whole[1] : mark.to - begin;
    return { number: at + 1, task, host: mark.host, from, to: Math.max(from, to), words: mark.words || "", named: mark.task, timed: mark.from !== undefined };
  });
}

function markText(data, mark) {
  const when = `${moment(data, Math.max(0, mark.from))} to ${moment(data, mark.to)}`;
  let what = when;
  if (mark.named !== undefined) what = mark.task < 0 ? `task ${mark.named} (not shown)` : `task ${nameOf(data, mark.task)}${mark.timed ? `, ${when}` : ""}`;
  else if (mark.host !== undefined) what = mark.timed ? `${mark.host}, ${when}` : mark.host;
  return mark.words ? `${what}: ${mark.words}` : what;
}

// A dashed frame: light under dark, so that it shows on any colour.
function dashedFrame(pen, colours, x, y, width, height) {
  pen.lineWidth = 3;
  pen.strokeStyle = colours.ground;
  pen.strokeRect(x, y, width, height);
  pen.lineWidth = 1.5;
  pen.strokeStyle = colours.ink;
  pen.setLineDash([5, 3]);
  pen.strokeRect(x, y, width, height);
  pen.setLineDash([]);
}

function markNumber(pen, colours, number, x, y) {
  const text = String(number), width = pen.measureText(text).width + 8;
  pen.fillStyle = colours.ink;
  pen.fillRect(x, y, width, 14);
  pen.fillStyle = colours.ground;
  pen.textAlign = "center";
  pen.fillText(text, x + width / 2, y + 7.5);
}

function spanOnScreen(view, mark) {
  const left = Math.max(view.left, xOf(view, mark.from)), right = Math.min(view.left + view.plot, xOf(view, mark.to));
  return right < view.left || left > view.left + view.plot ? null : { x: left, width: Math.max(2, right - left) };
}

// Over the bars: frames of tasks, and stretches of time from top to bottom. Numbers for which there is no room are left out.
function drawMarks(pen, data, view, colours, marks) {
  const numbered = [];
  for (const mark of marks) {
    if (mark.host !== undefined) continue;
    const span = spanOnScreen(view, mark);
    if (mark.named === undefined) {
      if (span) drawStretch(pen, view, colours, mark, span);
      continue;
    }
    const row = mark.task < 0 ? -1 : view.rowOf[mark.task];
    if (row < 0) continue;
    const y = AXIS + (row - view.top) * view.rowHeight, height = Math.max(6, view.rowHeight);
    if (y + height < AXIS || y > view.height) continue;
    const top = y + view.rowHeight / 2 - height / 2;
    if (span) dashedFrame(pen, colours, span.x - MARK_INSET, top, span.width + 2 * MARK_INSET, height - 1);
    const at = Math.max(AXIS, top + height / 2 - 7);
    if (numbered.some((other) => Math.abs(other - at) < 15)) continue;
    numbered.push(at);
    markNumber(pen, colours, mark.number, 2, at);
  }
}

function drawStretch(pen, view, colours, mark, span) {
  pen.globalAlpha = 0.12;
  pen.fillStyle = colours.ink;
  pen.fillRect(span.x, AXIS, span.width, view.height - AXIS);
  pen.globalAlpha = 1;
  dashedFrame(pen, colours, span.x, AXIS + 1, span.width, view.height - AXIS - 2);
  markNumber(pen, colours, mark.number, span.x + 2, AXIS + 3);
}

// Underneath: a frame round a host's chart, and stretches of time across all of them.
function drawMarksUnder(pen, data, view, colours, marks) {
  const chart = chartHeight(data);
  for (const mark of marks) {
    const span = spanOnScreen(view, mark);
    if (!span || mark.named !== undefined) continue;
    if (mark.host === undefined) {
      dashedFrame(pen, colours, span.x, AXIS + 1, span.width, view.underHeight - AXIS - 2);
      continue;
    }
    const place = data.raw.hosts.findIndex((host) => host.host === mark.host);
    if (place < 0) continue;
    const y = AXIS + (place + 1) * chart - view.underTop;
    dashedFrame(pen, colours, span.x, y + 2, span.width, chart - 5);
    markNumber(pen, colours, mark.number, span.x + 2, y + 4);
  }
}
