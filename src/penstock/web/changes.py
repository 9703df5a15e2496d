"""What changes tasks from outside: cancel, retry, another priority.

Who may: `admin` changes any task, and a token with `submit` and a lane what is in its lane, no more urgent than
the token allows. Of tasks of others it learns nothing here that it may not `read`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from penstock.model import PRIORITIES, TaskRecord
from penstock.store.base import Answer
from penstock.web import shapes
from penstock.web.api import READ, WRITE, TaskId, no_task, record_of
from penstock.web.auth import Caller, caller_of
from penstock.web.bodies import read_object, reply
from penstock.web.change_shapes import PRIORITY_BODY
from penstock.web.refusals import Refused
from penstock.web.shapes import errors

if TYPE_CHECKING:
    from penstock.web.app import Parts


def add_routes(app: FastAPI, parts: Parts) -> None:
    _add_changes(app, parts)
    _add_priority(app, parts)


def _add_changes(app: FastAPI, parts: Parts) -> None:
    described: Any = {
        "tags": ["tasks"],
        "responses": {200: {"model": shapes.Changed}, **READ, **errors(404, 409)},
        "response_class": Response,
    }

    async def cancel(request: Request, task_id: TaskId) -> Response:
        """A queued task ends at once, a running one is stopped; 409 when it has ended."""
        await _may_change(parts, request, task_id)
        return _changed(task_id, await parts.client.cancel(task_id))

    app.delete("/api/tasks/{task_id}", summary="Cancel a task", **described)(cancel)
    app.post(
        "/api/tasks/{task_id}/cancel",
        summary="Cancel a task",
        operation_id="cancel_task_by_post",
        **described,
    )(cancel)

    @app.post("/api/tasks/{task_id}/retry", summary="Queue a task again", **described)
    async def retry(request: Request, task_id: TaskId) -> Response:
        """Of a task that failed, was cancelled or is blocked; 409 when it is in another state."""
        await _may_change(parts, request, task_id)
        return _changed(task_id, await parts.client.retry(task_id))


def _add_priority(app: FastAPI, parts: Parts) -> None:
    @app.post(
        "/api/tasks/{task_id}/priority",
        summary="Change the priority of a task",
        tags=["tasks"],
        responses={200: {"model": shapes.Changed}, **WRITE, **errors(404, 409)},
        openapi_extra={"requestBody": PRIORITY_BODY},
        response_class=Response,
    )
    async def set_priority(request: Request, task_id: TaskId) -> Response:
        """A queued task moves to its place in the order, and what it has waited counts; a running one has it for
        its next attempt; 409 when it has ended.
        """
        caller = caller_of(request.scope)
        await _may_change(parts, request, task_id)
        priority = caller.priority_of(read_priority(await read_object(request, ("priority",))))
        return _changed(task_id, await parts.client.set_priority(task_id, priority=priority))


def read_priority(body: Mapping[str, Any]) -> int:
    """Of a body that must have one."""
    priority = body.get("priority")
    if isinstance(priority, bool) or not isinstance(priority, int) or priority not in PRIORITIES:
        raise Refused(
            422,
            "invalid_request",
            f"priority: it must be a whole number from 0 (most urgent) to 4, not {str(priority)[:80]!r}",
        )
    return priority


async def _may_change(parts: Parts, request: Request, task_id: str) -> None:
    caller = caller_of(request.scope)
    parts.limits.admit(caller)
    must_change(caller)
    parts.must_dispatch()
    record = await record_of(parts, task_id)
    if not may_change(caller, record):
        if "read" not in caller.scopes:
            raise no_task(task_id)
        raise not_his(caller)


def must_change(caller: Caller) -> None:
    """Any task at all."""
    if "admin" not in caller.scopes:
        caller.must_have("submit")
        if caller.lane is None:
            raise not_his(caller)


def not_his(caller: Caller) -> Refused:
    may = "no tasks" if caller.lane is None else "tasks of its own lane only"
    return Refused(
        403, "forbidden", f"the token {caller.name!r} may change {may}", "use one with the scope admin"
    )


def may_change(caller: Caller, record: TaskRecord) -> bool:
    return "admin" in caller.scopes or (caller.lane is not None and caller.lane == record.task.lane)


def _changed(task_id: str, answer: Answer) -> Response:
    if not answer.ok:
        said = answer.data.get("tasks", {}).get(task_id)
        raise Refused(409, "conflict", answer.detail if said is None else f"the task {said}")
    return reply({"task_id": task_id, "said": answer.data["tasks"][task_id]})
