"""By how much a change would have shortened a run: the one answer that every remedy with seconds goes by.

It is the makespan before less the one after that `whatif` prints for the same change. A remedy is named only where
that is worth it, so what `why` recommends and what `whatif` says cannot differ.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import NamedTuple

from penstock.diagnosis.questions import work_of
from penstock.diagnosis.recording import Recording
from penstock.diagnosis.whatif.changes import Change
from penstock.diagnosis.whatif.figures import KNEE
from penstock.diagnosis.whatif.inferred import playable
from penstock.diagnosis.whatif.replay import Replay
from penstock.errors import ConfigError, UsageError

WORTH = KNEE  # of the makespan, or of the wait: less is no gain, here as on the curve of a sweep


class Gain(NamedTuple):
    """`sooner_s` is infinite where the run would end that otherwise never does; below 0 where it ends later."""

    sooner_s: float
    of_s: float  # what the run takes without the change
    less_wait_s: float  # of a task, on average
    of_wait_s: float

    @property
    def shortens(self) -> bool:
        """Whether the run ends sooner by a time worth naming."""
        return self.sooner_s > 0 and (not isfinite(self.of_s) or self.sooner_s >= WORTH * self.of_s)

    @property
    def spares_waiting(self) -> bool:
        return self.less_wait_s > 0 and self.less_wait_s >= WORTH * self.of_wait_s


class Gains:
    """A recording made ready once; then asked for the gain of one change after the other."""

    def __init__(self, recording: Recording) -> None:
        """UsageError where there is nothing to play, or too little is known of it."""
        self._recording, self._plant = playable(work_of(recording), None)
        self._replay = Replay(self._recording, self._plant)
        self._before = self._played(Change())

    def of(self, change: Change) -> Gain | None:
        """None where it cannot be played: it is no change that this plant takes, or tasks would have no host."""
        try:
            after_s, after_wait_s = self._played(change)
        except (ConfigError, UsageError):
            return None
        before_s, before_wait_s = self._before
        sooner_s = before_s - after_s if isfinite(after_s) else -inf if isfinite(before_s) else 0.0
        return Gain(sooner_s, before_s, before_wait_s - after_wait_s, before_wait_s)

    def _played(self, change: Change) -> tuple[float, float]:
        """The makespan, and what tasks waited on average."""
        played = self._replay.under(change.changed(self._plant) if change.changes else self._plant)
        return played.makespan_s, played.waited_s
