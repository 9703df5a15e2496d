// Drawing the bars. Only what is in view is looked at; where rows are thinner than a pixel, each pixel shows
// the mean of its tasks, with what ran drawn over what waited.

const AXIS = 20, BAR_LABEL_ROWS = 13, PATTERN_ROWS = 5, DENSE_ROWS = 2, NAMED_ROWS = 10;
const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

const STROKES = {
  "rising": [[0, 6, 6, 0, 2]], "rising-thin": [[0, 6, 6, 0, 1]],
  "falling": [[0, 0, 6, 6, 2]], "falling-thin": [[0, 0, 6, 6, 1]],
  "crossed": [[0, 0, 6, 6, 1.2], [0, 6, 6, 0, 1.2]],
  "level": [[0, 1.5, 6, 1.5, 1.3], [0, 4.5, 6, 4.5, 1.3]],
  "upright": [[1.5, 0, 1.5, 6, 1.3], [4.5, 0, 4.5, 6, 1.3]],
  "plus": [[3, 1, 3, 5, 1.2], [1, 3, 5, 3, 1.2]],
  "dots": [[1, 1.5, 3, 1.5, 2], [4, 4.5, 6, 4.5, 2]],
  "checked": [[0, 1.5, 3, 1.5, 3], [3, 4.5, 6, 4.5, 3]],
};

// How each thing looks on the present ground: a flat colour as text and as bytes, and a fill that may be a pattern.
function makeLooks(data, dark, ratio) {
  const ground = dark ? [20, 23, 27] : [255, 255, 255];
  const solid = (what) => {
    const hex = dark ? what.dark : what.light, bytes = hexBytes(hex);
    return { fill: css(bytes), flat: css(bytes), bytes, hex };
  };
  const looks = data.raw.whats.map((what) => {
    if (what.sort === RUNNING) return solid(what);
    const bytes = hexBytes(dark ? what.dark : what.light), pale = mixed(bytes, ground, 0.25), flat = mixed(bytes, ground, 0.55);
    return { fill: patternOf(what.pattern, what.tile, css(bytes), css(pale), ratio), flat: css(flat), bytes: flat };
  });
  looks.groups = data.raw.colours.looks.map(solid);
  return looks;
}

// Of a piece: where there is one host only, attempts have the colour of their lane or kind.
function lookOf(data, looks, task, piece) {
  const what = data.what[piece], by = data.raw.colours.by;
  return by === "host" || data.sorts[what] !== RUNNING ? looks[what] : looks.groups[data.raw.tasks[by][task]];
}

const hexBytes = (hex) => [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));
const css = (bytes) => `rgb(${bytes.join(" ")})`;
const mixed = (one, other, share) => one.map((value, i) => Math.round(value * share + other[i] * (1 - share)));

function patternOf(name, pixels, line, pale, ratio) {
  const tile = document.createElement("canvas"), size = Math.round(pixels * ratio);
  tile.width = tile.height = size;
  const pen = tile.getContext("2d");
  pen.fillStyle = pale;
  pen.fillRect(0, 0, size, size);
  pen.scale(size / 6, size / 6);
  pen.strokeStyle = line;
  for (const [x0, y0, x1, y1, width] of STROKES[name]) {
    pen.lineWidth = width;
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.lineTo(x1, y1);
    pen.stroke();
  }
  const pattern = pen.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(pixels / size));
  return pattern;
}

function sized(canvas, width, height, ratio) {
  const w = Math.max(1, Math.round(width * ratio)), h = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  const pen = canvas.getContext("2d", { alpha: false });
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = FONT;
  pen.textBaseline = "middle";
  return pen;
}

const xOf = (view, time) => view.left + ((time - view.from) / (view.to - view.from)) * view.plot;

function drawAxis(pen, data, view, colours, height) {
  pen.fillStyle = colours.ground;
  pen.fillRect(0, 0, view.width, height);
  const step = stepFor(view.to - view.from, view.plot / 90), last = Math.round(Math.floor(view.to / step) * step);
  const shift = windowOf(data.raw) ? untilRound(data, view.from, step) : 0;  // by the clock, marks stand at round times of day
  pen.strokeStyle = colours.line;
  pen.lineWidth = 1;
  pen.fillStyle = colours.soft;
  pen.textAlign = "center";
  for (let n = Math.ceil((view.from - shift) / step - 1e-9); n * step + shift <= view.to; n++) {
    const at = n * step + shift, x = Math.round(xOf(view, at)) + 0.5;
    pen.beginPath();
    pen.moveTo(x, AXIS - 4);
    pen.lineTo(x, height);
    pen.stroke();
    pen.fillText(windowOf(data.raw) ? timeOfDay(data, at, step) : tickLabel(at, step, last), x, AXIS / 2 - 1);
  }
}

function drawBars(canvas, data, view, looks, colours, marks) {
  const pen = sized(canvas, view.width, view.height, view.ratio);
  drawAxis(pen, data, view, colours, view.height);
  const last = Math.min(view.rows.length, Math.ceil(view.top + (view.height - AXIS) / view.rowHeight));
  const firstRow = Math.max(0, Math.floor(view.top));
  pen.save();
  pen.beginPath();
  pen.rect(0, AXIS, view.width, view.height - AXIS);
  pen.clip();
  if (view.rowHeight < DENSE_ROWS) drawDense(pen, data, view, looks, colours);
  else for (let row = firstRow; row < last; row++) drawRow(pen, data, view, looks, colours, row);
  drawNames(pen, data, view, colours, firstRow, last);
  drawMarks(pen, data, view, colours, marks);
  drawScroll(pen, view, colours);
  pen.restore();
}

function drawRow(pen, data, view, looks, colours, row) {
  const task = view.rows[row], y = AXIS + (row - view.top) * view.rowHeight;
  const gap = view.rowHeight >= 4 ? 1 : 0, height = Math.max(1, view.rowHeight - gap);
  const stop = data.first[task + 1], wide = view.rowHeight >= PATTERN_ROWS, right = view.left + view.plot;
  if (task === view.selected) {
    pen.fillStyle = colours.panel;
    pen.fillRect(0, y, view.width, view.rowHeight);
  }
  let drawn = -Infinity;  // up to this x; pieces that end on the same pixel are drawn once
  for (let p = firstVisible(data, task, view.from); p < stop && data.start[p] <= view.to; p++) {
    if (data.sorts[data.what[p]] === RESTING) continue;
    const x = Math.max(view.left, xOf(view, data.start[p])), end = Math.min(right, xOf(view, data.end[p]));
    if (end - drawn < 0.5 && end > drawn - 1) continue;
    const look = lookOf(data, looks, task, p), width = Math.max(1, end - x);
    pen.fillStyle = wide ? look.fill : look.flat;
    const thin = data.thin.has(task) && data.sorts[data.what[p]] === RUNNING;  // a question, which waits for its steps
    if (thin) pen.fillRect(x, y + height * 0.35, width, Math.max(1, height * 0.3));
    else pen.fillRect(x, y, width, height);
    drawn = x + width;
    if (!thin && view.rowHeight >= BAR_LABEL_ROWS && width > 34) drawLabel(pen, data, colours, look, p, x, y, width, height);
    if (wide && data.raw.failed[data.raw.pieces.verdict[p]] && end < right) drawCross(pen, colours, end, y, height);
  }
}

function firstVisible(data, task, from) {
  let low = data.first[task], high = data.first[task + 1];
  if (high - low < 16) { while (low < high && data.end[low] < from) low++; return low; }
  while (low < high) {
    const middle = (low + high) >> 1;
    if (data.end[middle] < from) low = middle + 1; else high = middle;
  }
  return low;
}

function drawLabel(pen, data, colours, look, piece, x, y, width, height) {
  const what = data.raw.whats[data.what[piece]];
  const text = fitted(what.name || "waiting", (width - 8) / 6.2);
  if (!text) return;
  const running = what.sort === RUNNING, space = pen.measureText(text).width;
  pen.textAlign = "left";
  if (!running) {  // letters over a pattern cannot be read
    pen.fillStyle = colours.ground;
    pen.globalAlpha = 0.85;
    pen.fillRect(x + 3, y + 1, space + 4, height - 2);
    pen.globalAlpha = 1;
  }
  pen.fillStyle = running ? inkOn(look.hex) : colours.ink;
  pen.fillText(text, x + 5, y + height / 2 + 0.5);
}

function inkOn(hex) {
  const [r, g, b] = hexBytes(hex);
  const linear = [r, g, b].map((value) => (value / 255) ** 2.2);
  return linear[0] * 0.2126 + linear[1] * 0.7152 + linear[2] * 0.0722 > 0.18 ? "#111" : "#fff";  // whichever is seen better
}

function fitted(text, signs) {
  if (signs < 3) return "";
  return text.length <= signs ? text : `${text.slice(0, Math.floor(signs) - 1)}…`;
}

function drawCross(pen, colours, x, y, height) {
  const size = Math.min(5, height / 2 - 1), middle = y + height / 2, at = x - size - 1;
  pen.lineWidth = 3.5;
  pen.strokeStyle = colours.ground;
  for (let pass = 0; pass < 2; pass++) {
    pen.beginPath();
    pen.moveTo(at - size, middle - size); pen.lineTo(at + size, middle + size);
    pen.moveTo(at - size, middle + size); pen.lineTo(at + size, middle - size);
    pen.stroke();
    pen.lineWidth = 1.6;
    pen.strokeStyle = colours.mark;
  }
}

function drawNames(pen, data, view, colours, firstRow, last) {
  pen.fillStyle = colours.ground;
  if (view.rowHeight < NAMED_ROWS) {
    pen.fillStyle = colours.mark;
    if (data.outliers.size) {
      for (let row = firstRow; row < last; row++) {
        if (data.outliers.has(view.rows[row])) pen.fillRect(view.left - 8, AXIS + (row - view.top) * view.rowHeight, 5, Math.max(1, view.rowHeight));
      }
    }
    drawGroups(pen, data, view, colours, firstRow, last);
    return;
  }
  pen.textAlign = "right";
  for (let row = firstRow; row < last; row++) {
    const task = view.rows[row], marked = data.outliers.has(task);
    pen.fillStyle = marked ? colours.mark : task === view.selected ? colours.ink : colours.soft;
    const name = fitted(nameOf(data, task), (view.left - 24) / 6);
    pen.fillText((marked ? "◆ " : "") + name, view.left - 6, AXIS + (row - view.top + 0.5) * view.rowHeight);
  }
}

// Rows too thin for names: the lane (or the kind, where there is one lane) of rows that stand together, with how many there
// are; where they do not, the name of a row now and then.
function drawGroups(pen, data, view, colours, firstRow, last) {
  const by = groupedBy(data), groups = data.raw.tasks[by], yOf = (row) => AXIS + (row - view.top) * view.rowHeight;
  const each = view.rowHeight * view.ratio, told = each < 1 ? `, ${Math.round(1 / each)} a pixel` : "";
  view.gutter = [];
  pen.textAlign = "right";
  if (view.order !== "lane") {
    pen.fillStyle = colours.soft;
    const every = Math.max(1, Math.ceil(16 / view.rowHeight));
    for (let row = Math.ceil(firstRow / every) * every; row < last; row += every) label(nameOf(data, view.rows[row]), yOf(row) + 7);
    return;
  }
  for (let row = firstRow; row < last; ) {
    const group = groups[view.rows[row]];
    let begin = row, end = row;
    while (begin > 0 && groups[view.rows[begin - 1]] === group) begin--;
    while (end < view.rows.length && groups[view.rows[end]] === group) end++;
    const top = Math.max(AXIS, yOf(row)), bottom = Math.min(view.height, yOf(end));
    pen.fillStyle = colours.line;
    if (begin === row) pen.fillRect(0, Math.round(top), view.left - 10, 1);
    if (bottom - top >= 13) {
      const middle = bottom - top >= 28 ? (top + bottom) / 2 - 7 : (top + bottom) / 2;
      pen.fillStyle = colours.ink;
      label(data.raw[`${by}s`][group], middle);
      pen.fillStyle = colours.soft;
      if (bottom - top >= 28) label(`${counted(end - begin, "task")}${told}`, middle + 14);
    }
    row = end;
  }
  function label(text, y) {
    view.gutter.push(text);
    pen.fillText(fitted(text, (view.left - 24) / 6), view.left - 12, y);
  }
}

const groupedBy = (data) => (data.raw.lanes.length > 1 ? "lane" : "kind");

function drawScroll(pen, view, colours) {
  const room = view.height - AXIS, shown = room / view.rowHeight;
  if (shown >= view.rows.length) return;
  const size = Math.max(24, (shown / view.rows.length) * room);
  const at = AXIS + (view.top / (view.rows.length - shown)) * (room - size);
  pen.globalAlpha = 0.55;
  pen.fillStyle = colours.soft;
  pen.fillRect(view.width - 8, at, 6, size);
  pen.globalAlpha = 1;
}

// Rows thinner than a pixel. Per line of pixels: how much of each pixel waited and ran, and in which colours, as changes
// along the line, so that a piece costs the same however long it is.
const beside = document.createElement("canvas");

function drawDense(pen, data, view, looks, colours) {
  const ratio = view.ratio, left = Math.round(view.left * ratio), top = Math.round(AXIS * ratio);
  const width = Math.round(view.plot * ratio), height = Math.round((view.height - AXIS) * ratio);
  if (width < 1 || height < 1) return;
  const image = new ImageData(width, height), pixels = image.data;
  const scale = width / (view.to - view.from), perPixel = 1 / (view.rowHeight * ratio);
  const sums = new Float32Array((width + 2) * 8);
  for (let y = 0; y < height; y++) {
    const from = view.top + y * perPixel, first = Math.floor(from);
    if (first >= view.rows.length) break;
    const stop = Math.min(view.rows.length, Math.max(first + 1, Math.floor(from + perPixel)));
    sums.fill(0);
    for (let row = first; row < stop; row++) addRow(sums, data, view, looks, view.rows[row], scale, width);
    paintLine(pixels, y * width * 4, sums, width, stop - first);
  }
  beside.width = width;  // which also empties it
  beside.height = height;
  beside.getContext("2d").putImageData(image, 0, 0);
  pen.drawImage(beside, left / ratio, top / ratio, width / ratio, height / ratio);
}

function addRow(sums, data, view, looks, task, scale, width) {
  const stop = data.first[task + 1];
  for (let p = data.first[task]; p < stop; p++) {
    if (data.end[p] < view.from) continue;
    if (data.start[p] > view.to) return;
    const sort = data.sorts[data.what[p]];
    if (sort === RESTING) continue;
    const a = Math.max(0, (data.start[p] - view.from) * scale);
    const b = Math.min(width, Math.max(a + 0.2, (data.end[p] - view.from) * scale));
    const i = Math.floor(a), j = Math.min(width, Math.floor(b)), bytes = lookOf(data, looks, task, p).bytes, at = sort === RUNNING ? 4 : 0;
    if (i === j) {
      add(sums, i * 8 + at, bytes, b - a);
      add(sums, (i + 1) * 8 + at, bytes, a - b);
    } else {
      add(sums, i * 8 + at, bytes, i + 1 - a);
      add(sums, (i + 1) * 8 + at, bytes, a - i);
      add(sums, j * 8 + at, bytes, b - j - 1);
      add(sums, (j + 1) * 8 + at, bytes, j - b);
    }
  }
}

function add(sums, at, bytes, amount) {
  sums[at] += bytes[0] * amount;
  sums[at + 1] += bytes[1] * amount;
  sums[at + 2] += bytes[2] * amount;
  sums[at + 3] += amount;
}

function paintLine(pixels, at, sums, width, rows) {
  let wr = 0, wg = 0, wb = 0, waited = 0, rr = 0, rg = 0, rb = 0, ran = 0;
  for (let x = 0, k = 0; x < width; x++, k += 8, at += 4) {
    wr += sums[k]; wg += sums[k + 1]; wb += sums[k + 2]; waited += sums[k + 3];
    rr += sums[k + 4]; rg += sums[k + 5]; rb += sums[k + 6]; ran += sums[k + 7];
    // What waited is a ground for what ran; little of either still shows.
    const under = waited < 1e-3 ? 0 : 0.15 + 0.85 * Math.min(1, waited / rows);
    const over = ran < 1e-3 ? 0 : Math.sqrt(Math.min(1, ran / rows));
    const alpha = over + under * (1 - over);
    if (alpha === 0) continue;
    const a = over ? over / ran / alpha : 0, b = under ? (under * (1 - over)) / waited / alpha : 0;
    pixels[at] = rr * a + wr * b;
    pixels[at + 1] = rg * a + wg * b;
    pixels[at + 2] = rb * a + wb * b;
    pixels[at + 3] = alpha * 255;
  }
}
