"""What is asked of a recorded run, and what its replay answers: for the command and for the board alike.

plays = Plays(recording)                      # made ready once
plays.answer(Asked({"hosts.a.slots": "4"}))   # then asked as often as one likes
plays.curve(asked, "hosts.a.slots", values)   # one point after the other
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from penstock.config.plants import changed_plant
from penstock.config.problems import meant
from penstock.diagnosis.questions import work_of
from penstock.diagnosis.recording import Recording
from penstock.diagnosis.timeline.axis import seconds
from penstock.diagnosis.whatif.changes import Change
from penstock.diagnosis.whatif.figures import (
    Explanation,
    Figures,
    Point,
    explain,
    figures_of,
    guesses,
    is_flat,
    is_still_falling,
    knee_of,
    point_of,
    replay_error,
)
from penstock.diagnosis.whatif.frozen import frozen
from penstock.diagnosis.whatif.inferred import inferred_plant, playable
from penstock.diagnosis.whatif.replay import Played, Replay, unwatched
from penstock.diagnosis.words import counted, percent
from penstock.errors import UsageError
from penstock.lifecycle import ENDED
from penstock.model import Plant

_WRONG = 0.05  # a replay error that is worth a warning


@dataclass(frozen=True, slots=True)
class Asked(Change):
    sweep: tuple[str, tuple[str, ...]] | None = None
    explain: bool = False


@dataclass(slots=True)
class Answer:
    asked: Asked
    recording: Recording
    error: float | None  # of the replay of the run as it was
    before: Figures
    after: Figures
    words: tuple[str, str]  # what these two are
    notes: list[str] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    is_over: bool = True  # else both are replays, of what is known so far
    explanation: Explanation | None = None

    def as_record(self) -> dict[str, Any]:
        asked = self.asked
        record: dict[str, Any] = {
            "run": self.recording.name,
            **asked.change_as_record(),
            "recorded_s": round(self.recording.makespan_s, 3),
            "over": self.is_over,
            "replay_error": None if self.error is None else round(self.error, 5),
            "before": self.before.as_record(),
            "after": self.after.as_record(),
            "slots_from": self.recording.slots_from,
            "notes": self.notes,
        }
        if asked.sweep is not None:
            knee = knee_of(self.points)
            record["sweep"] = {
                "key": asked.sweep[0],
                "points": [point.as_record() for point in self.points],
                "knee": None if knee is None else knee.value,
            }
        if self.explanation is not None:
            record["explain"] = self.explanation.as_record()
        return record


class Plays:
    """A recording made ready once, to be played under any change of its plant."""

    def __init__(
        self,
        recording: Recording,
        plant: Plant | None = None,
        *,
        typical: bool = False,
        durations: Mapping[str, float] | None = None,
        watch: Callable[[], None] = unwatched,
    ) -> None:
        """`plant` is that of a config, for a log. `typical` lets attempts that a stalled loop kept from ending take
        what is usual; `durations` are of tasks. `watch` is called all the time and may raise: it is left off then.
        """
        recording = work_of(recording)
        self._inferred = plant is None and recording.plant is None
        self.recording, self.plant = playable(recording, plant)
        self._instead, self._notes = _instead(self.recording, typical, durations or {})
        if self._inferred:
            self._notes.append(
                "no config tells of its hosts: each has as many slots as it ran at once in the log"
            )
        if "queued" not in self.recording.told:
            self._notes.append(
                "the log does not tell when tasks were queued: they count as queued when they started, so nothing "
                "can start sooner; name the column with --map queued=COLUMN"
            )
        replay = Replay(self.recording, self.plant)
        self._as_it_was = replay.under(self.plant, watch).recording()
        self._replay = Replay(self.recording, self.plant, self._instead) if self._instead else replay
        logged = None if self._inferred else _as_logged(self.recording)
        self._error = replay_error(self.recording, logged or self._as_it_was)
        self._is_over = all(record.state in ENDED for record in self.recording.tasks)
        if not self._is_over:
            self._notes.insert(
                0,
                "the run is not over: both columns play what is known so far to its end",
            )

    @cached_property
    def _before(self) -> Figures:
        """The run under its own plant, played."""
        return figures_of(self._as_it_was, self.plant)

    @cached_property
    def _recorded(self) -> Figures:
        plant = self.plant if self.recording.is_ours else inferred_plant(self.recording)
        return figures_of(self.recording, plant)

    def played(self, asked: Asked, watch: Callable[[], None] = unwatched) -> tuple[Point, Played]:
        """The first that is known of an answer."""
        changed = asked.changed(self.plant) if asked.changes else self.plant
        played = self._replay.under(changed, watch)
        return point_of("", played, self._replay), played

    def answer(self, asked: Asked, played: Played | None = None) -> Answer:
        """Without the points of a sweep, which `curve` gives one after the other."""
        has_changes = bool(asked.changes)
        changed = asked.changed(self.plant) if has_changes else self.plant
        is_played = has_changes or bool(self._instead)
        after = (played or self.played(asked)[1]).recording() if is_played else self._as_it_was
        from_replay = has_changes or not self._is_over
        answer = Answer(
            asked,
            self.recording,
            self._error,
            self._before if from_replay else self._recorded,
            figures_of(after, changed),
            (
                "before" if from_replay else "recorded",
                "after" if is_played or not self._is_over else "replayed",
            ),
            self._notes + guesses(self._replay, after),
            is_over=self._is_over,
        )
        _warn(answer)
        if asked.explain:
            answer.explanation = explain(self._as_it_was if from_replay else self.recording, after)
        return answer

    def curve(
        self, asked: Asked, key: str, values: Iterable[str], watch: Callable[[], None] = unwatched
    ) -> Iterator[Point]:
        """What each of these values would bring, on top of what else is asked."""
        changed = asked.changed(self.plant) if asked.changes else self.plant
        plants = [(value, changed_plant(changed, {key: value}, option="--sweep")) for value in values]
        for value, plant in plants:
            yield point_of(value, self._replay.under(plant, watch), self._replay)

    def told_of(self, points: Sequence[Point]) -> list[str]:
        """What is to be said of a curve."""
        notes = []
        if len(points) > 1 and is_flat(points):
            notes.append(f"flat: from {points[0].value} to {points[-1].value} the run takes about as long")
        elif is_still_falling(points):
            notes.append(f"still falling at {points[-1].value}: try more")
        beyond = [str(point.value) for point in points if point.is_guess]
        if beyond and self._replay.works.curves:
            more = " and more" if len(beyond) > 1 else ""
            notes.append(
                f"with {beyond[0]}{more} a host runs more at once than in the record: how fast is a guess"
            )
        return notes


def _as_logged(recording: Recording) -> Recording | None:
    """A log played on the hosts that it shows by itself: a config need not be that of its run. None of our own."""
    if recording.is_ours:
        return None
    shown, plant = playable(replace(recording, plant=None), None)
    return Replay(shown, plant).under(plant).recording()


def _instead(
    recording: Recording, typical: bool, durations: Mapping[str, float]
) -> tuple[dict[str, float], list[str]]:
    """Durations that are to be believed instead of the recorded ones, and what to say of it."""
    found = frozen(recording)
    notes = []
    instead: dict[str, float] = {}
    if typical:
        instead = {one.task: one.usual_s for one in found}
        notes += [
            f"{one.task} was held up by a stalled loop: it takes {seconds(one.usual_s)}, as is usual for "
            f"its kind, instead of {seconds(one.recorded_s)}"
            for one in found
        ]
        if not found:
            notes.append("no attempt was kept from ending by a stalled loop, so --typical changes nothing")
    elif found:
        what = counted(len(found), "attempt")
        notes.append(
            f"a stalled loop kept {what} from ending ({found[0].task} first); --typical plays them at "
            "the usual length"
        )
    known = {record.task.id for record in recording.tasks}
    for task in durations:
        if task not in known:
            raise UsageError(f"--duration: the run has no task {task!r}{meant(task, known, 'tasks')}")
    return instead | dict(durations), notes


def _warn(answer: Answer) -> None:
    error = answer.error
    if error is not None and error > _WRONG:
        answer.notes.insert(
            0,
            f"played as it was the run takes {percent(error)} more or less than it really took: "
            "something outside the record affected the run",
        )
    if answer.after.left:
        what = counted(answer.after.left, "task")
        answer.notes.append(f"{what} would never end: the record does not show the end of what they wait for")
