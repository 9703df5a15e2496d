"""Which process of a run begins with what, so that all of them end together and no long test comes last.

xdist gives each process an equal run of neighbours, and lets one that has none left steal from another's end. So
each gets its share of what takes long first, and of what is quick afterwards: that is what is stolen. Files that
share what takes long to start stay together, so that it is started once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar

# What a test there takes, about. Others are quick.
_EACH_S = {"acceptance": 2.0, "conformance": 0.3, "properties": 0.5, "simulation": 0.7}
_SHARED = ("chromium", "container_engine")


class Dealt(Protocol):
    @property
    def path(self) -> Path: ...
    @property
    def fixturenames(self) -> Sequence[str]: ...


T = TypeVar("T", bound=Dealt)


def dealt(tests: Sequence[T], processes: int) -> list[T]:
    """All of them, in the order for so many processes."""
    quick = [test for test in tests if test.path.parent.name not in _EACH_S]
    hands: list[list[T]] = [[] for _ in range(processes)]
    taken_s = [0.0] * processes
    for bundle in sorted(_bundles(tests), key=_weight_s, reverse=True):
        hand = taken_s.index(min(taken_s))
        hands[hand] += bundle
        taken_s[hand] += _weight_s(bundle)
    left, given = len(tests), 0
    for number, hand_of in enumerate(hands):
        size = left // (processes - number)  # as xdist cuts it
        more = max(0, size - len(hand_of))
        hand_of += quick[given : given + more]
        given += more
        left -= len(hand_of)
    return [test for hand_of in hands for test in hand_of] + quick[given:]


def _bundles(tests: Sequence[T]) -> list[list[T]]:
    """What takes long, by what must not be torn apart."""
    files: dict[Path, list[T]] = {}
    for test in tests:
        if test.path.parent.name in _EACH_S:
            files.setdefault(test.path, []).append(test)
    bundles: dict[str, list[T]] = {}
    for path, inside in files.items():
        bundles.setdefault(_bond(path, inside), []).extend(inside)
    return list(bundles.values())


def _bond(path: Path, inside: Sequence[Dealt]) -> str:
    wanted = {name for test in inside for name in test.fixturenames}
    if shared := next((name for name in _SHARED if name in wanted), None):
        return shared
    return "ray" if "_ray_" in path.name or path.name == "test_engines.py" else str(path)


def _weight_s(bundle: Sequence[Dealt]) -> float:
    return sum(_EACH_S[test.path.parent.name] for test in bundle)
