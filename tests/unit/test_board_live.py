"""The live picture: whole at first, then what differs; one look for all readers, and none without them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock.client
from penstock.client import Client
from penstock.config import parse
from penstock.config.running import record_config
from penstock.errors import StoreLocked
from penstock.model import Task
from penstock.scheduling.messages import AllChange, Decision, GateChange, HostChange, LaneChange
from penstock.store.now import Now, Running
from penstock.web.board import live as live_module
from penstock.web.board import news as news_module
from penstock.web.board.live import Live, LiveStream
from penstock.web.board.news import News
from penstock.web.board.picture import Picture, Places, difference
from penstock.web.board.viewer import HEADER, Viewer, as_header
from tests.conformance.store_rig import ME, done, start

PATIENCE_S = 20.0
CONFIG = """
store = "x.db"
[hosts.surtr]
type = "simulated"
slots = 2
units = { vram_gb = 24 }
[hosts.fenrir]
type = "simulated"
slots = { auto = true, min = 1, max = 4 }
[lanes.gptr]
max_running = 3
reserve = { surtr = 1 }
[gates.vram]
probe = "psutil:cpu_percent"
max = 90
holds = { hosts = ["surtr"] }
"""


@asynccontextmanager
async def running(
    tmp_path: Path, wall_clock: Callable[[], float] = time.time
) -> AsyncIterator[tuple[Live, Client]]:
    file = tmp_path / "penstock.toml"
    file.write_text(CONFIG)
    async with penstock.client.open(file, dispatch=False) as client:
        news = News(client.bell)
        live = Live(client, news, wall_clock=wall_clock)
        async with asyncio.TaskGroup() as group:
            owned = [group.create_task(news.run()), group.create_task(live.run())]
            yield live, client
            for one in owned:
                one.cancel()


async def taken(frames: AsyncGenerator[bytes, None]) -> tuple[str, dict[str, Any]]:
    """The next frame: its event, and what it tells."""
    return (await all_taken(frames))[-1]


async def all_taken(frames: AsyncGenerator[bytes, None]) -> list[tuple[str, dict[str, Any]]]:
    """Those that came at once."""
    async with asyncio.timeout(PATIENCE_S):
        text = (await anext(frames)).decode()
    if text.startswith(":"):  # a remark, so that the line is not silent
        return [("", {})]
    pairs = [frame.split("\n") for frame in text.strip().split("\n\n")]
    return [
        (event.removeprefix("event: "), msgspec.json.decode(data.removeprefix("data: ")))
        for event, data in pairs
    ]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what is watched rings no bell
            await asyncio.sleep(0)


async def record(client: Client, *decisions: Decision) -> None:
    await client._store.record(decisions)


def attempt(task: str, host: str = "x", number: int = 1) -> Running:
    return Running(task, number, host, None, "count", "default", 2, "r", 1.0, None)


# ---- the picture


def test_an_attempt_keeps_its_slot_and_a_free_one_is_taken_by_the_next() -> None:
    places = Places()
    assert set(places.placed((attempt("a"), attempt("b"), attempt("c", "y")))) == {"0:x", "1:x", "0:y"}
    slots = places.placed((attempt("b"), attempt("c", "y")))
    assert (slots["1:x"][0], slots["0:y"][0]) == ("b", "c")
    slots = places.placed((attempt("d"), attempt("b"), attempt("c", "y", 2)))
    assert (slots["0:x"][0], slots["1:x"][0], slots["0:y"][0]) == ("d", "b", "c")
    assert places.placed(()) == {}


def test_a_difference_names_what_changed_and_what_is_gone() -> None:
    before: Picture = {"slots": {"0:x": [1], "1:x": [2]}, "lanes": {"a": {"n": 1}}}
    after: Picture = {"slots": {"0:x": [1], "2:x": [3]}, "lanes": {"a": {"n": 1}}}
    assert difference(before, after) == {"slots": {"2:x": [3], "1:x": None}}
    assert difference(after, after) == {}
    assert difference({}, after) == after


# ---- the config


async def test_an_edited_config_is_told_and_one_of_another_dispatcher(tmp_path: Path) -> None:
    """E9: what differs, by the names of keys; the file is looked at while somebody reads."""
    file = tmp_path / "penstock.toml"
    async with running(tmp_path) as (live, client), aclosing(live.frames()) as frames:
        _, picture = await taken(frames)
        assert picture["who"]["config"] == ""
        file.write_text(CONFIG.replace("max_running = 3", "max_running = 4"))
        while not (told := picture["who"]["config"]):
            _, changes = await taken(frames)
            picture |= changes
        assert told == (
            f"the running dispatcher has another config than {file}: lanes.gptr.max_running differs; "
            f"restart it to apply {file}"
        )
    leaders = parse(CONFIG + '[hosts.other]\ntype = "simulated"\n')
    async with running(tmp_path) as (live, client):
        await client._store.acquire(ME, 1.0, leaders.plant, record_config(leaders))
        async with aclosing(live.frames()) as frames:
            _, picture = await taken(frames)
            assert "hosts.other is gone" in picture["who"]["config"]


# ---- the stream


async def test_a_reader_gets_the_whole_picture_and_then_what_differs(tmp_path: Path) -> None:
    """E7: a task that ends on one host is told as that slot and a few sums, not as all hosts."""
    async with running(tmp_path) as (live, client):
        first, second = (await client.submit_many([Task("count", {"id": "one"}), Task("count")])).task_ids
        epoch, _ = await client._store.acquire(ME, 1.0)
        await record(client, start(first))
        async with aclosing(live.frames()) as frames:
            event, picture = await taken(frames)
            assert event == "picture"
            assert picture["totals"] == {"queued": 1, "running": 1}
            assert picture["slots"]["0:surtr"][:4] == [first, "one", "count", "default"]
            assert set(picture["hosts"]) == {"surtr", "fenrir"}
            assert picture["hosts"]["fenrir"]["auto"] == [1, 4]
            assert picture["hosts"]["surtr"]["units"] == {"vram_gb": [0.0, 24.0]}
            assert picture["lanes"]["gptr"]["reserve"] == {"surtr": {"slots": 1.0}}
            assert picture["who"]["dispatcher"]["pid"] == ME.pid
            assert picture["who"]["dispatcher"]["stopping_since"] is None
            await record(client, done(first), start(second, host="fenrir"))
            event, changes = await taken(frames)
            assert event == "changes"
            assert changes["slots"] == {"0:surtr": None, "0:fenrir": changes["slots"]["0:fenrir"]}
            assert set(changes["hosts"]) == {"surtr", "fenrir"}
            assert "gates" not in changes
            await record(client, GateChange("vram", 2.0, False, "95 of 90"))
            _, changes = await taken(frames)
            assert set(changes) == {"gates"}
            assert changes["gates"]["vram"]["holds"] == "hosts surtr"
            await client._store.tell_stopping(epoch.number)
            _, changes = await taken(frames)
            assert set(changes) == {"who"}
            assert changes["who"]["dispatcher"]["stopping_since"] > 0


async def test_nobody_looks_when_nobody_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C4: and whoever comes after that is shown this moment."""
    looks = 0
    now = Client.now

    async def counted(client: Client, seen: Now | None = None) -> Now:
        nonlocal looks
        looks += 1
        return await now(client, seen)

    monkeypatch.setattr(Client, "now", counted)
    async with running(tmp_path) as (live, client):
        await client.submit(Task("count"))
        assert (looks, live.readers.count) == (0, 0)
        async with aclosing(live.frames()) as frames, aclosing(live.frames()) as others:
            assert await taken(frames) == await taken(others), "encoded once for both"
        assert live.readers.count == 0
        await client.submit(Task("count"))
        await until(lambda: not live._news.readers.count)
        before = looks
        await client.submit(Task("count"))
        assert looks == before
        async with aclosing(live.frames()) as frames:
            event, picture = await taken(frames)
            assert (event, picture["totals"]["queued"]) == ("picture", 3)


async def test_a_picture_is_told_with_the_time_that_it_is_sent_at(tmp_path: Path) -> None:
    """E7: elapsed times go by it, also when nothing has happened since the picture was made."""
    at = 1000.0
    async with running(tmp_path, lambda: at) as (live, _), aclosing(live.frames()) as first:
        told, picture = await all_taken(first)
        assert (told, picture[0]) == (("clock", {"at": 1000.0}), "picture")
        at = 5000.0
        async with aclosing(live.frames(heartbeat_s=0.01)) as later:
            told, again = await all_taken(later)  # there is a picture, so that it comes at once
            assert (told, again[0]) == (("clock", {"at": 5000.0}), "picture")
            while told[0] != "beat":
                told = (await all_taken(later))[-1]
            assert told == ("beat", {"at": 5000.0})


async def test_a_change_comes_by_the_bell_and_not_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E7: what another process records is told without anybody's clock."""
    monkeypatch.setattr(news_module, "QUIET_S", 1e6)
    async with (
        running(tmp_path) as (live, client),
        penstock.client.open(client.config, dispatch=False) as other,
        aclosing(live.frames()) as frames,
    ):
        await taken(frames)
        while not (await taken(frames))[1].get("hour", {}).get("is_known"):
            pass
        for queued in (1, 2):
            await other.submit(Task("count"))
            _, changes = await taken(frames)
            assert changes["totals"]["queued"] == queued


async def test_slots_kept_for_a_lane_and_a_pause_of_its_own_are_told(tmp_path: Path) -> None:
    async with running(tmp_path) as (live, client), aclosing(live.frames()) as frames:
        task, plain = (await client.submit_many([Task("count", lane="gptr"), Task("count")])).task_ids
        await client._store.acquire(ME, 1.0)
        await record(client, AllChange(1.0, True), start(plain))
        told: Picture = {"who": {}, "hosts": {}, "lanes": {}}
        while not told["who"].get("paused") or not told["hosts"].get("surtr", {}).get("used"):
            _, changes = await taken(frames)
            told = {section: told[section] | changes.get(section, {}) for section in told}
        assert told["hosts"]["surtr"]["kept"] == {"gptr": 1.0}
        assert told["hosts"]["fenrir"]["kept"] == {}
        assert not told["lanes"]["gptr"]["paused"]
        await record(client, start(task), LaneChange("gptr", 2.0, True))
        while not told["lanes"]["gptr"]["paused"] or told["hosts"]["surtr"]["kept"]:
            _, changes = await taken(frames)
            told = {section: told[section] | changes.get(section, {}) for section in told}


async def test_waits_that_nobody_has_worked_out_are_not_called_none(tmp_path: Path) -> None:
    async with running(tmp_path) as (live, _), aclosing(live.frames()) as frames:
        _, picture = await taken(frames)
        assert (picture["hour"]["is_known"], picture["waits"]) == (False, {})
        _, changes = await taken(frames)
        assert changes["hour"]["is_known"]


async def test_a_reader_who_fell_behind_gets_a_whole_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "LEAST_S", 0.0)
    async with (
        running(tmp_path) as (live, client),
        aclosing(live.frames()) as slow,
        aclosing(live.frames()) as quick,
    ):
        await taken(slow)
        await taken(quick)
        for n in range(live_module._KEPT + 2):
            await record(client, HostChange("surtr", float(n), "down", 2, f"fault {n}"))
            await taken(quick)
        event, picture = await taken(slow)
        assert event == "picture"
        assert picture["hosts"]["surtr"]["detail"] == f"fault {live_module._KEPT + 1}"


async def test_a_store_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as (live, client), aclosing(live.frames()) as frames:
        await taken(frames)

        async def locked(client: Client, seen: Now | None = None) -> Now:
            raise StoreLocked("x.db: another process kept it locked")

        with monkeypatch.context() as patched:
            patched.setattr(Client, "now", locked)
            await record(client, GateChange("vram", 2.0, False, ""))
            _, changes = await taken(frames)
            assert changes["who"]["trouble"] == "x.db: another process kept it locked"
        await client.submit(Task("count"))
        _, changes = await taken(frames)
        assert changes["who"]["trouble"] is None


async def test_a_store_that_is_waited_for_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The picture is an old one, long before the wait is given up."""
    async with running(tmp_path) as (live, client), aclosing(live.frames()) as frames:
        await taken(frames)
        live.slow_s = 0.01
        back, now = asyncio.Event(), Client.now

        async def late(client: Client, seen: Now | None = None) -> Now:
            await back.wait()
            return await now(client, seen)

        monkeypatch.setattr(Client, "now", late)
        await record(client, GateChange("vram", 2.0, False, ""))
        _, changes = await taken(frames)
        assert changes == {"who": {"trouble": "It has not answered for 0.01 s."}}
        live.slow_s = 600.0
        back.set()
        _, changes = await taken(frames)
        assert changes["who"]["trouble"] is None
        assert changes["gates"]["vram"]["open"] is False


async def test_a_silent_stream_beats(tmp_path: Path) -> None:
    async with running(tmp_path) as (live, _), aclosing(live.frames(heartbeat_s=0.01)) as frames:
        while (await taken(frames))[0] != "beat":
            pass


# ---- the route


def scope(*scopes: str) -> dict[str, Any]:
    told = [(HEADER.encode(), as_header(Viewer("v", scopes)).encode())] if scopes else []
    return {"type": "http", "headers": told}


@pytest.mark.parametrize("scopes", [(), ("submit",)])
async def test_it_is_for_those_who_may_read(tmp_path: Path, scopes: tuple[str, ...]) -> None:
    async with running(tmp_path) as (live, _):
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.disconnect"}

        await LiveStream(live)(scope(*scopes), receive, send)
        assert sent[0]["status"] == 403
        assert live.readers.count == 0


async def test_a_reader_who_takes_nothing_is_let_go(tmp_path: Path) -> None:
    async with running(tmp_path) as (live, _):
        never = asyncio.Event()

        async def send(message: Any) -> None:
            if b"event: picture" in message.get("body", b""):
                await never.wait()

        async def receive() -> Any:
            await never.wait()

        async with asyncio.timeout(PATIENCE_S):
            await LiveStream(live, stall_s=0.05)(scope("read"), receive, send)
        assert live.readers.count == 0


async def test_a_reader_who_leaves_is_gone(tmp_path: Path) -> None:
    async with running(tmp_path) as (live, _):
        pictured = asyncio.Event()

        async def send(message: Any) -> None:
            if b"event: picture" in message.get("body", b""):
                pictured.set()

        async def receive() -> Any:
            await pictured.wait()
            return {"type": "http.disconnect"}

        async with asyncio.timeout(PATIENCE_S):
            await LiveStream(live)(scope("read"), receive, send)
        assert live.readers.count == 0
