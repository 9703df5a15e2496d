"""The paths of the original council server, with its field names, for the clients that were written for it.

It knew one council and called it nothing. Its power modes are modes here: lightning is quick, ultra is thorough. A
result has the record's fields, and beside them those of the original that the record calls by another name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import Response

from penstock.config.councils import Council, Mode
from penstock.config.problems import kind_of, meant
from penstock.council.recorded import disputes_told
from penstock.lifecycle import ENDED
from penstock.model import State, TaskRecord
from penstock.trace import brought
from penstock.web import council_shapes as shapes
from penstock.web.api import TaskId, enter
from penstock.web.auth import caller_of
from penstock.web.bodies import read_object, reply
from penstock.web.council_events import events_of_record
from penstock.web.council_records import mode_of, query_of
from penstock.web.refusals import JSON, Refused
from penstock.web.shapes import errors

if TYPE_CHECKING:
    from penstock.web.app import Parts

POWER_MODES = {"lightning": Mode.QUICK, "council": Mode.COUNCIL, "ultra": Mode.THOROUGH}
_POWER = {mode: power for power, mode in POWER_MODES.items()}
_STATUS = {State.QUEUED: "queued", State.RUNNING: "running", State.DONE: "completed"}
_PREVIEW = 120
_MOST_EVENTS = 100
_encode = msgspec.json.Encoder().encode
_READ = errors(401, 403, 404, 405, 413, 422, 429, 503)
_WRITE = errors(400, 401, 403, 404, 405, 408, 413, 415, 422, 429, 503)


def add_routes(app: FastAPI, parts: Parts) -> None:
    _add_wish(app, parts)
    _add_jobs(app, parts)


def _add_wish(app: FastAPI, parts: Parts) -> None:
    @app.post(
        "/api/shenron/grant-wish",
        summary="Ask the council, as its original server was asked",
        tags=["shenron"],
        responses={
            200: {"description": "The result.", "content": {JSON: {"schema": {"type": "object"}}}},
            202: {"model": shapes.WishQueued},
            **_WRITE,
            502: {"model": dict[str, Any], "description": "Nobody answered: the record says why."},
            504: {"model": dict[str, Any], "description": "Its time was over."},
        },
        openapi_extra={"requestBody": shapes.WISH_BODY},
        response_class=Response,
    )
    async def grant_wish(request: Request) -> Response:
        """With `async_mode` a job, which outlives this connection; else the result, when it is there.

        Without `async_mode` the question is cancelled when its client leaves.
        """
        caller = enter(parts, request, "submit")
        parts.must_take_in()
        council = parts.council_door.original()
        body = await read_object(request)
        asked = {"query": body.get("query"), "use_rag": _flag(body, "use_rag"), "mode": _mode(body)}
        if council.retrieval is None and asked["use_rag"]:  # its clients ask so without knowing
            asked["use_rag"] = None
        if _flag(body, "agent_mode"):
            raise Refused(
                422, "invalid_request", "agent_mode: a council runs no commands", "POST /api/agents/NAME/call"
            )
        if not (_flag(body, "async_mode") or _flag(body, "async")):
            payload = parts.council_door.payload(council, asked)
            calls = parts.front_door.councils
            return calls.whole(
                caller, council, payload, request.headers, lambda record: _encode(result_of(record))
            )
        trace = brought(request.headers.get("traceparent"), request.headers.get("tracestate"))
        record = await parts.council_door.ask(parts, caller, council, asked, trace)
        return reply({"job_id": record.task.id, "status": "queued", "conversation": record.task.run}, 202)


def _add_jobs(app: FastAPI, parts: Parts) -> None:
    door = parts.council_door

    @app.get(
        "/api/shenron/job-status/{task_id}",
        summary="What became of a wish",
        tags=["shenron"],
        responses={200: {"model": shapes.WishStatus}, **_READ},
        response_class=Response,
    )
    async def job_status(request: Request, task_id: TaskId) -> Response:
        enter(parts, request, "read")
        council = door.original()
        record = await door.question(parts, council, task_id)
        if record.state in ENDED:
            events: Sequence[Mapping[str, Any]] = events_of_record(record)
        else:
            events = parts.lead().live.so_far(task_id)
        return reply(_status(council, record, events))

    @app.post(
        "/api/shenron/cancel-job/{task_id}",
        summary="Take a wish back",
        tags=["shenron"],
        responses={
            200: {"model": shapes.WishCancelled},
            **_READ,
            400: {"model": shapes.WishCancelled, "description": "It is over."},
        },
        response_class=Response,
    )
    async def cancel_job(request: Request, task_id: TaskId) -> Response:
        caller = caller_of(request.scope)
        parts.limits.admit(caller)
        if "admin" not in caller.scopes:
            caller.must_have("submit")
        parts.must_dispatch()
        record = await door.question(parts, door.original(), task_id)
        is_cancelled, said = await door.cancel(parts, caller, record)
        told = {"job_id": task_id, "success": is_cancelled, "message": f"the wish {_words(said)}"}
        return reply(told, 200 if is_cancelled else 400)


def _words(said: str) -> str:
    return "is stopping" if said == "stopping" else "was cancelled" if said == "cancelled" else said


def _flag(body: Mapping[str, Any], name: str) -> bool | None:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise Refused(422, "invalid_request", f"{name}: must be true or false, not {kind_of(value)}")
    return value


def _mode(body: Mapping[str, Any]) -> str | None:
    power = body.get("power_mode")
    if power is None:
        return None
    if isinstance(power, str):
        if power.lower() in POWER_MODES:
            return str(POWER_MODES[power.lower()])
        if power.lower() in set(Mode):
            return power.lower()
    known = (*POWER_MODES, *(mode for mode in Mode if mode not in POWER_MODES))
    what = repr(power[:80]) if isinstance(power, str) else kind_of(power)
    raise Refused(422, "invalid_request", f"power_mode: there is no {what}{meant(power, known, 'modes')}")


# ---- in its words


def result_of(record: Mapping[str, Any]) -> dict[str, Any]:
    synthesis = record.get("synthesis")
    synthesis = synthesis if isinstance(synthesis, Mapping) else {}
    mode = record.get("mode")
    return {
        **record,
        "power_mode": _POWER.get(Mode(mode), mode) if mode in set(Mode) else mode,
        "rag_used": bool(record.get("rag_context_used")),
        "warrior_responses": record.get("responses") or [],
        "synthesized_answer": synthesis.get("text") or "",
        "synthesis_method": synthesis.get("method"),
        "consensus": _consensus(record),
        "wish_granted": bool(synthesis.get("text")),
    }


def _consensus(record: Mapping[str, Any]) -> dict[str, Any]:
    """What was measured, and nothing that was not."""
    agreement = record.get("agreement")
    agreement = agreement if isinstance(agreement, Mapping) else {}
    score = agreement.get("score")
    if agreement.get("measured") and isinstance(score, int | float):
        disputes = agreement.get("disputes")
        told = disputes_told(disputes if isinstance(disputes, list) else None)
        return {"type": "measured", "score": score, "message": f"{told}; claims that match: {score:.2f} of 1"}
    if record.get("success_count") == 1:
        return {"type": "single_warrior", "score": None, "message": "one answer alone"}
    return {"type": "unknown", "score": None, "message": str(agreement.get("why") or "not measured")}


def _status(council: Council, record: TaskRecord, events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    status = _STATUS.get(record.state, "cancelled" if record.state is State.CANCELLED else "failed")
    mode = mode_of(council, record)
    told: dict[str, Any] = {
        "job_id": record.task.id,
        "status": status,
        "progress": _progress(record, events),
        "power_mode": _POWER[Mode(mode)],
        "created_at": record.task.queued_at,
        "started_at": record.started_at,
        "completed_at": record.ended_at,
        "message": _message(status, record),
        "query_preview": query_of(record)[:_PREVIEW],
        "events": [line for event in events if (line := _event(event)) is not None][-_MOST_EVENTS:],
    }
    if record.state in ENDED and isinstance(record.value, Mapping):
        told["result"] = result_of(record.value)
    if status == "failed":
        told["error"] = record.error or "no reason given"
    return told


def _progress(record: TaskRecord, events: Sequence[Mapping[str, Any]]) -> float:
    """In percent: of the steps that are known of, those that ended; the chair's is yet to come."""
    if record.state in ENDED and record.state is not State.CANCELLED:
        return 100.0
    steps: dict[str, bool] = {}
    for event in events:
        if event.get("event") == "step":
            name = str(event.get("step"))
            steps[name] = steps.get(name, False) or event.get("state") == "ended"
    if not steps:
        return 0.0
    yet = 0 if any(name.startswith("synthesis") for name in steps) else 1
    return round(100.0 * sum(steps.values()) / (len(steps) + yet), 1)


def _message(status: str, record: TaskRecord) -> str:
    return {
        "queued": "Queued for processing",
        "running": "The council is asked",
        "completed": "Wish granted",
        "cancelled": "Wish cancelled",
    }.get(status, f"Failed: {record.error or 'no reason given'}")


def _event(event: Mapping[str, Any]) -> dict[str, Any] | None:
    kind, at = event.get("event"), event.get("at")
    if kind == "answer":
        title = f"{event.get('emoji') or ''} {event.get('name')}".strip()
        if event.get("success"):
            return {"timestamp": at, "type": "success", "message": f"{title} has answered"}
        return {
            "timestamp": at,
            "type": "error",
            "message": f"{title}: {event.get('error') or event.get('state')}",
        }
    if kind == "stage":
        return {"timestamp": at, "type": "info", "message": f"stage: {event.get('stage')}"}
    if kind in ("done", "failed", "cancelled"):
        type = {"done": "success", "failed": "error", "cancelled": "warning"}[str(kind)]
        return {"timestamp": at, "type": type, "message": str(event.get("error") or f"the wish is {kind}")}
    return None
