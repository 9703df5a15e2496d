"""/api/tasks/ID/stream: the answer of a task as it comes. `penstock ask` follows what it asks so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import FastAPI, Header, Request
from starlette.responses import Response

from penstock.web.api import READ, TaskId, enter, record_of
from penstock.web.council_stream import live_stream, read_place
from penstock.web.shapes import errors

if TYPE_CHECKING:
    from penstock.web.app import Parts


def add_routes(app: FastAPI, parts: Parts) -> None:
    @app.get(
        "/api/tasks/{task_id}/stream",
        summary="Follow the answer of a task",
        tags=["tasks"],
        responses={
            200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
            204: {"description": "It has ended, or the event of `Last-Event-ID` was the last."},
            **READ,
            **errors(404),
        },
        response_class=Response,
    )
    async def follow_task(
        request: Request, task_id: TaskId, last_event_id: Annotated[str | None, Header()] = None
    ) -> Response:
        """As Server-Sent Events: `text` as it comes, of a task whose payload says `"stream": true`.

        An event `attempt` says that an attempt begins and that the text before it is void, `ended` that its result
        is there.
        """
        caller = enter(parts, request, "read")
        record = await record_of(parts, task_id)
        stream, _ = await live_stream(parts, caller, record, read_place(last_event_id))
        return Response(status_code=204) if stream is None else stream
