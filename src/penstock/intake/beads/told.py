"""What issues were told, kept while somebody may still write an older state over it; then it is told again.

Whoever reads a file, thinks, and renames another over it takes with them what came in between: an end as well as a
claim. An end shows in the notes or the metadata of its issue. Where neither has it, it is gone, whatever the
status is; where one has it, whoever opened the issue again meant to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from penstock.intake.beads.issues import Issue
from penstock.intake.beads.reports import Report, shows
from penstock.intake.beads.tracker import Tracker

_KEPT_S = 600.0  # somebody may have had the file in an editor for that long
_KEPT = 1000


class Told:
    def __init__(self, tracker: Tracker, clock: Callable[[], float] = time.monotonic) -> None:
        self._tracker = tracker
        self._clock = clock
        self._reports: dict[str, tuple[float, Report]] = {}  # by issue, the oldest first

    def add(self, reports: Mapping[str, Report]) -> None:
        for id, report in reports.items():
            self._reports.pop(id, None)
            self._reports[id] = self._clock(), report
        oldest = self._clock() - _KEPT_S
        for id in list(self._reports):
            if len(self._reports) <= _KEPT and self._reports[id][0] > oldest:
                break
            del self._reports[id]

    def forget(self, ids: Iterable[str]) -> None:
        """They are worked on again."""
        for id in ids:
            self._reports.pop(id, None)

    def is_lost(self, issue: Issue) -> bool:
        """Whether an issue was told its end, and does not show it."""
        known = self._reports.get(issue.id)
        return known is not None and not shows(issue, known[1])

    @property
    def doubt_s(self) -> float:
        """How much longer it is likely that somebody writes what they read before the last end."""
        if not self._reports:
            return 0.0
        last_at, _ = next(reversed(self._reports.values()))
        return max(0.0, last_at + self._tracker.doubt_s - self._clock())

    async def again(self) -> list[str]:
        """Tell issues what they do not show any more; those."""
        reports = {id: report for id, (_, report) in self._reports.items()}
        if not reports:
            return []
        lost = {id: reports[id] for id in await self._tracker.untold(reports)}
        if lost:
            await self._tracker.finish(lost)
            self.add(lost)
        return list(lost)
