// Underneath the bars: how many waited, and the slots in use on each host, over the same time.

const chartHeight = (data) => (data.raw.hosts.length > 4 ? 34 : 46);

const underHeight = (data) => AXIS + (data.raw.hosts.length + 1) * chartHeight(data);

// The axis, the queue and the hosts; of them those that are scrolled into view.
function drawUnder(canvas, data, view, looks, colours, depths, marks) {
  const chart = chartHeight(data), pen = sized(canvas, view.width, view.underHeight, view.ratio);
  drawAxis(pen, data, view, colours, view.underHeight);
  pen.save();
  pen.beginPath();
  pen.rect(0, AXIS, view.width, view.underHeight - AXIS);
  pen.clip();
  const first = Math.floor(view.underTop / chart), last = Math.ceil((view.underTop + view.underHeight - AXIS) / chart);
  for (let place = first; place < Math.min(last, data.raw.hosts.length + 1); place++) {
    const y = AXIS + place * chart - view.underTop;
    if (place === 0) drawQueue(pen, data, view, looks, colours, depths, y);
    else drawHost(pen, data, view, looks, colours, depths, data.raw.hosts[place - 1], y);
  }
  drawMarksUnder(pen, data, view, colours, marks);
  pen.restore();
}

// What has not ended has no end; but it is not drawn beyond the present.
const countUntilNow = (data, one, time) => (time > data.span ? 0 : countAt(one, time));

function drawHost(pen, data, view, looks, colours, depths, host, y) {
  const most = host.available.values.reduce((a, b) => Math.max(a, b), Math.max(1, host.peak)), box = { y, height: chartHeight(data), most };
  const words = host.available.times.length ? `${host.peak} of ${counted(most, "slot")}` : `at most ${host.peak}`;
  chartName(pen, view, colours, host.host, words, box);
  const look = host.what < 0 || data.raw.colours.by !== "host" ? { flat: colours.soft } : looks[host.what];
  const used = sampled(view, (from, to) => maxIn(host.used, from, to));
  if (host.others.values.some((value) => value > 0)) {
    const others = sampled(view, (from, to) => maxIn(host.others, from, to));
    area(pen, view, box, used, others, colours.line);
  }
  pen.globalAlpha = view.filtered ? 0.35 : 1;
  area(pen, view, box, null, used, look.flat);
  pen.globalAlpha = 1;
  if (view.filtered && host.what >= 0) {
    area(pen, view, box, null, sampled(view, (from, to) => countUntilNow(data, depths[host.what], (from + to) / 2)), look.flat);
  }
  pen.strokeStyle = colours.ink;
  pen.setLineDash([4, 3]);
  pen.lineWidth = 1;
  drawLine(pen, view, host.available, box);
  pen.setLineDash([]);
  pen.fillStyle = colours.mark;
  for (const stall of data.raw.stalls) {
    if (stall.host !== host.host || stall.to < view.from || stall.from > view.to) continue;
    const x = Math.max(view.left, xOf(view, stall.from));
    pen.fillRect(x, y + 2, Math.max(2, Math.min(view.left + view.plot, xOf(view, stall.to)) - x), 3);
  }
}

function drawQueue(pen, data, view, looks, colours, depths, y) {
  const box = { y, height: chartHeight(data), most: Math.max(1, view.deepest) };
  chartName(pen, view, colours, view.filtered ? "waiting, of those shown" : "waiting", `at most ${view.deepest.toLocaleString("en")}`, box);
  let floor = null;
  data.raw.whats.forEach((what, place) => {
    if (what.sort !== WAITING || !depths[place].starts.length) return;
    const amounts = sampled(view, (from, to) => countUntilNow(data, depths[place], (from + to) / 2));
    area(pen, view, box, floor, amounts, looks[place].fill);
    floor = floor ? floor.map((below, x) => below + amounts[x]) : amounts;
  });
}

function chartName(pen, view, colours, name, words, box) {
  const middle = box.y + box.height / 2 + 2;
  pen.textAlign = "right";
  pen.fillStyle = colours.ink;
  pen.fillText(fitted(name, (view.left - 12) / 6), view.left - 6, middle - 7);
  pen.fillStyle = colours.soft;
  pen.fillText(fitted(words, (view.left - 12) / 6), view.left - 6, middle + 7);
}

// An amount for each pixel of the plot.
function sampled(view, amount) {
  const made = new Float64Array(Math.floor(view.plot)), width = (view.to - view.from) / view.plot;
  for (let x = 0; x < made.length; x++) made[x] = amount(view.from + x * width, view.from + (x + 1) * width);
  return made;
}

const heightIn = (box, amount) => box.y + box.height - 4 - (amount / box.most) * (box.height - 10);

// What is between a floor and these amounts above it, as one shape.
function area(pen, view, box, floor, amounts, fill) {
  const size = amounts.length, low = (x) => heightIn(box, floor ? floor[x] : 0);
  pen.beginPath();
  for (let x = 0; x < size; x++) {
    if (amounts[x] <= 0) continue;
    let end = x;
    while (end < size && amounts[end] > 0) end++;
    pen.moveTo(view.left + x, low(x));
    for (let i = x; i < end; i++) {
      const y = heightIn(box, amounts[i] + (floor ? floor[i] : 0));
      pen.lineTo(view.left + i, y);
      pen.lineTo(view.left + i + 1, y);
    }
    for (let i = end - 1; i >= x; i--) {
      pen.lineTo(view.left + i + 1, low(i));
      pen.lineTo(view.left + i, low(i));
    }
    x = end;
  }
  pen.fillStyle = fill;
  pen.fill();
}

// Of steps: the most between two times.
function maxIn(steps, from, to) {
  let place = upTo(steps.times, from) - 1;
  let most = place >= 0 ? steps.values[place] : 0;
  for (place++; place < steps.times.length && steps.times[place] < to; place++) most = Math.max(most, steps.values[place]);
  return most;
}

function drawLine(pen, view, steps, box) {
  if (!steps.times.length) return;
  const height = (value) => Math.round(heightIn(box, value)) + 0.5;
  let place = Math.max(0, upTo(steps.times, view.from) - 1);
  pen.beginPath();
  pen.moveTo(Math.max(view.left, xOf(view, steps.times[place])), height(steps.values[place]));
  for (place++; place < steps.times.length && steps.times[place] <= view.to; place++) {
    const x = xOf(view, steps.times[place]);
    pen.lineTo(x, height(steps.values[place - 1]));
    pen.lineTo(x, height(steps.values[place]));
  }
  pen.lineTo(view.left + view.plot, height(steps.values[place - 1]));
  pen.stroke();
}
