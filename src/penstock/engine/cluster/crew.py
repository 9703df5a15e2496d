"""The workers of one host: hired when there is work, found again, told what is recorded, let go when they idle.

What they do is the pool's to say (pool.py). All of it runs on the dispatcher's loop and waits for nothing, but at
the end: the link brings every answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

import msgspec

from penstock.engine.attempts import Run
from penstock.engine.base import Key
from penstock.engine.cluster.frames import AWAY, CUT, GONE, Answer, Ask
from penstock.engine.cluster.letters import Hello, Hiring, Recorded, read, written
from penstock.engine.cluster.link import Link
from penstock.engine.cluster.news import Listener
from penstock.engine.cluster.remote import RemoteHost
from penstock.engine.local import EngineLimits
from penstock.version import __version__

AGAIN_S = 0.5  # between asking one that cannot be reached
_CLOSE_S = 20.0
_TEND_S = 1.0
_UNRECORDED = 10  # times the idle time: a worker waits so long to hear that its last outcome is recorded
_MOST_MISSES = 5
_UNHEARD_S = 3600.0

_log = logging.getLogger("penstock.engine")


class State(Enum):
    HIRED = "hired"  # it has not said hello yet
    READY = "ready"
    LEAVING = "leaving"  # it takes nothing more
    ENDING = "ending"  # it is told to end, and is ours until the cluster has heard that


_STAYING = (State.HIRED, State.READY)


class Times(NamedTuple):
    """When an attempt began, and when it was over, if it was before anybody asked."""

    began_at: float
    ended_at: float | None = None


@dataclass(slots=True, eq=False)
class Hand:
    """A worker, as its host's pool knows it."""

    name: str
    state: State = State.HIRED
    node: str = ""
    node_id: str = ""
    runs: dict[Key, Run] = field(default_factory=dict)
    letters: dict[Key, bytes] = field(default_factory=dict)  # errands, to be sent again; none of adopted ones
    times: dict[Key, Times] = field(default_factory=dict)  # where they are not those of what is heard
    recorded: list[Key] = field(default_factory=list)  # what it has not been told yet
    unrecorded: int = 0
    idle_since: float = 0.0
    is_listed: bool = False
    doubt: str = ""  # why it may be dead, until the cluster has said whether it is
    listener: Listener | None = None
    stalls: int = 0  # of the time before us


class Terms(NamedTuple):
    """What holds for all hosts of an engine."""

    secret: bytes  # of the store
    names: str  # what the names of all workers of this store begin with
    tag: str
    limits: EngineLimits
    start_s: float
    idle_s: float
    chores: Executor
    now: Callable[[], float]
    variables: Mapping[str, str] = {}  # that workers are given and nobody else is to know


class Heard(NamedTuple):
    """What the pool hears of its workers."""

    ready: Callable[[], None]  # one more has room, or one less is to come
    not_hired: Callable[[str], None]  # there will be none for now, and why
    found: Callable[[Hand, Hello], None]  # it is there, and a driver that knew nothing of it knows it now
    lost: Callable[[Hand, str], None]  # it is dead, and why


class Crew:
    def __init__(self, remote: RemoteHost, link: Link, terms: Terms, heard: Heard) -> None:
        self.hands: dict[str, Hand] = {}
        self.free: list[Hand] = []  # those with room, the last used last
        self._remote = remote
        self._host = remote.host.name
        self._link = link
        self._terms = terms
        self._heard = heard
        self._loop = asyncio.get_running_loop()
        self._tending: asyncio.TimerHandle | None = None
        self._closing = False
        self._misses = 0  # workers in a row that died before they had begun

    # ---- hiring

    def hire(self, attempts: int) -> None:
        """As many more as so many attempts want that nobody has room for, and the host may have."""
        coming = sum(hand.state is State.HIRED for hand in self.hands.values())
        most = self._remote.most_workers - sum(h.state in _STAYING for h in self.hands.values())
        for _ in range(min(most, -(-attempts // self._remote.per_worker) - coming)):
            self._hire()

    def hiring(self, number: str = "") -> bytes:
        remote = self._remote
        variables = {name: os.fsencode(value) for name, value in self._terms.variables.items()}
        return written(
            Hiring(
                host=remote.host,
                make=remote.make,
                tag=f"{self._terms.tag}:{number}",
                capacity=remote.per_worker,
                limits=self._terms.limits,
                keeps_logs=remote.work_dir is not None,
                agent=remote.agent,
                code=code_of(self._link.joined.runtime_env, variables, self._terms.secret),
                variables=variables,
                unheard_s=max(_UNHEARD_S, 2 * self._terms.idle_s),
            )
        )

    def enroll(self, name: str, hello: Hello) -> Hand:
        """Take over a worker of an earlier dispatcher; it has room when it is listed."""
        hand = self.hands[name] = Hand(name, State.READY, hello.node, hello.node_id)
        hand.idle_since = time.monotonic()
        hand.stalls = hello.stalls
        self._tend()
        return hand

    def _hire(self) -> None:
        number = secrets.token_hex(8)
        hand = Hand(f"{self._terms.names}{self._host}/{number}")
        self.hands[hand.name] = hand
        ask = Ask(
            number=0,
            verb="hire",
            worker=hand.name,
            capacity=self._remote.per_worker,
            options={name: msgspec.Raw(written(value)) for name, value in self._remote.options().items()},
        )
        self._link.ask(ask, self.hiring(number), partial(self._hired, hand))
        self._loop.call_later(self._terms.start_s, self._late, hand)

    def _hired(self, hand: Hand, answer: Answer, body: bytes) -> None:
        if not self._is_ours(hand) or answer.fault == CUT:
            return  # it is looked for when there is a driver again
        if answer.fault in (AWAY, GONE):  # whether it is dead is the cluster's to say
            self._loop.call_later(AGAIN_S, self._find, hand)
            return
        if answer.fault:
            self.end(hand)
            self._not_hired(answer.error)
            return
        self._misses = 0
        hello = read(body, Hello)
        hand.state, hand.node, hand.node_id = State.READY, hello.node, hello.node_id
        hand.idle_since = time.monotonic()
        self.enlist(hand)
        self._tend()
        self._heard.ready()

    def _late(self, hand: Hand) -> None:
        if hand.state is not State.HIRED or self.hands.get(hand.name) is not hand:
            return
        if not self._link.is_up:  # nobody could end it, and it may have begun
            self._loop.call_later(self._terms.start_s, self._late, hand)
            return
        self.end(hand)
        wanted = ", ".join(f"{name}={value}" for name, value in self._remote.options().items())
        self._not_hired(
            f"it has not begun for {self._terms.start_s:g} s; is there a node with room for {wanted}? "
            f"See hosts.{self._host}.ray and engine.start_s",
        )

    def _not_hired(self, why: str, *, again: bool = False) -> None:
        self._misses += 1
        if again and self._misses < _MOST_MISSES:  # its node fell before anything had run there
            self._loop.call_later(AGAIN_S, self._heard.ready)
        else:
            self._heard.not_hired(why)

    # ---- who has room

    def enlist(self, hand: Hand) -> None:
        if (
            not hand.is_listed
            and hand.state is State.READY
            and not hand.doubt
            and len(hand.runs) < self._remote.per_worker
            and self.hands.get(hand.name) is hand
        ):
            hand.is_listed = True
            self.free.append(hand)

    def unlist(self, hand: Hand) -> None:
        if hand.is_listed:
            self.free.remove(hand)
            hand.is_listed = False

    # ---- a driver that knows none of them

    def find_all(self) -> None:
        for hand in list(self.hands.values()):
            if hand.state is State.ENDING:
                self._kill(hand)
            else:
                self._find(hand)

    def doubt(self, hand: Hand, why: str) -> None:
        """An answer says that it is dead. So do all answers of a driver that loses its cluster, and what runs there
        goes on: the cluster itself has the last word."""
        if not hand.doubt:
            hand.doubt = why
            self.unlist(hand)
            self._find(hand)

    def _find(self, hand: Hand) -> None:
        """Whether a worker is still there, for a driver that does not know it."""
        if self._is_ours(hand):
            self._link.ask(Ask(number=0, verb="find", worker=hand.name), b"", partial(self._found, hand))

    def _found(self, hand: Hand, answer: Answer, body: bytes) -> None:
        if not self._is_ours(hand) or answer.fault == CUT:
            return
        if answer.fault == AWAY:
            self._loop.call_later(AGAIN_S, self._find, hand)
        elif answer.fault == GONE and hand.state is State.HIRED:
            self.drop(hand)
            self._not_hired(answer.error, again=True)
        elif hand.state is State.HIRED:
            self._hired(hand, answer, body)
        elif answer.fault:
            self._heard.lost(hand, hand.doubt or answer.error)
        elif hand.doubt:
            hand.doubt = ""
            self.enlist(hand)
            self._loop.call_later(AGAIN_S, self._heard.found, hand, read(body, Hello))
            self._heard.ready()
        else:
            self._heard.found(hand, read(body, Hello))

    # ---- ending

    def drop(self, hand: Hand) -> bool:
        """It is ours no longer; whether it was."""
        self.unlist(hand)
        return self.hands.pop(hand.name, None) is not None

    def end(self, hand: Hand) -> None:
        """It is ours until its end was heard: one that nobody knows would hold its node's resources for an hour."""
        self.unlist(hand)
        hand.state = State.ENDING
        self._kill(hand)

    def _is_ours(self, hand: Hand) -> bool:
        return self.hands.get(hand.name) is hand and hand.state is not State.ENDING

    def _kill(self, hand: Hand) -> None:
        if self.hands.get(hand.name) is hand:
            self._link.ask(Ask(number=0, verb="kill", worker=hand.name), b"", partial(self._killed, hand))

    def _killed(self, hand: Hand, answer: Answer, body: bytes) -> None:
        if answer.fault == AWAY:
            self._loop.call_later(AGAIN_S, self._kill, hand)
        elif answer.fault != CUT or self._link.is_up:  # else it is killed when there is a driver again
            self.drop(hand)

    async def close(self, is_left: Callable[[Hand], bool]) -> None:
        self._closing = True
        if self._tending is not None:
            self._tending.cancel()
        hands = [hand for hand in self.hands.values() if not is_left(hand)]
        await asyncio.gather(*(self._dismiss(hand) for hand in hands))
        self.hands.clear()
        self.free.clear()

    async def _dismiss(self, hand: Hand) -> None:
        """End a worker in order, and then surely."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                if hand.state in (State.READY, State.LEAVING):
                    ask = Ask(number=0, verb="call", worker=hand.name, method="close")
                    closed, _ = await self._link.wait(ask)
                    if closed.fault == CUT and self._link.is_up:
                        return  # it is another dispatcher's by now
                answer, _ = await self._link.wait(Ask(number=0, verb="kill", worker=hand.name))
                if answer.fault == CUT:
                    _log.warning("left behind: the Ray worker %s, which cannot be reached", hand.name)
        except TimeoutError:
            _log.warning("left behind: the Ray worker %s, which does not end", hand.name)

    # ---- now and then

    def _tend(self) -> None:
        """Tell workers what is recorded, and let go of those that had nothing to do for long."""
        if self._tending is None and not self._closing:
            self._tending = self._loop.call_later(min(_TEND_S, self._terms.idle_s / 2), self._look_after)

    def _look_after(self) -> None:
        self._tending = None
        now = time.monotonic()
        for hand in list(self.hands.values()) if self._link.is_up else ():
            if hand.recorded:
                letter, hand.recorded = written(Recorded(hand.recorded)), []
                self._link.call(hand.name, "recorded", letter, lambda answer, body: None)
            patience_s = self._terms.idle_s * (_UNRECORDED if hand.unrecorded > 0 else 1)
            if hand.state is State.LEAVING and hand.unrecorded <= 0:
                patience_s = 0.0
            is_there = hand.state in (State.READY, State.LEAVING)
            if is_there and not hand.runs and now - hand.idle_since >= patience_s:
                self._let_go(hand)
        if self.hands:
            self._tend()

    def _let_go(self, hand: Hand) -> None:
        self.unlist(hand)
        hand.state = State.ENDING

        def closed(answer: Answer, body: bytes) -> None:
            if answer.fault != CUT:
                self._kill(hand)
            elif self._link.is_up:  # it is another dispatcher's
                self.drop(hand)

        self._link.call(hand.name, "close", b"", closed)


def code_of(runtime_env: Mapping[str, Any], variables: Mapping[str, bytes], secret: bytes) -> str:
    """Workers that were given something else, or run another version of us, take nothing more.

    Workers tell it: without the store's secret nobody can try which values it was made of.
    """
    given = msgspec.json.encode([__version__, runtime_env, variables], order="deterministic")
    return hmac.new(secret, given, hashlib.sha256).hexdigest()[:32]
