"""Doing the same to many tasks: those that are named, or all that fit a filter.

They are taken a chunk at a time, each by a request to the dispatcher, which goes on with its work between them.
What takes long is answered before it is over, with where to go on; what is submitted meanwhile is left alone.
Rights are those of each single task; a filter finds no others.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from penstock.lifecycle import LIVE, UNWELL
from penstock.model import PRIORITIES, State, TaskRecord
from penstock.store.base import TaskFilter
from penstock.web.api import WRITE
from penstock.web.auth import Caller, caller_of
from penstock.web.bodies import read_object, reply
from penstock.web.change_shapes import ACTION_BODY, Acted
from penstock.web.changes import may_change, must_change, not_his, read_priority
from penstock.web.refusals import Refused

if TYPE_CHECKING:
    from penstock.web.app import Parts

MOST_IDS = 1000
LONGEST_SEARCH = 200
_CHUNK = 500
_PATIENCE_S = 5.0  # of one request; the next goes on where it ended
_REASONS = 10
_UNKNOWN = "there is no such task"
_OTHERS = "is of another lane than the token's own"
_FIELDS = ("do", "task_ids", "filter", "priority", "after", "until")
_NARROWS = ("state", "kind", "lane", "host", "run", "search", "priority")
_FIT: Mapping[str, frozenset[State]] = {"cancel": LIVE, "priority": LIVE, "retry": frozenset(UNWELL)}


@dataclass(slots=True)
class _Report:
    done: int = 0
    skipped: int = 0  # their state does not allow it
    refused: int = 0  # the caller may not, or there is no such task
    reasons: list[dict[str, str]] = field(default_factory=list)
    next: int | None = None
    until: int | None = None  # the newest task there was when it was asked

    def say(self, task_id: str, said: str) -> None:
        if len(self.reasons) < _REASONS:
            self.reasons.append({"task_id": task_id, "said": said})

    def refuse(self, task_id: str, said: str) -> None:
        self.refused += 1
        self.say(task_id, said)


@dataclass(frozen=True, slots=True)
class _Asked:
    do: str
    task_ids: tuple[str, ...]
    chosen: TaskFilter | None
    priority: int | None
    until: int | None = None


def add_routes(app: FastAPI, parts: Parts) -> None:
    @app.post(
        "/api/tasks/actions",
        summary="Cancel, retry or move many tasks",
        tags=["tasks"],
        responses={200: {"model": Acted}, **WRITE},
        openapi_extra={"requestBody": ACTION_BODY},
        response_class=Response,
    )
    async def act(request: Request) -> Response:
        """Those named in `task_ids`, at most 1000, or all that fit a `filter`, oldest first.

        With a `filter`, `next` is where to go on when it took long: send the same again with `after` and `until`.
        """
        caller = caller_of(request.scope)
        parts.limits.admit(caller)
        must_change(caller)
        parts.must_dispatch()
        asked = _read(await read_object(request, _FIELDS), caller)
        if asked.chosen is not None and asked.until is None:
            asked = replace(asked, until=await _newest(parts))
        report = await _act(parts, caller, asked)
        told = {name: getattr(report, name) for name in _Report.__slots__}
        return reply({"do": asked.do, **told})


async def _act(parts: Parts, caller: Caller, asked: _Asked) -> _Report:
    report = _Report(until=asked.until)
    until = time.monotonic() + _PATIENCE_S
    others = _OTHERS if "read" in caller.scopes else _UNKNOWN
    async for found, reached in _chunks(parts, asked):
        report.next = reached
        allowed = []
        for task_id, record in found.items():
            if record is not None and may_change(caller, record):
                allowed.append(task_id)
            else:
                report.refuse(task_id, _UNKNOWN if record is None else others)
        await _do(parts, asked, allowed, report)
        if asked.chosen is not None and time.monotonic() > until:  # those named are all told of
            break
    return report


async def _do(parts: Parts, asked: _Asked, task_ids: Sequence[str], report: _Report) -> None:
    if not task_ids:
        return
    answer = await parts.client.change(asked.do, task_ids, priority=asked.priority)
    said: Mapping[str, str] = answer.data.get("tasks", {})
    if not said:
        raise Refused(409, "conflict", answer.detail)
    changed = set(answer.data.get("changed", ()))
    report.done += len(changed)
    for task_id, text in said.items():
        if task_id not in changed:
            report.skipped += 1
            report.say(task_id, text)


async def _chunks(
    parts: Parts, asked: _Asked
) -> AsyncIterator[tuple[Mapping[str, TaskRecord | None], int | None]]:
    if asked.chosen is None:
        for begin in range(0, len(asked.task_ids), _CHUNK):
            wanted = asked.task_ids[begin : begin + _CHUNK]
            there = {one.record.task.id: one.record for one in await parts.store.fetch(wanted)}
            yield {task_id: there.get(task_id) for task_id in wanted}, None
        return
    chosen, until = asked.chosen, asked.until or 0
    if not chosen.states:
        return
    while True:
        page = await parts.store.page(replace(chosen, limit=_CHUNK))
        beyond = page.next if page.next is not None and page.next < until else None
        yield {record.task.id: record for record in page.records if record.number <= until}, beyond
        if beyond is None:
            return
        chosen = replace(chosen, after=beyond)


async def _newest(parts: Parts) -> int:
    page = await parts.store.page(TaskFilter(limit=1, newest=True))
    return page.records[0].number if page.records else 0


# ---- what is asked for


def _read(body: Mapping[str, Any], caller: Caller) -> _Asked:
    do = body.get("do")
    if not isinstance(do, str) or do not in _FIT:
        raise _wrong(f"do: it must be cancel, retry or priority, not {str(do)[:80]!r}")
    if ("task_ids" in body) == ("filter" in body):
        raise _wrong("name the tasks in task_ids, or say which with a filter")
    if "priority" in body and do != "priority":
        raise _wrong('priority: leave it out, or ask for {"do": "priority"}')
    priority = caller.priority_of(read_priority(body)) if do == "priority" else None
    after, until = body.get("after"), body.get("until")
    for name, value, of in (("after", after, "next"), ("until", until, "until")):
        if value is not None and (not _is_whole(value) or "filter" not in body):
            raise _wrong(f"{name}: it must be `{of}` of the answer before, with the same filter")
    if "filter" in body:
        return _Asked(do, (), _his(_filter(body["filter"], do, after), caller), priority, until)
    ids = body["task_ids"]
    if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids) or not ids:
        raise _wrong("task_ids: it must be a list of ids")
    if len(ids) > MOST_IDS:
        raise _wrong(f"task_ids: {len(ids)} are too many; send at most {MOST_IDS}, or a filter")
    return _Asked(do, tuple(dict.fromkeys(ids)), None, priority)


def _filter(given: Any, do: str, after: int | None) -> TaskFilter:
    if not isinstance(given, dict):
        raise _wrong("filter: it must be an object")
    for name, value in given.items():
        if name not in _NARROWS:
            raise _wrong(f"filter: unknown field {name[:80]!r}; known: {', '.join(_NARROWS)}")
        if name not in ("state", "priority") and not (
            isinstance(value, str) and len(value) <= LONGEST_SEARCH
        ):
            raise _wrong(f"filter.{name}: it must be a text of at most {LONGEST_SEARCH} characters")
        if value in ("", []):  # perhaps a variable that is not set: it must not mean all
            raise _wrong(f"filter.{name}: it is empty; leave it out, or say which")
    states, priorities = _some(given, "state"), _some(given, "priority")
    if not all(isinstance(state, str) and state in {str(one) for one in State} for state in states or ()):
        raise _wrong(f"filter.state: choose from {', '.join(State)}")
    if not all(_is_whole(one) and one in PRIORITIES for one in priorities or ()):
        raise _wrong("filter.priority: choose from 0 to 4")
    fit = [state for state in State if state in _FIT[do] and (states is None or str(state) in states)]
    return TaskFilter(
        states=tuple(fit),
        run=given.get("run"),
        kind=given.get("kind"),
        lane=given.get("lane"),
        host=given.get("host"),
        after=after,
        search=given.get("search"),
        priorities=None if priorities is None else tuple(priorities),
    )


def _his(chosen: TaskFilter, caller: Caller) -> TaskFilter:
    """What fits among the tasks that he may change: others are not even looked for."""
    if "admin" in caller.scopes:
        return chosen
    if chosen.lane not in (None, caller.lane):
        raise not_his(caller)
    return replace(chosen, lane=caller.lane)


def _some(given: Mapping[str, Any], name: str) -> list[Any] | None:
    """One, or a list of them."""
    if name not in given:
        return None
    value = given[name]
    return value if isinstance(value, list) else [value]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _wrong(message: str) -> Refused:
    return Refused(422, "invalid_request", message)
