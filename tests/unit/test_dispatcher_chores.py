"""What a dispatcher does beside dispatching goes on through the troubles of its store."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from penstock.clock import SystemClock
from penstock.dispatcher import chores, patience
from penstock.errors import DispatcherError, PenstockError, StoreCorrupt, StoreError, StoreFull
from penstock.store.base import Store


class _Store:
    """Fails as told, then works."""

    def __init__(self, *errors: PenstockError) -> None:
        self.errors = list(errors)
        self.pruned = asyncio.Event()
        self.before: float | None = 0.0

    async def prune(self, before: float | None) -> int:
        if self.errors:
            raise self.errors.pop(0)
        self.before = before
        self.pruned.set()
        return 0


async def _pruned(store: _Store, keep_days: float | None = 30.0) -> None:
    pruning = asyncio.create_task(chores.prune(cast(Store, store), keep_days, SystemClock()))
    waiting = asyncio.create_task(store.pruned.wait())
    await asyncio.wait({pruning, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if pruning.done():
        await pruning
    pruning.cancel()


async def test_a_store_that_is_away_is_tidied_up_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chores, "_PRUNE_AGAIN_S", 0.0)
    store = _Store(StoreError("away"), StoreFull("full"))
    await _pruned(store)
    assert store.pruned.is_set()


async def test_where_no_task_is_forgotten_leases_of_the_dead_are() -> None:
    store = _Store()
    await _pruned(store, None)
    assert store.pruned.is_set()
    assert store.before is None


@pytest.mark.parametrize("error", [StoreCorrupt("damaged"), DispatcherError("another took over")])
async def test_what_cannot_be_waited_for_ends_the_dispatcher(error: PenstockError) -> None:
    with pytest.raises(type(error)):
        await _pruned(_Store(error))


async def test_what_a_dispatcher_must_know_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_AGAIN_S", 0.0)
    answers: list[Any] = [StoreError("away"), StoreError("away"), "known"]

    async def read() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    assert await patience.patiently(read) == "known"
    answers.append(StoreCorrupt("damaged"))
    with pytest.raises(StoreCorrupt):
        await patience.patiently(read)


async def test_a_pause_of_the_store_is_told_once_and_so_is_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(chores, "_LOOK_S", 0.0)
    looks = [None, "away", None, "away", "away", "full", "full", "full", None, None]
    over = asyncio.Event()

    class Troubled:
        @property
        def trouble(self) -> str | None:
            return looks[0]

    async def looked(seconds: float) -> None:
        if len(looks) > 1:
            looks.pop(0)
        else:
            over.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "sleep", looked)
    looked_at: list[str | None] = []
    watching = asyncio.create_task(
        chores.watch_store(cast(Store, Troubled()), lambda: looked_at.append(looks[0]))
    )
    await over.wait()
    watching.cancel()
    assert [record.message.partition(":")[0] for record in caplog.records] == ["work pauses", "work goes on"]
