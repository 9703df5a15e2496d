"""Telling issues how their tasks ended: closed, blocked or given back; and once more what somebody wrote over.

Results are saved here where a description asks for it, and claims end here, after the issue has been told.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.engine.outputs import as_bytes
from penstock.intake.beads import mapping, reports
from penstock.intake.beads.claims import Claims
from penstock.intake.beads.issues import BLOCKED, CLOSED, Issue
from penstock.intake.beads.keeping import Keeping
from penstock.intake.beads.outputs import BadOutput, IssueOutputs
from penstock.intake.beads.told import Told
from penstock.intake.beads.tracker import Tracker
from penstock.model import State, TaskRecord

Tell = Callable[[str, str, Mapping[str, Any]], None]  # what happened, to which issue, and more about it
End = tuple[Issue, reports.Report, Mapping[str, Any]]  # what an issue is told, and what is said of it


class Reporter:
    def __init__(
        self, tracker: Tracker, claims: Claims, kept: Keeping, outputs: IssueOutputs, tell: Tell
    ) -> None:
        self._tracker = tracker
        self._claims = claims
        self._kept = kept
        self._outputs = outputs
        self._tell = tell
        self.told = Told(tracker)
        self.blocked = 0

    def output_problem(self, issue: Issue) -> str | None:
        wanted = mapping.output_path(issue)
        if wanted is None:
            return None
        try:
            self._outputs.check(wanted)
        except BadOutput as error:
            return str(error)
        return None

    async def end_of(self, issue: Issue, record: TaskRecord) -> End:
        """What an issue is told of a task that has ended, its result saved where it asked for that."""
        saved, trouble = await self._saved(issue, record)
        report = reports.report_of(record, saved=saved, trouble=trouble)
        return issue, report, dict(report.metadata)

    async def _saved(self, issue: Issue, record: TaskRecord) -> tuple[str | None, str | None]:
        """Where the result was saved, or why it could not be; neither when nobody asked for it."""
        wanted = mapping.output_path(issue)
        if wanted is None or record.state is not State.DONE:
            return None, None
        try:
            return await asyncio.to_thread(self._outputs.save, wanted, as_bytes(record.value)), None
        except BadOutput as error:
            return None, str(error)

    async def finish(self, ends: Sequence[End]) -> None:
        told = {issue.id: report for issue, report, _ in ends}
        ours = await self._tracker.finish(told)
        self.told.add(told)
        await self._kept.do(self._claims.drop, list(told))
        for issue, report, fields in ends:
            if report.status == BLOCKED:
                self.blocked += 1
            if issue.id not in ours:
                theirs = "somebody else has changed it; its status is theirs"
                self._tell("changed", issue.id, {**fields, "detail": theirs})
                continue
            why = {"reason": report.reason} if report.status == CLOSED else {"error": report.reason}
            self._tell(report.status, issue.id, {**fields, "title": issue.title, **why})

    async def tell_again(self) -> None:
        """Tell issues their ends once more where somebody wrote an older state over them."""
        for id in await self.told.again():
            self._tell(
                "again", id, {"detail": "somebody wrote an older state over its end; it is told again"}
            )

    async def give_back(self, ids: Sequence[str]) -> None:
        for id in await self._tracker.give_back(ids, time.time()):
            self._tell("given-back", id, {})
        await self._kept.do(self._claims.drop, ids)
