"""What `council ingest` did, in lines for people: what went in, what was left out and why, what failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.cli.render import counted, one_line, seconds

if TYPE_CHECKING:
    from penstock.council.library.documents import Aside
    from penstock.council.library.ingested import Ingested

_MOST_NAMED = 5
_MOST_FAILURES = 50
_ERROR_WIDTH = 300


def failures(told: Ingested) -> Iterator[str]:
    """A line for each file that should be in the collection and is not."""
    for one in told.failed[:_MOST_FAILURES]:
        yield f"{one_line(one.source)}: {one_line(one.reason, _ERROR_WIDTH)}"
    if len(told.failed) > _MOST_FAILURES:
        yield f"{len(told.failed) - _MOST_FAILURES} more failed; --json names all"
    if told.gave_up:
        yield "gave up: not one of the first files could be put in; mend the cause and run it again"


def summary(told: Ingested) -> Iterator[str]:
    yield from _planned(told) if told.dry_run else _done(told)
    if told.plan.kept:
        yield f"kept as they were: {_named(told.plan.kept)}"
    for one in told.notes:
        yield f"note: {one_line(one.source)} {one.reason}"
    for reason, sources in _by_reason(told.left_out).items():
        yield f"left out, {reason}: {_named(sources)}"
    if told.elsewhere:
        yield f"to be ingested again from their own folders: {_named(told.elsewhere)}"


def _planned(told: Ingested) -> Iterator[str]:
    plan = told.plan
    yield (
        f"would put {counted(len(plan.add), 'new file')} and {counted(len(plan.change), 'changed one')} into "
        f"{told.collection}, and remove {len(plan.remove)}; {len(plan.unchanged)} unchanged"
    )
    for what, sources in (("add", plan.add), ("change", plan.change), ("remove", plan.remove)):
        for source in sources:
            yield f"  {what:<6}  {one_line(source)}"


def _done(told: Ingested) -> Iterator[str]:
    what = [
        f"{len(told.added)} added",
        f"{len(told.changed)} changed",
        f"{len(told.removed)} removed",
        f"{len(told.plan.unchanged)} unchanged",
    ]
    if told.failed:
        what.append(f"{len(told.failed)} failed")
    passages = f" ({counted(told.passages, 'passage')})" if told.passages else ""
    yield f"{told.name} in {told.collection}: {', '.join(what)}{passages} in {seconds(told.took_s)}"
    if told.stopped:
        failed = {f"{told.name}/{one.source}" for one in told.failed}
        left = len({*told.plan.todo} - {*told.added, *told.changed} - failed)
        yield f"interrupted with {counted(left, 'file')} to go; the same command goes on"


def _by_reason(asides: Sequence[Aside]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for one in asides:
        grouped.setdefault(one.reason, []).append(one.source)
    return dict(sorted(grouped.items()))


def _named(sources: Sequence[str]) -> str:
    shown = ", ".join(one_line(source) for source in sources[:_MOST_NAMED])
    more = len(sources) - _MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
