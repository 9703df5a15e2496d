"""/api/tasks and /api/runs: submitting, reading, explaining. What changes tasks is in `changes`.

Tasks are named by their whole ids here. Who may do what: `read` reads everything, `submit` submits.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated

from fastapi import FastAPI, Path, Query, Request
from starlette.responses import Response

from penstock.config import TaskChecker
from penstock.diagnosis.timeline.bars import attempt_record
from penstock.errors import UnknownTask
from penstock.model import State, TaskRecord
from penstock.store.base import TaskFilter
from penstock.store.outlook import MOST_SUMMED, why_run, why_task
from penstock.trace import brought
from penstock.web import shapes
from penstock.web.admission import Admission
from penstock.web.auth import Caller, caller_of
from penstock.web.bodies import read_object, reply
from penstock.web.records import event_record, run_timeline, task_record
from penstock.web.refusals import Refused
from penstock.web.shapes import errors

if TYPE_CHECKING:
    from penstock.web.app import Parts

MOST = 1000
MOST_IN_TIMELINE = 10_000
LARGEST = 2**63 - 1

TaskId = Annotated[str, Path(description="The whole id of a task.", max_length=200)]
RunName = Annotated[str, Path(description="The name of a run.", max_length=200)]
Limit = Annotated[int, Query(ge=1, le=MOST, description="How many at most.")]
After = Annotated[
    int, Query(ge=0, le=LARGEST, description="Only those after this number: `next` of the last page.")
]
Level = Annotated[int, Query(ge=0, le=4)]
Name = Annotated[str | None, Query(max_length=200)]

READ = errors(401, 403, 405, 413, 422, 429, 503)
WRITE = errors(400, 401, 403, 405, 408, 413, 415, 422, 429, 503)


def enter(parts: Parts, request: Request, scope: str) -> Caller:
    """The caller, if there is room for one more request of his and he has the scope."""
    caller = caller_of(request.scope)
    parts.limits.admit(caller)
    caller.must_have(scope)
    return caller


def add_routes(app: FastAPI, parts: Parts) -> None:
    _add_lists(app, parts)
    thinking = asyncio.Semaphore(1)  # one at a time: a prediction takes up to a second of this process
    _add_tasks(app, parts, thinking)
    _add_runs(app, parts)
    _add_why_run(app, parts, thinking)


def _add_lists(app: FastAPI, parts: Parts) -> None:
    admission = Admission(parts.config, TaskChecker(parts.config, edited=lambda: parts.config_edits.edited))

    @app.get(
        "/api/tasks",
        summary="List tasks",
        tags=["tasks"],
        responses={200: {"model": shapes.TaskPage}, **READ},
        response_class=Response,
    )
    async def list_tasks(
        request: Request,
        state: Annotated[
            list[State] | None, Query(description="Only in this state; may be repeated.")
        ] = None,
        run: Name = None,
        kind: Name = None,
        lane: Name = None,
        host: Name = None,
        priority: Annotated[
            list[Level] | None, Query(description="Only of this priority; may be repeated.")
        ] = None,
        search: Annotated[
            str | None,
            Query(
                max_length=200,
                description="What an id, key or run begins with; else a kind, or an error has.",
            ),
        ] = None,
        limit: Limit = 100,
        after: Annotated[
            int | None, Query(ge=0, le=LARGEST, description="`next` of the page before.")
        ] = None,
        oldest: Annotated[bool, Query(description="In order of arrival; else the newest first.")] = False,
        values: Annotated[bool, Query(description="With their values, which may be long.")] = False,
    ) -> Response:
        """A page may be short and still have a `next`: what no index finds is looked for a while at a time."""
        enter(parts, request, "read")
        chosen = TaskFilter(
            tuple(state) if state else None,
            run,
            kind,
            lane,
            host,
            limit,
            after,
            newest=not oldest,
            search=search or None,
            priorities=tuple(priority) if priority else None,
        )
        page = await parts.store.page(chosen, full=values)
        return reply({"tasks": [task_record(one, values=values) for one in page.records], "next": page.next})

    @app.post(
        "/api/tasks",
        summary="Submit tasks",
        status_code=201,
        tags=["tasks"],
        responses={201: {"model": shapes.Submitted}, **WRITE},
        openapi_extra={"requestBody": shapes.TASKS_BODY},
        response_class=Response,
    )
    async def submit_tasks(request: Request) -> Response:
        """One task, or many as one run: all or none. They are durable when this is answered.

        A task with a `key` that is known gives the known task's id and adds nothing, so a submit whose answer was
        lost can be sent again.
        """
        caller = enter(parts, request, "submit")
        parts.must_take_in()
        body = await read_object(request)
        tasks, name = await admission.read(body, caller, time.time())
        ids = [task.id for task in tasks]
        parts.limits.enter_tasks(caller, ids)
        kept: list[str] = []
        try:
            trace = brought(request.headers.get("traceparent"), request.headers.get("tracestate"))
            run = await parts.client.submit_many(tasks, run=name or None, trace=trace)
            kept = list(run.task_ids)
        finally:
            known = set(kept)
            parts.limits.forget_tasks(id for id in ids if id not in known)
        return reply({"run": run.name, "task_ids": kept}, 201)


def _add_tasks(app: FastAPI, parts: Parts, thinking: asyncio.Semaphore) -> None:
    not_found = errors(404)

    @app.get(
        "/api/tasks/{task_id}",
        summary="All about a task",
        tags=["tasks"],
        responses={200: {"model": shapes.TaskDetail}, **READ, **not_found},
        response_class=Response,
    )
    async def get_task(request: Request, task_id: TaskId) -> Response:
        """Its payload, value or error, attempts and waits."""
        enter(parts, request, "read")
        record = await record_of(parts, task_id)
        result = await parts.client.result(task_id)
        attempts = [attempt_record(one) for one in await parts.store.attempts(task_id)]
        told = {**task_record(record, values=True), "waits": [wait.as_record() for wait in result.waits]}
        return reply({**told, "payload": record.task.payload, "attempt_records": attempts})

    @app.get(
        "/api/tasks/{task_id}/why",
        summary="Why a task waited",
        tags=["tasks"],
        responses={200: {"model": shapes.Why}, **READ, **not_found},
        response_class=Response,
    )
    async def why(request: Request, task_id: TaskId) -> Response:
        """Each stretch of its queue time with its one reason, who held what it waits for, and when it will start.

        The same as `penstock why TASK --json`.
        """
        enter(parts, request, "read")
        record = await record_of(parts, task_id)
        async with thinking:
            config = parts.config
            told = await why_task(parts.store, config.plant, record, time.time(), config.heartbeat_s)
        return reply(told.as_record())

    @app.get(
        "/api/tasks/{task_id}/events",
        summary="The events of a task",
        tags=["tasks"],
        responses={200: {"model": shapes.EventPage}, **READ, **not_found},
        response_class=Response,
    )
    async def task_events(
        request: Request, task_id: TaskId, after: After = 0, limit: Limit = 100
    ) -> Response:
        enter(parts, request, "read")
        await record_of(parts, task_id)
        found = await parts.store.events(after, task=task_id, limit=limit)
        more = found[-1].number if len(found) == limit else None
        return reply({"events": [event_record(one) for one in found], "next": more})


def _add_runs(app: FastAPI, parts: Parts) -> None:
    @app.get(
        "/api/runs/{run}",
        summary="How far a run is",
        tags=["runs"],
        responses={200: {"model": shapes.RunRecord}, **READ, **errors(404)},
        response_class=Response,
    )
    async def get_run(request: Request, run: RunName) -> Response:
        """How many of its tasks are in each state."""
        enter(parts, request, "read")
        states = await parts.store.states_in_run(run)
        if not states:
            raise _no_run(run)
        counts = {str(state): states.get(state, 0) for state in State}
        live = counts["queued"] + counts["running"]
        return reply({"run": run, "tasks": sum(counts.values()), "live": live, "states": counts})

    @app.get(
        "/api/runs/{run}/timeline",
        summary="The timeline of a run",
        tags=["runs"],
        responses={200: {"model": shapes.Timeline}, **READ, **errors(404)},
        response_class=Response,
    )
    async def timeline(
        request: Request,
        run: RunName,
        after: After = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_IN_TIMELINE, description="How many tasks at most.")] = MOST,
    ) -> Response:
        """Its tasks in order of arrival, each with its waits and attempts."""
        enter(parts, request, "read")
        try:
            history = await parts.store.history(run=run)
        except UnknownTask:
            raise _no_run(run) from None
        # In a thread: the waits of a long run take a while to work out.
        return reply(await asyncio.to_thread(run_timeline, run, history, after, limit, time.time()))


def _add_why_run(app: FastAPI, parts: Parts, thinking: asyncio.Semaphore) -> None:
    @app.get(
        "/api/runs/{run}/why",
        summary="Where the waiting of a run went",
        tags=["runs"],
        responses={200: {"model": shapes.RunWhy}, **READ, **errors(404)},
        response_class=Response,
    )
    async def why_of_run(request: Request, run: RunName) -> Response:
        """Each reason with its seconds, share, tasks and lanes; what would help most; when the run will end.

        The same as `penstock why --run RUN --json`, of the newest 20,000 tasks; `cut_short`: there were more.
        """
        enter(parts, request, "read")
        try:
            async with thinking:
                told = await why_run(parts.store, parts.config.plant, run, time.time(), most=MOST_SUMMED)
        except UnknownTask:
            raise _no_run(run) from None
        return reply(told.as_record())


async def record_of(parts: Parts, task_id: str) -> TaskRecord:
    """A task by its whole id; 404 when there is none."""
    record = await parts.store.get(task_id)
    if record is None:
        raise no_task(task_id)
    return record


def no_task(task_id: str) -> Refused:
    return Refused(404, "not_found", f"there is no task {task_id[:200]!r}", "GET /api/tasks lists them")


def _no_run(run: str) -> Refused:
    return Refused(
        404, "not_found", f"there is no run {run[:200]!r}", "GET /api/tasks lists tasks with their runs"
    )
