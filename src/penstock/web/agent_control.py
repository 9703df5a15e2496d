"""/api/agents/NAME/…: its containers as they are, how calls went, what the containers wrote; start, warm, stop.

The same as the commands of `agent` do, by the same locks and files, beside the keeper of this dispatcher. What is
asked for is seen through when its client leaves, and broken off cleanly when the server stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import FastAPI, Path, Query, Request
from starlette.responses import Response

from penstock.agents import by_hand, figures, listing
from penstock.agents.by_hand import Session
from penstock.agents.endpoints import EndpointFile
from penstock.agents.engine.sightings import Seen
from penstock.agents.starts import stopping
from penstock.config.agents import Agent
from penstock.config.own_files import agents_dir
from penstock.config.problems import kind_of
from penstock.errors import AgentBusy, AgentError, EngineUnreachable
from penstock.store.base import Store
from penstock.web import agent_shapes as shapes
from penstock.web.api import enter
from penstock.web.auth import Caller
from penstock.web.bodies import read_object, reply
from penstock.web.refusals import Refused
from penstock.web.shapes import errors
from penstock.web.streams import SentEvents

if TYPE_CHECKING:
    from penstock.web.app import Parts

MOST_LINES = 10_000
MOST_WARM = 1000
_WAITING_LINES = 1000  # that a follower has not read: then the containers wait
_READ = errors(401, 403, 404, 405, 413, 422, 429, 502, 503)
_WRITE = errors(400, 401, 403, 404, 405, 408, 413, 415, 422, 429, 502, 503)
AgentName = Annotated[str, Path(description="The name of an agent.", max_length=200)]
Tail = Annotated[int, Query(ge=0, le=MOST_LINES, description="The last so many lines of each container.")]
_encode = msgspec.json.Encoder().encode


def add_routes(app: FastAPI, parts: Parts) -> None:
    _add_reading(app, parts)
    _add_logs(app, parts)
    _add_changes(app, parts)


# ---- the engine


def _agent(parts: Parts, name: str) -> Agent:
    parts.agent_door.known(name)
    return parts.config.agents[name]


def _opened(parts: Parts) -> AbstractAsyncContextManager[Session]:
    @asynccontextmanager
    async def stored() -> AsyncIterator[Store]:
        yield parts.store

    return by_hand.opened(agents_dir(parts.config), stored)


@contextmanager
def _told() -> Iterator[None]:
    """What is wrong with an agent or its engine is told whole: whoever asks must mend it."""
    try:
        yield
    except (EngineUnreachable, AgentBusy) as error:
        raise _refusal(503, "unavailable", error) from None
    except AgentError as error:
        raise _refusal(502, "host_failed", error) from None


def _refusal(status: int, type: str, error: AgentError) -> Refused:
    message, semicolon, remedy = " ".join(str(error).split()).partition("; ")
    return Refused(status, type, message, remedy if semicolon else None)


# ---- how it stands


def _add_reading(app: FastAPI, parts: Parts) -> None:
    @app.get(
        "/api/agents/{name}/containers",
        summary="An agent's containers",
        tags=["agents"],
        responses={200: {"model": shapes.AgentContainers}, **_READ},
        response_class=Response,
    )
    async def list_containers(request: Request, name: AgentName) -> Response:
        """As the engine sees them, and as they say of themselves; those that are just being made, too."""
        enter(parts, request, "read")
        _agent(parts, name)
        with _told():
            async with _opened(parts) as session:
                seen = await session.containers.listed(agent=name)
            row = await listing.row(parts.config.agents, agents_dir(parts.config), name, seen)
        return reply({"agent": name, "containers": row.record()["containers"]})

    @app.get(
        "/api/agents/{name}/stats",
        summary="How calls of an agent went",
        tags=["agents"],
        responses={200: {"model": shapes.AgentStats}, **_READ},
        response_class=Response,
    )
    async def agent_stats(request: Request, name: AgentName) -> Response:
        """Counted over all processes of this machine, commands too, since the agent's files were made."""
        enter(parts, request, "read")
        _agent(parts, name)
        folder = EndpointFile(agents_dir(parts.config), name).folder
        return reply(listing.stats_record(name, await asyncio.to_thread(figures.read, folder)))


# ---- what its containers wrote


def _add_logs(app: FastAPI, parts: Parts) -> None:
    @app.get(
        "/api/agents/{name}/logs",
        summary="What an agent's containers wrote",
        tags=["agents"],
        responses={200: {"model": shapes.AgentLines}, **_READ},
        response_class=Response,
    )
    async def agent_logs(request: Request, name: AgentName, tail: Tail = 200) -> Response:
        """To their own stdout and stderr; a container's lines go with it. Values of `pass_env` are left out."""
        enter(parts, request, "read")
        _agent(parts, name)
        told: list[dict[str, str]] = []
        with _told():
            async with _opened(parts) as session:
                for seen in await session.containers.listed(agent=name):
                    lines = session.containers.logs(seen.id, tail=tail)
                    told += [{"instance": seen.instance, "line": line} async for line in lines]
        return reply({"agent": name, "lines": told})

    @app.get(
        "/api/agents/{name}/logs/stream",
        summary="Follow what an agent's containers write",
        tags=["agents"],
        responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}, **_READ},
        response_class=Response,
    )
    async def follow_agent_logs(request: Request, name: AgentName, tail: Tail = 200) -> Response:
        """As Server-Sent Events, until the containers that there are have ended; 404 where there is none."""
        caller = enter(parts, request, "read")
        _agent(parts, name)
        with _told():
            async with _opened(parts) as session:
                seen = await session.containers.listed(agent=name)
        if not seen:
            raise Refused(
                404,
                "no_container",
                f"{name} has no container, and what those before wrote went with them",
                f"POST /api/agents/{name}/start makes one",
            )
        return LogStream(parts, caller, seen, tail)


class LogStream(SentEvents):
    """The lines of several containers as they come, each with its container's instance."""

    def __init__(self, parts: Parts, caller: Caller, seen: list[Seen], tail: int) -> None:
        super().__init__(parts, caller)
        self._parts = parts
        self._seen = seen
        self._tail = tail
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue(_WAITING_LINES)

    def endings(self) -> list[Coroutine[Any, Any, object]]:
        return [*super().endings(), self._parts.feed.wait_closed()]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(self._read())
            try:
                await super().__call__(scope, receive, send)
            finally:
                reading.cancel()

    async def frames(self) -> AsyncGenerator[bytes, None]:
        while True:
            try:
                async with asyncio.timeout(self._timing.heartbeat_s):
                    frame = await self._waiting.get()
            except TimeoutError:
                yield b": waiting\n\n"
                continue
            if frame is None:
                return
            yield frame

    async def _read(self) -> None:
        try:
            async with _opened(self._parts) as session, asyncio.TaskGroup() as group:
                for seen in self._seen:
                    group.create_task(self._read_one(session, seen))
        except* AgentError as failed:
            why = _refusal(502, "host_failed", _first(failed)).body()
            await self._waiting.put(b"event: error\ndata: " + why + b"\n\n")
        await self._waiting.put(None)

    async def _read_one(self, session: Session, seen: Seen) -> None:
        lines = session.containers.logs(seen.id, tail=self._tail, follow=True)
        async for line in lines:
            told = {"instance": seen.instance, "line": line}
            await self._waiting.put(b"event: line\ndata: " + _encode(told) + b"\n\n")


def _first(failed: BaseExceptionGroup[AgentError]) -> AgentError:
    one = failed.exceptions[0]
    return _first(one) if isinstance(one, BaseExceptionGroup) else one


# ---- what is to be


def _add_changes(app: FastAPI, parts: Parts) -> None:
    described: Any = {"tags": ["agents"], "response_class": Response}

    @app.post(
        "/api/agents/{name}/start",
        summary="Have a container of an agent",
        responses={200: {"model": shapes.AgentStarted}, **_READ},
        **described,
    )
    async def start_agent(request: Request, name: AgentName) -> Response:
        """The one that is there, or one that is made; it answers when this does."""
        agent = _changed(parts, request, name)
        with _told():
            async with _opened(parts) as session:
                endpoint = await by_hand.started(session, agent)
        return reply({"agent": name, "instance": endpoint.instance, "container": endpoint.container})

    @app.post(
        "/api/agents/{name}/warm",
        summary="Have so many containers of an agent ready",
        openapi_extra={"requestBody": shapes.WARM_BODY},
        responses={200: {"model": shapes.AgentWarmed}, **_WRITE},
        **described,
    )
    async def warm_agent(request: Request, name: AgentName) -> Response:
        """Those that are there counted; without `count` as many as the config keeps, and one to work."""
        agent = _changed(parts, request, name)
        wanted = _count(await read_object(request, ("count",)), agent.pool.warm + 1)
        with _told():
            async with _opened(parts) as session:
                ready = await by_hand.warmed(session, agent, wanted)
        return reply({"agent": name, "containers": len(ready)})

    @app.post(
        "/api/agents/{name}/stop",
        summary="Stop and remove an agent's containers",
        openapi_extra={"requestBody": shapes.STOP_BODY},
        responses={200: {"model": shapes.AgentStopped}, **_WRITE},
        **described,
    )
    async def stop_agent(request: Request, name: AgentName) -> Response:
        """Once what runs in them is finished; with `now` that is ended, too.

        The next call starts one again, and where some are kept warm they are made at once.
        """
        _changed(parts, request, name)
        now = (await read_object(request, ("now",))).get("now", False)
        if not isinstance(now, bool):
            raise Refused(422, "invalid_request", f"now: must be true or false, not {kind_of(now)}")
        with _told():
            async with _opened(parts) as session:
                stopped = await stopping.stop(session.containers, name, session.make_lock, now=now)
        return reply({"agent": name, "stopped": stopped})


def _changed(parts: Parts, request: Request, name: str) -> Agent:
    enter(parts, request, "admin")
    parts.must_take_in()
    return _agent(parts, name)


def _count(body: dict[str, Any], usual: int) -> int:
    count = body.get("count")
    if count is None:
        return usual
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_WARM:
        raise Refused(
            422,
            "invalid_request",
            f"count: must be a whole number from 1 to {MOST_WARM}, not {kind_of(count)}",
        )
    return count
