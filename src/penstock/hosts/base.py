"""What a host adapter is: it says *what* an attempt runs; the engine says where and watches over it.

An adapter turns a job into one of the kinds of work below. It never starts anything itself, so the same
adapter works on every engine. The engine kills on time-out and on stop, catches whatever comes out and
turns it into an Outcome; `errors.AttemptError` and its children say what a failure means.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from penstock.model import DEFAULT_PRIORITY, Outcome


class Job(NamedTuple):
    """One attempt, ready to run."""

    task: str
    attempt: int
    kind: str
    payload: Any
    host: str
    lane: str
    run: str = ""
    model: str | None = None
    timeout_s: float | None = None
    trace: str | None = None  # the W3C context to pass on, as `penstock.trace` keeps it
    priority: int = DEFAULT_PRIORITY
    output: str | None = None  # where the engine saves the value of an attempt that is done
    queued_at: float = 0.0
    started_at: float = 0.0  # when its start was decided
    # Hears the answer's text as it comes, where it is streamed; called on the dispatcher's loop.
    tap: Callable[[str], None] | None = None


class Spent(NamedTuple):
    """What an attempt has used; nothing where nothing is known."""

    tokens: float | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class OwnCoroutine:
    """Code of ours that only waits on I/O: it runs in the dispatcher's loop.

    `spent` is asked when it was ended from outside, so that what it cost until then is counted. One that ends by
    itself when its time is over, and knows more of it than the engine, has `late_s` more to say so.
    """

    run: Callable[[], Awaitable[Outcome]]
    spent: Callable[[], Spent] = Spent
    late_s: float = 0.0


class Call(NamedTuple):
    """A user's callable `pkg.mod:fn`, given the payload.

    Async ones run on the host's own loop, sync ones in threads, and with `isolated` both in processes
    that can be killed. `vital` says which of its "module" and its "function" the host can do nothing without.
    """

    target: str
    payload: Any
    isolated: bool = False
    search_path: tuple[str, ...] = ()
    trace: str | None = None
    vital: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Program:
    """A program in a process group of its own; never through a shell.

    `before` and `after` frame it, in a thread: `after` is called however it ended, also when it was killed or
    never started, and then nothing of it lives any more. `heard` is given what it writes to stderr as it comes,
    on the loop of all programs: it must be quick. `from_config` is False where the task names the program: that
    there is none of that name needs no fix of the host then.
    """

    argv: tuple[str, ...]
    outcome: Callable[[int, bytes, bytes], Outcome]  # exit status, stdout, stderr (cut to the limit)
    stdin: bytes = b""
    env: Mapping[str, str] = field(default_factory=dict)  # added to the dispatcher's own
    cwd: str | None = None
    output_limit_bytes: int = 1_000_000
    inherits: bool = True  # False: `env` is all the environment it gets
    from_config: bool = True
    before: Callable[[], None] | None = None
    heard: Callable[[bytes], None] | None = None
    after: Callable[[], None] | None = None


Work: TypeAlias = OwnCoroutine | Call | Program


@dataclass(frozen=True, slots=True)
class Health:
    up: bool
    detail: str = ""
    models: tuple[str, ...] = ()  # those it has, where it tells
    amiss: bool = False  # it answers, but not as the config has it: what is configured cannot work
    needs_fix: bool = False  # it is down until somebody changes something; the detail says what


class Adapter(Protocol):
    """One per configured host."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def work(self, job: Job) -> Work:
        """What this attempt runs. A payload it cannot use raises PermanentError."""

    async def check(self) -> Health:
        """Whether the host could take work now, and what to do when it could not."""


@runtime_checkable
class Standing(Protocol):
    """An adapter that does something of its own while its dispatcher works; a mere check does not begin it."""

    async def stand(self) -> None:
        """Called once, after `open`; `close` ends it."""


@runtime_checkable
class Watched(Protocol):
    """An adapter whose host can be down without any attempt having failed: it is checked now and then."""

    check_every_s: float  # 0 for never
