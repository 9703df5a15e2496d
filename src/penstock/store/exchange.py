"""A run as lines that another store can take in: the format of `export` and `import`, for every store.

The first line names the format and the run; each further line is one record under the name of its kind:

    task         a task of the run, with how far it came
    dependency   a task of another run that one of them comes after
    attempt      an attempt of one of the run's tasks
    move         a task that went to wait in another class
    rest         a time in which an ended task was not in the queue
    priority     a task that was given another priority
    event        a line of the log that names one of the run's tasks
    condition    what was told of hosts, lanes and gates meanwhile, and of loops that did not turn
    route, stretch, epoch, other    what explains the waits, and is not the run's alone
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from penstock.diagnosis.history import Epoch, History, Rest
from penstock.errors import TaskError
from penstock.lifecycle import LIVE
from penstock.model import Attempt, State, TaskRecord
from penstock.scheduling.messages import Move, Reprioritize, Route, WaitChange
from penstock.store.base import StoredEvent
from penstock.store.rows import condition_of

FORMAT = 1

T = TypeVar("T")
N = TypeVar("N", Move, Reprioritize, Route, WaitChange)


@dataclass(slots=True)
class RunBundle:
    """A run as it is read back from its lines."""

    run: str
    tasks: list[TaskRecord] = field(default_factory=list)
    dependencies: list[TaskRecord] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    rests: list[Rest] = field(default_factory=list)
    priorities: list[Reprioritize] = field(default_factory=list)
    events: list[StoredEvent] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)
    stretches: list[WaitChange] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    others: list[Attempt] = field(default_factory=list)
    conditions: list[StoredEvent] = field(default_factory=list)


def header(run: str) -> dict[str, Any]:
    return {"penstock_export": FORMAT, "run": run}


def plain(kind: str, record: Any) -> dict[str, Any]:
    """One line: plain JSON types only."""
    named = record._asdict() if isinstance(record, tuple) and hasattr(record, "_asdict") else record
    return {kind: msgspec.to_builtins(named)}


def explanation_lines(history: History) -> Iterator[dict[str, Any]]:
    """All of a run's history but its tasks, which are exported with their payloads and values."""
    own = {record.task.id for record in history.records}
    for name, record in history.dependencies.items():
        if name not in own:
            yield plain("dependency", record)
    for kind, records in (
        ("attempt", history.attempts),
        ("move", history.moves),
        ("rest", history.rests),
        ("priority", history.priorities),
        ("route", history.routes),
        ("stretch", history.stretches),
        ("epoch", history.epochs),
    ):
        for entry in records:
            yield plain(kind, entry)
    for told in (*history.changes, *history.stalls):
        yield plain("condition", condition_of(told))
    for attempt in history.others:
        if attempt.task not in own:
            yield plain("other", attempt)


def read_bundle(lines: Iterable[Mapping[str, Any]]) -> RunBundle:
    """The run of these lines, checked. A live task of it is queued from now on, its open attempt over."""
    bundle: RunBundle | None = None
    for number, line in enumerate(lines, 1):
        try:
            if bundle is None:
                bundle = RunBundle(_read_header(line))
            else:
                _read_line(bundle, line)
        except (msgspec.ValidationError, LookupError, TypeError, AttributeError, ValueError) as error:
            raise TaskError(
                f"line {number}: not a line of a Penstock export ({error}); export the run again"
            ) from None
    if bundle is None or not bundle.tasks:
        raise TaskError("the export holds no task; export the run again")
    return _at_rest(bundle)


def _read_header(line: Mapping[str, Any]) -> str:
    version = line.get("penstock_export")
    if version is None:
        raise ValueError("the first line must be its header")
    if version != FORMAT:
        raise ValueError(f"its format is {version!r} and this Penstock reads {FORMAT}")
    return msgspec.convert(line["run"], str)


def _read_line(bundle: RunBundle, line: Mapping[str, Any]) -> None:
    ((kind, record),) = line.items()
    if kind == "task":
        bundle.tasks.append(_in_run(msgspec.convert(record, TaskRecord), bundle.run))
    elif kind == "dependency":
        bundle.dependencies.append(msgspec.convert(record, TaskRecord))
    elif kind == "attempt":
        bundle.attempts.append(msgspec.convert(record, Attempt))
    elif kind == "other":
        bundle.others.append(msgspec.convert(record, Attempt))
    elif kind == "move":
        bundle.moves.append(_named(record, Move))
    elif kind == "rest":
        bundle.rests.append(msgspec.convert(record, Rest))
    elif kind == "priority":
        bundle.priorities.append(_named(record, Reprioritize))
    elif kind == "event":
        bundle.events.append(msgspec.convert(record, StoredEvent))
    elif kind == "condition":
        bundle.conditions.append(msgspec.convert(record, StoredEvent))
    elif kind == "route":
        bundle.routes.append(_named(record, Route))
    elif kind == "stretch":
        bundle.stretches.append(_named(record, WaitChange))
    elif kind == "epoch":
        bundle.epochs.append(msgspec.convert(record, Epoch))
    else:
        raise ValueError(f"{kind!r} is no kind of record")


def _in_run(record: TaskRecord, run: str) -> TaskRecord:
    if record.task.run != run:
        raise ValueError(f"its run is {record.task.run!r} and the export is of {run!r}")
    if not record.task.id:
        raise ValueError("the task has no id")
    return record


def _named(record: Mapping[str, Any], kind: type[N]) -> N:
    return msgspec.convert([record[name] for name in kind._fields], kind)


def _at_rest(bundle: RunBundle) -> RunBundle:
    """Nobody runs an imported task: what ran is queued, and its attempt ends at the last thing known."""
    last_at = max(
        [
            *(record.task.queued_at for record in bundle.tasks),
            *(event.at for event in bundle.events),
            *(attempt.ended_at or attempt.started_at for attempt in bundle.attempts),
            *(epoch.seen_at for epoch in bundle.epochs),
        ]
    )
    bundle.tasks = [
        replace(record, state=State.QUEUED, ended_at=None)
        if record.state in LIVE
        else replace(record, ended_at=last_at if record.ended_at is None else record.ended_at)
        for record in bundle.tasks
    ]
    bundle.attempts = [
        replace(attempt, ended_at=last_at, error="it was running when its run was exported")
        if attempt.ended_at is None
        else attempt
        for attempt in bundle.attempts
    ]
    bundle.others = [
        replace(other, ended_at=last_at) if other.ended_at is None else other for other in bundle.others
    ]
    bundle.epochs = [
        replace(epoch, ended_at=epoch.seen_at) if epoch.ended_at is None else epoch for epoch in bundle.epochs
    ]
    return bundle


def with_own_classes(bundle: RunBundle, highest: int) -> tuple[RunBundle, int]:
    """The same run with its classes numbered downwards from below `highest`, and the last number used.

    A dispatcher counts its classes upwards from 1, so these never meet.
    """
    numbers: dict[int, int] = {}

    def own(work_class: int) -> int:
        return numbers.setdefault(work_class, highest - 1 - len(numbers))

    renamed = replace(
        bundle,
        attempts=[replace(a, work_class=own(a.work_class)) for a in bundle.attempts],
        moves=[m._replace(work_class=own(m.work_class)) for m in bundle.moves],
        routes=[r._replace(work_class=own(r.work_class)) for r in bundle.routes],
        stretches=[s._replace(work_class=own(s.work_class)) for s in bundle.stretches],
        others=[replace(a, work_class=own(a.work_class)) for a in bundle.others],
    )
    return renamed, highest - len(numbers)
