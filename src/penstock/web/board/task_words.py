"""A task in words: where it is and what that means, what it was asked to be, its attempts, steps and events."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from penstock.config.council_steps import step_of
from penstock.config.councils import COUNCIL_PREFIX
from penstock.diagnosis.questions import question_kinds
from penstock.diagnosis.timeline.axis import seconds
from penstock.diagnosis.why.question import Course
from penstock.model import Attempt, Plant, State, Task, TaskRecord
from penstock.scheduling.budget import usd
from penstock.store.base import StoredEvent
from penstock.trace import trace_id
from penstock.web.board.sheet import (
    Node,
    badge,
    elapsed,
    facts,
    link,
    moment,
    node,
    queue_link,
    rows_of,
    task_link,
)
from penstock.web.board.task_reading import Seen
from penstock.web.board.words import counted, urgency

_MOST_ERROR = 4_000  # characters of an error in a table
_MOST_DATA = 300  # of an event
_MOST_LISTED = 200  # events


# ---- where it is


def headline(seen: Seen) -> Node:
    record, why = seen.record, seen.why
    state, since = _state(seen)
    return node(
        "div",
        node(
            "div",
            badge("unknown" if why.interrupted else str(record.state), state),
            node("p", *_meaning(seen), class_="meaning"),
            role="status",
        ),
        node("p", "since ", moment(since), " (", elapsed(since), " ago)", class_="soft"),
        class_="headline",
    )


def _state(seen: Seen) -> tuple[str, float]:
    """The word, and since when."""
    record = seen.record
    if seen.why.interrupted:
        return "interrupted", record.started_at or record.task.queued_at
    if record.is_delayed:
        return "waits for a worker", seen.stay.since or record.task.queued_at
    if record.state is State.QUEUED:
        return "queued", seen.stay.since or record.task.queued_at
    if record.state is State.RUNNING:
        return "running", record.started_at or record.task.queued_at
    return str(record.state), record.ended_at or record.task.queued_at


def _meaning(seen: Seen) -> Sequence[Node]:
    record = seen.record
    if seen.why.interrupted:
        return [
            "It was running when its dispatcher was lost. It goes on when one runs again: ",
            node("code", "penstock serve"),
        ]
    match record.state:
        case State.QUEUED:
            tried = f"It was tried {_times(record.attempts)}, and waits" if record.attempts else "It waits"
            return [f"{tried} to be started."]
        case State.RUNNING:
            where = queue_link(record.host or "?", host=record.host or "")
            if record.is_delayed:
                return ["It has its slot on ", where, ", and no worker of the cluster has begun it yet."]
            return [f"Attempt {record.attempts} runs on ", where, ".", *_told_to_end(seen), *_unheard(seen)]
        case State.DONE:
            return ["It ended well; its result is below."]
        case State.FAILED:
            tried = (
                f" after {counted(record.attempts, 'attempt')}"
                if record.attempts
                else " without being started"
            )
            return [
                f"It ended with an error{tried}, and is not tried again by itself. Retry queues it again."
            ]
        case State.CANCELLED:
            return ["Somebody cancelled it, or a task that it comes after. Retry queues it again."]
        case State.BLOCKED:
            return [
                "It was stopped before its end, or a task that it comes after was, and whether it may run "
                "once more is for you to say. Retry queues it again."
            ]


def _told_to_end(seen: Seen) -> Sequence[Node]:
    since = seen.why.stopping_since
    return [] if since is None else [" It was told to end ", elapsed(since), " ago, and does when it can."]


def _unheard(seen: Seen) -> Sequence[Node]:
    down, undispatched = seen.why.host_down, seen.why.undispatched_since
    if undispatched is not None:
        known = ": it goes on there, and how it fares is known when somebody does."
        return [" Nobody dispatches since ", moment(undispatched), known]
    if down is None:
        return []
    why = f" ({down.detail})" if down.detail else ""
    return [" That is down since ", moment(down.since), f"{why}: how it fares is known when it is back."]


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


# ---- what it was asked to be


def fields(seen: Seen, plant: Plant, traced: bool) -> Node:
    record, task, why = seen.record, seen.record.task, seen.why
    cost = seen.cost_usd()
    return facts(
        [
            ("Kind", queue_link(task.kind, kind=task.kind)),
            ("Lane", queue_link(task.lane, lane=task.lane)),
            ("Priority", urgency(task.priority)),
            ("Run", _run(task.run)),
            ("Host", _host(record)),
            ("Model", task.model),
            ("Name", _name(task)),
            ("Key", node("code", task.key) if task.key else None),
            ("After", _listed([task_link(one) for one in task.after])),
            ("Needs", ", ".join(f"{unit} {amount:g}" for unit, amount in (task.needs or {}).items())),
            ("Submitted", moment(task.queued_at)),
            ("Started", None if record.started_at is None else moment(record.started_at)),
            ("Ended", None if record.ended_at is None else moment(record.ended_at)),
            ("Waited", node("span", seconds(why.waited_s), id="waited", data_seconds=f"{why.waited_s:.6f}")),
            ("Ran", _ran(seen)),
            ("Not before", None if task.not_before is None else moment(task.not_before)),
            ("Deadline", None if task.deadline is None else moment(task.deadline)),
            ("Next try", None if record.retry_at is None or not seen.is_live else moment(record.retry_at)),
            ("Time-out", None if task.timeout_s is None else f"{seconds(task.timeout_s)} an attempt"),
            ("Retries", None if task.retries is None else f"{record.tries} of {task.retries} used"),
            ("On crash", None if task.on_crash == "retry" else str(task.on_crash)),
            ("Output", node("code", task.output) if task.output else None),
            ("Cost", None if cost is None else f"{usd(cost)} USD"),
            ("Trace", node("code", f"{trace_id(task):032x}") if is_traced(task, traced) else None),
            *_council(task, plant),
        ]
    )


def is_traced(task: Task, traced: bool) -> bool:
    return traced or task.trace is not None


def _run(run: str) -> list[Node]:
    named = quote(run, safe="")
    return [
        queue_link(run, run=run),
        node("span", " · ", aria_hidden="true"),
        link("timeline", f"/timeline?run={named}"),
        node("span", " · ", aria_hidden="true"),
        link("diagnose", f"/diagnose?run={named}"),
    ]


def _host(record: TaskRecord) -> list[Node]:
    if record.host is not None:
        return [queue_link(record.host, host=record.host)]
    return ["only ", queue_link(record.task.host, host=record.task.host)] if record.task.host else []


def _name(task: Task) -> str | None:
    return task.name if task.label is None else str(task.label)


def _ran(seen: Seen) -> Node | None:
    """In all its attempts, as the strip says it."""
    record = seen.record
    if record.started_at is None or record.state is State.QUEUED:
        return None
    if record.state is State.RUNNING:
        return elapsed(record.started_at, plus_s=seen.stay.ran_s)
    return seconds(seen.stay.ran_s)


def _took(start: float, end: float | None) -> Node:
    return elapsed(start) if end is None else seconds(end - start)


def _listed(nodes: Sequence[Node]) -> list[Node]:
    return [part for place, one in enumerate(nodes) for part in ((", ", one) if place else (one,))]


def _council(task: Task, plant: Plant) -> list[tuple[str, Sequence[Node]]]:
    """Of a question the page of its council, of a step its question."""
    step = step_of(task.key)
    if step is not None:
        return [("Step", [f"{step.shown} of ", task_link(step.question, f"question {step.question}")])]
    if task.kind not in question_kinds(plant):
        return []
    name = task.kind.removeprefix(COUNCIL_PREFIX)
    asked = f"/council?council={quote(name, safe='')}&question={quote(task.id, safe='')}"
    return [("Council", [link(f"{name}: its answers", asked)])]


# ---- what was tried


def attempts(seen: Seen) -> Node:
    if not seen.attempts:
        return node("p", "It has not been started yet.", class_="soft")
    heads = (">#", "Host", "Started", "Ended", ">Ran", "Verdict", ">Tokens", ">Cost", "Error")
    return rows_of("Every attempt", heads, [_attempt(one, seen) for one in seen.attempts])


def _attempt(one: Attempt, seen: Seen) -> Node:
    tokens, cost = seen.tokens(one.number), seen.cost_usd(one.number)
    ended: Node = "" if one.ended_at is None else moment(one.ended_at)
    return node(
        "tr",
        node("td", str(one.number), class_="num"),
        node("td", queue_link(one.host, host=one.host)),
        node("td", moment(one.started_at)),
        node("td", ended),
        node("td", _took(one.started_at, one.ended_at), class_="num"),
        node("td", _verdict(one, seen)),
        node("td", "" if tokens is None else f"{tokens:,.0f}", class_="num"),
        node("td", "" if cost is None else f"${usd(cost)}", class_="num"),
        node("td", (one.error or "")[:_MOST_ERROR], class_="wide"),
        key=str(one.number),
    )


_VERDICTS = {
    "done": ("done", "done"),
    "temporary": ("failed", "failed, worth another try"),
    "permanent": ("failed", "failed for good"),
    "host": ("failed", "the host failed"),
    "throttled": ("paused", "the host said too much"),
    "cancelled": ("cancelled", "stopped"),
}


def _verdict(one: Attempt, seen: Seen) -> Node:
    if one.ended_at is None:
        return badge("unknown", "interrupted") if seen.why.interrupted else badge("running")
    if one.verdict is None:
        return badge("unknown", "interrupted")
    look, words = _VERDICTS[one.verdict]
    return badge(look, words)


# ---- steps of a question


def steps(course: Course) -> Node:
    heads = ("Step", "State", "Host", ">Waited", "For", ">Ran", "Task")
    rows = []
    for step in course.steps:
        mostly, ran_s = step.mostly, step.ran_s(course.now)
        rows.append(
            node(
                "tr",
                node("th", step.name, scope="row"),
                node("td", badge(str(step.state))),
                node("td", step.host or ""),
                node("td", seconds(step.waited_s), class_="num"),
                node("td", "" if mostly is None else mostly.reason),
                node("td", "" if ran_s is None else seconds(ran_s), class_="num"),
                node("td", task_link(step.task_id)),
                key=step.task_id,
            )
        )
    then = node("p", f"Then: {course.next}.", class_="soft") if course.next else None
    return node("div", rows_of("Steps of this question", heads, rows), then)


# ---- what happened


def events(listed: Sequence[StoredEvent], queued_at: float) -> Node:
    shown = listed[-_MOST_LISTED:]
    heads = (">After", "Event", ">Attempt", "Host", "Data")
    rows = [_event(one, queued_at) for one in shown]
    cut = (
        node("p", f"The last {_MOST_LISTED} are shown.", class_="soft") if len(listed) > len(shown) else None
    )
    return node(
        "details",
        node("summary", counted(len(listed), "event")),
        rows_of("Events", heads, rows),
        cut,
    )


def _event(one: StoredEvent, queued_at: float) -> Node:
    data = "" if not one.data else msgspec.json.encode(one.data).decode()
    return node(
        "tr",
        node("td", seconds(one.at - queued_at), class_="num"),
        node("td", one.type),
        node("td", "" if one.attempt is None else str(one.attempt), class_="num"),
        node("td", one.host or ""),
        node("td", node("code", data if len(data) <= _MOST_DATA else data[:_MOST_DATA] + "…"), class_="wide"),
        key=str(one.number),
    )
