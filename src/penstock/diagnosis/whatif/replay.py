"""A recorded run played again through the real scheduler, under its own plant or another.

    replay = Replay(recording, plant)
    replay.under(plant).recording()        # the same starts and ends as the record
    replay.under(other_plant).recording()  # what would have been

What is taken from the record: when tasks came, how much work each attempt was and how it ended, what happened to
hosts, gates and pauses from outside, and who else held slots. Everything else the scheduler decides again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf, nextafter

from penstock.diagnosis.history import Change, Epoch, History
from penstock.diagnosis.recording import Recording, recording_of
from penstock.diagnosis.simulator import Fate, Simulator
from penstock.diagnosis.steps import Steps
from penstock.diagnosis.whatif.following import Following, follows
from penstock.diagnosis.whatif.lives import OTHER, Life, lives_of
from penstock.diagnosis.whatif.outside import Span, gaps_of, outside_events
from penstock.diagnosis.whatif.works import Prices, Works
from penstock.errors import UsageError
from penstock.model import Attempt, Outcome, Plant, State, Task, TaskRecord, Verdict, Wait
from penstock.scheduling.messages import CancelAsked, Event, PriorityAsked, PutBack, Route, Start, Submitted

# Times are played as in a recent year. There a float counts in quarters of a microsecond, so what happened at one
# moment in the record happens at one moment again, whatever is lost in adding up work. Whole days, for budgets.
_RECENT_S = 12_428 * 86_400.0
_PATIENCE = 1000.0  # makespans after which what still waits is given up
_MORE_S = 0.001
_LONGEST_S = 60 * 86_400.0


def unwatched() -> None:
    """Nobody waits for the play to be left off."""


class Replay:
    """Reads a recording once; then plays it under any plant."""

    def __init__(
        self, recording: Recording, plant: Plant, instead: Mapping[str, float] | None = None
    ) -> None:
        """`plant` is the one it was recorded with, or stands for it; `instead` are works of tasks, in seconds."""
        self.plant = plant
        self._shift_s = _RECENT_S if recording.begin < _RECENT_S else 0.0
        self._recording = recording = shifted(recording, self._shift_s)
        self.works = Works(recording, instead)
        self._lives = lives_of(recording, plant, self.works)
        self._by_id = {life.task.id: life for life in self._lives}
        self._ends = {record.task.id: record.ended_at for record in recording.tasks}
        self._following = [life for life in self._lives if follows(life, self._ends)]
        self._prices = Prices(recording, plant)
        self._gaps = gaps_of(recording)

    def under(self, plant: Plant, watch: Callable[[], None] = unwatched) -> Played:
        """What would have been. UsageError where the record does not tell enough to know.

        `watch` is called at the end of every task; whatever it raises ends the play.
        """
        self._check_hosts(plant)
        play = _Play(plant, self._by_id, self.works, self._prices)
        steps = Following(self._following, self._ends, lambda task: self._sent(task, plant))

        def ended(simulator: Simulator, task: str, at: float) -> None:
            watch()
            steps.ended(simulator, task, at)

        simulator = Simulator(plant, play.fate, self.works.speed, self.works.workers, ended)
        for at, event in outside_events(self._recording, self.plant, plant, self._gaps):
            simulator.at(at, event)
        for at, event in self._arrivals(plant):
            simulator.at(at, event)
        for start, _ in self._gaps:
            self._interrupt(simulator, play, start)
        recording = self._recording
        patience_s = max(_PATIENCE * recording.makespan_s, _LONGEST_S)
        simulator.run(before=recording.end + patience_s)
        return Played(simulator, recording, self._gaps, self._shift_s)

    def _check_hosts(self, plant: Plant) -> None:
        seen: set[tuple[str, str | None, str | None]] = set()
        for life in self._lives:
            task = self._sent(life.task, plant)
            route = task.kind, task.host, task.model
            if route in seen or not life.is_own:
                continue
            seen.add(route)
            if self.plant.hosts_for(*route) and not plant.hosts_for(*route):
                what = f"kind {task.kind!r}" + (f", model {task.model!r}" if task.model else "")
                where = f" that name host {task.host!r}" if task.host else ""
                raise UsageError(f"no host would be left for tasks of {what}{where}, such as {task.id}")

    def _sent(self, task: Task, plant: Plant) -> Task:
        """As the scheduler gets it. A log may tell models of which no host is said to have them."""
        if task.model is None or self._recording.is_ours or plant.hosts_for(task.kind, task.host, task.model):
            return task
        return replace(task, model=None)

    def _arrivals(self, plant: Plant) -> list[tuple[float, Event]]:
        """Tasks that came together are told together."""
        hosts = {host.name for host in plant.hosts}
        events: list[tuple[float, Event]] = []
        page: list[Task] = []
        came: set[str] = set()
        at = -inf
        later = {life.task.id for life in self._following}
        for life in self._lives:
            if life.task.id in later or (not life.is_own and life.task.host not in hosts):
                continue
            if life.at != at and page:
                events.append((at, self._submitted(page, came)))
                page = []
            at = life.at
            page.append(self._sent(life.task, plant))
            if life.cancel_at is not None:
                events.append((max(at, life.cancel_at), CancelAsked(life.task.id)))
        if page:
            events.append((at, self._submitted(page, came)))
        events += [  # after they came, where that was at the same time
            (max(life.at, when), PriorityAsked(life.task.id, priority))
            for life in self._lives
            for when, priority in life.priorities
        ]
        return sorted(events, key=lambda event: event[0])

    def _submitted(self, tasks: Sequence[Task], came: set[str]) -> Submitted:
        """What they wait after may come with a later page. `came` are the tasks of those before."""
        came.update(task.id for task in tasks)
        needed = {name for task in tasks for name in task.after}
        return Submitted(tasks, dict.fromkeys((needed & self._by_id.keys()) - came, State.QUEUED))

    def _interrupt(self, simulator: Simulator, play: _Play, at: float) -> None:
        """The dispatcher is gone: what runs is put back."""
        simulator.run(before=nextafter(at, inf))
        for attempt in list(simulator.running):
            simulator.at(at, PutBack(attempt.task, attempt.number))
            play.again(attempt.task)


class _Play:
    """What becomes of the attempts of one play."""

    def __init__(self, plant: Plant, lives: Mapping[str, Life], works: Works, prices: Prices) -> None:
        self._hosts = {host.name: host for host in plant.hosts}
        self._lives = lives
        self._works = works
        self._prices = prices
        self._ended: dict[str, int] = {}  # task -> tries used up

    def fate(self, start: Start, task: Task) -> Fate:
        life = self._lives[start.task]
        task = life.task
        number = self._ended.get(start.task, 0)
        self._ended[start.task] = number + 1
        host = self._hosts[start.host]
        works = self._works
        if number >= len(life.tries):
            work_s = works.typical(task, host.name)
            if life.least_s:  # it had not come to its end by then
                work_s = max(work_s, life.least_s + _MORE_S)
            return Fate(work_s, Outcome(Verdict.DONE, cost_usd=self._prices.typical(task, host)))
        one = life.tries[number]
        work_s = works.moved(one.work_s, task, one.attempt.host, host.name)
        outcome = one.outcome
        usd = self._prices.of(one.attempt, task, host)
        if usd is not None:
            outcome = replace(outcome, cost_usd=usd)
        return Fate(work_s, outcome, one.chance, works.turn(one.attempt))

    def again(self, task: str) -> None:
        """Its attempt did not come to its end: the next is the same."""
        self._ended[task] -= 1


class Played:
    """What came of a play, in the times of the record."""

    def __init__(
        self, simulator: Simulator, recording: Recording, gaps: Sequence[Span], shift_s: float
    ) -> None:
        self._simulator = simulator
        self._recording = recording
        self._gaps = gaps
        self._shift_s = shift_s

    @property
    def makespan_s(self) -> float:
        return self.end - self._recording.begin

    @property
    def end(self) -> float:
        """When the last task of the run ended; infinite when some never would."""
        return max(
            (inf if r.ended_at is None else r.ended_at for r in self.records), default=self._recording.begin
        )

    @property
    def now(self) -> float:
        """The last moment of the play."""
        return self._simulator.now

    @property
    def busy_s(self) -> float:
        """How long attempts of the run's tasks ran, all together."""
        attempts = self._simulator.history().attempts
        own = (a for a in attempts if not a.task.startswith(OTHER))
        return sum((self.now if a.ended_at is None else a.ended_at) - a.started_at for a in own)

    @property
    def waited_s(self) -> float:
        """How long a task of the run was in the queue, on average."""
        records = self.records
        stayed_s = sum((self.now if r.ended_at is None else r.ended_at) - r.task.queued_at for r in records)
        return (stayed_s - self.busy_s) / len(records) if records else 0.0

    def most_at_once(self) -> dict[str, int]:
        """On each host, of all runs."""
        spans: dict[str, list[Span]] = defaultdict(list)
        for a in self._simulator.history().attempts:
            spans[a.host].append((a.started_at, self.now if a.ended_at is None else a.ended_at))
        return {host: Steps(of).most for host, of in spans.items()}

    @property
    def cost_usd(self) -> float:
        costs = self._simulator.history().costs
        return sum(usd for (task, _), usd in costs.items() if not task.startswith(OTHER))

    @property
    def records(self) -> Sequence[TaskRecord]:
        """Of the run's tasks, in times of the play."""
        return [r for r in self._simulator.records if not r.task.id.startswith(OTHER)]

    def recording(self) -> Recording:
        history = self._simulator.history()
        own = [a for a in history.attempts if not a.task.startswith(OTHER)]
        records = self.records
        history = replace(
            _with_gaps(history, self._gaps, self._recording.begin), records=records, attempts=own
        )
        plant = self._simulator.plant
        ended = max((r.ended_at or 0.0 for r in records), default=self._recording.end)
        made = recording_of(history, plant, max(ended, self._recording.end if _are_left(records) else 0.0))
        return shifted(replace(made, name=self._recording.name, told=self._recording.told), -self._shift_s)


def _are_left(records: Sequence[TaskRecord]) -> bool:
    return any(record.ended_at is None for record in records)


def _with_gaps(history: History, gaps: Sequence[Span], begin: float) -> History:
    """With the dispatchers that lived between the gaps; each says anew where tasks wait."""
    (whole,) = history.epochs
    if not gaps:
        return replace(history, epochs=[replace(whole, started_at=min(whole.started_at, begin))])
    born = [min(whole.started_at, begin, gaps[0][0]), *(end for _, end in gaps)]
    died = [*(start for start, _ in gaps), whole.seen_at]
    epochs = [
        Epoch(number, whole.owner, b, max(b, d), max(b, d), whole.plant)
        for number, (b, d) in enumerate(zip(born, died, strict=True), 1)
    ]
    epochs[-1] = replace(epochs[-1], ended_at=None)
    told: list[Route] = []
    for at in born[1:]:
        told += [route._replace(at=at) for route in history.routes if route.at < at]
    return replace(history, epochs=epochs, routes=[*history.routes, *told])


# ---- times


def shifted(recording: Recording, by_s: float) -> Recording:
    """The same, so much later."""
    if not by_s:
        return recording
    return replace(
        recording,
        begin=recording.begin + by_s,
        end=recording.end + by_s,
        tasks=[_later_record(record, by_s) for record in recording.tasks],
        attempts=[_later_attempt(attempt, by_s) for attempt in recording.attempts],
        others=[_later_attempt(attempt, by_s) for attempt in recording.others],
        waits={
            task: [Wait(w.reason, w.detail, w.start + by_s, w.end + by_s) for w in waits]
            for task, waits in recording.waits.items()
        },
        changes=[_later_change(change, by_s) for change in recording.changes],
        stalls=[replace(stall, at=stall.at + by_s) for stall in recording.stalls],
        priorities=[change._replace(at=change.at + by_s) for change in recording.priorities],
    )


def _plus(at: float | None, by_s: float) -> float | None:
    return None if at is None else at + by_s


def _later_record(record: TaskRecord, by_s: float) -> TaskRecord:
    task = record.task
    task = replace(
        task,
        queued_at=task.queued_at + by_s,
        deadline=_plus(task.deadline, by_s),
        not_before=_plus(task.not_before, by_s),
    )
    return replace(
        record,
        task=task,
        retry_at=_plus(record.retry_at, by_s),
        started_at=_plus(record.started_at, by_s),
        ended_at=_plus(record.ended_at, by_s),
    )


def _later_attempt(attempt: Attempt, by_s: float) -> Attempt:
    return replace(
        attempt,
        started_at=attempt.started_at + by_s,
        ended_at=_plus(attempt.ended_at, by_s),
        retry_at=_plus(attempt.retry_at, by_s),
    )


def _later_change(change: Change, by_s: float) -> Change:
    return change._replace(at=change.at + by_s)
