// What stands around the canvases: filters, the legend, outliers, marked evidence, and the same as a table.

const MOST_LEGEND = 24, MOST_MARKED = 50, MOST_TABLE = 500;

// ---- filters. An option's value is "=" and the name, so that it is the same thing in other data, and "" is all of them.

function readFilter(picture) {
  const { part, data } = picture, filter = { search: part.search.value, order: part.order.value, outliers: part.outliers.checked };
  for (const name of FILTERS) filter[name] = placeOf(data, name, part[name].value);
  return filter;
}

// In its table; "" where all are let through, -2 (nothing) where the data has none of that name.
function placeOf(data, field, value) {
  if (value === "") return "";
  const place = optionsOf(data, field).find(([, name]) => `=${name}` === value);
  return place ? place[0] : -2;
}

function optionsOf(data, field) {
  const numbered = (names) => names.map((name, place) => [place, name]);
  const whats = (sort) => numbered(data.raw.whats).filter(([, what]) => what.sort === sort).map(([place, what]) => [place, what.name]);
  if (field === "host") return whats(RUNNING);
  if (field === "reason") return whats(WAITING);
  return numbered(data.raw[`${field}s`]);
}

function fillSelect(select, all, names) {
  const chosen = select.value, wanted = names.map((name) => `=${name}`);
  if (chosen && !wanted.includes(chosen)) wanted.push(chosen);
  if (select.options.length && [...select.options].slice(1).map((one) => one.value).join("\n") === wanted.join("\n")) return;
  const option = (value, text) => { const made = element("option", text); made.value = value; return made; };
  select.replaceChildren(option("", all), ...wanted.map((value) => option(value, value.slice(1) || "no reason told")));
  select.value = chosen;
}

function fillControls(picture) {
  for (const name of FILTERS) {
    fillSelect(picture.part[name], name === "reason" ? "anything" : "all", optionsOf(picture.data, name).map(([, text]) => text));
  }
  tell(picture);
  fillOutliers(picture);
}

function tell(picture) {
  const { data, part } = picture, excerpt = data.raw.excerpt, window = windowOf(data.raw);
  const cut = excerpt && excerpt.total > data.count, all = cut ? `${excerpt.total.toLocaleString("en")}${excerpt.more ? " or more" : ""}` : "";
  const parts = [cut ? `${data.count.toLocaleString("en")} of ${all} tasks shown` : counted(data.count, "task")];
  if (!window) parts.push(seconds(data.span) + (data.raw.live ? " so far" : ""));
  if (cut) parts.push(window ? "what runs, what ended last, what waits longest" : "the newest");
  parts.push(`from ${clock(data, window ? data.home[0] : 0)}`);
  put(part.told, parts.join(" · "));
}

function fillOutliers(picture) {
  const { data, part } = picture, marked = part.marked, list = marked.querySelector("ul");
  marked.hidden = !data.outliers.size;
  const total = (task) => data.ended[task] - data.begun[task];
  const worst = [...data.outliers].sort(([a], [b]) => total(b) - total(a)).slice(0, MOST_MARKED);
  const texts = worst.map(([task, words]) => `◆ ${nameOf(data, task)}: ${words.join("; ")}`);
  put(marked.querySelector("summary"), counted(data.outliers.size, "outlier"));
  put(marked.querySelector("p"), data.raw.rule);
  if ([...list.children].map((one) => one.textContent).join("\n") === texts.join("\n")) return;
  list.replaceChildren(...worst.map(([task], place) => {
    const id = data.raw.tasks.id[task];
    return buttonItem(texts[place], () => { clearFilter(picture); picture.select(picture.rowOfId(picture.data.places(), id, 0)); });
  }));
}

function buttonItem(text, act) {
  const item = element("li"), button = element("button", text);
  button.type = "button";
  button.addEventListener("click", act);
  item.append(button);
  return item;
}

function clearFilter(picture) {
  for (const name of FILTERS) picture.part[name].value = "";
  picture.part.search.value = "";
  picture.part.outliers.checked = false;
  picture.refilter();
}

function fillEvidence(picture) {
  const { data, part, marks } = picture;
  part.evidence.hidden = !marks.length;
  part["evidence-list"].replaceChildren(...marks.map((mark, place) => buttonItem(`${mark.number} ${markText(data, mark)}`, () => picture.reveal(place))));
}

// ---- legend

function drawLegend(picture) {
  const { data, looks, part } = picture, total = data.raw.reasons.reduce((sum, [, spent]) => sum + spent, 0) || 1;
  const item = (look, text) => legendItem(look, text, picture.view.ratio);
  const waits = data.raw.reasons.slice(0, MOST_LEGEND).map(([place, spent]) => {
    const name = data.raw.whats[place].name || "no reason told";
    return item(looks[place], `${name} ${seconds(spent)}, ${Math.round((spent / total) * 100)} %`);
  });
  const used = data.raw.hosts.filter((host) => host.what >= 0), coloured = data.raw.colours.by;
  const hosts = used.slice(0, MOST_LEGEND).map((host) => item(looks[host.what], host.host));
  if (data.raw.reasons.length > MOST_LEGEND) waits.push(element("li", `and ${counted(data.raw.reasons.length - MOST_LEGEND, "more reason")}`));
  if (used.length > MOST_LEGEND) hosts.push(element("li", `and ${counted(used.length - MOST_LEGEND, "more host")}`));
  part["legend-waits"].replaceChildren(...waits);
  if (coloured !== "host") {  // one host: its attempts are told apart by lane or kind
    const names = data.raw[`${coloured}s`];
    hosts.splice(0, hosts.length, ...names.slice(0, MOST_LEGEND).map((name, place) => item(looks.groups[place], name)));
    if (names.length > MOST_LEGEND) hosts.push(element("li", `and ${counted(names.length - MOST_LEGEND, `more ${coloured}`)}`));
  }
  put(part.running, coloured === "host" ? "Running, by host" : `Running on ${used[0].host}, by ${coloured}`);
  part["legend-hosts"].replaceChildren(...hosts);
  const signs = [
    ...(data.outliers.size ? [signItem("◆ or ▬", "beside a name: an outlier")] : []),
    ...(data.raw.failed.some((failed) => failed) ? [signItem("✕", "an attempt that failed")] : []),
  ];
  part.signs.hidden = !signs.length;
  part["legend-signs"].replaceChildren(...signs);
}

function signItem(sign, text) {
  const item = element("li");
  item.append(element("span", sign, "mark"), element("span", text));
  return item;
}

function legendItem(look, text, ratio) {
  const item = element("li");
  item.append(swatch(look.fill, 22, 12, ratio), element("span", text));
  return item;
}

// ---- as a table: for those who hear the page. It is made when somebody opens it, and left alone while the focus is in it.

const COLUMNS = ["Task", "State", "Kind", "Lane", "Hosts", "Queued", "Waited", "Waited most for", "Ran", "Outlier"];

function fillTable(picture) {
  const { part, view, data } = picture, place = part["table-rows"];
  if (!part.table.open || place.contains(document.activeElement)) return;
  const shown = Math.min(view.rows.length, MOST_TABLE), table = element("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  put(part["table-told"], shown < view.rows.length ? `The first ${shown} of ${counted(view.rows.length, "task")}, in the order above; filter for others.` : counted(shown, "task"));
  for (const name of COLUMNS) {
    const cell = element("th", name);
    cell.scope = "col";
    head.append(cell);
  }
  for (let row = 0; row < shown; row++) body.append(tableRow(data, view.rows[row], picture.how.linkTo));
  place.replaceChildren(table);
}

function tableRow(data, task, linkTo) {
  const tasks = data.raw.tasks, row = element("tr"), name = element("th"), spent = new Map(), hosts = new Set();
  name.scope = "row";
  const link = element(linkTo ? "a" : "span", nameOf(data, task));
  if (linkTo) link.href = linkTo(tasks.id[task]);
  name.append(link);
  for (let p = data.first[task]; p < data.first[task + 1]; p++) {
    const what = data.raw.whats[data.what[p]];
    if (what.sort === WAITING) spent.set(what.name, (spent.get(what.name) || 0) + data.end[p] - data.start[p]);
    if (what.sort === RUNNING) hosts.add(what.name);
  }
  const most = [...spent].sort(([, a], [, b]) => b - a)[0];
  row.append(name);
  for (const text of [
    data.raw.states[tasks.state[task]], data.raw.kinds[tasks.kind[task]], data.raw.lanes[tasks.lane[task]], [...hosts].join(", "),
    clock(data, data.begun[task]), seconds(data.waited[task]), most ? `${most[0] || "no reason told"} (${seconds(most[1])})` : "",
    seconds(data.ran[task]), (data.outliers.get(task) || []).join("; "),
  ]) row.append(element("td", text));
  return row;
}
