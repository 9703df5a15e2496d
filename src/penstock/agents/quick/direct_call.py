"""One command in one container, asked for over a connection of its own: for the command line.

The standard library alone: a warm `agent call` imports it. What comes of it is an `Ended`, or one of

    NotThere      nothing was run, for this container cannot be called: another one may be
    NothingRan    nothing was run, for it is full or leaving
    AgentLost     it went away, ended the connection, or answered with nonsense, while the command may have run
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from penstock.agents.endpoints import Endpoint
from penstock.agents.quick import answers, plain_http
from penstock.agents.quick.answers import Ended
from penstock.agents.quick.plain_http import Connection, Cut, Nonsense, NotReached, TooSlow
from penstock.errors import AgentError, AgentLost, UsageError

PROOF_HEADER = "x-penstock-proof"
HEAD_S = 30.0  # a task is acknowledged at once
HEALTH_S = 10.0
SILENCE_S = 30.0  # of a stream, until its container is asked whether it lives
_CANCEL_S = 2.0
_LONGEST_S = 86_400.0
_MOST_HEALTH_BYTES = 1_000_000
_GRACE_S = 20.0  # beyond a command's own time: its container ends it, and says so


class NotThere(Exception):
    """What answers there is not that container, or nothing does."""


class Asked(NamedTuple):
    """What is to be run."""

    agent: str
    command: str
    params: Any = ()  # a list of texts, or a table
    stdin: str | None = None
    timeout_s: float | None = None
    id: str | None = None
    lane: str | None = None  # of `serve` alone, as priority
    priority: int | None = None
    as_json: bool = False
    config: str | None = None
    to: Callable[[int, bytes], None] = answers.write

    def identified(self) -> Asked:
        return self if self.id is not None else self._replace(id=os.urandom(12).hex())

    def body(self, **more: Any) -> bytes:
        document: dict[str, Any] = {"command": self.command, "params": self.params, "id": self.id}
        document |= {"stdin": self.stdin, "timeout_s": self.timeout_s, **more}
        return json.dumps({key: value for key, value in document.items() if value is not None}).encode()


def call(asked: Asked, endpoint: Endpoint, health: str, *, plain: bool = False) -> Ended:
    """Run it there; its output is written as it comes. `asked` has an id: the same one runs once."""
    try:
        return _call(asked, endpoint, health, plain)
    except _Unanswered as broken:
        # The same id is run once, so that the same container may be asked again, if it is there.
        why = str(broken)
    if not plain and answers_health(endpoint, health):
        try:
            return _call(asked, endpoint, health, plain)
        except _Unanswered as broken:
            why = str(broken)
    raise AgentLost(lost(asked, why))


def _call(asked: Asked, endpoint: Endpoint, health: str, plain: bool) -> Ended:
    try:
        connection = reached(endpoint)
    except NotReached as error:
        raise NotThere(str(error)) from None
    with connection:
        headers = {
            "Authorization": f"Bearer {endpoint.key}",
            "Content-Type": "application/json",
            "Accept": answers.LINES,
        }
        try:
            reply = connection.ask("POST", "/task", headers, asked.body(), head_s=head_s(asked, plain))
        except KeyboardInterrupt:
            cancel(asked, endpoint)
            raise
        except (Cut, TooSlow) as error:
            raise _Unanswered(str(error)) from None
        except Nonsense as error:  # it was sent, and who answers so may be the container itself
            cancel(asked, endpoint)
            raise AgentLost(garbled(asked, str(error))) from None
        if not plain and reply.headers.get(PROOF_HEADER) != endpoint.proof:
            raise NotThere("something else answers at its address")
        watch = _Watch(asked, lambda: answers_health(endpoint, health))
        connection.when_silent(watch.look)
        try:
            return heard(asked, reply, watch.started)
        except (KeyboardInterrupt, OSError):  # nobody wants its output any more
            cancel(asked, endpoint)
            raise
        except (AgentError, UsageError) as error:
            raise type(error)(f"agents.{asked.agent}: {error}") from None
        except (Cut, TooSlow) as error:
            raise AgentLost(lost(asked, str(error))) from None
        except Nonsense as error:
            cancel(asked, endpoint)
            raise AgentLost(garbled(asked, str(error))) from None


def heard(asked: Asked, reply: plain_http.Reply, on_started: Callable[[], None]) -> Ended:
    """The answer, whichever form it has; its output is written."""
    if reply.status == 200 and reply.kind() == answers.LINES:
        if not asked.as_json:
            return answers.streamed(reply, on_started=on_started, to=asked.to)
        kept = answers.Kept()
        return kept.whole(answers.streamed(reply, on_started=on_started, to=kept.take))
    ended = answers.whole(reply)
    if not asked.as_json:
        error = ended.document.get("error")
        told: dict[str, Any] = error if isinstance(error, dict) else ended.document
        if "result" in ended.document:
            asked.to(1, answers.result_bytes(ended.document))
        for file, name in ((1, "stdout"), (2, "stderr")):
            if isinstance(text := told.get(name), str):
                asked.to(file, text.encode("utf-8", "surrogatepass"))
    return ended


class _Unanswered(Exception):
    """The request may have arrived, but no answer has."""


class _Watch:
    """Looks after a stream in which nothing comes: whether its container lives, and whether its time is over."""

    def __init__(self, asked: Asked, lives: Callable[[], bool]) -> None:
        self._limit_s = asked.timeout_s
        self._lives = lives
        self._began: float | None = None

    def started(self) -> None:
        self._began = time.monotonic()

    def look(self) -> None:
        if self._began is not None and self._limit_s is not None:
            over_s = time.monotonic() - self._began - self._limit_s
            if over_s > _GRACE_S:
                raise TooSlow("did not end the command when its time was over")
        if not self._lives():
            raise TooSlow("does not answer any more")


def head_s(asked: Asked, plain: bool) -> float:
    """A streamed answer begins at once; that of a server that knows no streams when the command has ended."""
    if not plain:
        return HEAD_S
    return _LONGEST_S if asked.timeout_s is None else asked.timeout_s + _GRACE_S


def reached(endpoint: Endpoint, connect_s: float = 5.0) -> Connection:
    if not endpoint.is_socket:
        return Connection(endpoint.address, connect_s=connect_s, silence_s=SILENCE_S)
    from penstock.agents.engine.unix_sockets import (
        connected,  # its container can write there: it may be no socket
    )

    return Connection(endpoint.address, connect_s=connect_s, silence_s=SILENCE_S, make=connected)


def answers_health(endpoint: Endpoint, path: str, *, plain: bool = False) -> bool:
    """Whether that very container answers."""
    return health(endpoint, path, plain=plain) is not None


def health(
    endpoint: Endpoint, path: str, *, plain: bool = False, within_s: float | None = None
) -> dict[str, Any] | None:
    """What that very container says of itself; None where it does not answer as it should."""
    try:
        with reached(endpoint) as connection:
            headers = {"Authorization": f"Bearer {endpoint.key}"}
            reply = connection.ask("GET", path, headers, head_s=within_s or HEALTH_S)
            if not 200 <= reply.status < 300:
                return None
            if plain:
                return {}
            told = json.loads(reply.body(_MOST_HEALTH_BYTES))
            is_it = reply.headers.get(PROOF_HEADER) == endpoint.proof
            return told if is_it and isinstance(told, dict) else None
    except (NotReached, Cut, Nonsense, TooSlow, ValueError, RecursionError):
        return None


def drain(endpoint: Endpoint) -> None:
    """Tell it to take nothing more in; one that does not hear it is stopped soon all the same."""
    with suppress(NotReached, Cut, Nonsense, TooSlow), reached(endpoint, _CANCEL_S) as connection:
        connection.ask("POST", "/drain", {"Authorization": f"Bearer {endpoint.key}"}, b"", head_s=_CANCEL_S)


def cancel(asked: Asked, endpoint: Endpoint) -> None:
    """Tell the container to end it. That our connection is closed says the same, a little later."""
    with suppress(NotReached, Cut, Nonsense, TooSlow), reached(endpoint, _CANCEL_S) as connection:
        headers = {"Authorization": f"Bearer {endpoint.key}"}
        connection.ask("DELETE", f"/task/{asked.id}", headers, head_s=_CANCEL_S)


def garbled(asked: Asked, why: str) -> str:
    return (
        f"agents.{asked.agent}: its container {why}: it does not speak the agent protocol, and {asked.command!r} "
        f"may have run; see `penstock agent logs {asked.agent}`"
    )


def lost(asked: Asked, why: str) -> str:
    return (
        f"agents.{asked.agent}: its container {why}: {asked.command!r} may have run; "
        f"see `penstock agent logs {asked.agent}`"
    )
