// Before beside after: what matters most in figures with what is to be known about it; then by lane and by host.
const { h } = Vue;

export function results(page) {
  if (!page.answer) return h("section", { class: "part", "aria-label": "What it would bring" }, [h("p", { class: "soft" }, "…")]);
  const [figures] = page.answer.tables;
  return h("section", { class: ["part stack", { stale: page.stale }], "aria-label": "What it would bring", "aria-busy": page.stale ? "true" : "false" }, [
    h("div", { class: "figures" }, figures.rows.map((row) => figure(page, figures.columns, row))),
    page.answer.notes.length ? h("ul", { class: "notes", "aria-label": "Notes" }, page.answer.notes.map((words) => h("li", words))) : null,
  ]);
}

export function tables(page) {
  if (!page.answer) return null;
  const [, lanes, hosts] = page.answer.tables;
  return h("section", { class: ["part tables stack", { stale: page.stale }], "aria-label": "By lane and host" }, [table("Waits by lane", lanes), table("Hosts", hosts)]);
}

// While all of an answer is not there, its first figures are.
function figure(page, columns, [name, before, after, change]) {
  const first = page.first && { makespan: page.first.makespan, "mean wait": page.first.waited }[name];
  const less = change.startsWith("-");
  return h("div", { class: "figure", "data-figure": name, key: name }, [
    h("span", { class: "figure-label" }, name),
    h("span", { class: "figure-value" }, [h("span", { class: "was" }, before), h("span", { "aria-label": "to" }, " → "), h("span", { class: "then" }, first || after)]),
    h("span", { class: ["soft", { less, more: change.startsWith("+") }] }, first ? "…" : change === "=" ? "no change" : change || `${columns[1].slice(1)} → ${columns[2].slice(1)}`),
  ]);
}

function table(caption, { columns, rows }) {
  const look = (at) => (columns[at].startsWith(">") ? "num" : columns[at] === "waited for" ? "wide" : undefined);
  return h("div", { class: "table tall", tabindex: "0", role: "region", "aria-label": caption }, [
    h("table", [
      h("caption", caption),
      h("thead", [h("tr", columns.map((name, at) => h("th", { scope: "col", class: look(at) }, name.replace(/^>/, ""))))]),
      h("tbody", rows.map((row) => h("tr", { key: row[0] }, row.map((cell, at) => (at ? h("td", { class: look(at) }, cell) : h("th", { scope: "row" }, cell)))))),
    ]),
  ]);
}
