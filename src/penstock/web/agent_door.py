"""What a call of an agent becomes: a task of its kind, for its host, whose answer goes straight to the client.

A whole answer keeps the status and the body that the container gave. A stream has its head as soon as the container
has taken the task in; a client whose task waits for longer is told so now and then, and all that goes wrong from
there on is told in the stream's last line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from penstock.agents import figures
from penstock.agents.calls.calling import LINES
from penstock.agents.endpoints import EndpointFile
from penstock.config import Config
from penstock.config.agent_hosts import agents_kind
from penstock.config.own_files import agents_dir
from penstock.config.problems import meant
from penstock.errors import PermanentError
from penstock.hosts.agent_answers import end_line, last_line
from penstock.hosts.agent_payload import read_payload
from penstock.hosts.relay import AGENT_CALL, ClientStalled, Headers
from penstock.model import Host, Task
from penstock.scheduling.messages import End
from penstock.web.calls import CallResponse, ConnectionRelay
from penstock.web.front_door import FrontDoor, Lead
from penstock.web.refusals import JSON, Refused

if TYPE_CHECKING:
    from starlette.types import Receive

    from penstock.dispatcher.loop import Dispatcher
    from penstock.web.auth import Caller, Tokens

HOLD_S = 10.0  # between two lines for a client whose task waits
LOOK_S = 2.0  # until it is told what went wrong
_MOST_WHY = 1000
_LONGEST_S = 1e9
_HEAD = (("content-type", LINES), ("cache-control", "no-store"), ("x-accel-buffering", "no"))
# What those who know the agent protocol call it.
_CODES = {"timeout": "time_over"}
_encode = msgspec.json.Encoder().encode


class CallBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a client sends."""

    command: str
    params: list[Any] | dict[str, Any] = []
    stdin: str | None = None
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=_LONGEST_S)] | None = None
    priority: Annotated[int, msgspec.Meta(ge=0, le=4)] | None = None
    lane: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=128)] | None = None

    def payload(self) -> dict[str, Any]:
        """As a task would have it."""
        told: dict[str, Any] = {"command": self.command, "params": self.params}
        return told if self.stdin is None else {**told, "stdin": self.stdin}


_BODY = msgspec.json.Decoder(CallBody)


class Admitted(NamedTuple):
    """A call that may be queued."""

    task: Task
    payload: dict[str, Any]
    on_start: Callable[[], None]  # it waits no more
    on_end: Callable[[], None]  # it is over
    figures: str  # the folder in which calls of its agent are counted
    once: str | None  # what containers know it by, where its caller named it

    async def count_unstarted(self) -> None:
        """One that was given up before any container was asked for it; of all others the host counts."""
        await asyncio.to_thread(figures.add, self.figures, {}, ok=False)


class AgentDoor:
    def __init__(self, config: Config, lead: Lead, tokens: Tokens, front_door: FrontDoor) -> None:
        hosts = {_agent_of(host): host for host in config.plant.hosts if host.type == "agent"}
        self.hosts = {name: hosts[name] for name in config.agents if name in hosts}
        self._kinds = {name: agents_kind(name, config.plant.hosts) for name in self.hosts}
        self._agents_dir = agents_dir(config)
        self._lead = lead
        self._tokens = tokens
        self._front_door = front_door
        self._underway: set[tuple[str, str, str]] = set()  # ids that callers gave: token, agent, id

    def kind(self, agent: str) -> str:
        return self._kinds[agent]

    def known(self, agent: str) -> Host:
        found = self.hosts.get(agent)
        if found is None:
            hint = meant(agent, self.hosts, "agents")
            raise Refused(404, "unknown_agent", f"there is no agent {agent[:80]!r}{hint}")
        return found

    def answer(
        self, caller: Caller, agent: str, body: bytes, headers: Mapping[str, str], *, streamed: bool
    ) -> CallResponse:
        """The answer to a call, yet to be sent. Raises Refused."""
        admitted = self.admit(caller, agent, body, headers)
        relay = AgentRelay(
            AGENT_CALL,
            body,
            streamed=streamed,
            task=admitted.task,
            on_start=admitted.on_start,
            on_answer=partial(self._front_door.answered, AGENT_CALL, admitted.task),
            kept=self._front_door.kept_answer(),
            payload=admitted.payload,
        )
        relay.once = admitted.once
        when_gone = partial(self._tokens.when_gone, caller)
        return AgentResponse(self._lead(), admitted, relay, when_gone)

    def admit(self, caller: Caller, agent: str, body: bytes, headers: Mapping[str, str]) -> Admitted:
        host = self.known(agent)
        asked = read_body(body)
        payload = asked.payload()
        try:
            read_payload(payload)
        except PermanentError as error:
            raise Refused(422, "invalid_request", str(error)) from None
        told = {"agent": agent, "command": asked.command, "bytes": len(body), "caller": caller.name}
        if asked.id is not None:
            told["id"] = asked.id
        task = Task(
            self._kinds[agent],
            {**told, **self._front_door.kept_of(body)},
            host=host.name,
            timeout_s=asked.timeout_s,
            retries=0,  # its answer is the command's own; what surely did not run is tried again all the same
        )
        task = self._front_door.completed(caller, task, headers, asked.lane, asked.priority)
        key = caller.token_id, agent, asked.id or task.id
        if key in self._underway:
            raise Refused(
                409,
                "id_taken",
                f"a call with the id {key[2]!r} is under way",
                "wait for its answer, or give another id",
            )
        self._front_door.admit(caller, task, len(body))
        self._underway.add(key)
        return Admitted(
            task,
            payload,
            partial(self._front_door.leave, caller, len(body)),
            partial(self._underway.discard, key),
            EndpointFile(self._agents_dir, agent).folder,
            None if asked.id is None else _once(caller.token_id, asked.id),
        )


def _once(token_id: str, id: str) -> str:
    """No caller may have another's answer by naming its call."""
    import hashlib

    return f"call-{hashlib.blake2b(f'{token_id} {id}'.encode(), digest_size=12).hexdigest()}"


def _agent_of(host: Host) -> str:
    return str(host.options.get("agent", host.name))


def read_body(body: bytes) -> CallBody:
    try:
        return _BODY.decode(body)
    except msgspec.ValidationError as error:
        raise Refused(
            422, "invalid_request", f"the body is not as expected: {error}", "/docs says what is possible"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, "invalid_json", f"the body is not JSON: {error}", "send UTF-8 JSON") from None


def refusal_record(refused: Refused) -> dict[str, Any]:
    """As /api tells refusals, and as those read them who know the agent protocol."""
    error = refused.as_record()["error"]
    return {"status": "failed", "error": {**error, "code": _CODES.get(refused.type, refused.type)}}


class AgentRelay(ConnectionRelay):
    path = "/api"

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._head_sent = False  # before there was an answer
        self._sending = asyncio.Lock()

    def passes_on(self, end: End) -> bool:
        """What the container says is what happened, whoever is to blame."""
        return end.step == "fail"

    def closing(self, reason: Refused) -> bytes:
        return end_line(reason.message, _CODES.get(reason.type, reason.type))

    async def begin(self, status: int, headers: Headers, host: str, attempt: int) -> None:
        async with self._sending:
            if self._head_sent:
                self.mark_begun(status)
            else:
                await super().begin(status, headers, host, attempt)

    async def refuse(self, refused: Refused) -> None:
        headers = (("content-type", JSON), *refused.headers.items())
        await self.pass_on(refused.status, headers, _encode(refusal_record(refused)))

    async def pass_on(self, status: int, headers: Headers, body: bytes) -> None:
        async with self._sending:
            if not self._head_sent:
                await super().pass_on(status, headers, body)
                return
            self.mark_begun(status)
        await self.send(last_line(status, body))
        await self.end()

    async def hold_on(self, why_down: Callable[[], str]) -> None:
        """Tell the client of a stream that its task waits, and what went wrong, until there is an answer."""
        told, silent_s = "", 0.0
        while True:
            pause_s = min(LOOK_S, HOLD_S)
            await asyncio.sleep(pause_s)
            silent_s += pause_s
            why = why_down() or self.last_error or ""
            if silent_s < HOLD_S and why == told:
                continue
            told, silent_s = why, 0.0
            async with self._sending:
                if self.begun:
                    return
                with suppress(ClientStalled):
                    await self._say_that_it_waits(why)

    async def _say_that_it_waits(self, why: str) -> None:
        if not self._head_sent:
            self._head_sent = True
            await self.send_head(200, _HEAD)
        line = {"type": "queued", "id": self.task_id}
        await self.send(_encode({**line, "why": why[:_MOST_WHY]} if why else line) + b"\n")


class AgentResponse(CallResponse):
    def __init__(
        self,
        dispatcher: Dispatcher,
        admitted: Admitted,
        relay: AgentRelay,
        when_gone: Callable[[Callable[[], None]], Callable[[], None]],
    ) -> None:
        super().__init__(dispatcher, admitted.task, relay, when_gone)
        self._agent_relay = relay
        self._admitted = admitted

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._admitted.on_end()

    async def see_through(self, receive: Receive, ended: asyncio.Future[End]) -> None:
        if not self._agent_relay.streamed:
            await super().see_through(receive, ended)
            return
        async with asyncio.TaskGroup() as group:
            holding = group.create_task(
                self._agent_relay.hold_on(lambda: self._dispatcher.why_down(self._task))
            )
            try:
                await super().see_through(receive, ended)
            finally:
                holding.cancel()

    async def _refuse(self, ended: asyncio.Future[End]) -> None:
        started = self._agent_relay.started_at is not None
        if not started and not ended.cancelled() and ended.result().step == "expire":
            await self._admitted.count_unstarted()
        await super()._refuse(ended)

    def reason(self, ended: asyncio.Future[End]) -> Refused:
        refused = super().reason(ended)
        # A container that gave no answer in the protocol's words: the client's words are not to blame.
        return Refused(502, "host_failed", refused.message) if refused.type == "refused" else refused
