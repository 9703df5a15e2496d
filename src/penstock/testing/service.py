"""One request of a simulated model server from its arrival to its end: refused, queued, answered, counted."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from penstock.testing import refusals, wire
from penstock.testing.answers import reply_to
from penstock.testing.behaviour import ModelBehaviour
from penstock.testing.calls import CallSpan, ModelRequest
from penstock.testing.delivery import JSON, Delivery, LeftOff
from penstock.testing.faults import Fault
from penstock.testing.refusals import Refusal
from penstock.testing.room import Full, Meter, Slots, WorkClock
from penstock.testing.stats import ServerStats, Watch
from penstock.testing.styles import View, page

CALLS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
MODELS = "/v1/models"


class _Call:
    """What is known so far of a call under way."""

    __slots__ = ("arrived", "began", "request")

    def __init__(self, arrived: float) -> None:
        self.arrived = arrived
        self.began: float | None = None
        self.request: ModelRequest | None = None

    def over(self, now: float, fate: str) -> CallSpan | None:
        """None for one that could not even be read."""
        if self.request is None:
            return None
        return CallSpan(self.request, self.arrived, self.began, now, fate)


class Service:
    """Runs on one loop. `behaviour` may be replaced at any time; what is under way keeps its answer."""

    def __init__(
        self,
        behaviour: ModelBehaviour,
        stats: ServerStats,
        requests: deque[ModelRequest],
        spans: deque[CallSpan],
        watch: Watch,
    ) -> None:
        self.behaviour = behaviour
        self.stats = stats
        self.requests = requests
        self.spans = spans
        self.watch = watch
        self.active = 0
        self.stopping = False
        self.extra_faults: deque[Fault | None] = deque()
        self.loop = asyncio.get_running_loop()
        self.clock = WorkClock(self.loop)
        self.slots = Slots(behaviour, stats, self._changed)
        self._meter = self._made_meter()
        self._started = int(time.time())

    def follow(self, behaviour: ModelBehaviour) -> None:
        had = self.behaviour.rate
        self.behaviour = behaviour
        if behaviour.rate != had:
            self._meter = self._made_meter()
        self.slots.follow(behaviour)

    def _made_meter(self) -> Meter | None:
        rate = self.behaviour.rate
        return None if rate is None else Meter(rate, self.loop.time())

    def _changed(self) -> None:
        self.clock.set_speed(self.behaviour.speed(self.stats.in_flight))
        self.watch.changed()

    # ---- requests

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.stopping:  # it was accepted in the very moment of the end, and nobody else will reset it
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("the server has ended")
        path = request.path
        self.stats.endpoints[path] += 1
        self.active += 1
        try:
            if path in CALLS and request.method == "POST":
                response = await self._counted(request)
            elif path.startswith(MODELS) and request.method in ("GET", "HEAD"):
                response = await self._models(request)
            else:
                found = page(self.behaviour.style, request.method, path, View(self.behaviour, self.stats))
                response = web.Response(
                    status=found.status, body=found.body, headers={"Content-Type": found.content_type}
                )
            self.stats.statuses[response.status] += 1
            return response
        finally:
            self.active -= 1
            self.watch.changed()

    async def _counted(self, request: web.BaseRequest) -> web.StreamResponse:
        stats = self.stats
        number = stats.received
        stats.received += 1
        call = _Call(self.loop.time())
        fate = "served"
        try:
            response = await self._call(request, number, call)
        except Refusal as refusal:
            fate = "refused"
            return self._refused(refusal)
        except BaseException as left:
            by_client = isinstance(left, (asyncio.CancelledError, ConnectionError))
            left_by_client = by_client and not self.stopping and not isinstance(left, LeftOff)
            fate = "disconnected" if left_by_client else "aborted"  # a fault, a stop, a script that raised
            raise
        finally:
            setattr(stats, fate, getattr(stats, fate) + 1)
            if (span := call.over(self.loop.time(), fate)) is not None:
                self.spans.append(span)
        return response

    async def _models(self, request: web.BaseRequest) -> web.StreamResponse:
        behaviour = self.behaviour
        data = wire.encode(wire.models_body(behaviour, self._started))
        try:
            refusals.check_key(behaviour, request.headers.get("Authorization", ""))
            name = request.path.removeprefix(MODELS).lstrip("/")
            if name:
                data = wire.encode(self._model(name))
            fault = behaviour.health_fault
            if fault is not None and fault.kind == "refuse":
                raise _as_refusal(fault)
        except Refusal as refusal:
            return self._refused(refusal)
        return await Delivery(request, self.clock, 0.0, 0.0, {}, fault).whole(data, 1)

    def _model(self, name: str) -> Any:
        for found in wire.models_body(self.behaviour, self._started)["data"]:
            if found["id"] == name:
                return found
        raise refusals.wrong(f"The model `{name}` does not exist.", "model_not_found", "model", 404)

    # ---- calls

    async def _call(self, request: web.BaseRequest, number: int, known: _Call) -> web.StreamResponse:
        behaviour = self.behaviour
        call = known.request = ModelRequest(number, request.path, request.headers, await _body(request))
        self.requests.append(call)
        refusals.check_key(behaviour, call.headers.get("Authorization", ""))
        fault = self.extra_faults.popleft() if self.extra_faults else behaviour.fault_of(call)
        if fault is not None and fault.kind == "refuse":
            raise _as_refusal(fault)
        refusals.check_form(call)
        model = refusals.check_model(call, behaviour)
        prompt_tokens = call.prompt_tokens
        headers = self._metered(prompt_tokens)
        refusals.check_context(call, behaviour, prompt_tokens)
        try:
            await self.slots.take()
        except Full:
            raise refusals.full(behaviour) from None
        known.began = self.loop.time()
        try:
            stretch = behaviour.stretch(number)
            delivery = Delivery(
                request,
                self.clock,
                self.clock.now() + behaviour.prompt_s(prompt_tokens) * stretch,
                behaviour.token_s * stretch,
                headers,
                fault,
                behaviour.early_headers,
            )
            self.stats.prompt_tokens += prompt_tokens
            return await self._answer(call, model, delivery, behaviour)
        finally:
            self.slots.give_back()

    async def _answer(
        self, call: ModelRequest, model: str, delivery: Delivery, behaviour: ModelBehaviour
    ) -> web.StreamResponse:
        if call.endpoint == "embeddings":
            return await delivery.whole(wire.encode(wire.embeddings_body(model, call, behaviour)), 1)
        reply = reply_to(call, behaviour)
        kind = "chatcmpl" if call.endpoint == "chat/completions" else "cmpl"
        head = wire.Head(f"{kind}-{call.number:08x}", int(time.time()), model)
        self.stats.completion_tokens += reply.completion_tokens
        if call.stream:
            return await delivery.stream(wire.frames(head, call, reply))
        body = wire.encode(wire.answer_body(head, call, reply))
        return await delivery.whole(body, reply.completion_tokens)

    def _metered(self, prompt_tokens: int) -> Mapping[str, str]:
        meter = self._meter
        if meter is None:
            return {}
        wait_s = meter.take(prompt_tokens, self.loop.time())
        if wait_s:
            raise refusals.throttled(meter.limit, wait_s, meter.headers())
        return meter.headers()

    def _refused(self, refusal: Refusal) -> web.Response:
        body, headers = refusal.body, refusal.headers
        if self.behaviour.style == "llamacpp" and isinstance(body, dict) and "error" in body:
            body = {"error": {**body["error"], "code": refusal.status}}
        if isinstance(body, (str, bytes)):
            data = body.encode() if isinstance(body, str) else body
            return web.Response(
                status=refusal.status, body=data, headers={"Content-Type": "text/plain", **headers}
            )
        return web.Response(
            status=refusal.status, body=wire.encode(body), headers={"Content-Type": JSON, **headers}
        )


def _as_refusal(fault: Fault) -> Refusal:
    body = fault.body
    if body is None:
        kind = "requests" if fault.status == 429 else "server_error"
        body = wire.error_body(f"simulated failure {fault.status}", kind, None)
    return Refusal(fault.status, body, fault.headers)


async def _body(request: web.BaseRequest) -> dict[str, Any]:
    try:
        body = msgspec.json.decode(await request.read())
    except msgspec.DecodeError as error:
        raise refusals.wrong(f"We could not parse the JSON body of your request: {error}") from None
    except web.HTTPRequestEntityTooLarge:
        raise refusals.wrong("The request is too large.", "request_too_large", status=413) from None
    if not isinstance(body, dict):
        raise refusals.wrong("The body must be a JSON object.")
    return body
