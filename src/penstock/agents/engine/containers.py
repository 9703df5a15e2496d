"""One process's way to the container engine: makes containers, looks at them, ends them.

Decides nothing about how many there are or when: that is for starting.py and keeping.py. Every fault of the engine
comes out as one of our errors (engine_faults.py). What was created and cannot be used as asked for, because the
engine drops a limit or somebody cancels, is removed again before the error is raised.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import aiohttp

from penstock.agents.endpoints import must_be_ours
from penstock.agents.engine import creating, engine_faults, recipe, sightings, socket_folders
from penstock.agents.engine.engine_faults import Asked
from penstock.agents.engine.engine_session import ANSWER_S, EngineSession, table
from penstock.agents.engine.log_lines import lines
from penstock.agents.engine.recipe import Identity
from penstock.agents.engine.sightings import ContainerEvent, ContainerStats, Seen
from penstock.config.agents import Agent
from penstock.errors import AgentError, AgentLost

MOST_STARTS = 8  # at a time: more of them at once are slower in all
_LIST_TRIES = 20
_REMOVE_TRIES = 50
_REMOVE_PAUSE_S = 0.1
_LAST_LINES = 20
_LAST_CHARACTERS = 400
_MARKS_OF_CONTAINERS = ("/.dockerenv", "/run/.containerenv")


def home_of(agents_dir: str) -> str:
    """Marks the containers of one folder of endpoints on one machine: nobody else's are touched."""
    whole = f"{os.path.realpath(agents_dir)}\0{_machine()}"
    return hashlib.blake2b(whole.encode(), digest_size=10).hexdigest()


def new_identity(home: str) -> Identity:
    return Identity(secrets.token_hex(6), secrets.token_urlsafe(24), secrets.token_urlsafe(24), home)


class Containers:
    """Owns one session with the engine, from `open` to `close`."""

    def __init__(
        self, agents_dir: str, environ: Mapping[str, str] | None = None, url: str | None = None
    ) -> None:
        self.agents_dir = os.path.abspath(agents_dir)
        self.home = home_of(self.agents_dir)
        self._environ = environ = os.environ if environ is None else environ
        self._engine = EngineSession(environ, url)
        self._creator = creating.Creator(self._engine, self.agents_dir, environ, self.remove)
        self._starts = asyncio.Semaphore(MOST_STARTS)

    async def open(self) -> None:
        must_be_ours(self.agents_dir)
        await self._engine.open()

    async def close(self) -> None:
        await self._engine.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """Of the engine."""
        return self._engine.url

    @property
    def is_remote(self) -> bool:
        """Whether the engine may be another machine's: then a lock on this one's files is not enough."""
        return self._engine.is_remote

    # ---- making and ending

    async def create(self, agent: Agent, identity: Identity) -> str:
        """The container's id; it is not started. Whatever goes wrong, nothing is left behind."""
        return await self._creator.created(agent, identity)

    async def start(self, id: str) -> None:
        """One that cannot be started stays created: its creator removes it."""
        async with self._starts:
            with self._engine.faults(id):
                await self._engine.container(id).start()

    async def pause(self, id: str) -> None:
        await self._brought(id, self._engine.container(id).pause, lambda seen: seen.paused)

    async def resume(self, id: str) -> None:
        await self._brought(id, self._engine.container(id).unpause, lambda seen: seen.answers)

    async def stop(self, id: str, grace_s: float) -> None:
        """Ends its program: politely, and by force after `grace_s`. One that is gone or ended is fine."""
        seen = await self.seen(id)
        if seen is None or not seen.running:
            return
        if seen.paused:
            with suppress(AgentError):  # a paused program gets no signal; one that has just ended needs none
                await self.resume(id)
        timeout = aiohttp.ClientTimeout(total=grace_s + ANSWER_S)
        with self._engine.faults(id, may_be_gone=True):
            await self._engine.container(id).stop(t=max(0, round(grace_s)), timeout=timeout)

    async def kill(self, id: str, signal: str = "SIGKILL") -> None:
        """A signal to its program; one that is gone or has ended is fine."""
        try:
            with self._engine.faults(id, may_be_gone=True):
                await self._engine.container(id).kill(signal=signal)
        except AgentError:
            seen = await self.seen(id)
            if seen is not None and seen.running:
                raise

    async def remove(self, id: str) -> None:
        """By force, with its volumes and the folder of its socket. One that is gone is fine."""
        seen = await self.seen(id)
        if seen is not None:
            await self._removed(id)
            if seen.home == self.home and seen.instance.isalnum():
                socket_folders.remove(self.agents_dir, seen.agent, seen.instance)
        self._engine.forget(id)

    async def _removed(self, id: str) -> None:
        for tries in range(1, _REMOVE_TRIES + 1):
            try:
                with self._engine.faults(id, may_be_gone=True):
                    await self._engine.container(id).delete(
                        force=True, v=True, timeout=aiohttp.ClientTimeout(total=ANSWER_S)
                    )
                return
            except AgentError:
                # Somebody else may be removing it just now: engines refuse the second and finish the first.
                if await self.seen(id) is None:
                    return
                if tries == _REMOVE_TRIES:
                    raise
            await asyncio.sleep(_REMOVE_PAUSE_S)

    # ---- containers without a network

    def seal(self, agent: Agent, instance: str) -> None:
        """To be called once it answers: from then on it can put nothing more beside its socket."""
        if not agent.network:
            socket_folders.seal(self.agents_dir, agent.name, instance)

    def remove_other_sockets(self, agent: str, instances: set[str]) -> None:
        """Folders of sockets whose container is gone, or was never made as its creator died. Under the lock."""
        socket_folders.remove_others(self.agents_dir, agent, instances)

    # ---- looking

    async def seen(self, id: str) -> Seen | None:
        """None: it is gone."""
        with self._engine.faults(id, may_be_gone=True):
            return sightings.inspected(await self._engine.container(id).show(), self._engine.host)
        return None

    async def listed(self, home: str | None = None, agent: str | None = None) -> list[Seen]:
        """Those with our labels and our name, whatever their state; of this home, or of `home`."""
        wanted = [f"{recipe.HOME_LABEL}={self.home if home is None else home}"]
        if agent is not None:
            wanted.append(f"{recipe.AGENT_LABEL}={agent}")
        for _ in range(_LIST_TRIES):
            # Podman fails as a whole when one is removed while it makes the list.
            with self._engine.faults(may_be_gone=True):
                found = await self._engine.docker.containers.list(
                    all=1, filters=json.dumps({"label": wanted})
                )
                seen = [sightings.summarized(one._container, self._engine.host) for one in found]
                return [one for one in seen if one.has_own_name]
        raise AgentError(
            f"the container engine at {self.url} does not come to an end of its list, for containers keep going"
            " away; see who removes them, and try again"
        )

    async def image_id(self, name: str, agent: str = "") -> str:
        """ImageMissing where the engine has none of that name; `agent` is who wants it, for the error."""
        with self._engine.faults(may_be_gone=True):
            told = await self._engine.docker.images.inspect(name)
            return str(told["Id"]).removeprefix("sha256:")
        raise engine_faults.image_missing(Asked(self.url, agent, name))

    async def identity(self, id: str) -> Identity | None:
        """Which instance it is, with its key and proof, as the engine knows them; None: it is none of ours."""
        given = await self._given(id)
        names = (recipe.INSTANCE_VARIABLE, recipe.KEY_VARIABLE, recipe.PROOF_VARIABLE)
        instance, key, proof = (given.get(name, "") for name in names)
        return Identity(instance, key, proof, self.home) if instance.isalnum() else None

    async def has_our_values(self, agent: Agent, id: str) -> bool:
        """Whether it was given the values that `pass_env` has here; one that is not set here says nothing."""
        given = await self._given(id)
        ours = {name: self._environ[name] for name in agent.pass_env if name in self._environ}
        return not given or all(given.get(name) == value for name, value in ours.items())

    async def _given(self, id: str) -> dict[str, str]:
        """The environment that it was made with; nothing where it is gone."""
        told: Mapping[str, Any] = {}
        with self._engine.faults(id, may_be_gone=True):
            told = (await self._engine.container(id).show()).get("Config", {})
        return dict(str(pair).partition("=")[::2] for pair in told.get("Env") or [])

    async def stats(self, id: str) -> ContainerStats:
        asked = {"stream": "false", "one-shot": "true"}
        async with self._engine.streamed(f"containers/{id}/stats", asked, id, ANSWER_S) as reply:
            return sightings.measured(table(await reply.read()))

    async def logs(self, id: str, tail: int | None = None, follow: bool = False) -> AsyncIterator[str]:
        """Its output, a line at a time, without the values of `pass_env`; with `follow` until it ends."""
        hidden = await self._secrets(id)
        asked = {"stdout": "true", "stderr": "true", "follow": str(follow).lower()}
        asked["tail"] = "all" if tail is None else str(tail)
        async with self._engine.streamed(f"containers/{id}/logs", asked, id) as reply:
            async for line in lines(reply.content):
                yield engine_faults.hidden(line, hidden)

    async def last_words(self, id: str) -> str:
        """The end of its output on one line, for an error; nothing where there is none to be had."""
        found: list[str] = []
        with suppress(AgentError):
            found.extend([line async for line in self.logs(id, tail=_LAST_LINES)])
        told = " | ".join(" ".join(line.split()) for line in found if line.strip())
        return told if len(told) <= _LAST_CHARACTERS else f"…{told[-_LAST_CHARACTERS:]}"

    async def events(self) -> AsyncIterator[ContainerEvent]:
        """What happens to this home's containers, from now on, until the engine ends."""
        wanted = {"type": ["container"], "label": [f"{recipe.HOME_LABEL}={self.home}"]}
        async with self._engine.streamed("events", {"filters": json.dumps(wanted)}) as reply:
            async for line in reply.content:
                event = sightings.happened(table(line))
                if event is not None:
                    yield event

    # ---- steps

    async def _brought(
        self, id: str, step: Callable[[], Awaitable[Any]], is_there: Callable[[Seen], bool]
    ) -> None:
        """Does a step; where the engine refuses because it was done already, that is as good."""
        try:
            with self._engine.faults(id):
                await step()
        except AgentError:
            seen = await self.seen(id)
            if seen is None:
                raise AgentLost(f"{self._engine.known(id).place}: its container {id[:12]} is gone") from None
            if not is_there(seen):
                raise

    async def _secrets(self, id: str) -> list[str]:
        """What a container was given and nobody may read: the engine knows, so any process can ask."""
        told: Mapping[str, Any] = {}
        with self._engine.faults(id, may_be_gone=True):
            told = (await self._engine.container(id).show()).get("Config", {})
        named = str((told.get("Labels") or {}).get(recipe.SECRETS_LABEL, "")).split(",")
        names = {recipe.KEY_VARIABLE, recipe.PROOF_VARIABLE, *named}
        pairs = [str(pair).partition("=") for pair in told.get("Env") or []]
        return [value for name, _, value in pairs if name in names]


def _machine() -> str:
    """Containers that run Penstock and share an engine's socket may be of one image, with one id in it."""
    try:
        with open("/etc/machine-id", encoding="ascii") as file:
            id = file.read().strip()
    except (OSError, ValueError):
        id = ""
    if id and not any(os.path.exists(path) for path in _MARKS_OF_CONTAINERS):
        return id
    return f"{id} {platform.node()}"
