"""Makes one container as the recipe says, whole or not at all: what is made and cannot be used is removed again."""

from __future__ import annotations

import asyncio
import math
import os
import re
import stat
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from penstock.agents.endpoints import unwritable
from penstock.agents.engine import archives, engine_faults, recipe, server_file, socket_folders
from penstock.agents.engine.engine_faults import Asked
from penstock.agents.engine.engine_session import LOOPBACK, EngineSession
from penstock.agents.engine.recipe import NOBODY, Identity, Place
from penstock.config.agents import Agent
from penstock.errors import AgentError, EngineUnreachable

_OWN_PLACES = (recipe.SERVER_FOLDER, recipe.SERVER_FILE, recipe.SOCKET_FOLDER)
_ROUNDING = 0.01  # engines count cores in parts of their own
_NO_INIT = re.compile("init binary|docker-init|catatonit")


class Creator:
    def __init__(
        self,
        engine: EngineSession,
        agents_dir: str,
        environ: Mapping[str, str],
        remove: Callable[[str], Awaitable[None]],
    ) -> None:
        self._engine = engine
        self._agents_dir = agents_dir
        self._environ = environ
        self._remove = remove
        self._has_init = True  # until the engine says otherwise

    async def created(self, agent: Agent, identity: Identity) -> str:
        """The id of a container that is not started."""
        self._check(agent)
        passed = self._passed(agent)
        hidden = (*passed.values(), identity.key, identity.proof)
        program = agent.python if agent.has_own_server else next(iter(agent.command), "")
        asked = Asked(self._engine.url, agent.name, agent.image, program, hidden)
        try:
            place = self._place(agent, identity)
        except OSError as error:
            raise unwritable(self._agents_dir, error) from None
        mark = server_file.fingerprint(agent)
        wanted = recipe.document(agent, identity, passed, mark, place)
        try:
            # A request that is under way cannot be taken back: it is awaited even when we are cancelled, so that
            # what it makes is known and can be removed.
            made = self._posted(recipe.container_name(agent.name, identity.instance), wanted, asked)
            id = await _to_the_end(made, self._undo)
            self._engine.know(id, asked)
            await self._completed(id, agent, place, asked)
        except BaseException:
            socket_folders.remove(self._agents_dir, agent.name, identity.instance)
            raise
        return id

    async def _completed(self, id: str, agent: Agent, place: Place, asked: Asked) -> None:
        try:
            if place.is_copied:
                await self._copy(id, agent)
            await self._check_limits(id, agent, asked)
        except BaseException:
            await self._undo(id)
            raise

    async def _posted(self, name: str, wanted: dict[str, Any], asked: Asked) -> str:
        try:
            return await self._post(name, wanted, asked)
        except AgentError as error:
            if not wanted["HostConfig"]["Init"] or not _NO_INIT.search(str(error)):
                raise
        # Without it a program that reaps no children collects zombies, up to its limit of processes: that is its
        # own loss, and better than not to run.
        self._has_init = wanted["HostConfig"]["Init"] = False
        return await self._post(name, wanted, asked)

    async def _post(self, name: str, wanted: dict[str, Any], asked: Asked) -> str:
        try:
            with self._engine.faults(asked=asked):
                container = await self._engine.docker.containers.create(wanted, name=name)
        except EngineUnreachable:
            await self._undo(name)  # it may have been made before the answer was cut
            raise
        return str(container.id)

    async def _copy(self, id: str, agent: Agent) -> None:
        for folder in recipe.copied_folders(agent):
            packed = await asyncio.to_thread(archives.packed, folder, agent)
            with self._engine.faults(id):
                await self._engine.container(id).put_archive(folder, packed)  # type: ignore[no-untyped-call]

    async def _check_limits(self, id: str, agent: Agent, asked: Asked) -> None:
        """Engines that may not set a limit leave it out with a warning that nobody reads."""
        limits = recipe.limits(agent)
        limits.pop("MemorySwap", None)  # where the kernel does not count swap there is none to limit
        if not limits:
            return
        with self._engine.faults(id):
            told = (await self._engine.container(id).show())["HostConfig"]
            for name, wanted in limits.items():
                if not math.isclose(told.get(name) or 0, wanted, rel_tol=_ROUNDING):
                    raise engine_faults.limit_dropped(asked, f"{name} = {told.get(name)}, not {wanted}")

    async def _undo(self, id: str) -> None:
        with suppress(AgentError):
            await self._remove(id)

    def _place(self, agent: Agent, identity: Identity) -> Place:
        host, is_remote = self._engine.host, self._engine.is_remote
        is_mounted = agent.has_own_server and not is_remote
        server = server_file.mountable(self._agents_dir) if is_mounted else ""
        folder = None
        if not agent.network:
            folder = socket_folders.make(self._agents_dir, agent.name, identity.instance)
        published = LOOPBACK if host == LOOPBACK else ""
        return Place(server, is_remote, folder, published, self._has_init, self._engine.is_podman)

    def _passed(self, agent: Agent) -> dict[str, str]:
        missing = [name for name in agent.pass_env if name not in self._environ]
        if missing:
            names = ", ".join(missing)
            raise AgentError(
                f"agents.{agent.name}.pass_env: set {names} in the environment of Penstock first"
            )
        return {name: self._environ[name] for name in agent.pass_env}

    def _check(self, agent: Agent) -> None:
        """What an engine would do in a way that nobody wants, or cannot do at all."""
        for at, mount in enumerate(agent.mounts, 1):
            if mount.target in _OWN_PLACES:
                place = f"agents.{agent.name}.mounts[{at}].target"
                raise AgentError(f"{place}: {mount.target} is where Penstock's own files are: choose another")
        if not self._engine.is_remote:
            self._check_mounts(agent)
            return
        if not agent.network:
            raise AgentError(
                f"agents.{agent.name}.network: an agent without a network is reached by a socket on the engine's "
                f"own machine, and {self._engine.url} may be another: run Penstock there with the engine's "
                f"socket, or set network = true"
            )
        if agent.plain and self._engine.host != LOOPBACK:
            raise AgentError(
                f"agents.{agent.name}.plain: on {self._engine.url} it would be open to the whole network without a "
                f"key: let it check keys, or run Penstock on that machine"
            )

    def _check_mounts(self, agent: Agent) -> None:
        """Podman makes a folder where a mount's source is missing, as root where it is root's."""
        sources = [(f"mounts[{at}].source", one.source) for at, one in enumerate(agent.mounts, 1)]
        sources += [("path", agent.folder)] if agent.folder is not None else []
        for key, source in sources:
            if not os.path.isabs(source) or not os.path.exists(source):
                raise AgentError(
                    f"agents.{agent.name}.{key}: {source!r} is not there: make it, or name another"
                )
        hidden = None
        if agent.folder is not None and agent.privileges.user == NOBODY:
            hidden = _unreadable(agent.folder)
        if hidden is not None:
            raise AgentError(
                f"agents.{agent.name}.path: the container's user may not read {hidden}: run "
                f"chmod -R a+rX {agent.folder}, or set its user"
            )


def _unreadable(folder: str) -> str | None:
    """The first of the agent's folder, that of its handlers and these that only their owner may read."""
    handlers = os.path.join(folder, "handlers")
    with suppress(OSError):
        inside = [os.path.join(handlers, name) for name in sorted(os.listdir(handlers))]
        for path in (folder, handlers, *inside):
            mode = os.stat(path).st_mode
            needed = 0o005 if stat.S_ISDIR(mode) else 0o004
            if mode & needed != needed:
                return path
    return None


async def _to_the_end(work: Coroutine[Any, Any, str], undo: Callable[[str], Awaitable[None]]) -> str:
    """The result; when cancelled, what came of it is undone before that is raised."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled() and task.exception() is None:
            await undo(task.result())
        raise
