"""A container agent as a host: how a payload becomes a task in one of its containers, and what becomes of a fault.

    [hosts.reports]
    type = "agent"
    agent = "reports"               # of [agents.reports]
    temporary_exit = [75]           # exit statuses worth another try
    output_limit_bytes = 10000000

The task's name in the container is
`TASK.ATTEMPT`, and the same name runs once there. A container that refused, is another's, or takes nothing more in
has run nothing: another is asked at once, within the same attempt. One that was lost is the host's fault, and
however many attempts it took with it, the host's breaker counts it once. A task is tried again then, as on every
host (`retry.host_faults`); a call, which somebody waits for, is not: its command may have run.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from penstock.agents.calls.calling import GRACE_S, LINES, AgentCalls, Ask, Reply, Stream
from penstock.agents.calls.connections import CallFailed, Terms, Trouble
from penstock.agents.endpoints import Endpoint
from penstock.agents.engine.engine_faults import hidden
from penstock.agents.quick.answers import NO_ROOM
from penstock.agents.recording import Count, Recorder, counted
from penstock.clock import Clock
from penstock.config.agents import Agent
from penstock.errors import AgentError, AgentLost, ImageMissing, PermanentError
from penstock.hosts.agent_answers import (
    LOG_CHARS,
    end_line,
    lines_of,
    made,
    not_again,
    outcome_of,
    ran_nothing,
    reply_of_end,
    told_already,
)
from penstock.hosts.agent_needs import Engine, Keeping
from penstock.hosts.agent_payload import read_payload
from penstock.hosts.base import Health, Job, OwnCoroutine
from penstock.hosts.relay import AGENT_CALL, ClientStalled, Refusal, Relay
from penstock.hosts.type_options import read_agent
from penstock.model import Host, Outcome, Verdict
from penstock.store.base import Store
from penstock.trace import passed_on

_LAST_TRY = (False, False, False, True)  # containers that ran nothing, within one attempt
_MOST_LOST = 100  # instances whose loss is remembered
_MOST_KEYS = 100  # instances whose keys are hidden in what is told
_MOST_STDERR = max(LOG_CHARS, 65_536)  # longer than any secret: one that comes in two pieces is known as well
_LATE_S = 2.0  # beyond what a container has to tell that a task's time is over: we tell it by ourselves
_CHECK_S = 30.0
_JSON_HEADERS = (("content-type", "application/json"),)
_TEXT_HEADERS = (("content-type", "text/plain; charset=utf-8"), ("x-content-type-options", "nosniff"))
_LINES_HEADERS = (("content-type", LINES), ("cache-control", "no-store"), ("x-accel-buffering", "no"))


class Placement(NamedTuple):
    """What the config says of the agent of a host, and where what is known of it lies."""

    agent: Agent
    agents_dir: str
    store: Store | None = None  # where machines share an engine, they agree by it


class AgentAdapter:
    check_every_s = _CHECK_S

    def __init__(
        self,
        host: Host,
        agent: Agent,
        keeper: Keeping,
        engine: Engine,
        recorder: Recorder | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._host = host.name
        self._recorder = recorder
        self._agent, self._image = agent.name, agent.image
        self._engine = engine
        options = read_agent(host)
        self._temporary = options.temporary
        self._plain = agent.plain
        self._keeper = keeper
        self._stands = False
        self._calls = AgentCalls(host.name, Terms(plain=agent.plain, output_limit_bytes=options.limit_bytes))
        self._lost: dict[str, None] = {}  # instances, the oldest first
        self._passed = [environ[name] for name in agent.pass_env if environ.get(name)]
        self._keys: dict[str, tuple[str, str]] = {}  # key and proof by instance, the oldest first

    async def open(self) -> None:
        await self._calls.open()

    async def stand(self) -> None:
        self._stands = True
        await self._keeper.open()

    async def close(self) -> None:
        if self._stands:
            self._stands = False
            await self._keeper.close()
        await self._calls.close()
        await self._engine.close()
        if self._recorder is not None:
            await self._recorder.close()

    async def check(self) -> Health:
        try:
            if self._stands:
                await self._keeper.check()
                told = self._keeper.statistics()
                return Health(True, f"containers: {told.ready} ready, {told.paused} paused")
            await self._engine.open()
            await self._engine.image_id(self._image, self._agent)
        except AgentError as error:
            return Health(False, str(error), needs_fix=isinstance(error, ImageMissing))
        return Health(True, f"the engine answers and has image {self._image}")

    def statistics(self) -> dict[str, Any]:
        """Of its containers, for those who ask."""
        return asdict(self._keeper.statistics())

    def work(self, job: Job) -> OwnCoroutine:
        payload = job.payload
        relay = payload if isinstance(payload, Relay) else None
        if relay is not None and relay.endpoint != AGENT_CALL:
            raise PermanentError(f"{self._host} is an agent and answers no calls of models")
        asked = read_payload(payload if relay is None else relay.payload)
        ask = asked._replace(
            id=(None if relay is None else relay.once) or f"{job.task}.{job.attempt}",
            timeout_s=job.timeout_s,
            trace=None if job.trace is None else passed_on(job.trace),
        )
        late_s = 0.0 if ask.timeout_s is None else GRACE_S + _LATE_S
        if relay is None:
            return OwnCoroutine(lambda: self._perform(ask), late_s=late_s)
        return OwnCoroutine(lambda: self._relay(ask, relay, job.attempt), late_s=late_s)

    # ---- tasks

    async def _perform(self, ask: Ask) -> Outcome:
        try:
            return made(self._host, self._outcome(ask, await self._asked(ask)))
        except CallFailed as failed:
            return self._failed(failed)
        except AgentError as error:
            return Outcome(Verdict.HOST, error=str(error), needs_fix=isinstance(error, ImageMissing))

    async def _asked(self, ask: Ask) -> Reply:
        """The answer of the first container that takes it."""
        async with counted(self._recorder, self._host) as count:
            reply = await self._first_answer(ask, count)
            count.answered(reply.answer)
            _count(count, reply)
        return reply

    async def _first_answer(self, ask: Ask, count: Count) -> Reply:
        for last in _LAST_TRY:
            async with self._leased(count) as endpoint:
                try:
                    reply = await self._calls.ask(endpoint, ask)
                except CallFailed as failed:
                    self._tell(endpoint, failed)
                    if last or not failed.trouble.nothing_ran:
                        raise
                    continue
                self._heed(endpoint, reply.code)
                if last or not self._ran_nothing(endpoint, reply):
                    return reply
        raise AssertionError("the last try returns or raises")

    def _outcome(self, ask: Ask, reply: Reply) -> Outcome:
        return outcome_of(
            self._host,
            reply,
            timeout_s=ask.timeout_s,
            temporary=self._temporary,
            plain=self._plain,
            hide=self._hide,
        )

    def _hide(self, text: str) -> str:
        """Without what was given to containers for nobody else: values of `pass_env`, keys and proofs."""
        return hidden(text, (*self._passed, *(key for both in self._keys.values() for key in both)))

    # ---- calls of the front door

    async def _relay(self, ask: Ask, relay: Relay, attempt: int) -> Outcome:
        if relay.begun:  # an attempt was ended from outside, by its time or by hand
            return Outcome(Verdict.PERMANENT, error="the answer had begun, so it was not tried again")
        relay.refusal = None
        try:
            outcome = await (self._pass_lines if relay.streamed else self._pass_whole)(ask, relay, attempt)
        except CallFailed as failed:
            outcome = self._failed(failed)
            if relay.begun:
                return await _broken_off(outcome, relay)
            if not failed.trouble.nothing_ran:
                outcome = not_again(outcome)
        except ImageMissing as error:  # it will not come by itself
            outcome = Outcome(Verdict.PERMANENT, error=str(error), host_fault=True)
        except AgentError as error:
            outcome = Outcome(Verdict.HOST, error=str(error))
        except ClientStalled as stalled:
            outcome = Outcome(Verdict.PERMANENT, error=str(stalled))
        relay.timed_out = outcome.timed_out
        return outcome

    async def _pass_whole(self, ask: Ask, relay: Relay, attempt: int) -> Outcome:
        reply = await self._asked(ask)
        outcome = self._outcome(ask, reply)
        if outcome.verdict is not Verdict.DONE:
            return self._refuse(relay, reply, outcome)
        headers = _TEXT_HEADERS if isinstance(reply.answer, str) else _JSON_HEADERS
        await relay.whole(200, headers, self._host, attempt, reply.body)
        return replace(outcome, value=relay.record() or None)

    async def _pass_lines(self, ask: Ask, relay: Relay, attempt: int) -> Outcome:
        async with self._followed(ask) as stream:
            if stream.reply is not None:
                return await self._pass_in_one_piece(ask, relay, attempt, stream.reply)
            stderr = ""
            async for lines in stream:
                if not relay.begun:
                    await relay.begin(200, _LINES_HEADERS, self._host, attempt)
                for line in lines:
                    if line.type == "stderr" and isinstance(said := line.told.get("data"), str):
                        stderr = self._hide(stderr + said)[-_MOST_STDERR:]
                await relay.send(b"".join(line.raw for line in lines))
                if stream.end is not None:
                    await relay.end()
            assert stream.end is not None, "a stream without an end raises"
        outcome = self._outcome(ask, reply_of_end(stream.end.told, stderr))
        if outcome.verdict is Verdict.DONE:
            return replace(outcome, value=relay.record() or None)
        return told_already(outcome)

    async def _pass_in_one_piece(self, ask: Ask, relay: Relay, attempt: int, reply: Reply) -> Outcome:
        """To a client that asked for lines: from an agent that knows none, or that took nothing in."""
        outcome = self._outcome(ask, reply)
        if outcome.verdict is not Verdict.DONE:
            return self._refuse(relay, reply, outcome)
        await relay.begin(200, _LINES_HEADERS, self._host, attempt)
        await relay.send(lines_of(reply))
        await relay.end()
        return replace(outcome, value=relay.record() or None)

    def _refuse(self, relay: Relay, reply: Reply, outcome: Outcome) -> Outcome:
        if reply.code:  # in words of the protocol, which the client understands
            relay.refusal = Refusal(reply.status, _JSON_HEADERS, reply.body)
        is_over = outcome.verdict is Verdict.HOST and not ran_nothing(reply)
        return not_again(outcome) if is_over else outcome

    @asynccontextmanager
    async def _followed(self, ask: Ask) -> AsyncIterator[Stream]:
        """The stream of the first container that takes it."""
        async with counted(self._recorder, self._host) as count, self._first_stream(ask, count) as stream:
            yield stream
            if stream.reply is not None:
                _count(count, stream.reply)
            else:
                count.ok = stream.end is not None

    @asynccontextmanager
    async def _first_stream(self, ask: Ask, count: Count) -> AsyncIterator[Stream]:
        for last in _LAST_TRY:
            async with self._leased(count) as endpoint:
                begun = False
                try:
                    async with self._calls.follow(endpoint, ask) as stream:
                        reply = stream.reply
                        if last or reply is None or not self._ran_nothing(endpoint, reply):
                            begun = True
                            yield stream
                            if stream.end is not None:
                                self._heed(endpoint, reply_of_end(stream.end.told, "").code)
                            return
                except CallFailed as failed:
                    self._tell(endpoint, failed)
                    if begun or last or not failed.trouble.nothing_ran:
                        raise

    # ---- containers and their faults

    @asynccontextmanager
    async def _leased(self, count: Count) -> AsyncIterator[Endpoint]:
        instance = ""
        try:
            async with self._keeper.lease(count.begun()) as endpoint:
                count.leased()
                instance = endpoint.instance
                self._know(endpoint)
                yield endpoint
        except AgentLost as lost:
            trouble = Trouble.LOST if instance else Trouble.REFUSED
            raise CallFailed(trouble, str(lost), instance) from None

    def _know(self, endpoint: Endpoint) -> None:
        if endpoint.instance not in self._keys:
            self._keys[endpoint.instance] = endpoint.key, endpoint.proof
            if len(self._keys) > _MOST_KEYS:
                del self._keys[next(iter(self._keys))]

    def _tell(self, endpoint: Endpoint, failed: CallFailed) -> None:
        failed.instance = endpoint.instance
        if failed.trouble is not Trouble.TOO_LARGE:
            self._keeper.report(endpoint, failed.trouble.value)

    def _heed(self, endpoint: Endpoint, code: str) -> None:
        """One that could start nothing is asked whether this goes on: then another takes its place."""
        if code == NO_ROOM:
            self._keeper.report(endpoint, "it has no room to start anything")

    def _ran_nothing(self, endpoint: Endpoint, reply: Reply) -> bool:
        """Whether the container takes nothing more in, or not from us: its keeper is told."""
        if self._plain or (reply.code != "draining" and reply.status != 401):
            return False
        self._keeper.report(
            endpoint, "it refuses our key" if reply.status == 401 else "it takes nothing more in"
        )
        return True

    def _failed(self, failed: CallFailed) -> Outcome:
        if failed.trouble is Trouble.TOO_LARGE:
            return Outcome(Verdict.PERMANENT, error=str(failed))
        if failed.trouble is Trouble.SILENT:
            return Outcome(Verdict.TEMPORARY, error=str(failed), timed_out=True)
        known = failed.trouble is Trouble.LOST and failed.instance != "" and self._is_known(failed.instance)
        return Outcome(Verdict.HOST, error=str(failed), known_fault=known)

    def _is_known(self, lost: str) -> bool:
        """Whether the loss of this container was told before."""
        if lost in self._lost:
            return True
        self._lost[lost] = None
        if len(self._lost) > _MOST_LOST:
            del self._lost[next(iter(self._lost))]
        return False


def _count(count: Count, reply: Reply) -> None:
    count.ok = not ran_nothing(reply)
    count.is_over = reply.code != "busy"


async def _broken_off(outcome: Outcome, relay: Relay) -> Outcome:
    """The client has a part of the answer: it is told that no more comes."""
    error = f"{outcome.error}; the answer had begun, so it was not tried again"
    await relay.send(end_line(error, "timeout" if outcome.timed_out else "host_failed"))
    await relay.end()
    return told_already(replace(outcome, error=error))


def make(host: Host, clock: Clock) -> AgentAdapter:
    """The containers' side is imported here: a rig that has another needs none of it."""
    from penstock.agents.endpoints import EndpointFile
    from penstock.agents.engine.containers import Containers
    from penstock.agents.keeper.keeping import Keeper
    from penstock.agents.starts.start_lock import StartLock
    from penstock.agents.starts.starting import Starter
    from penstock.agents.starts.store_lock import start_lock_for

    placement: Placement = host.options["placement"]
    agent = placement.agent
    containers = Containers(placement.agents_dir)

    def make_lock(folder: str) -> StartLock:
        return start_lock_for(containers.url, placement.store)(
            folder
        )  # by then it is known which engine it is

    files = EndpointFile(placement.agents_dir, agent.name)
    recorder = Recorder(files.folder)
    starter = Starter(containers, make_lock=make_lock)
    keeper = Keeper(agent, starter, containers, files, clock, recorder.kept)
    return AgentAdapter(host, agent, keeper, containers, recorder)
