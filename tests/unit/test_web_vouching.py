"""Promise 8: keys that may be an attempt's, at a server that stands by: how many are asked about, and how often."""

from __future__ import annotations

import asyncio

import pytest

from penstock.web import vouching
from penstock.web.refusals import Refused
from penstock.web.vouching import Vouching
from tests.unit.web_rig import PATIENCE_S


class Leader:
    def __init__(self, *known: str) -> None:
        self.known = set(known)
        self.asked: list[str] = []
        self.at_a_time = 0
        self.most = 0
        self.answers = asyncio.Event()

    async def knows(self, key: str) -> bool:
        self.asked.append(key)
        self.at_a_time += 1
        self.most = max(self.most, self.at_a_time)
        await self.answers.wait()
        self.at_a_time -= 1
        return key in self.known


async def test_a_key_that_is_known_is_asked_about_once_and_another_each_time() -> None:
    leader = Leader("good")
    leader.answers.set()
    keys = Vouching(leader.knows)
    for _ in range(2):
        await keys.must_be_known("good")
        with pytest.raises(Refused, match="not known, or was revoked") as refused:
            await keys.must_be_known("bad")
        assert refused.value.status == 401
    assert leader.asked == ["good", "bad", "bad"]


async def test_few_are_asked_about_at_a_time_and_no_more_wait_than_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vouching, "_MOST_WAITING", 40)
    leader = Leader("good")
    keys = Vouching(leader.knows)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        waiting = [group.create_task(keys.must_be_known("good")) for _ in range(40)]
        await asyncio.sleep(0)
        with pytest.raises(Refused) as refused:
            await keys.must_be_known("good")
        assert (refused.value.status, refused.value.headers["Retry-After"]) == (503, "5")
        leader.answers.set()
    assert all(one.done() for one in waiting)
    assert leader.most == vouching._AT_A_TIME
    await keys.must_be_known("good")


async def test_a_leader_that_cannot_be_asked_has_said_nothing_of_the_key() -> None:
    is_there = False

    async def ask(key: str) -> bool:
        if not is_there:
            raise Refused(503, "no_leader", "nobody leads")
        return True

    keys = Vouching(ask)
    for _ in range(vouching._AT_A_TIME + 1):
        with pytest.raises(Refused, match="nobody leads"):
            await keys.must_be_known("good")
    is_there = True
    await keys.must_be_known("good")


async def test_only_so_many_keys_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vouching, "_MOST_KEPT", 2)
    leader = Leader("a", "b", "c")
    leader.answers.set()
    keys = Vouching(leader.knows)
    for key in "abcbca":
        await keys.must_be_known(key)
    assert "".join(leader.asked) == "abca"
