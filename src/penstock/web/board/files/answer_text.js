// The Markdown of answers as elements: headings, lists, quotes, tables, code, bold, italics and marks of passages.
//
// What a model wrote can become nothing else: it is always put in as text. A link is its words and its address, in
// plain sight. The same small set as `council/markdown.py` has for reports; the cost is linear in the text.
const { h } = Vue;

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*[\w+#.-]{0,30}[ \t]*$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const ITEM = /^([ \t]*)([-*+]|\d{1,9}[.)])[ \t]+(\S.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const DASHES = /^[ \t|:-]+$/;
const STARTS = [FENCE, HEADING, RULE, QUOTE, ITEM];
const DEEPEST = 6; // lists and quotes in each other
const FIRST_HEADING = 4; // the page's own headings are above
// Signs that steer or hide: shown as what they are, something that cannot be shown.
const UNSHOWN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

export const clean = (text) => String(text ?? "").replace(/\r\n/g, "\n").replace(/\t/g, "    ").replace(UNSHOWN, "\ufffd");

// ---- blocks

export function blocks(text) {
  const lines = text.split("\n");
  const found = [];
  let place = 0;
  while (place < lines.length) {
    const [made, next] = block(lines, place);
    if (made) found.push(made);
    place = next;
  }
  return found;
}

function block(lines, place) {
  const line = lines[place];
  if (!line.trim()) return [null, place + 1];
  let found = FENCE.exec(line);
  if (found) return code(lines, place + 1, found[1]);
  found = HEADING.exec(line);
  if (found) return [{ what: "heading", level: found[1].length, lines: [bare(found[2])] }, place + 1];
  if (RULE.test(line)) return [{ what: "rule" }, place + 1];
  if (QUOTE.test(line)) return quote(lines, place);
  if (line.includes("|") && isDashes(lines[place + 1] ?? "")) return table(lines, place);
  const end = textEnd(lines, place + 1);
  const more = lines.slice(place + 1, end).map((one) => one.trim());
  found = ITEM.exec(line);
  if (found) {
    const level = Math.min(Math.floor(found[1].length / 2), DEEPEST - 1);
    const kind = /\d/.test(found[2]) ? "ol" : "ul";
    return [{ what: "item", level, kind, start: parseInt(found[2], 10), lines: [found[3], ...more] }, end];
  }
  return [{ what: "text", lines: [line.trim(), ...more] }, end];
}

// Without the signs that may close a heading. Not by a pattern: those try every place of a long run.
function bare(text) {
  let end = text.length;
  while (end && "# ".includes(text[end - 1])) end -= 1;
  return text.slice(0, end);
}

// One by one: a call takes no hundred thousand arguments.
function addAll(to, from) {
  for (const one of from) to.push(one);
}

const isDashes = (line) => line.includes("|") && line.includes("-") && DASHES.test(line);

function code(lines, begin, fence) {
  for (let place = begin; place < lines.length; place += 1) {
    const closing = lines[place].trim();
    if (closing.length >= fence.length && closing === fence[0].repeat(closing.length)) {
      return [{ what: "code", lines: lines.slice(begin, place) }, place + 1];
    }
  }
  return [{ what: "code", lines: lines.slice(begin) }, lines.length]; // it is still being written
}

function quote(lines, begin) {
  let place = begin;
  const kept = [];
  for (let found; place < lines.length && (found = QUOTE.exec(lines[place])); place += 1) kept.push(found[1]);
  return [{ what: "quote", lines: kept }, place];
}

function table(lines, begin) {
  let end = begin + 2;
  while (end < lines.length && lines[end].includes("|")) end += 1;
  return [{ what: "table", lines: [lines[begin], ...lines.slice(begin + 2, end)] }, end];
}

function textEnd(lines, place) {
  while (place < lines.length && lines[place].trim() && !STARTS.some((form) => form.test(lines[place]))) place += 1;
  return place;
}

// ---- elements

function elements(found, cited, depth) {
  const made = [];
  for (let place = 0; place < found.length; place += 1) {
    if (found[place].what !== "item") {
      made.push(element(found[place], cited, depth));
      continue;
    }
    let end = place;
    while (end < found.length && found[end].what === "item") end += 1;
    addAll(made, lists(found.slice(place, end), cited));
    place = end - 1;
  }
  return made;
}

function element(one, cited, depth) {
  if (one.what === "code") return h("pre", { tabindex: 0 }, h("code", one.lines.join("\n")));
  if (one.what === "rule") return h("hr");
  if (one.what === "heading") return h(`h${Math.min(FIRST_HEADING - 1 + one.level, 6)}`, inline(one.lines[0], cited));
  if (one.what === "table") return tableOf(one.lines, cited);
  if (one.what === "quote" && depth < DEEPEST) {
    return h("blockquote", elements(blocks(one.lines.join("\n")), cited, depth + 1));
  }
  return h("p", broken(one.lines, cited));
}

function tableOf(lines, cited) {
  const rows = lines.map((line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim()));
  return h("div", { class: "wide", tabindex: 0 }, [
    h("table", [
      h("thead", h("tr", rows[0].map((cell) => h("th", { scope: "col" }, inline(cell, cited))))),
      h("tbody", rows.slice(1).map((row) => h("tr", row.map((cell) => h("td", inline(cell, cited)))))),
    ]),
  ]);
}

function broken(lines, cited) {
  return lines.flatMap((line, place) => (place ? [h("br"), ...inline(line, cited)] : inline(line, cited)));
}

// Items of one level and kind are a list; deeper ones lie in the item before them.
function lists(items, cited) {
  const made = [];
  let place = 0;
  while (place < items.length) {
    const { level, kind, start } = items[place];
    const entries = [];
    while (place < items.length && items[place].level >= level) {
      if (items[place].level === level && items[place].kind !== kind) break;
      if (items[place].level > level) {
        let end = place;
        while (end < items.length && items[end].level > level) end += 1;
        addAll(entries[entries.length - 1], lists(items.slice(place, end), cited));
        place = end;
      } else {
        entries.push(broken(items[place].lines, cited));
        place += 1;
      }
    }
    const numbered = kind === "ol" && start !== 1 ? { start } : {};
    made.push(h(kind, numbered, entries.map((entry) => h("li", entry))));
  }
  return made;
}

// ---- within a block

export function inline(text, cited) {
  const pieces = text.split(/(`+)/);
  const closings = closingTicks(pieces);
  const made = [];
  for (let place = 0; place < pieces.length; place += 1) {
    const end = place % 2 ? closings.get(place) : undefined;
    if (end !== undefined) {
      made.push(h("code", pieces.slice(place + 1, end).join("").trim()));
      place = end;
    } else if (pieces[place]) {
      addAll(made, place % 2 ? [pieces[place]] : emphasis(pieces[place], cited));
    }
  }
  return made;
}

function closingTicks(pieces) {
  const last = new Map();
  const found = new Map();
  for (let place = pieces.length - 2; place > 0; place -= 2) {
    const { length } = pieces[place];
    if (last.has(length)) found.set(place, last.get(length));
    last.set(length, place);
  }
  return found;
}

// Stars that open and close something; all others stay stars.
function emphasis(text, cited) {
  const pieces = text.split(/(\*\*|\*)/);
  const open = [{ star: "", parts: [] }];
  const top = () => open[open.length - 1];
  pieces.forEach((piece, place) => {
    if (place % 2 === 0) {
      addAll(top().parts, marks(piece, cited));
      return;
    }
    const behind = pieces[place - 1].slice(-1).trim();
    const before = pieces[place + 1].slice(0, 1).trim();
    const opener = open.findLastIndex((one) => one.star === piece);
    if (behind && opener > 0) {
      while (open.length - 1 > opener) lapse(open);
      const { parts } = open.pop();
      top().parts.push(h(piece === "**" ? "strong" : "em", parts));
    } else if (before && open.length <= 3) {
      open.push({ star: piece, parts: [] });
    } else {
      top().parts.push(piece);
    }
  });
  while (open.length > 1) lapse(open);
  return open[0].parts;
}

function lapse(open) {
  const { star, parts } = open.pop();
  addAll(open[open.length - 1].parts, [star, ...parts]);
}

const MARKED = /\[(\d{1,3})\]|\[([^[\]\n]{1,300})\]\(([^()\s]{1,1000})\)/g;

// [1] is a link to its passage where that is shown, and a link of the model's is text with its address.
function marks(text, cited) {
  const made = [];
  let from = 0;
  for (const found of text.matchAll(MARKED)) {
    const number = found[1] === undefined ? null : Number(found[1]);
    if (number !== null && !cited?.has(number)) continue;
    if (found.index > from) made.push(text.slice(from, found.index));
    from = found.index + found[0].length;
    made.push(
      number === null
        ? h("span", { class: "named-address" }, [found[2], " (", h("span", { class: "address" }, found[3]), ")"])
        : h("a", { href: `#passage-${number}`, class: "cites", "aria-label": `Passage ${number}` }, found[0]),
    );
  }
  if (from < text.length) made.push(text.slice(from));
  return made;
}

// A text of anybody's; `cited` are the numbers of passages that stand on the page.
export const AnswerText = {
  props: { text: String, cited: { type: Object, default: null } },
  render() {
    return h("div", { class: "answer-text" }, elements(blocks(clean(this.text)), this.cited, 0));
  },
};
