"""The words of Penstock as values: what a task, a host, a lane, a gate and an outcome are.

Everything else is built on these. They are frozen, import nothing of ours and nothing third-party,
and hold no behaviour beyond reading themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple

PRIORITIES = range(5)  # 0 is the most urgent
DEFAULT_PRIORITY = 2
DEFAULT_LANE = "default"
# needs of another sort: slots may change, and tokens are counted against a rate
_NO_UNITS = ("slots", "tokens")
EPSILON = 1e-9  # units are fractions: 0.1 + 0.2 must fit into 0.3
ANY_MODEL = "*"  # among a host's models: it takes whatever is asked for

# The kinds of calls of a model: of /v1, of `penstock ask`, of our own attempts. A call is a task like any other but
# goes to hosts that have its model, whatever they serve. No submitted task has such a kind: it is not a valid name.
CALL_KINDS = CHAT_CALL, COMPLETION_CALL, EMBEDDING_CALL = ("call/chat", "call/completion", "call/embedding")


class State(StrEnum):
    """Where a task is. `lifecycle.py` says which steps lead from one to another."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"


class Verdict(StrEnum):
    """What an attempt's end means for its task, its retries and its host."""

    DONE = "done"
    TEMPORARY = "temporary"  # worth another try: costs a retry, after a backoff
    PERMANENT = "permanent"  # trying again cannot help
    HOST = "host"  # the host's fault: costs no retry, another host is preferred, the breaker counts
    THROTTLED = "throttled"  # the host said "too much" (429): costs nothing, the host's slots shrink
    CANCELLED = "cancelled"  # stopped because we asked


class OnCrash(StrEnum):
    """What becomes of a task whose dispatcher was lost while it ran."""

    RETRY = "retry"
    BLOCK = "block"
    CANCEL = "cancel"  # of a call whose caller waited on a connection: that is gone, and so is the call


class OnStop(StrEnum):
    """What becomes of a task that a stopping dispatcher ends before its own end."""

    REQUEUE = "requeue"
    BLOCK = "block"


def id_in_run(run: str, name: str) -> str:
    """The id of a task that has a name within its run: the same name in another run is another task."""
    return f"{run}:{name}"


def name_in_run(task_id: str, run: str) -> str:
    """What a task is called where its run is known: its name within that run, or its id where it has none."""
    return task_id.removeprefix(f"{run}:")


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of work. `id`, `run` and `queued_at` are filled in at submit when left empty."""

    kind: str
    payload: Any = None
    priority: int = DEFAULT_PRIORITY
    lane: str = DEFAULT_LANE
    run: str = ""
    after: tuple[str, ...] = ()
    needs: Mapping[str, float] | None = None  # units; a slot is taken unless `slots` says how many
    host: str | None = None
    model: str | None = None
    timeout_s: float | None = None
    deadline: float | None = None  # epoch seconds; not started by then, it fails
    not_before: float | None = None  # epoch seconds
    retries: int | None = None
    key: str | None = None
    on_crash: OnCrash = OnCrash.RETRY
    id: str = ""
    queued_at: float = 0.0
    trace: str | None = None  # its caller's W3C trace context: traceparent, and after a blank the tracestate
    output: str | None = None  # the file that its value is saved in, inside the config's `output_root`

    @property
    def name(self) -> str | None:
        """Its name within its run, as a task file gave it."""
        name = name_in_run(self.id, self.run)
        return None if name == self.id else name

    @property
    def is_call(self) -> bool:
        """Whether it is a call of a model, which any host that has the model may answer."""
        return self.kind in CALL_KINDS

    @property
    def label(self) -> str | int | float | None:
        """What whoever wrote its payload calls it: the payload's own `id`, where that is a text or a number."""
        given = self.payload.get("id") if isinstance(self.payload, Mapping) else None
        return given if isinstance(given, str | int | float) and not isinstance(given, bool) else None


HOST_TRIED = ("half-open", "probing")  # states of a host that one task may try, or tries: it may work again
HOST_DOWN = ("down", *HOST_TRIED)  # those of one that is given at most such a trial


class Fault(NamedTuple):
    """What a host failed with last: an attempt that blamed it, or a check of it. It stands until one succeeds."""

    error: str  # a line: what happened, and what to do
    needs_fix: bool = False  # trying again cannot help: somebody has to change something first


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one attempt ended, as its adapter tells it."""

    verdict: Verdict
    value: Any = None
    error: str | None = None
    retry_after_s: float | None = None
    tokens: float | None = None  # used by the attempt, where the host counts them
    cost_usd: float | None = None
    logs: str | None = None  # the end of what it wrote, cut to a limit
    # The machine it ran on, where that is one of several; how it ended is the same on each.
    node: str | None = field(default=None, compare=False)
    timed_out: bool = False  # it was ended because its time was up
    host_fault: bool = False  # the host is to blame, though the verdict ends the task: its breaker counts
    known_fault: bool = False  # another attempt has told of the very same fault: its breaker counts it once
    unbegun: bool = False  # nothing of it has run: its task is queued again, and it costs nothing
    # With the verdict HOST: nothing runs there until somebody changes something. The error says what.
    needs_fix: bool = False
    # The "module" or the "function" that was not where it was to run: the machine's fault, where there are several.
    unloaded: str = ""
    orphaned: bool = False  # it was lost with the dispatcher that began it: what `on_crash` says is done


@dataclass(frozen=True, slots=True)
class TimedOutcome(Outcome):
    """One that nobody heard of when it happened: when the attempt began and ended, as far as its engine knows."""

    began_at: float | None = None
    ended_at: float | None = None

    @classmethod
    def of(cls, outcome: Outcome, began_at: float | None, ended_at: float | None) -> TimedOutcome:
        return cls(**_told(outcome), began_at=began_at, ended_at=ended_at)

    def plain(self) -> Outcome:
        return Outcome(**_told(self))


def _told(outcome: Outcome) -> dict[str, Any]:
    return {one.name: getattr(outcome, one.name) for one in fields(Outcome)}


@dataclass(frozen=True, slots=True)
class Rate:
    """How much a host takes in any 60 seconds."""

    requests_per_min: float | None = None
    tokens_per_min: float | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """What a model's tokens cost, in USD per million."""

    input: float = 0.0
    output: float = 0.0
    cached: float = 0.0  # of the input, what the server had seen before


@dataclass(frozen=True, slots=True)
class Fallback:
    """A host of last resort: opens for a task after `after_s` of waiting, or when own hosts fail."""

    after_s: float = 30.0
    budget_usd_per_day: float | None = None


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """When a host counts as down, and how long before one task tries it again."""

    failures: int = 3
    reset_s: float = 5.0
    max_reset_s: float = 60.0


@dataclass(frozen=True, slots=True)
class AutoSlots:
    """Slots that tune themselves between these bounds."""

    min: int = 1
    max: int = 1


@dataclass(frozen=True, slots=True)
class RayNodes:
    """Which nodes of a Ray cluster a host's attempts run on, and what each holds there."""

    resources: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    num_cpus: float = 0.0  # limits are the scheduler's: Ray need not count its processors again
    per_worker: int = 1  # attempts that share a worker process


@dataclass(frozen=True, slots=True)
class Host:
    """What runs attempts of the kinds it serves. `options` belong to its adapter.

    `model` is the one it uses by itself. `models` are all the names under which a call may ask for it, and
    empty for a host that has no models: its model and others it has, and the kinds it serves.
    """

    name: str
    type: str
    slots: int = 1  # to begin with, when they tune themselves
    auto: AutoSlots | None = None
    units: Mapping[str, float] = field(default_factory=dict)
    serves: tuple[str, ...] = ("*",)
    model: str | None = None
    models: tuple[str, ...] = ()
    rate: Rate | None = None
    fallback: Fallback | None = None
    breaker: BreakerRule = BreakerRule()
    prices: Mapping[str, Price] = field(default_factory=dict)  # model -> price, where tokens cost money
    options: Mapping[str, Any] = field(default_factory=dict)
    takes_calls: bool = True  # of its models; False where the config says so, or attempts make such calls
    ray: RayNodes | None = None  # None: any node, where the engine is one of Ray
    leaves: tuple[str, ...] = ()  # kinds that "*" does not mean here: they are those of agents

    def serves_kind(self, kind: str) -> bool:
        """Whether tasks of a kind may run here: those it serves, and calls where it has models."""
        if kind in self.serves:
            return True
        if kind in CALL_KINDS:
            return self.takes_calls and bool(self.models)
        return "*" in self.serves and kind not in self.leaves

    def has_model(self, model: str) -> bool:
        return model == self.model or model in self.models

    def has_units(self, needs: Iterable[tuple[str, float]], kept: Callable[[str], float]) -> bool:
        """Whether it has as much of each unit beside slots, without what is kept for others."""
        return all(self.units.get(unit, 0.0) - kept(unit) + EPSILON >= amount for unit, amount in needs)

    @property
    def costs_money(self) -> bool:
        """Whether the config says so: its models have prices, or it has a budget."""
        return bool(self.prices) or (
            self.fallback is not None and self.fallback.budget_usd_per_day is not None
        )


@dataclass(frozen=True, slots=True)
class Lane:
    """A family of work, walled off from the others."""

    name: str
    max_running: int | None = None
    reserve: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # host -> units
    weight: float = 1.0
    budget_usd_per_day: float | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """A condition on starting. It reads a lane's running count, or a probe sampled outside the core."""

    name: str
    lane: str | None = None
    max_running: int | None = None  # with `lane`: open while running(lane) <= max_running
    probe: str | None = None
    min: float | None = None  # with `probe`: open while min <= value <= max
    max: float | None = None
    every_s: float = 2.0
    on_error: str = "closed"  # what a probe that fails or hangs leaves behind: open | closed
    holds_lanes: tuple[str, ...] = ()
    holds_kinds: tuple[str, ...] = ()
    holds_hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RetryRule:
    """How failures are tried again: delay = base * 2**n up to max, half of it by chance."""

    retries: int = 2
    base_s: float = 1.0
    max_s: float = 60.0
    host_faults: int = 10  # a task that met this many host faults fails


@dataclass(frozen=True, slots=True)
class Plant:
    """All the scheduler is told of the world: hosts, lanes, gates and the rules between them."""

    hosts: tuple[Host, ...] = ()
    lanes: tuple[Lane, ...] = ()
    gates: tuple[Gate, ...] = ()
    aging_s: float = 300.0
    retry: RetryRule = RetryRule()
    thread_per_kind: bool = False  # each kind has one thread, which runs one task at a time
    outliving: tuple[str, ...] = ()  # hosts whose attempts go on when their dispatcher is gone

    def hosts_for(
        self,
        kind: str,
        host: str | None = None,
        model: str | None = None,
        lane: str = DEFAULT_LANE,
        needs: Mapping[str, float] | None = None,
    ) -> list[Host]:
        """The hosts that a task or a call fits: this decides it for everybody.

        Hosts that take any model are asked only for one that no other has by name. One that can never hold the
        needed units is left out, unless all are such.
        """
        able = [h for h in self.hosts if host in (None, h.name) and h.serves_kind(kind)]
        if model is not None:
            named = [h for h in able if h.has_model(model)]
            able = named or [h for h in able if ANY_MODEL in h.models]
        units = [(unit, n) for unit, n in (needs or {}).items() if unit not in _NO_UNITS]
        if not units:
            return able

        keeping = [one.reserve for one in self.lanes if one.reserve and one.name != lane]

        def holds(host: Host) -> bool:
            kept = [reserve[host.name] for reserve in keeping if host.name in reserve]
            return host.has_units(units, lambda unit: sum(one.get(unit, 0.0) for one in kept))

        return [h for h in able if holds(h)] or able

    def fitting(self, task: Task) -> list[Host]:
        """The hosts that a task fits, with all that it asks of them."""
        return self.hosts_for(task.kind, task.host, task.model, task.lane, task.needs)


@dataclass(frozen=True, slots=True)
class Wait:
    """A stretch of a task's queue time with its one reason."""

    reason: str
    detail: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def as_record(self) -> dict[str, Any]:
        return {"reason": self.reason, "detail": self.detail, "from": self.start, "to": self.end}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a task on one host, as recorded. Its number is the fence."""

    task: str
    number: int
    host: str
    lane: str
    started_at: float
    work_class: int  # the class the task waited in; its stretches explain the wait before this attempt
    ended_at: float | None = None
    verdict: Verdict | None = None
    error: str | None = None
    retry_at: float | None = None  # when the task may be tried again, if it may


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task as the store keeps it: what was asked, and how far it has come."""

    task: Task
    number: int  # order of arrival in this store
    state: State
    attempts: int = 0
    tries: int = 0  # attempts that cost a retry
    host_faults: int = 0
    retry_at: float | None = None
    host: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    value: Any = None
    error: str | None = None

    @property
    def is_delayed(self) -> bool:
        """Whether its attempt was decided and has not begun: it has its slots, and waits for what is to run it."""
        return self.state is State.RUNNING and self.started_at is None

    @property
    def is_plain(self) -> bool:
        """Whether it was never tried, and waits for nothing but its turn."""
        task = self.task
        return (
            self.state is State.QUEUED
            and not self.attempts
            and not task.after
            and task.not_before is None
            and task.deadline is None
            and self.retry_at is None
            and task.on_crash is not OnCrash.CANCEL
        )

    def as_record(self) -> dict[str, Any]:
        """As a result's, without its waits, which would have to be worked out."""
        return {
            "task_id": self.task.id,
            "name": self.task.name,
            "run": self.task.run,
            "kind": self.task.kind,
            "lane": self.task.lane,
            "priority": self.task.priority,
            "state": str(self.state),
            "host": self.host,
            "attempts": self.attempts,
            "queued_at": self.task.queued_at,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "value": self.value,
            "error": self.error,
            "output": self.task.output,
        }


@dataclass(frozen=True, slots=True)
class Backlog:
    """Tasks alike that were never tried and wait for nothing but their turn, in order of arrival.

    A queue of a million is told in these: a record of each would take longer to make than to queue it.
    """

    task: Task  # what they have in common; its id and its time are nobody's
    numbers: Sequence[int]
    ids: Sequence[str]
    queued_at: Sequence[float]


@dataclass(frozen=True, slots=True)
class Result:
    """What a user gets back for a task."""

    task_id: str
    run: str
    kind: str
    lane: str
    priority: int
    state: State
    host: str | None
    attempts: int
    queued_at: float
    started_at: float | None
    ended_at: float | None
    value: Any
    error: str | None
    waits: tuple[Wait, ...] = ()
    output: str | None = None  # the file that its value is saved in
    label: str | int | float | None = None  # its payload's own `id`

    @property
    def name(self) -> str | None:
        """Its name within its run, as a task file gave it."""
        name = name_in_run(self.task_id, self.run)
        return None if name == self.task_id else name

    @property
    def ok(self) -> bool:
        return self.state is State.DONE

    def as_record(self) -> dict[str, Any]:
        return {
            "task_id": self.task_id,
            "name": self.name,
            "run": self.run,
            "kind": self.kind,
            "lane": self.lane,
            "priority": self.priority,
            "state": str(self.state),
            "host": self.host,
            "attempts": self.attempts,
            "queued_at": self.queued_at,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "value": self.value,
            "error": self.error,
            "output": self.output,
            "label": self.label,
            "waits": [w.as_record() for w in self.waits],
        }
