// The course of a question, folded from its events: who is asked, what each has said so far, and what came of it.
//
// The events of a live question and those that are made from the record of a past one are the same: whoever loads
// the page again sees what he saw. A reader that comes back to a server of another life hears all of it again:
// `begin` is called then.
import { seconds as spoken } from "/board/files/spans_of_time.js";

const ENDINGS = new Set(["done", "failed", "cancelled"]);

export function begin(members) {
  return {
    members: new Map(members.map((one) => [one.name, card(one)])),
    stages: new Map(), // stage -> queued, started, ended
    chair: { name: "", text: "", state: "", host: "", startedAt: null },
    retrieval: null,
    ballots: new Map(),
    reviewers: new Map(), // name -> state of its step
    review: null,
    agreement: null,
    synthesis: null,
    over: null,
    record: null,
    missed: 0,
    skew: -Infinity, // of the server's clock to ours, in seconds
    told: [], // what a screen reader is to say
  };
}

function card(member) {
  return { ...member, state: "idle", text: "", host: member.host, startedAt: null, attempt: 0, response: null };
}

export function fold(course, event) {
  if (typeof event.at === "number") course.skew = Math.max(course.skew, event.at - Date.now() / 1000);
  const heard = HEARD[event.event];
  if (heard) heard(course, event);
  else if (ENDINGS.has(event.event)) end(course, event);
}

const HEARD = {
  stage(course, event) {
    if (!course.stages.has(event.stage)) course.stages.set(event.stage, "queued");
  },
  step(course, event) {
    const stage = event.stage;
    if (event.state === "started" || !course.stages.has(stage)) course.stages.set(stage, event.state);
    const speaker = speakerOf(course, event);
    if (speaker) step(speaker, event);
    if (stage === "review") course.reviewers.set(event.name, event.state);
  },
  text(course, event) {
    const speaker = speakerOf(course, event);
    if (!speaker) return;
    if (speaker.state !== "started") Object.assign(speaker, { state: "started", startedAt: event.at });
    speaker.text += event.text;
  },
  again(course, event) {
    const speaker = speakerOf(course, event);
    if (speaker) speaker.text = "";
  },
  retrieval(course, event) {
    course.retrieval = event;
    course.stages.set("retrieve", "ended");
  },
  answer(course, event) {
    answered(course, event, true);
  },
  review(course, event) {
    course.ballots.set(event.name, event);
    course.reviewers.set(event.name, "ended");
  },
  agreement(course, event) {
    course.agreement = event;
    course.stages.set("agreement", "ended");
  },
  synthesis(course, event) {
    course.synthesis = event;
    course.stages.set("synthesis", "ended");
  },
  missed(course, event) {
    course.missed += event.count;
  },
};

function speakerOf(course, event) {
  const step = String(event.step ?? "");
  if (step.startsWith("member/")) return course.members.get(event.name ?? step.slice("member/".length));
  if (!step.startsWith("synthesis/")) return null;
  const name = event.name ?? step.slice("synthesis/".length);
  if (course.chair.name !== name) course.chair = { name, text: "", state: "", host: "", startedAt: null };
  return course.chair;
}

function step(speaker, event) {
  if (event.host) speaker.host = event.host;
  if (event.state === "queued") Object.assign(speaker, { state: "queued", text: "" });
  if (event.state !== "started") return;
  Object.assign(speaker, { state: "started", startedAt: event.at, attempt: event.attempt ?? 0 });
}

function answered(course, response, isNews) {
  const one = course.members.get(response.name);
  if (!one) return;
  const before = one.response?.state;
  one.response = response;
  one.state = response.state === "asked" ? one.state : response.state;
  one.host = response.host || one.host;
  one.model = response.model || one.model;
  if (response.answer) one.text = response.answer;
  if (isNews && one.state !== before) course.told.push(`${one.name}: ${outcome(response)}`);
}

function end(course, event) {
  course.over = event;
  const record = event.record;
  if (record && typeof record === "object") {
    course.record = record;
    for (const one of record.responses ?? []) answered(course, one, false);
    course.synthesis = record.synthesis ?? course.synthesis;
    course.agreement = record.agreement ?? course.agreement;
    course.retrieval = record.retrieval ?? course.retrieval;
    course.review = record.review ?? null;
  }
  for (const one of course.members.values()) {
    if (one.state === "queued" || one.state === "started") one.state = event.event === "done" ? "not_asked" : "cancelled";
  }
  course.told.push({ done: "The question is answered.", cancelled: "The question is cancelled." }[event.event]
    ?? `The question has failed: ${event.error ?? "no reason was given"}`);
}

// ---- in words

export const seconds = (value) => (value === null || value === undefined ? "" : spoken(Number(value)));

export function outcome(response) {
  if (response.success) return `answered in ${seconds(response.response_time)}`;
  const state = String(response.state || "failed").replaceAll("_", " ");
  const why = response.error || "no reason was given";
  return why.toLowerCase().startsWith(state) ? why : `${state}: ${why}`;
}

// What a member does, in words: `why` is what its task waits for.
export function stateOf(course, one, why) {
  if (one.response && one.response.state !== "asked") return outcome(one.response);
  if (one.state === "started") {
    const took = one.startedAt === null ? "" : ` · ${seconds(Math.max(0, serverNow(course) - one.startedAt))}`;
    const tried = one.attempt > 1 ? ` · attempt ${one.attempt}` : "";
    return `${one.text ? "answering" : "thinking"}${took}${tried}`;
  }
  if (one.state === "queued") return `waiting ${why ? `for ${why}` : "for a slot"}`;
  if (one.state === "cancelled") return "cancelled with the question";
  return course.over ? "not asked" : "not asked yet";
}

export function signOf(one) {
  return { answered: "✓", failed: "✕", cancelled: "⊘", started: "●", queued: "◔" }[one.state] ?? "○";
}

function serverNow(course) {
  return Date.now() / 1000 + (Number.isFinite(course.skew) ? course.skew : 0);
}

export function isLive(course) {
  return course.over === null;
}
