"""A9: the way from an attempt to the models of its own dispatcher, and the keys that die with the attempt."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.config import Config
from penstock.errors import PermanentError, TemporaryError
from penstock.hosts.base import Job
from penstock.hosts.own_door import Access, Guest, OwnDoor
from penstock.model import Host, Plant
from penstock.wiring import Ways, _placed, make_door


class Hall:
    """An entrance that lets in whoever has a key."""

    url = "http://127.0.0.1:9/v1"
    node_urls = (url, None)

    def __init__(self) -> None:
        self.inside: dict[str, Guest] = {}

    def let_in(self, guest: Guest, root: bytes | None = None) -> str:
        key = f"key-{len(self.inside)}-{guest.task}"
        self.inside[key] = guest
        return key

    def shut_out(self, key: str) -> None:
        del self.inside[key]


def job(
    task: str = "t1", attempt: int = 1, lane: str = "gptr", run: str = "nightly", priority: int = 1
) -> Job:
    return Job(task, attempt, "research_report", {}, "research", lane, run, priority=priority)


async def test_an_attempt_gets_a_key_of_its_own() -> None:
    hall, door = Hall(), OwnDoor()
    door.open(hall)
    first, second = door.admit(job(), "calls"), door.admit(job("t2"), "calls")
    assert first.url == hall.url
    assert first.key != second.key
    assert hall.inside[first.key] == Guest("t1", 1, "calls", 1, "v1-nightly")


async def test_the_end_of_an_attempt_takes_its_keys_back_and_nobody_elses() -> None:
    hall, door = Hall(), OwnDoor()
    door.open(hall)
    door.admit(job(), "calls")
    door.admit(job(), "calls")
    kept = door.admit(job(attempt=2), "calls")
    door.ended("t1", 1)
    door.ended("t1", 1)
    assert list(hall.inside) == [kept.key]


async def test_a_key_is_dismissed_once_from_any_thread() -> None:
    hall, door = Hall(), OwnDoor()
    door.open(hall)
    mine, other = door.admit(job(), "calls"), door.admit(job("t2"), "calls")
    await asyncio.to_thread(door.dismiss, mine)
    await asyncio.sleep(0)
    door.dismiss(mine)
    assert list(hall.inside) == [other.key]
    door.close()
    door.dismiss(other)
    assert not hall.inside


async def test_a_closed_door_is_told_as_bad_luck_with_its_reason() -> None:
    """Before the dispatcher opens it and after it stops an attempt may be tried again later."""
    hall, door = Hall(), OwnDoor()
    with pytest.raises(
        TemporaryError, match="research calls models through Penstock itself, whose door is not open"
    ):
        door.admit(job(), "calls")
    door.open(hall)
    door.admit(job(), "calls")
    door.close()
    assert not hall.inside
    with pytest.raises(TemporaryError):
        door.admit(job(), "calls")


async def test_a_run_in_the_lane_of_its_own_calls_is_refused() -> None:
    """A9, no deadlock: also a task that was queued under another config."""
    door = OwnDoor({"busy": "a gate holds the calls of its runs"})
    door.open(Hall())
    with pytest.raises(PermanentError, match=r"'research' cannot be in lane 'calls'.*calls_lane"):
        door.admit(job(lane="calls"), "calls")
    with pytest.raises(PermanentError, match="lane: a gate holds the calls of its runs"):
        door.admit(job(lane="busy"), "calls")


def test_a_key_is_in_no_repr() -> None:
    """Promise 8."""
    assert "secret" not in repr(Access("http://x/v1", "secret"))


def test_hosts_that_call_models_through_us_share_the_door_of_their_dispatcher() -> None:
    hosts = (
        Host("r", "researcher"),
        Host("f", "file_prompt"),
        Host("u", "file_prompt", options={"url": "http://x/v1"}),
    )
    config = Config(plant=Plant(hosts), path=Path("penstock.toml"))
    door = make_door(config)
    assert door is not None
    placed = [_placed(config, host, Ways(door)).options.get("door") for host in hosts]
    assert placed == [door, door, None]
    assert make_door(Config(plant=Plant(hosts[2:]))) is None
