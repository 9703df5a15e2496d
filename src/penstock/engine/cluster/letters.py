"""What the dispatcher and a worker write to each other: plain JSON with a version, none of our classes by pickle.

A worker may be older or newer than the dispatcher that finds it: an upgraded dispatcher reads what was begun
before it, because fields are only ever added, or sees by the version that it cannot, and ends the worker.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from penstock.engine.local import EngineLimits
from penstock.hosts.base import Job
from penstock.model import Host, Outcome

VERSION = 1

T = TypeVar("T")


class Hiring(msgspec.Struct, kw_only=True):
    """What a worker is to be."""

    version: int = VERSION
    host: Host
    make: str  # "module:function" that makes the host's adapter
    tag: str  # marks the processes of this worker
    capacity: int  # attempts at a time
    limits: EngineLimits
    keeps_logs: bool = False  # its attempts have files of what they say
    agent: Any = None  # of a host of containers: what they are made of
    # A digest of what it is given: our version, and the files, packages and variables of [engine].
    code: str = ""
    variables: dict[str, bytes] = {}  # those that are secret, for its process; others are Ray's to set
    unheard_s: float = 3600.0  # with nothing to do and nobody who asks, it ends by itself after so long


class Standing(msgspec.Struct):
    """An attempt that a worker has, whether it is over, for how long it has had it, and has been over.

    Times are told as seconds until now: the clocks of machines differ.
    """

    task: str
    attempt: int
    is_over: bool
    for_s: float = 0.0
    over_s: float = 0.0


class Hello(msgspec.Struct, kw_only=True):
    version: int = VERSION
    likeness: str = ""  # a digest of what it was hired as
    node: str = ""  # its name, for people
    node_id: str = ""
    pid: int = 0
    attempts: list[Standing] = []
    stalls: int = 0  # of its life so far


class Errand(msgspec.Struct, kw_only=True):
    """One attempt for a worker. The same one twice is the same attempt."""

    task: str
    attempt: int
    kind: str
    payload: msgspec.Raw
    lane: str
    run: str = ""
    model: str | None = None
    timeout_s: float | None = None
    trace: str | None = None
    priority: int = 2
    queued_at: float = 0.0
    url: str | None = None  # the way back to the dispatcher's own models, on its machine,
    far_url: str | None = None  # from others, if there is one,
    net: str | None = None  # which is its machine, and its key
    key: str | None = None
    recorded: list[tuple[str, int]] = []  # ends that the store has by now

    def job(self, host: str, payload: Any) -> Job:
        return Job(
            self.task,
            self.attempt,
            self.kind,
            payload,
            host,
            self.lane,
            run=self.run,
            model=self.model,
            timeout_s=self.timeout_s,
            trace=self.trace,
            priority=self.priority,
            queued_at=self.queued_at,
        )


class Attempt(msgspec.Struct):
    """Which attempt is asked after."""

    task: str
    attempt: int


class Stopping(msgspec.Struct):
    task: str
    attempt: int
    timed_out: bool  # or stopped


class Stopped(msgspec.Struct):
    """The answer: by when it will be over. None: it cannot be ended, and ends when it does."""

    within_s: float | None


class Over(msgspec.Struct, kw_only=True):
    """The end of an attempt, as its worker keeps it until it is recorded."""

    outcome: Outcome
    in_thread: bool = False  # it ran in a thread, which nobody can end
    log_bytes: int = 0  # how long the file of what it said is
    unknown: bool = False  # the worker knows no such attempt
    replaced: bool = False  # somebody else asks after it now


class Recorded(msgspec.Struct):
    ended: list[tuple[str, int]]


class Listening(msgspec.Struct):
    """A dispatcher waits for what there is to tell beyond what it knows."""

    stalls: int = 0  # how many it has heard of
    logs: list[tuple[str, int, int]] = []  # task, attempt, how much it has
    wait_s: float = 10.0


class Blocked(msgspec.Struct):
    """A `Stall`, as it is told."""

    task: str | None
    attempt: int | None
    seconds: float
    stack: str
    over: bool


class News(msgspec.Struct, kw_only=True):
    stalls: list[Blocked] = []
    stalled: int = 0  # how many there have been by now, those of earlier dispatchers included
    logs: list[tuple[str, int, int, bytes]] = []  # task, attempt, from where on, the bytes


def written(letter: object) -> bytes:
    return msgspec.json.encode(letter)


def read(data: bytes, type: type[T]) -> T:
    return msgspec.json.decode(data, type=type)
