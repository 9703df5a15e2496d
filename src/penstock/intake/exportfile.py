"""An export of a run → its recording, as if it were read from the store it came from."""

from __future__ import annotations

import msgspec

from penstock.diagnosis.history import History
from penstock.diagnosis.recording import Recording, recording_of
from penstock.errors import UsageError
from penstock.intake.logs.rows import Text
from penstock.model import Plant
from penstock.store.exchange import RunBundle, read_bundle
from penstock.store.rows import STALL, change_of, stall_of

_MARK = b'"penstock_export"'


def is_export(text: Text) -> bool:
    """By its first line."""
    return _MARK in text.data[:200].partition(b"\n")[0]


def read_export(text: Text, plant: Plant | None) -> Recording:
    """The run that the lines hold; `plant` is for exports that do not tell theirs."""
    lines = []
    for number, line in enumerate(text.data.splitlines(), 1):
        try:
            lines.append(msgspec.json.decode(line))
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise UsageError(f"{text.name}:{number}: is not JSON ({error}); export the run again") from None
    try:
        bundle = read_bundle(lines)
    except UsageError as error:
        raise UsageError(f"{text.name}: {error}") from None
    history = _history(bundle)
    return recording_of(history, plant or Plant(), _last_moment(bundle))


def _history(bundle: RunBundle) -> History:
    own = {record.task.id: record for record in bundle.tasks}
    spent: dict[tuple[str, int], float] = {}
    for event in bundle.events:
        if event.type == "spent" and event.task is not None and event.attempt is not None:
            key = event.task, event.attempt
            spent[key] = spent.get(key, 0.0) + float(event.data["usd"])
    return History(
        records=bundle.tasks,
        attempts=bundle.attempts,
        others=[*bundle.attempts, *bundle.others],  # a task may wait for slots that its own run holds
        dependencies={**own, **{record.task.id: record for record in bundle.dependencies}},
        routes=bundle.routes,
        moves=bundle.moves,
        stretches=bundle.stretches,
        epochs=bundle.epochs,
        rests=bundle.rests,
        priorities=bundle.priorities,
        changes=[change_of(event) for event in bundle.conditions if event.type != STALL],
        stalls=[stall_of(event) for event in bundle.conditions if event.type == STALL],
        costs=spent,
    )


def _last_moment(bundle: RunBundle) -> float:
    return max(
        [
            *(record.task.queued_at for record in bundle.tasks),
            *(record.ended_at or 0.0 for record in bundle.tasks),
            *(attempt.ended_at or attempt.started_at for attempt in bundle.attempts),
            *(event.at for event in bundle.events),
        ]
    )
