"""How often garbage is looked for in a process that dispatches."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from penstock.dispatcher.garbage import seldom_swept


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_it_is_seldom_looked_for_until_the_last_dispatcher_is_gone() -> None:
    gc.set_threshold(700, 10, 10)
    first, second = seldom_swept(), seldom_swept()
    with first:
        assert gc.get_threshold()[0] > 10_000
        second.__enter__()
    assert gc.get_threshold()[0] > 10_000
    second.__exit__(None, None, None)
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("own", [(0, 10, 10), (200_000, 5, 5)])
def test_a_process_that_looks_even_less_often_is_left_alone(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with seldom_swept():
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own
