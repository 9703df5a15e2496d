"""What any store must do: keep tasks, attempts and events safe, and wake those who wait for them.

Clients submit and read; one dispatcher at a time owns the store and records its decisions. One suite in
`tests/conformance/` binds every implementation to what is written here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.diagnosis.history import Epoch as Epoch
from penstock.diagnosis.history import History as History
from penstock.diagnosis.history import Owner as Owner
from penstock.diagnosis.history import Queue as Queue
from penstock.model import Attempt, Backlog, Fault, Plant, State, Task, TaskRecord
from penstock.scheduling.messages import Decision
from penstock.store.pages import MOST_COUNTED as MOST_COUNTED
from penstock.store.pages import TaskCount as TaskCount
from penstock.store.pages import TaskPage as TaskPage

if TYPE_CHECKING:
    from penstock.store.now import Now, WaitsFor

RAY_SECRET = "ray"  # noqa: S105 - the name of the secret that a store's workers on a Ray cluster are named by


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks; fields left None do not narrow. Newest first when `newest`, else in order of arrival.

    With `aging_s`, which is the plant's, only queued ones: what is to start next comes first.

    `host` is where a task ran last, or where it must run if it has not run yet. `search` is a text that an id, a
    key, the name of an issue or a run begins with; where there is none, that a kind begins with, or that a key or
    an error contains.
    """

    states: tuple[State, ...] | None = None
    run: str | None = None
    kind: str | None = None
    lane: str | None = None
    host: str | None = None
    limit: int | None = None
    after: int | None = None  # only numbers beyond this one, in the order asked for: pages
    newest: bool = False
    since: float | None = None  # only those that live, or ended since then
    search: str | None = None
    priorities: tuple[int, ...] | None = None
    aging_s: float | None = None


class Ahead(NamedTuple):
    """What goes before a place in the order of tasks: that is `queued_at`, later by `aging_s` for each priority.

    Of its own lane it is what stands before the place; of others what may share its level, up to `aging_s` later.
    Tasks in `needed` belong to it wherever they stand, and those that they come after.
    """

    aging_s: float
    lane: str = ""
    place: float = inf
    number: float = inf  # of the task itself: it comes before others of the same place
    needed: tuple[str, ...] = ()


class Arrival(NamedTuple):
    """A live task as the dispatcher takes it in. The payload stays encoded until the task starts."""

    record: TaskRecord  # its task's payload is None
    payload: bytes


class Queued(NamedTuple):
    """A page of live tasks as a dispatcher takes over a long queue: the most of them in a few words."""

    last: int  # the number of the last one
    backlogs: list[Backlog]
    others: list[str]  # those with more to tell: they ran, wait after others or for a time, or are set apart


class RunCount(NamedTuple):
    """A run as one chooses it from a list."""

    run: str
    tasks: int
    live: int  # of them, not ended
    queued_at: float  # of its first task


class Lately(NamedTuple):
    """Tasks that lived of late: those to show, and how many there are."""

    ids: tuple[str, ...]
    running: int
    ended: int
    queued: int
    more: bool  # ended, than were counted

    @property
    def total(self) -> int:
        return self.running + self.ended + self.queued


class Maker(NamedTuple):
    """A task that has not ended: whoever submits its key gets it."""

    id: str
    key: str


@dataclass(frozen=True, slots=True)
class Request:
    """Something a client asks of the dispatcher: cancel, retry, priority, pause, resume, slots, tokens."""

    verb: str
    args: Mapping[str, Any] = field(default_factory=dict)
    number: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    ok: bool
    detail: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One row of the log. `number` only grows; reading can be resumed after any of them.

    | type | when | data |
    |---|---|---|
    | submitted | tasks were kept, one event per submit and run | run, count, first and last number |
    | started | an attempt began | lane, class |
    | delayed | an attempt has its slot and waits for a worker | since |
    | began | an attempt began later than it was decided: when it was recorded, or had a worker | since |
    | adopted | an attempt that outlived its dispatcher goes on under the next | |
    | stopping | an attempt was told to end | why: `cancel`; or `timeout`, with host and since, where it goes on |
    | requeued | an attempt is over, its task is queued again | verdict, retry_at, error, perhaps tokens, node |
    | ended | a task has its result | state, step; error, tokens, cost_usd, logs, node where there are any |
    | revived | an ended task is queued again | |
    | reprioritized | a live task has another priority | from, to |
    | refused | a result or decision came too late and changed nothing | why |
    | routed, moved | a class for a route key; another class for a task | class; key, name; why |
    | waiting | what a class waits for changed | class, reason, detail |
    | host, lane, gate, all | a condition changed | the condition |
    | spent | an attempt that is over cost money | lane, day, usd |
    | acquired, released | a dispatcher came, or went | pid, machine, command |

    Notes add types of their own.
    """

    number: int
    at: float
    type: str
    task: str | None
    attempt: int | None
    host: str | None
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Token:
    """Somebody who may come in through `serve`. Of the secret only the digest is kept.

    `lane` is where its tasks go, `priority` the most urgent they may be; None leaves it to the tasks.
    """

    name: str
    id: str  # the open part of the secret: finds the token
    digest: str
    scopes: tuple[str, ...]
    lane: str | None = None
    priority: int | None = None
    requests_per_min: float | None = None
    max_queued: int | None = None
    created_at: float = 0.0


@dataclass(frozen=True, slots=True)
class HostStatus:
    """A host as its dispatcher last recorded it."""

    state: str
    slots: int
    detail: str
    changed_at: float
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a store for `status`: counts from the tasks, conditions as last recorded."""

    at: float
    queued: Mapping[str, int]  # route key -> tasks queued
    running: Mapping[tuple[str, str], int]  # (host, lane) -> attempts running
    ended: Mapping[State, int]
    hosts: Mapping[str, HostStatus]
    lanes_paused: Mapping[str, bool]
    gates: Mapping[str, tuple[bool, str]]  # open, detail
    paused: bool
    epoch: Epoch | None  # the dispatcher that owns the store now, if one is alive
    spent: Mapping[tuple[str, str], float] = field(
        default_factory=dict
    )  # (host, lane) -> USD, the day of `at`
    delayed: Mapping[tuple[str, str], int] = field(default_factory=dict)  # those of `running` yet to begin

    def plant_or(self, ours: Plant) -> Plant:
        """The plant that is dispatched with; `ours` where nobody does, or it is not known."""
        return ours if self.epoch is None or self.epoch.plant is None else self.epoch.plant


class Spending(NamedTuple):
    """What attempts of a lane on a host cost in a day, and how many told it. Days are UTC, from 1970-01-01."""

    day: int
    host: str
    lane: str
    usd: float
    calls: int


class Lease(NamedTuple):
    """A name that somebody holds for a while. Whoever dies is rid of it when that is over."""

    owner: str
    note: str  # what the owner says of itself
    since: float
    expires_at: float


class Store(Protocol):
    """Every method that may touch the disk is async, and none of them blocks the caller's loop."""

    @property
    def name(self) -> str:
        """Where it is, fit for display (no secrets)."""

    @property
    def elects(self) -> bool:
        """Whether a dispatcher that waits takes over from one that is gone, from whatever machine."""

    @property
    def trouble(self) -> str | None:
        """What keeps decisions from being written at the moment; they are tried again until they are."""

    async def open(self, *, makes: bool = True) -> None:
        """Where there is no store yet it makes one; or raises StoreMissing, and changes nothing."""

    async def close(self) -> None:
        """Write what is queued and let go of everything, ownership too. Raises what kept decisions out."""

    # -- clients

    async def submit(self, tasks: Sequence[Task], run: str = "", file: str = "") -> list[str]:
        """Keep these tasks, all or none; their ids, in order, once they are durable.

        Those that name no run belong to `run`, or to a new one. With `file`, the task file they were read from,
        `run` is that file's newest from then on.

        A task with a `key` that is known gives the known task's id and adds nothing; an `after` that names
        it means the known one. Refused with TaskError: an id that exists, an `after` that names no task of
        the store or of this batch, tasks of the batch that wait after each other in a circle, a payload
        that is not JSON or too long, `on_crash = "cancel"`, which only accepted ones have.
        """

    async def ask(self, request: Request) -> int:
        """Leave a request for the dispatcher; its number."""

    async def answer_to(self, number: int) -> Answer | None: ...

    async def get(self, task_id: str) -> TaskRecord | None: ...

    async def find(self, prefix: str) -> list[str]:
        """At most ten ids that start with `prefix`."""

    async def find_called(self, name: str) -> list[str]:
        """At most ten ids of tasks that their users know by this name, the newest first: see `store.keys`.

        A name within a run comes before all keys, and means the task of the newest run that has one.
        """

    async def find_keys(self, prefix: str, most: int) -> list[str]:
        """Keys of tasks that begin so, in order; up to `most`. Nothing else of the tasks is read."""

    async def find_runs(self, prefix: str) -> list[str]:
        """Names of runs that begin so, in order; up to ten."""

    async def run_of_file(self, file: str) -> str | None:
        """The newest run of a task file, by the name that its submit gave."""

    async def newest_runs(self, most: int) -> list[RunCount]:
        """By their newest tasks. Small ones that came while a large one was being submitted may be passed over."""

    async def tasks(self, chosen: TaskFilter) -> list[TaskRecord]: ...

    async def bare_tasks(self, chosen: TaskFilter) -> list[TaskRecord]:
        """The same without payload and value; of imported ones only those of a run that is chosen."""

    async def page(self, chosen: TaskFilter, *, full: bool = False) -> TaskPage:
        """The next that fit, soon: a page may be short and still have a `next`. No payload and value unless `full`.

        By an index: ids, keys and runs, live tasks, those that failed, were cancelled or are blocked. Anything else
        is looked for in stretches of the numbers, for a short while per page.
        """

    async def count(self, chosen: TaskFilter, most: int = MOST_COUNTED) -> TaskCount:
        """How many fit, up to `most`; not exact where there are more, or where it would take long to know."""

    async def attempts(self, task_id: str) -> list[Attempt]: ...

    async def events(
        self, after: int = 0, *, task: str | None = None, limit: int = 1000
    ) -> list[StoredEvent]: ...

    async def last_event(self) -> int:
        """The number of the newest event; 0 before the first."""

    async def runs_of(self, ids: Iterable[str]) -> dict[str, str]:
        """The runs of these tasks; those that are not known are left out."""

    async def ended_of_outputs(self, outputs: Sequence[str]) -> dict[str, str]:
        """Of each of these outputs, word for word, the newest task that has ended."""

    async def makers_of_outputs(self, outputs: Sequence[str]) -> dict[str, Maker]:
        """Of each of these outputs, word for word, the newest task with a key that is about to make it."""

    async def ended_in_run(self, run: str, after: int) -> list[tuple[int, TaskRecord]]:
        """Tasks of a run that ended, with the number of the ending event, in that order, beyond `after`."""

    async def states_in_run(self, run: str) -> dict[State, int]:
        """How many tasks of a run are in each state; empty when there is no such run."""

    async def live_in_run(self, run: str) -> int:
        """How many tasks of a run have not ended."""

    async def history(
        self,
        *,
        task: str | None = None,
        run: str | None = None,
        chosen: TaskFilter | None = None,
        ids: Sequence[str] | None = None,
        others: bool = True,
    ) -> History:
        """What explains the waits of a task, of a run, or of chosen tasks; those come without payload and value.

        UnknownTask when there is no such task or run; of `ids` those that are not known are left out. Tasks of
        imported runs are not among chosen ones, unless it is the run that is chosen: what explains them is another
        store's. `others`: with the attempts of all other tasks of that time, which tell who held what.
        """

    async def stays(self, ids: Sequence[str]) -> History:
        """Attempts and rests of these tasks and nothing else: when they were in the queue, and when they ran."""

    async def lately(self, since: float, most: int) -> Lately:
        """Tasks that live or ended since then, up to `most`; of imported runs none.

        Those that run come first, then those that ended last; the ones that were queued first keep a share.
        """

    async def snapshot(self, at: float) -> Snapshot: ...

    async def glance(self, at: float) -> Snapshot:
        """As `snapshot`, but for what is counted, so that it costs the same however long the queue is."""

    async def owned_by(self) -> Epoch | None:
        """The dispatcher that owns the store now, if one is alive; cheap, whatever is queued."""

    async def config_of(self, epoch: int) -> str | None:
        """What was kept of a dispatcher's config."""

    async def waits_now(self, routes: Iterable[str]) -> dict[str, WaitsFor]:
        """What the tasks of these routes wait for, but for those that others or the clock hold back."""

    async def now(self, at: float, seen: Now | None = None) -> Now:
        """This moment. From an earlier look of the same store it is made at the cost of what happened since."""

    async def queue(self, ahead: Ahead, most: int) -> Queue:
        """What lives now and goes before a place; of each lane's queue the first `most`, all without payload."""

    def ring(self) -> None:
        """Wake the dispatcher, in whatever process it is. Cheap, and lost when there is none."""

    def bell(self) -> Bell:
        """Be woken when the dispatcher recorded something or tasks were submitted, in whatever process."""

    async def export_run(self, run: str) -> AsyncIterator[Mapping[str, Any]]:
        """The run as JSON-ready records, in an order in which `import_run` takes them."""
        yield {}

    async def import_run(self, lines: Iterable[Mapping[str, Any]]) -> str:
        """Keep an exported run under its name; refused with TaskError when one of its tasks exists."""

    async def save_token(self, token: Token) -> bool:
        """Keep a token; False, and nothing is changed, when its name is taken."""

    async def tokens(self) -> list[Token]:
        """All of them, by name."""

    async def revoke_token(self, name: str) -> bool:
        """Forget a token; False when there is none of that name."""

    async def secret(self, name: str) -> bytes:
        """32 random bytes, made when they are first asked for: the same for all who ask, and for good."""

    async def end_session(self, id: str, expires_at: float) -> None:
        """Keep it in mind that a session was ended before its time; until that comes."""

    async def ended_sessions(self) -> dict[str, float]:
        """Those that were ended, with when they would have expired; what is past is forgotten."""

    async def lease(self, name: str, owner: str, ttl_s: float, note: str = "") -> bool:
        """Hold a name for so long, or longer when one has it; False while somebody else does.

        What has expired is free. Time is the store's own, so that the clocks of machines need not agree.
        """

    async def renew_lease(self, name: str, owner: str, ttl_s: float, note: str = "") -> bool:
        """Hold it for so long from now. False: nobody may rely on it any more, it was given up or taken over.

        One that has expired, but that nobody has taken since, was never anybody else's; after a day it may be
        forgotten.
        """

    async def end_lease(self, name: str, owner: str) -> bool:
        """Let go of it; False, and nothing is changed, when that owner does not have it."""

    async def lease_of(self, name: str) -> Lease | None:
        """Who has it; None: nobody, or it has expired."""

    async def leases(self, prefix: str) -> list[tuple[str, Lease]]:
        """All that are held under names that begin so, by name."""

    async def prune(self, before: float | None) -> int:
        """Forget tasks that ended before then, with their attempts and events; how many. None: forget no task.

        A task that a live one comes after is kept, and so is what explains the waits of those that stay. The
        ledger forgets the days before. Leases that expired over a day ago go in any case.
        """

    # -- the owner

    async def acquire(
        self, owner: Owner, now: float, plant: Plant | None = None, config: str | None = None
    ) -> tuple[Epoch, Epoch | None]:
        """Become the one dispatcher; the new epoch and the one before. AlreadyOwned names who has it.

        The plant is kept with the epoch, without the options of adapters; and of its config, what others compare
        theirs with (`config.running`).
        """

    async def wait_vacant(self, timeout_s: float) -> bool:
        """Wait until `acquire` may succeed, for nobody alive owns the store; False when the time is over first."""

    async def heartbeat(self, epoch: int, now: float) -> None:
        """A sign of life. Every `record` is one too. Fails with DispatcherError when the epoch is over."""

    async def tell_stopping(self, epoch: int) -> None:
        """Have those who look know that the dispatcher finishes what runs, and starts nothing more."""

    async def release(self, epoch: int, now: float) -> None:
        """Stop being the dispatcher; all that was recorded before is written first."""

    async def spending(self, day: int) -> list[Spending]:
        """The ledger of a day: every cost ever recorded for it, whether or not the task is still known."""

    async def arrivals(self, after: int, limit: int = 10_000) -> list[Arrival]:
        """Live tasks whose number is beyond `after`, in order of arrival."""

    async def incoming(self, after: int, limit: int = 10_000) -> tuple[list[Request], list[Arrival]]:
        """`requests()`, then `arrivals()`: what a request is about is among the arrivals, or came before them."""

    async def is_long(self, tasks: int) -> bool:
        """Whether more than so many have not ended; others are not counted."""

    async def queued(self, after: int, lanes: Collection[str] = (), limit: int = 50_000) -> Queued | None:
        """The next live tasks whose number is beyond `after`; those of these lanes are set apart. None: no more."""

    async def conditions(self, now: float) -> Snapshot:
        """As `snapshot`, but for what is counted: nothing waits and nothing runs in it."""

    async def fetch(self, ids: Sequence[str]) -> list[Arrival]:
        """These tasks again, live or ended, with their payloads, in order of arrival."""

    async def states(self, ids: Iterable[str]) -> dict[str, State]: ...

    async def requests(self) -> list[Request]:
        """Requests nobody has answered, in order."""

    async def answer(self, number: int, answer: Answer) -> None: ...

    def accept(self, tasks: Sequence[Task]) -> asyncio.Future[list[str]]:
        """Keep tasks that the dispatcher has taken in already; they bring their ids.

        Written like decisions: in order with those recorded before and after, and tried until they are kept. Nobody
        is woken.
        """

    def record(self, decisions: Sequence[Decision]) -> asyncio.Future[None]:
        """Write these decisions, in order, in one transaction with their events; done once durable.

        Calls made while one is being written are written together after it. When the disk is full or
        the file is locked nothing is dropped: the same decisions are tried again until they are kept, and
        `trouble` says why they are not. A decision about a task that is not where its dispatcher believes
        (ended already, another attempt) changes nothing and is kept as a `refused` event. Fails with
        DispatcherError when another dispatcher has taken over.
        """

    async def note(
        self, type: str, at: float, task: str | None, attempt: int | None, data: Mapping[str, Any]
    ) -> None:
        """Add an event that changes no state (a stalled loop, a log line worth keeping)."""

    def wake_bell(self) -> Bell:
        """The dispatcher's own bell: rung by clients."""


class Bell(Protocol):
    """A wake-up that is never lost: a ring before `wait()` makes it return at once."""

    async def wait(self, timeout_s: float | None = None) -> bool:
        """True when rung, False on time-out. Rings that came meanwhile are one."""

    def close(self) -> None: ...
