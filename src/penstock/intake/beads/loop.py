"""Look, claim, submit, report; until stopped, or until nothing is left to do.

An issue that is ready is claimed, its task submitted under the key of the claim, and told how it ended. A restart
after any death finds its claims, submits them again under their keys, which runs nothing twice, and goes on.

Stopped once, nothing more is claimed or started, what waits is given back and what runs is finished; stopped
twice, what runs is put back and its issue given back as well, or both are blocked where the client's `on_stop` says
so. No issue is left in progress.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.client import Client
from penstock.config import TaskChecker
from penstock.config.keys import MODEL_TYPES
from penstock.config.postgres_place import shown_store
from penstock.errors import TaskError, UsageError
from penstock.intake.beads import mapping, reports
from penstock.intake.beads.claims import BEAT_S, Claim, Claims
from penstock.intake.beads.issues import Issue
from penstock.intake.beads.keeping import Keeping
from penstock.intake.beads.outputs import IssueOutputs
from penstock.intake.beads.readiness import is_work
from penstock.intake.beads.reporting import End, Reporter, Tell
from penstock.intake.beads.tracker import Place, Tracker, TrackerFault, is_ours, may_claim
from penstock.intake.beads.watching import NotWatched, changes
from penstock.intake.endings import Awaited
from penstock.lifecycle import ENDED
from penstock.model import State, Task

_LAST_LOOKS = 20  # at the end, where somebody writes over what issues are told again and again
_TOLD_STRANGE = 10
_FIRST_GAP_S, _MOST_GAP_S = 0.5, 5.0  # between two looks that cost much, where changes bring nothing


@dataclass(frozen=True, slots=True)
class Pace:
    """`once`: until nothing is ready and nothing runs. Else it also looks every `interval_s`, changes or not."""

    once: bool = False
    interval_s: float = 60.0


@dataclass(frozen=True, slots=True)
class _Work:
    issue: Issue
    claim: Claim


class BeadsLoop:
    def __init__(self, client: Client, place: Place, tracker: Tracker, tell: Tell, pace: Pace) -> None:
        rules = client.config.beads
        self._client = client
        self._tracker = tracker
        self._rules = rules
        self._tell = tell
        self._pace = pace
        root = place.root if rules.root is None else Path(rules.root)
        self._beads = place.beads
        self._claims = Claims(place.beads, shown_store(client.config.store))
        self._kept = Keeping(self._claims)
        outputs = IssueOutputs(client.config, root)
        self._reporter = Reporter(tracker, self._claims, self._kept, outputs, tell)
        self._awaited = Awaited(client)
        self._order = asyncio.Lock()  # ends are not looked for before it is known that they are awaited
        self._checker = TaskChecker(client.config)
        self._models = [host for host in client.config.plant.hosts if host.type in MODEL_TYPES]
        self._working: dict[str, _Work] = {}  # by the id of the task
        self._left: dict[str, str] = {}  # issues that cannot be taken, and why; told once
        self._passed_over: set[str] = set()  # claims of others that are not taken over; told once
        self._strange: set[str] = set()  # what is no issue; told once
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._stops = 0
        self._blocking = False  # what runs is being blocked
        self._group: asyncio.TaskGroup | None = None
        self._troubles: set[str] = set()  # told already
        self._unfit = 0  # issues that were left alone

    @property
    def failures(self) -> int:
        """Issues that were blocked, or left alone."""
        return self._reporter.blocked + self._unfit

    # ---- life

    async def run(self) -> None:
        await self._kept.open()
        try:
            await self._tracker.open()
            seen = await asyncio.to_thread(self._tracker.signature)
            async with asyncio.TaskGroup() as group:
                self._group = group
                beside = [group.create_task(self._report_endings())]
                beside.append(group.create_task(self._beat()))
                if not self._pace.once:
                    beside.append(group.create_task(self._watch(seen)))
                await self._look_on()
                await self._wind_down()
                await self._tell_last()
                for one in beside:
                    one.cancel()
        except TrackerFault as fault:
            raise UsageError(str(fault)) from None
        except BaseExceptionGroup as group:
            first = group.exceptions[0]
            raise UsageError(str(first)) if isinstance(first, TrackerFault) else first from None
        finally:
            await self._tracker.close()
            await self._kept.close()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            await self._kept.do(self._claims.beat)

    def stop(self) -> None:
        """The first time: finish what runs. The second time: put it back, or block it."""
        self._stops += 1
        if self._stops == 2:  # what another process dispatches is not ours to block
            self._blocking = self._client.dispatches and self._client.on_stop == "block"
        self._stopping.set()
        self._changed.set()
        if self._stops <= 2 and self._group is not None:
            self._group.create_task(self._stop_dispatching(put_back=self._stops == 2))

    async def _stop_dispatching(self, *, put_back: bool) -> None:
        await self._client.stop_dispatching(put_back=put_back)
        self._blocking = False  # what could be blocked is
        self._changed.set()

    async def _look_on(self) -> None:
        gap_s = 0.0
        while not self._stopping.is_set():
            self._changed.clear()
            next_at, found = None, False
            try:
                await self._resume()
                await self._reporter.tell_again()
                next_at, found = await self._look()
                self._troubles.clear()
            except TrackerFault as fault:
                self._trouble(fault)
            if self._pace.once and not self._working and not found:
                return
            await self._pause(self._pace.interval_s, next_at)
            if self._tracker.is_costly and not self._stopping.is_set():
                gap_s = 0.0 if found else min(_MOST_GAP_S, max(_FIRST_GAP_S, 2 * gap_s))
                await self._rest(gap_s)

    async def _pause(self, most_s: float, next_at: float | None) -> None:
        """Until something may be new."""
        if next_at is not None:
            most_s = min(most_s, max(0.0, next_at - time.time()) + 0.001)
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._changed.wait()

    async def _rest(self, gap_s: float) -> None:
        """Changes may come in quick succession, and mean nothing to us."""
        with suppress(TimeoutError):
            async with asyncio.timeout(gap_s):
                await self._stopping.wait()

    def _trouble(self, fault: TrackerFault) -> None:
        """It is tried again; `--once` is not there to wait for better times."""
        if self._pace.once:
            raise fault
        if str(fault) not in self._troubles:
            self._troubles.add(str(fault))
            self._tell("trouble", "", {"detail": f"{fault}; it is tried again"})

    async def _watch(self, seen: object) -> None:
        try:
            async with aclosing(changes(self._beads, self._tracker, seen)) as seen_changes:
                async for _ in seen_changes:
                    self._changed.set()
        except NotWatched as error:
            every = f"it is looked at every {self._pace.interval_s:g} s"
            self._tell("trouble", "", {"detail": f"{error}; {every}"})

    # ---- claiming

    async def _look(self) -> tuple[float | None, bool]:
        """Take what is ready; when to look again at the latest, and whether there was anything."""
        found = await self._tracker.look(time.time())
        mine = {work.issue.id for work in self._working.values()}
        wanted: dict[str, tuple[Issue, str]] = {}
        for issue in found.ready:
            free = issue.id not in mine and may_claim(issue, self._rules.actor)
            if free and not self._reporter.told.is_lost(issue):
                kind = self._kind(issue)
                if kind is not None:
                    wanted[issue.id] = issue, kind
        self._tell_strange(found.strange)
        there = {issue.id for issue in found.ready}
        self._left = {id: why for id, why in self._left.items() if id in there}
        room = self._rules.max_claimed
        names = list(wanted) if room is None else list(wanted)[: max(0, room - len(self._working))]
        taken = False
        for start in range(0, len(names), self._tracker.at_once):
            if self._stopping.is_set():
                break
            some = names[start : start + self._tracker.at_once]
            taken |= await self._take({id: wanted[id][1] for id in some})
        return found.next_at, taken

    def _tell_strange(self, strange: Mapping[str, str]) -> None:
        """What is no issue, once; of many the first ones."""
        fresh = [where for what, where in strange.items() if what not in self._strange]
        self._strange = set(strange)
        for where in fresh[:_TOLD_STRANGE]:
            self._tell("trouble", "", {"detail": f"{where}: is no issue, and is left as it is; correct it"})
        if len(fresh) > _TOLD_STRANGE:
            detail = f"{len(fresh) - _TOLD_STRANGE} more lines are no issues"
            self._tell("trouble", "", {"detail": detail})

    def _kind(self, issue: Issue) -> str | None:
        """The kind of an issue that can be worked on here; why the others cannot is told once."""
        kind = mapping.kind_of(issue, self._rules)
        if kind is None:
            why = "no rule gives it a kind; add one to [beads] in penstock.toml, or `kind` for the rest"
        else:
            found = self._checker.problems(mapping.task_of(issue, kind, self._rules, "key"))
            why = "; ".join(f"{field}: {what}" for field, what in found)
        if not why:
            return kind
        if self._left.get(issue.id) != why:
            self._left[issue.id] = why
            self._tell("left", issue.id, {"error": why})
            self._unfit += 1
        return None

    async def _take(self, kinds: Mapping[str, str]) -> bool:
        now = time.time()
        claims = await self._claimed(list(kinds), now)
        tasks: list[tuple[Issue, Claim, Task]] = []
        for issue, claim in claims:
            problem = self._reporter.output_problem(issue)
            if problem is not None:
                await self._reporter.finish([(issue, reports.refusal(problem, now), {})])
                continue
            kind = kinds[issue.id]
            self._tell("claimed", issue.id, {"kind": kind, "priority": issue.priority, "title": issue.title})
            tasks.append((issue, claim, self._task(issue, kind, claim)))
        await self._submit(tasks)
        return bool(claims)

    async def _claimed(self, ids: Sequence[str], now: float) -> list[tuple[Issue, Claim]]:
        """Claim issues, all under the lock: whoever else of ours comes finds them taken."""
        async with self._kept.exclusive():
            taken = await self._kept.do(self._claims.taken)
            free = [id for id in ids if id not in taken]
            if not free:
                return []
            made = {claim.issue: claim for claim in await self._kept.do(self._claims.add, free, now)}
            won = await self._tracker.claim(free, now)
            if lost := [id for id in free if id not in won]:
                await self._kept.do(self._claims.drop, lost)
            return [(won[id], made[id]) for id in free if id in won]

    def _task(self, issue: Issue, kind: str, claim: Claim) -> Task:
        for_models = any(host.serves_kind(kind) for host in self._models)
        return mapping.task_of(issue, kind, self._rules, claim.key, with_issue=not for_models)

    async def _submit(self, tasks: Sequence[tuple[Issue, Claim, Task]]) -> None:
        """Those that the store does not take, one too long, say so in their issue and keep nobody else."""
        if not tasks:
            return
        try:
            await self._submit_all(tasks)
        except TaskError as error:
            if len(tasks) == 1:
                await self._reporter.finish([(tasks[0][0], reports.refusal(str(error), time.time()), {})])
                return
            for one in tasks:
                await self._submit([one])

    async def _submit_all(self, tasks: Sequence[tuple[Issue, Claim, Task]]) -> None:
        async with self._order:
            await self._awaited.prepare()
            run = await self._client.submit_many([task for _, _, task in tasks])
            for (issue, claim, _), id in zip(tasks, run.task_ids, strict=True):
                self._working[id] = _Work(issue, claim)
            await self._awaited.add(run.task_ids)
        done_by = {issue.id: id for (issue, _, _), id in zip(tasks, run.task_ids, strict=True)}
        self._reporter.told.forget(done_by)
        await self._kept.do(self._claims.submitted, done_by)

    async def _resume(self) -> None:
        """Go on with what somebody left who died: ourselves, or another loop of this store."""
        async with self._kept.exclusive():
            elsewhere = await self._kept.do(self._claims.tasks_elsewhere)
            known = await self._client.states(elsewhere) if elsewhere else {}
            left = await self._kept.do(self._claims.adopt, known)
        for detail in self._claims.passed_over:
            if detail not in self._passed_over:
                self._passed_over.add(detail)
                self._tell("trouble", "", {"detail": detail})
        if not left:
            return
        found = await self._tracker.find([claim.issue for claim in left])
        unclaimed = [issue.id for issue in found.values() if is_work(issue, time.time())]
        again = await self._tracker.claim(unclaimed, time.time())  # whoever died had not come that far
        tasks: list[tuple[Issue, Claim, Task]] = []
        for claim in left:
            issue = found.get(claim.issue)
            if issue is None or not (issue.id in again or is_ours(issue, self._rules.actor)):
                await self._forget(claim)
                continue
            kind = self._kind(issue)
            if kind is None:
                await self._reporter.give_back([issue.id])
                continue
            self._tell("resumed", issue.id, {"kind": kind, "task": claim.task})
            tasks.append((issue, claim, self._task(issue, kind, claim)))
        await self._submit(tasks)

    async def _forget(self, claim: Claim) -> None:
        """An issue that is not ours any more: its task must not run for nobody."""
        if claim.task is not None:
            states = await self._client.states([claim.task])
            if states.get(claim.task, State.DONE) not in ENDED:
                await self._client.cancel(claim.task)
        await self._kept.do(self._claims.drop, [claim.issue])

    # ---- reporting

    async def _report_endings(self) -> None:
        left: list[str] = []  # tasks that have ended, of issues that could not be told yet
        async with self._client.watching() as watch:
            while True:
                async with self._order:
                    left += await self._awaited.take()
                left = await self._ended(left)
                await watch()

    async def _ended(self, ids: Sequence[str]) -> list[str]:
        """Tell issues how their tasks ended, as many as there are in one change; the tasks that are left."""
        given_back: list[str] = []
        ends: dict[str, End] = {}
        for id in ids:
            record, issue = await self._client.get(id), self._working[id].issue
            if record.state is State.CANCELLED and self._stopping.is_set():
                given_back.append(id)
                continue
            ends[id] = await self._reporter.end_of(issue, record)
        try:
            if given_back:
                await self._reporter.give_back([self._working[id].issue.id for id in given_back])
                self._over(given_back)
            names = list(ends)
            for start in range(0, len(names), self._tracker.at_once):
                some = names[start : start + self._tracker.at_once]
                await self._reporter.finish([ends[id] for id in some])
                self._over(some)
        except TrackerFault as fault:
            self._trouble(fault)
        return [id for id in ids if id in self._working]

    def _over(self, ids: Iterable[str]) -> None:
        for id in ids:
            del self._working[id]
        self._changed.set()  # others may have waited for them

    # ---- the end

    async def _tell_last(self) -> None:
        """Who read the file before the last end was told may write what they read in a moment."""
        for _ in range(_LAST_LOOKS):
            if (doubt_s := self._reporter.told.doubt_s) <= 0.0:
                return
            await asyncio.sleep(doubt_s)
            try:
                await self._reporter.tell_again()
            except TrackerFault as fault:
                self._trouble(fault)

    async def _wind_down(self) -> None:
        """Give back what waits, and see what runs to its end; told a third time, leave it to whoever comes next."""
        while self._working and self._stops < 3:
            self._changed.clear()
            states = await self._client.states(list(self._working))
            stopped = self._stops >= 2
            unstarted = [
                id
                for id, state in states.items()
                if state is State.QUEUED or (stopped and state not in ENDED and not self._blocking)
            ]
            if unstarted and self._stops:
                await self._client.cancel(*unstarted)
            if self._working:
                await self._changed.wait()
