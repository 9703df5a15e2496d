"""How the suite is shared by processes: nothing is lost, neighbours stay, long ones first, quick ones last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.dealing import dealt


@dataclass(frozen=True)
class One:
    path: Path
    number: int
    fixturenames: Sequence[str] = ()


def some(file: str, count: int, *fixtures: str) -> list[One]:
    return [One(Path("tests") / file, number, fixtures) for number in range(count)]


SUITE = [
    *some("acceptance/test_board_a.py", 9, "chromium"),
    *some("acceptance/test_board_b.py", 9, "page", "chromium"),
    *some("acceptance/test_kill.py", 7),
    *some("acceptance/test_ray_engine.py", 5),
    *some("conformance/test_engines.py", 40),
    *some("simulation/test_story.py", 11),
    *some("unit/test_x.py", 120),
    *some("unit/test_y.py", 80),
    *some("test_docs.py", 4),
]


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 9])
def test_nothing_is_lost_and_files_keep_their_order(processes: int) -> None:
    dealing = dealt(SUITE, processes)
    assert len(dealing) == len(SUITE)
    assert set(dealing) == set(SUITE)
    for path in {one.path for one in SUITE}:
        numbers = [one.number for one in dealing if one.path == path]
        assert numbers == sorted(numbers)


def test_each_has_long_ones_first_and_what_shares_a_start_is_together() -> None:
    dealing = dealt(SUITE, 3)
    cuts = [len(SUITE) // 3, len(SUITE) // 3 + (len(SUITE) - len(SUITE) // 3) // 2, len(SUITE)]
    hands = [dealing[start:end] for start, end in zip([0, *cuts], cuts, strict=False)]
    for hand in hands:
        long = [one.path.parent.name != "unit" and one.path.name != "test_docs.py" for one in hand]
        assert long[0]
        assert not long[-1]
        assert long == sorted(long, reverse=True)
    names = [{one.path.name for one in hand} for hand in hands]
    assert sum("test_board_a.py" in found for found in names) == 1
    assert all(("test_board_a.py" in found) == ("test_board_b.py" in found) for found in names)
    assert all(("test_ray_engine.py" in found) == ("test_engines.py" in found) for found in names)


def test_few_are_only_put_in_order() -> None:
    assert dealt(SUITE[:3], 4) == SUITE[:3]
    assert dealt([], 3) == []
