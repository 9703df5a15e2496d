"""Whoever follows the events across a takeover, at whichever server: none missing, none twice, in order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from penstock.store.postgres_owner import Heart
from penstock.store.postgres_statements import query
from tests.postgres_rig import fresh_url
from tests.unit.web_rig import PATIENCE_S, Web, serving

LAST = "the-last"


async def by_stream(web: Web, after: int) -> AsyncIterator[Any]:
    """As a browser does it: it comes again with the last id that it heard."""
    while True:
        async with web.events(headers={"Last-Event-ID": str(after)}) as frames:
            async for id, event in frames:
                after = id
                if event is not None:
                    yield event


async def by_socket(web: Web, after: int) -> AsyncIterator[Any]:
    while True:
        address = f"{web.url.replace('http://', 'ws://')}/api/ws?after={after}"
        async with connect(address) as socket:
            try:
                async for message in socket:
                    event = json.loads(message)
                    after = event["number"]
                    yield event
            except ConnectionClosed:
                pass


async def heard(events: AsyncIterator[Any]) -> list[int]:
    """The numbers of all that is told until the last task has ended."""
    numbers = []
    async for event in events:
        numbers.append(event["number"])
        if (event["type"], event["task"]) == ("ended", LAST):
            break
    return numbers


def fall_silent(web: Any) -> None:
    """As one that is stopped in its tracks: the others find at their next look that its time is over."""
    heart: Heart = web.store._ownership._heart

    def show(link: Any) -> None:
        link.change(query("beat").text, (0.0, heart._process))

    heart._show = show  # type: ignore[method-assign]


async def test_who_follows_a_leader_that_is_deposed_or_a_standby_hears_every_event_once(
    tmp_path: Path,
) -> None:
    url = fresh_url()
    async with (
        asyncio.timeout(2 * PATIENCE_S),
        serving(tmp_path, store_url=url) as first,
        serving(tmp_path, store_url=url) as second,
    ):
        assert first.parts.dispatching
        assert second.parts.stands_by
        began = await first.store.last_event()
        ways: list[Callable[[Web, int], AsyncIterator[Any]]] = [by_stream, by_socket]
        async with asyncio.TaskGroup() as group:
            readers = [
                group.create_task(heard(follow(web, began))) for web in (first, second) for follow in ways
            ]
            (long,) = await second.submit({"kind": "long", "host": "large"})
            await second.running(long)
            for task in await first.submit(*({"kind": "k"} for _ in range(20))):
                await second.ended(task)
            fall_silent(first)
            while not (second.parts.dispatching and first.parts.stands_by):
                for web in (first, second):
                    for task in await web.submit({"kind": "k"}, {"kind": "k"}):
                        await second.ended(task)
            for task in await first.submit(*({"kind": "k"} for _ in range(20))):
                await first.ended(task)
            await first.submit({"kind": "k", "id": LAST})
        log = await second.store.events(began, limit=100_000)
        assert [event.type for event in log].count("acquired") == 1
        at = next(n for n, event in enumerate(log) if (event.type, event.task) == ("ended", LAST))
        for reader in readers:
            assert reader.result() == [event.number for event in log[: at + 1]]
