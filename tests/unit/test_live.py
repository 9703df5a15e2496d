"""D7: what is heard of a question while it is answered, by whoever follows it, in bounded memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.council import live
from penstock.council.live import MISSED, Follower, Hub


def text(piece: str) -> Mapping[str, Any]:
    return {"event": "text", "step": "member/A", "text": piece}


async def heard(hub: Hub, question: str, after: int = 0) -> list[tuple[int, str]]:
    return await read(hub.follow(question, after))


async def read(follower: Follower) -> list[tuple[int, str]]:
    async with follower as told:
        return [(number, str(event.get("text", event["event"]))) async for number, event in told]


async def test_a_follower_hears_all_in_order_and_can_go_on_after_any_number() -> None:
    hub = Hub(ManualClock(5.0))
    for piece in "abc":
        hub.tell("q", text(piece))
    hub.over("q", {"event": "done"})
    assert await heard(hub, "q") == [(1, "a"), (2, "b"), (3, "c"), (4, "done")]
    assert await heard(hub, "q", after=2) == [(3, "c"), (4, "done")]


async def test_one_who_came_before_the_question_began_is_told_when_it_does() -> None:
    hub = Hub(ManualClock())
    follower = hub.follow("q")
    async with asyncio.TaskGroup() as group:
        following = group.create_task(read(follower))
        await asyncio.sleep(0)
        hub.tell("q", text("a"))
        await asyncio.sleep(0)
        hub.over("q", {"event": "failed"})
    assert following.result() == [(1, "a"), (2, "failed")]


async def test_followers_may_be_in_another_thread() -> None:
    hub = Hub(ManualClock())
    found: list[tuple[int, str]] = []
    follower = hub.follow("q")
    thread = threading.Thread(target=lambda: found.extend(asyncio.run(read(follower))))
    thread.start()
    for number in range(200):
        hub.tell("q", text(str(number)))
    hub.over("q", {"event": "done"})
    await asyncio.to_thread(thread.join)
    assert found == [*((n + 1, str(n)) for n in range(200)), (201, "done")]


async def test_of_a_long_answer_the_oldest_is_forgotten_and_that_is_said() -> None:
    hub = Hub(ManualClock(), most_bytes=2000)
    for _ in range(100):
        hub.tell("q", text("x" * 100))
    hub.over("q", {"event": "done"})
    assert hub.statistics()["bytes"] <= 2000
    async with hub.follow("q") as told:
        events = [one async for one in told]
    assert events[0].event["event"] == MISSED
    assert events[0].event["count"] + len(events) - 1 == 101
    assert events[0].number == events[1].number - 1


async def test_what_is_over_is_forgotten_after_a_while_or_when_there_is_too_much() -> None:
    clock = ManualClock()
    hub = Hub(clock, most_ended=3)
    for number in range(10):
        hub.tell(f"q{number}", text("a"))
        hub.over(f"q{number}", {"event": "done"})
    assert hub.statistics()["questions"] == 3
    reader = hub.follow("q9")
    clock.advance(1000.0)
    assert hub.knows("q9")  # somebody reads it
    assert not hub.knows("q8")
    reader.close()
    assert hub.statistics() == {"questions": 0, "ended": 0, "bytes": 0, "followers": 0}


async def test_questions_that_are_over_share_a_bound_however_few_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "_MOST_BYTES_ENDED", 10_000)
    hub = Hub(ManualClock())
    for number in range(10):
        hub.tell(f"q{number}", text("x" * 3000))
        hub.over(f"q{number}", {"event": "done"})
        assert hub.statistics()["bytes"] <= 10_000
    assert hub.knows("q9")
    assert hub.statistics()["questions"] == 2


async def test_nothing_stays_of_what_nobody_ever_told() -> None:
    hub = Hub(ManualClock())
    hub.follow("q").close()
    hub.over("other", {"event": "cancelled"})  # it ended in the queue, and nobody followed it
    assert hub.statistics()["questions"] == 0


async def test_a_question_that_is_asked_again_goes_on_with_its_numbers() -> None:
    hub = Hub(ManualClock())
    hub.tell("q", text("a"))
    hub.over("q", {"event": "failed"})
    hub.tell("q", text("b"))
    hub.over("q", {"event": "done"})
    assert [number for number, _ in await heard(hub, "q")] == [1, 2, 3, 4]
    assert hub.statistics()["ended"] == 1
