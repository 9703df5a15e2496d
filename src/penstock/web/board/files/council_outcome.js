// What a council came to: the answer with its sources, who dissents, the review and how far the answers agree.
//
// Nothing is called more than it is: one answer alone and a list say so, and agreement is how alike the answers are.
import { AnswerText } from "/board/files/answer_text.js";
import { seconds } from "/board/files/council_course.js";

const { h } = Vue;

const METHODS = {
  synthesis: (by) => `Summed up by ${by}`,
  single: () => "One answer alone, not a synthesis",
  list: () => "A ranked list of the answers, not a synthesis",
};

export function citedOf(course) {
  return new Set((course.retrieval?.passages ?? []).map((one) => Number(one.n)));
}

// ---- the answer

export function answer(course, cited, steps) {
  const found = course.synthesis;
  const { chair } = course;
  const children = [h("h2", { id: "answer-title" }, "Answer")];
  if (found) children.push(...concluded(found, course, cited));
  else if (chair.text || chair.state) children.push(h("p", { class: "told" }, `${chair.name} sums up${chair.text ? "" : " …"}`), h(AnswerText, { text: chair.text, cited }));
  else children.push(h("p", { class: "told pending" }, pending(course)));
  const task = steps[`synthesis/${found?.by ?? chair.name}`]?.task;
  if (task) children.push(h("p", { class: "where" }, h("a", { href: `/board/tasks/${encodeURIComponent(task)}` }, "task of the summing up")));
  return h("section", { class: "part outcome answer", "aria-labelledby": "answer-title" }, children);
}

function pending(course) {
  if (course.over) return course.over.error || "There is no answer.";
  const open = [...course.members.values()].filter((one) => !one.response && one.state !== "idle").map((one) => one.name);
  return open.length ? `To come; ${joined(open)} ${open.length === 1 ? "has" : "have"} not answered yet.` : "To come.";
}

const joined = (names) => (names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`);

function concluded(found, course, cited) {
  const method = (METHODS[found.method] ?? (() => "Not summed up"))(found.by ?? "nobody");
  const took = found.method === "synthesis" && found.response_time ? `, ${seconds(found.response_time)}` : "";
  return [
    h("p", { class: ["told", found.method === "synthesis" ? "" : "warning"] }, method + took),
    found.text ? h(AnswerText, { text: found.text, cited }) : null,
    listed("", passedOn(found)),
    listed("Dissent", (found.dissent ?? []).map((one) => `${one.name}: ${one.claim}`)),
    sources(found.sources ?? [], cited),
    course.record?.escalated?.why ? h("p", { class: "told" }, `The whole council was asked: ${course.record.escalated.why}`) : null,
  ];
}

function passedOn(found) {
  const told = (found.passed_on ?? []).map((one) => `${one.name} was to sum up and could not: ${one.error ?? "no reason was given"}`);
  return [...told, ...(found.notes ?? [])];
}

function sources(found, cited) {
  if (!found.length) return null;
  return h("div", { class: "sources" }, [
    h("h3", "Sources"),
    h("ul", found.map((one) => {
      const name = `[${one.n}] ${one.source}`;
      return h("li", cited.has(Number(one.n)) ? h("a", { href: `#passage-${one.n}` }, name) : name);
    })),
  ]);
}

export function listed(title, texts) {
  if (!texts.length) return null;
  return h("div", { class: "listed" }, [title ? h("h3", title) : null, h("ul", texts.map((text) => h("li", textOf(text))))]);
}

// Disputes and reasons may be texts, lists or tables.
export function textOf(value) {
  if (Array.isArray(value)) return value.map(textOf).join(", ");
  if (value && typeof value === "object") return Object.entries(value).map(([key, one]) => `${key}: ${textOf(one)}`).join("; ");
  return value === null || value === undefined ? "" : String(value);
}

// ---- how far they agree

const share = (value) => (typeof value === "number" ? value.toFixed(2) : "");

export function agreement(course) {
  const found = course.agreement;
  if (!found || ![...course.members.values()].some((one) => one.response?.success)) return null;
  const names = [...course.members.values()].filter((one) => one.response?.success).map((one) => one.name);
  return h("section", { class: "part outcome", "aria-labelledby": "agreement-title" }, [
    h("h2", { id: "agreement-title" }, "Agreement"),
    h("p", { class: "told" }, agreementTold(found, course.over)),
    listed("In dispute, by the chair's account", (found.disputes ?? []).map(textOf)),
    listed("Seem to contradict each other", contradictions(found)),
    found.pairs?.length ? matrix(found.pairs, names) : null,
    listed("Said by several", (found.shared ?? []).map(textOf)),
    listed("Said by one alone", (found.alone ?? []).map((one) => `${one.name}: ${one.claim}`)),
  ]);
}

function agreementTold(found, isOver) {
  const told = disputesTold(found.disputes, isOver);
  if (!found.measured || typeof found.score !== "number") return `${told}. Claims not compared: ${found.why ?? "no reason was given"}.`;
  const how = found.how ? ` by ${found.how}` : "";
  const notes = found.why ? ` (${found.why})` : "";
  return `${told}. Claims that match: ${share(found.score)} of 1, measured${how}${notes}: how alike the answers are, which is not how right.`;
}

function disputesTold(disputes, isOver) {
  if (!disputes) return `Contradictions not checked${isOver ? "" : " yet"}`;
  if (!disputes.length) return "No dispute found by the chair";
  return disputes.length === 1 ? "1 point in dispute" : `${disputes.length} points in dispute`;
}

const contradictions = (found) => (found.conflicts ?? []).map((one) =>
  `${one.a} against ${one.b}: ${(one.claims ?? []).map((claim) => `“${claim}”`).join(" / ")}`);

function matrix(pairs, names) {
  const between = (a, b) => pairs.find((one) => (one.a === a && one.b === b) || (one.a === b && one.b === a))?.score;
  const cell = (a, b) => {
    const score = between(a, b);
    if (a === b) return h("td", { class: "self" });
    return h("td", { class: typeof score === "number" ? `m${Math.min(5, Math.max(0, Math.floor(score * 6)))}` : "" }, share(score) || "?");
  };
  return wide("How far each two agree, from 0 to 1", h("table", { class: "matrix" }, [
    h("caption", "How far each two agree, from 0 to 1"),
    h("thead", h("tr", [h("td"), ...names.map((name) => h("th", { scope: "col" }, name))])),
    h("tbody", names.map((a) => h("tr", [h("th", { scope: "row" }, a), ...names.map((b) => cell(a, b))]))),
  ]));
}

const wide = (label, inside) => h("div", { class: "wide", tabindex: 0, role: "group", "aria-label": label }, inside);

// ---- the review

export function review(course) {
  const found = course.review;
  const ballots = found?.ballots ?? [...course.ballots.values()];
  const open = [...course.reviewers].filter(([, state]) => state !== "ended").map(([name]) => name);
  if (!found && !ballots.length && !open.length) return null;
  return h("section", { class: "part outcome", "aria-labelledby": "review-title" }, [
    h("h2", { id: "review-title" }, "Review"),
    h("p", { class: "told" }, reviewTold(found, ballots, open)),
    found?.ranking?.length ? ranking(found.ranking) : null,
    ballots.length ? h("details", [h("summary", `Ballots (${ballots.length})`), ballotTable(ballots)]) : null,
  ]);
}

function reviewTold(found, ballots, open) {
  if (!found) return open.length ? `${ballots.length} of ${ballots.length + open.length} have voted.` : "";
  const told = typeof found.kendalls_w === "number"
    ? [`How far the reviewers agree among themselves (Kendall's W): ${share(found.kendalls_w)} of 1.`] : [];
  return [...told, ...(found.why ? [found.why] : [])].join(" ");
}

function ranking(rows) {
  const rubric = [...new Set(rows.flatMap((one) => Object.keys(one.rubric ?? {})))];
  const number = (value, digits) => (typeof value === "number" ? value.toFixed(digits) : "");
  const head = ["#", "member", "points", "score", ...rubric];
  return wide("Ranking", h("table", [
    h("caption", { class: "unseen" }, "Ranking"),
    h("thead", h("tr", head.map((name) => h("th", { scope: "col", class: name === "member" ? "" : "number" }, name)))),
    h("tbody", rows.map((one, place) => h("tr", [
      h("td", { class: "number" }, String(place + 1)),
      h("th", { scope: "row" }, one.name),
      h("td", { class: "number" }, typeof one.points === "number" ? String(Math.round(one.points * 100) / 100) : ""),
      h("td", { class: "number" }, number(one.score, 2)),
      ...rubric.map((name) => h("td", { class: "number" }, number(one.rubric?.[name], 1))),
    ]))),
  ]));
}

function ballotTable(ballots) {
  const head = ["reviewer", "saw", "ranked", "counted", "reasons"];
  const rows = ballots.map((one) => [
    one.reviewer ?? one.name,
    (one.order ?? []).join(", "),
    (one.ranks ?? []).join(" > "),
    one.error ? `${one.state}: ${one.error}` : one.state,
    textOf(one.reasons),
  ]);
  return wide("Ballots", h("table", [
    h("caption", { class: "unseen" }, "Ballots"),
    h("thead", h("tr", head.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", rows.map((row) => h("tr", row.map((cell) => h("td", cell))))),
  ]));
}

// ---- what was read

export function passages(course) {
  const found = course.retrieval;
  if (!found) return null;
  const told = retrievalTold(found);
  if (!found.passages?.length) return found.problem ? h("section", { class: "part outcome" }, [h("h2", "Documents"), h("p", { class: "told warning" }, told)]) : null;
  return h("section", { class: "part outcome", "aria-labelledby": "passages-title" }, [
    h("h2", { id: "passages-title" }, "Passages"),
    h("p", { class: ["told", found.problem ? "warning" : ""] }, told),
    ...found.passages.map((one) => h("article", { id: `passage-${one.n}`, class: "passage", tabindex: -1, "aria-label": `Passage ${one.n}` }, [
      h("h3", [`[${one.n}] ${one.source ?? ""}`, h("span", { class: "told" }, [one.heading, share(one.score)].filter(Boolean).map((text) => ` · ${text}`).join(""))]),
      h("blockquote", { class: "excerpt" }, one.text ?? ""),
    ])),
  ]);
}

function retrievalTold(found) {
  const number = found.passages?.length ?? 0;
  const alone = ["words", "vectors"].includes(found.how) ? " alone" : "";
  const how = found.how && found.how !== "none" ? `, found by ${found.how}${alone}` : "";
  const what = number ? `${number} passage${number === 1 ? "" : "s"} of ${found.collection ?? "the collection"}${how}` : "Nothing was read";
  return found.problem ? `${what}: ${found.problem}` : what;
}
