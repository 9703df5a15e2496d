"""/api/councils: which there are, asking one, following what it does, and what was asked before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Header, Path, Query, Request
from starlette.responses import Response

from penstock.config.councils import Council
from penstock.council.conversations import conversation_of
from penstock.lifecycle import ENDED
from penstock.model import State, TaskRecord
from penstock.store.base import TaskFilter
from penstock.trace import brought
from penstock.web import council_shapes as shapes
from penstock.web.api import LARGEST, TaskId, enter
from penstock.web.auth import caller_of
from penstock.web.bodies import read_object, reply
from penstock.web.council_door import FIELDS
from penstock.web.council_events import record_so_far
from penstock.web.council_records import (
    asked_record,
    conversation_entry,
    council_record,
    query_of,
    question_entry,
    question_record,
    turn_record,
)
from penstock.web.council_stream import question_stream, read_place
from penstock.web.refusals import Refused
from penstock.web.shapes import errors

if TYPE_CHECKING:
    from penstock.web.app import Parts

CouncilName = Annotated[str, Path(description="The name of a council.", max_length=200)]
Conversation = Annotated[str, Path(description="A conversation: what its questions name.", max_length=200)]
Limit = Annotated[int, Query(ge=1, le=200, description="How many at most.")]
After = Annotated[int | None, Query(ge=0, le=LARGEST, description="`next` of the page before.")]
_EARLIER = 20  # questions of a run that are looked at for one of its conversation
_MOST_QUESTIONS = 1000  # of a conversation, in a list
_READ = errors(401, 403, 404, 405, 413, 422, 429, 503)
_WRITE = errors(400, 401, 403, 404, 405, 408, 413, 415, 422, 429, 503)


def add_routes(app: FastAPI, parts: Parts) -> None:
    _add_councils(app, parts)
    _add_asking(app, parts)
    _add_questions(app, parts)
    _add_following(app, parts)
    _add_conversations(app, parts)


def _add_councils(app: FastAPI, parts: Parts) -> None:
    door = parts.council_door

    @app.get(
        "/api/councils",
        summary="List the councils",
        tags=["councils"],
        responses={200: {"model": shapes.CouncilPage}, **errors(401, 403, 405, 413, 422, 429, 503)},
        response_class=Response,
    )
    async def list_councils(request: Request) -> Response:
        enter(parts, request, "read")
        return reply({"councils": [council_record(one) for one in door.councils.values()]})

    @app.get(
        "/api/councils/{name}",
        summary="One of them",
        tags=["councils"],
        responses={200: {"model": shapes.CouncilRecord}, **_READ},
        response_class=Response,
    )
    async def get_council(request: Request, name: CouncilName) -> Response:
        """Its members, its chair, its modes with their limits, and what it reads."""
        enter(parts, request, "read")
        return reply(council_record(door.known(name)))


def _add_asking(app: FastAPI, parts: Parts) -> None:
    door = parts.council_door

    @app.post(
        "/api/councils/{name}/ask",
        summary="Ask a council",
        status_code=202,
        tags=["councils"],
        responses={202: {"model": shapes.QuestionAsked}, **_WRITE, **errors(409)},
        openapi_extra={"requestBody": shapes.ASK_BODY},
        response_class=Response,
    )
    async def ask_council(request: Request, name: CouncilName) -> Response:
        """The question is durable when this is answered; the links lead to what becomes of it.

        A `key` that is known gives the known question and asks nobody, so one whose answer was lost can be sent
        again.
        """
        caller = enter(parts, request, "submit")
        parts.must_take_in()
        council = door.known(name)
        body = await read_object(request, FIELDS)
        trace = brought(request.headers.get("traceparent"), request.headers.get("tracestate"))
        record = await door.ask(parts, caller, council, body, trace)
        run = record.task.run
        all_ = await door.questions(
            parts, council, conversation=run, limit=_EARLIER, after=None, newest=False
        )
        first = next((one.task.id for one in all_ if conversation_of(one.task) == run), record.task.id)
        begins = first == record.task.id
        told = {**asked_record(council, record), "begins_conversation": begins}
        answer = reply(told, 202)
        answer.headers["Location"] = told["links"]["self"]
        return answer

    @app.post(
        "/api/councils/{name}/estimate",
        summary="What a question would cost",
        tags=["councils"],
        responses={200: {"model": dict[str, Any]}, **_WRITE},
        openapi_extra={"requestBody": shapes.ESTIMATE_BODY},
        response_class=Response,
    )
    async def estimate_question(request: Request, name: CouncilName) -> Response:
        """Calls, tokens and USD, expected and at most, with the turns of its `conversation`. Nobody is asked."""
        enter(parts, request, "submit")
        council = door.known(name)
        body = await read_object(request, FIELDS)
        return reply(await door.estimate(parts, council, body))


def _add_questions(app: FastAPI, parts: Parts) -> None:
    door = parts.council_door

    @app.get(
        "/api/councils/{name}/questions",
        summary="What it was asked",
        tags=["councils"],
        responses={200: {"model": shapes.QuestionPage}, **_READ},
        response_class=Response,
    )
    async def list_questions(
        request: Request,
        name: CouncilName,
        state: Annotated[
            list[State] | None, Query(description="Only in this state; may be repeated.")
        ] = None,
        conversation: Annotated[str | None, Query(max_length=200)] = None,
        limit: Limit = 50,
        after: After = None,
    ) -> Response:
        """The newest first."""
        enter(parts, request, "read")
        council = door.known(name)
        states = tuple(state) if state else None
        records = await door.questions(
            parts, council, states=states, conversation=conversation, limit=limit, after=after
        )
        more = records[-1].number if len(records) == limit else None
        listed = [one for one in records if conversation in (None, conversation_of(one.task))]
        return reply({"questions": [question_entry(council, one) for one in listed], "next": more})

    @app.get(
        "/api/councils/{name}/questions/{task_id}",
        summary="A question, with its record",
        tags=["councils"],
        responses={200: {"model": shapes.QuestionDetail}, **_READ},
        response_class=Response,
    )
    async def get_question(request: Request, name: CouncilName, task_id: TaskId) -> Response:
        """While it lives: with the answers so far, as far as this server has heard them."""
        enter(parts, request, "read")
        council = door.known(name)
        record = await door.question(parts, council, task_id)
        return reply(question_record(council, record, _so_far(parts, council, record)))

    @app.post(
        "/api/councils/{name}/questions/{task_id}/cancel",
        summary="Cancel a question",
        tags=["councils"],
        responses={200: {"model": shapes.QuestionCancelled}, **_READ, **errors(409)},
        response_class=Response,
    )
    async def cancel_question(request: Request, name: CouncilName, task_id: TaskId) -> Response:
        """And whatever it has asked of its members; 409 when it is over."""
        caller = caller_of(request.scope)
        parts.limits.admit(caller)
        if "admin" not in caller.scopes:
            caller.must_have("submit")
        parts.must_dispatch()
        record = await door.question(parts, door.known(name), task_id)
        is_cancelled, said = await door.cancel(parts, caller, record)
        if not is_cancelled:
            raise Refused(409, "conflict", f"the question {said}")
        return reply({"id": task_id, "said": said})


def _so_far(parts: Parts, council: Council, record: TaskRecord) -> dict[str, Any] | None:
    if record.state in ENDED:
        return None
    return record_so_far(council, record, parts.lead().live.so_far(record.task.id))


def _add_following(app: FastAPI, parts: Parts) -> None:
    @app.get(
        "/api/councils/{name}/questions/{task_id}/events",
        summary="Follow a question",
        tags=["councils"],
        responses={
            200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
            204: {"description": "The event of `Last-Event-ID` was the last."},
            **_READ,
        },
        response_class=Response,
    )
    async def follow_question(
        request: Request,
        name: CouncilName,
        task_id: TaskId,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        """As Server-Sent Events: everything so far, then what comes, until `done`, `failed` or `cancelled`."""
        caller = enter(parts, request, "read")
        door = parts.council_door
        record = await door.question(parts, door.known(name), task_id)
        return await question_stream(parts, caller, record, read_place(last_event_id))


def _add_conversations(app: FastAPI, parts: Parts) -> None:
    door = parts.council_door

    @app.get(
        "/api/councils/{name}/conversations",
        summary="What was talked about",
        tags=["councils"],
        responses={200: {"model": shapes.ConversationPage}, **_READ},
        response_class=Response,
    )
    async def list_conversations(
        request: Request, name: CouncilName, limit: Limit = 20, after: After = None
    ) -> Response:
        """The one with the newest question first."""
        enter(parts, request, "read")
        council = door.known(name)
        found, more = await door.conversations(parts, council, limit, after)
        told = []
        for run in found:
            bare = TaskFilter(run=run, kind=council.kind, limit=_MOST_QUESTIONS)
            questions = await parts.store.bare_tasks(bare)  # their records may be long, and are not shown
            first = await door.questions(parts, council, conversation=run, limit=1, after=None, newest=False)
            if first and questions:
                told.append(conversation_entry(run, query_of(first[0]), questions))
        return reply({"conversations": told, "next": more})

    @app.get(
        "/api/councils/{name}/conversations/{conversation}",
        summary="One conversation",
        tags=["councils"],
        responses={200: {"model": shapes.ConversationDetail}, **_READ},
        response_class=Response,
    )
    async def get_conversation(
        request: Request,
        name: CouncilName,
        conversation: Conversation,
        limit: Limit = 50,
        after: After = None,
    ) -> Response:
        """What was asked and answered, in order."""
        enter(parts, request, "read")
        council = door.known(name)
        records = await door.questions(
            parts, council, conversation=conversation, limit=limit, after=after, newest=False
        )
        listed = [one for one in records if conversation_of(one.task) == conversation]
        more = records[-1].number if len(records) == limit else None
        if not listed and after is None and more is None:
            raise Refused(
                404,
                "not_found",
                f"there is no conversation {conversation[:200]!r} with council {name!r}",
                f"GET /api/councils/{name}/conversations lists them",
            )
        turns = [turn_record(council, one) for one in listed]
        return reply({"id": conversation, "council": name, "turns": turns, "next": more})
