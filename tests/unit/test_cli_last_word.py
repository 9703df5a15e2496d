"""What a dispatcher that has stopped says of what it leaves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.cli.dispatching import last_word
from penstock.cli.session import Stops
from penstock.store.base import Store


@pytest.mark.parametrize(
    ("stood_by", "running", "told"),
    [
        (False, {}, "3 tasks queued"),
        (False, {("render", "default"): 1}, "3 tasks queued, 1 attempt left running for the next dispatcher"),
        (True, {("render", "default"): 1}, "standing by"),
    ],
)
async def test_what_is_left_is_counted(stood_by: bool, running: dict[Any, int], told: str) -> None:
    class Kept:
        async def snapshot(self, now: float) -> Any:
            return SimpleNamespace(queued={"a": 2, "b": 1}, running=running)

    stop = SimpleNamespace(stood_by=stood_by)
    assert await last_word(cast(Stops, stop), cast(Store, Kept())) == told
