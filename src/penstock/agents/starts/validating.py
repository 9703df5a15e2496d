"""Whether an endpoint is what it is said to be: its container runs, and the instance itself answers there.

A port that is open proves nothing: another program may have it by now, or the engine's proxy holds it while the
container is still starting. So the agent is asked for its health with its key, and its answer must bear the proof
that only this instance was given. One that knows no keys (`plain`) is known by its container alone.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

from penstock.agents.endpoints import Endpoint
from penstock.agents.engine.containers import Containers
from penstock.agents.engine.sightings import Seen
from penstock.agents.engine.unix_sockets import connected
from penstock.agents.quick.answers import UNHEALTHY
from penstock.agents.quick.known_config import is_spent
from penstock.config.agents import Agent
from penstock.errors import EngineUnreachable, ImageMissing

ASK_S = 5.0  # for one question; a busy machine is slow to answer
FIRST_PAUSE_S, LAST_PAUSE_S = 0.01, 0.05  # between two questions
_MOST_HEAD_BYTES = 65536
_MOST_BODY_BYTES = 65536
_WRONG_KEY = "401"


class Answer(NamedTuple):
    """What came back from the health path."""

    is_ours: bool  # it is the instance, and it is well
    told: str  # what came, for errors
    is_final: bool = False  # it will not be another one a moment later
    is_draining: bool = False
    running: int = 0  # tasks that it works on, as it says
    done: int = 0  # tasks that came to an end in it, well or not


class Finding(StrEnum):
    GOOD = "good"
    GONE = "gone"  # its container is no more, or has ended
    SILENT = "silent"  # its container runs, but does not answer as it should
    DRAINING = "draining"  # it takes in nothing more
    OUTDATED = "outdated"  # another image has the name by now
    SPENT = "spent"  # it has done all that one container is for, or is too old


class Checked(NamedTuple):
    finding: Finding
    endpoint: Endpoint  # with the address at which it answers now
    told: str


async def checked(
    containers: Containers,
    agent: Agent,
    endpoint: Endpoint,
    patience_s: float,
    is_vouched_for: Callable[[], bool] = lambda: False,
) -> Checked:
    """Ask the engine, then the agent, for as long as `patience_s` unless somebody else has its answer meanwhile.

    A paused container is resumed first: it would never answer. While the engine does not answer, the proof alone
    must do: containers outlive it.
    """
    try:
        seen = await containers.seen(endpoint.container)
    except EngineUnreachable:
        if agent.plain:
            raise
        if (await asked(agent, endpoint)).is_ours:
            return Checked(Finding.GOOD, endpoint, "it answers")
        raise
    if seen is None or not seen.running:
        return Checked(Finding.GONE, endpoint, "its container has ended" if seen else "its container is gone")
    if seen.paused:
        await containers.resume(endpoint.container)
    if seen.address is not None:  # a container that was restarted has another port
        endpoint = endpoint._replace(address=seen.address)
    answer = await _answered_in_time(agent, endpoint, patience_s, is_vouched_for)
    if answer is not None and answer.is_draining:
        return Checked(Finding.DRAINING, endpoint, answer.told)
    if answer is not None and not answer.is_ours:
        return Checked(Finding.SILENT, endpoint, answer.told)
    if not await is_current(containers, agent, seen):
        return Checked(Finding.OUTDATED, endpoint, "its image was built anew")
    pool, done = agent.pool, 0 if answer is None else answer.done
    if is_spent(pool.max_tasks, pool.max_age_s, done, endpoint.created_at):
        return Checked(Finding.SPENT, endpoint, "its time is over (max_tasks, max_age_s)")
    return Checked(Finding.GOOD, endpoint, "it answers")


async def is_current(containers: Containers, agent: Agent, seen: Seen) -> bool:
    """Whether it was made from what the agent's image is now."""
    try:
        return seen.image_id == await containers.image_id(agent.image)
    except ImageMissing:  # a name that is gone from the engine is no reason to end what runs
        return True


async def _answered_in_time(
    agent: Agent, endpoint: Endpoint, patience_s: float, is_vouched_for: Callable[[], bool]
) -> Answer | None:
    """The answer that decides, or the last one; None: somebody else has just had a good one."""
    answer = Answer(False, "no answer")
    with suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            pause_s = FIRST_PAUSE_S
            while not answer.is_ours and not answer.is_final:
                if is_vouched_for():
                    return None
                answer = await asked(agent, endpoint)
                if not answer.is_ours and not answer.is_final:
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, LAST_PAUSE_S)
    return answer


async def asked(agent: Agent, endpoint: Endpoint, timeout_s: float = ASK_S) -> Answer:
    """One question to its health path. No failure raises: it is what the answer tells."""
    return await _sent(f"GET {agent.health}", agent, endpoint, timeout_s)


async def drained(agent: Agent, endpoint: Endpoint, timeout_s: float = ASK_S) -> Answer:
    """Tells it to take in nothing more. One that does not know how to is told in vain."""
    return await _sent("POST /drain", agent, endpoint, timeout_s)


async def touched(agent: Agent, endpoint: Endpoint, timeout_s: float = ASK_S) -> Answer:
    """As a call would: a server that ends by itself when it is idle is not idle."""
    return await _sent("GET /tasks", agent, endpoint, timeout_s)


async def _sent(what: str, agent: Agent, endpoint: Endpoint, timeout_s: float) -> Answer:
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await _connection(endpoint.address)
            try:
                writer.write(_request(what, agent, endpoint))
                await writer.drain()
                return await _answer(reader, agent, endpoint.proof)
            finally:
                writer.transport.abort()  # whatever else it sends is not for us
    except TimeoutError:
        return Answer(False, f"no answer within {timeout_s:g} s")
    except asyncio.LimitOverrunError:
        return Answer(False, "an answer with a head too long")
    except asyncio.IncompleteReadError:
        return Answer(False, "a connection that was closed without an answer")
    except OSError as error:
        return Answer(False, f"no connection ({error.strerror or error})")


async def _connection(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.startswith("/"):
        # Never by its name: the container may have put anything there.
        return await asyncio.open_unix_connection(sock=_socket(address), limit=_MOST_HEAD_BYTES)
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host.strip("[]"), int(port), limit=_MOST_HEAD_BYTES)


def _socket(path: str) -> socket.socket:
    found = connected(path, 0.0)
    found.setblocking(False)
    return found


def _request(what: str, agent: Agent, endpoint: Endpoint) -> bytes:
    host = "localhost" if endpoint.is_socket else endpoint.address
    key = "" if agent.plain else f"Authorization: Bearer {endpoint.key}\r\n"
    length = "Content-Length: 0\r\n" if what.startswith("POST") else ""
    return f"{what} HTTP/1.1\r\nHost: {host}\r\n{key}{length}Connection: close\r\n\r\n".encode("latin-1")


async def _answer(reader: asyncio.StreamReader, agent: Agent, proof: str) -> Answer:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not status.isdigit():
        return Answer(False, "an answer that is not HTTP")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    shown = headers.get("x-penstock-proof", "").encode("latin-1")
    if not agent.plain and not hmac.compare_digest(shown, proof.encode()):
        told = f"HTTP {status} without this instance's proof: another program has its port"
        return Answer(False, told, is_final=True)
    if not status.startswith("2"):
        return Answer(False, f"HTTP {status}", is_final=status == _WRONG_KEY)
    if agent.plain:
        return Answer(True, f"HTTP {status}")
    says = await _body(reader, headers)
    state = says.get("status")
    is_unfit = state in ("draining", UNHEALTHY)
    return Answer(
        is_ours=not is_unfit,
        told=f"it is {state}, as it says" if is_unfit else f"HTTP {status}",
        is_final=is_unfit,
        is_draining=state == "draining",
        running=_count(says, "running"),
        done=_count(says, "done") + _count(says, "failed"),
    )


def _count(says: dict[str, object], name: str) -> int:
    number = says.get(name)
    return number if isinstance(number, int) and number > 0 else 0


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> dict[str, object]:
    """What it says of itself, where that is a short JSON table; nothing otherwise."""
    length = headers.get("content-length", "")
    if not length.isdigit() or len(length) > 5 or int(length) > _MOST_BODY_BYTES:
        return {}
    data = await reader.readexactly(int(length))
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}
