"""Which remedy is named: the first, of the least change, that was played through the real scheduler and helps.

What is no change of the config (a pause, a host that is down) cannot be played: it is named as what can be done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isfinite
from typing import NamedTuple, TypeAlias

from penstock.diagnosis.timeline.axis import seconds
from penstock.diagnosis.whatif.changes import Change
from penstock.diagnosis.whatif.gains import WORTH, Gain
from penstock.diagnosis.why.prediction import NO_DURATIONS, Prediction
from penstock.diagnosis.why.present import Present
from penstock.diagnosis.why.remedies import Remedy
from penstock.errors import ConfigError


class Helps(NamedTuple):
    """By how much a change helps."""

    by_s: float | None  # None: it does, by how much is not known
    words: str


Play: TypeAlias = Callable[[Change], Helps | None]  # None: it does not help
Predict: TypeAlias = Callable[[Present, float | None], Prediction]
_WHATEVER_S = 60.0


def find_help(options: Iterable[Remedy], play: Play | None) -> tuple[Remedy | None, tuple[str, ...]]:
    """The remedy to be named, and the changes that were played and would not help. Unplayed none is promised."""
    in_vain: dict[str, None] = {}
    for option in options:
        if option.change is None:
            return option, tuple(in_vain)
        helps = play and play(option.change)
        if helps is not None:
            words = f"without it {helps.words}" if option.change.unset else helps.words
            return option._replace(gain_s=helps.by_s, gain=words), tuple(in_vain)
        in_vain.update(dict.fromkeys(option.change.changes))
    return None, tuple(in_vain)


def sooner(gain: Gain | None, *, is_over: bool) -> Helps | None:
    """What a run gains."""
    if gain is None or not gain.shortens:
        return None
    if not isfinite(gain.sooner_s):
        return Helps(None, "the run would end, which it does not as it is")
    would = "would have ended" if is_over else "would end"
    return Helps(gain.sooner_s, f"the run {would} about {seconds(gain.sooner_s)} sooner")


def less_waiting(gain: Gain | None, what: str) -> Helps | None:
    """What each of many gains."""
    if gain is None or not gain.spares_waiting:
        return None
    return Helps(gain.less_wait_s, f"{what} would wait about {seconds(gain.less_wait_s)} less")


def foreseen(present: Present, before: Prediction, predict: Predict, would: str) -> Play:
    """What a change brings to what has still to come: the same present played on under the changed plant.

    Where nobody knows how long attempts take, all take the same: it shows whether it helps, not how much.
    """
    unknown = before.unknown == NO_DURATIONS
    was = predict(present, _WHATEVER_S) if unknown else before

    def play(change: Change) -> Helps | None:
        try:
            changed = present.under(change.changed(present.plant))
        except ConfigError:
            return None
        now = predict(changed, _WHATEVER_S if unknown else None)
        if now.seconds is None or not set(now.provided) <= set(was.provided):
            return None
        if was.seconds is None or len(now.provided) < len(was.provided):
            return Helps(None, f"{would} sooner")
        by_s = was.seconds - now.seconds
        if by_s <= WORTH * was.seconds:
            return None
        return (
            Helps(None, f"{would} sooner")
            if unknown
            else Helps(by_s, f"{would} about {seconds(by_s)} sooner")
        )

    return play
