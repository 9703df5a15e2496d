"""Checks of hosts: when they are asked, what the scheduler hears, and what a hanging or failing check does (D6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import State, Task
from penstock.clock import ManualClock
from penstock.dispatcher.health import HealthBook, watch_health
from penstock.hosts.base import Health
from penstock.scheduling.messages import HostHealth
from tests.unit.model_rig import Call, answering, chat, http, wire

UP, DOWN = Health(True, "fine"), Health(False, "nothing listens")


class Ward:
    """Hosts that answer their checks as the test says, in place of an engine."""

    def __init__(self, every_s: Mapping[str, float]) -> None:
        self._every_s = every_s
        self.now: dict[str, Any] = dict.fromkeys(every_s, UP)
        self.asked: list[str] = []
        self.told: list[HostHealth] = []
        self.wanted: list[str] = []
        self.clock = ManualClock()
        self.news = asyncio.Event()
        self.under_way = 0
        self.most_under_way = 0

    def watched(self) -> Mapping[str, float]:
        return self._every_s

    async def check(self, host: str) -> Health:
        self.asked.append(host)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            answer = self.now[host]
            if isinstance(answer, asyncio.Event):
                await answer.wait()
                return UP
            if isinstance(answer, Exception):
                raise answer
            assert isinstance(answer, Health)
            return answer
        finally:
            self.under_way -= 1

    def want(self, host: str) -> None:
        self.wanted.append(host)

    def tell(self, health: HostHealth) -> None:
        self.told.append(health)
        self.news.set()

    async def after(self, seconds: float) -> list[str]:
        """Who is asked in the next seconds."""
        self.asked.clear()
        self.clock.advance(seconds)
        for _ in range(20):
            await asyncio.sleep(0)
        return list(self.asked)


@asynccontextmanager
async def watching(
    ward: Ward, patience_s: float = 30.0, book: HealthBook | None = None
) -> AsyncIterator[None]:
    watch = asyncio.create_task(watch_health(ward, ward.tell, ward.clock, book, patience_s))  # type: ignore[arg-type]
    await ward.after(0)
    try:
        yield
    finally:
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
        assert ward.under_way == 0


async def test_only_changes_are_told() -> None:
    """A host that was well all the while keeps its breaker: being told that it is up would close it."""
    ward = Ward({"a": 30.0})
    async with watching(ward):
        assert await ward.after(29) == []
        assert await ward.after(1) == ["a"]
        assert ward.told == []
        ward.now["a"] = DOWN
        await ward.after(30)
        assert ward.told == [HostHealth("a", False, "nothing listens")]
        await ward.after(2)
        assert len(ward.told) == 1
        ward.now["a"] = Health(False, "its key is refused")
        await ward.after(4)
        assert ward.told[1:] == [HostHealth("a", False, "its key is refused")]
        ward.now["a"] = UP
        await ward.after(5)
        assert ward.told[2:] == [HostHealth("a", True)]


async def test_a_host_that_was_down_from_the_beginning_is_told_up_and_the_engine_hears_who_is_wanted() -> (
    None
):
    ward = Ward({"a": 30.0, "b": 30.0, "c": 30.0})
    ward.now |= {"b": DOWN, "c": DOWN}
    book = HealthBook(lambda host: host != "c")
    book.down = {"a": "not reached yet", "b": "nothing listens"}
    async with watching(ward, book=book):
        assert ward.told == [HostHealth("a", True), HostHealth("c", False, "nothing listens")]
        assert ward.wanted == ["b"], "of those that are down"


async def test_a_host_that_is_down_is_asked_soon_and_then_less_often() -> None:
    ward = Ward({"a": 30.0})
    ward.now["a"] = DOWN
    async with watching(ward):
        for wait_s in (2, 4, 5, 5, 5):
            assert await ward.after(wait_s - 0.5) == []
            assert await ward.after(0.5) == ["a"]


async def test_a_hanging_check_is_not_asked_twice_and_counts_as_down() -> None:
    ward = Ward({"a": 1.0, "b": 1.0})
    ward.now["a"] = asyncio.Event()
    async with watching(ward):
        for _ in range(5):
            assert await ward.after(1) == ["b"]
        assert ward.told == []
    ward = Ward({"a": 1.0})
    ward.now["a"] = asyncio.Event()
    async with watching(ward, patience_s=0.01):
        async with asyncio.timeout(20):
            await ward.news.wait()
    assert ward.told == [HostHealth("a", False, "its check has not answered for 0.01 s")]


async def test_a_check_that_raises_is_an_answer() -> None:
    ward = Ward({"a": 1.0})
    ward.now["a"] = ValueError("odd")
    async with watching(ward):
        assert ward.told == [HostHealth("a", False, "its check failed: ValueError: odd")]


async def test_not_all_hosts_of_a_large_plant_are_asked_at_the_same_moment() -> None:
    ward = Ward({f"h{n}": 30.0 for n in range(200)})
    go = asyncio.Event()
    ward.now = dict.fromkeys(ward.now, go)
    async with watching(ward):
        assert len(ward.asked) == 64
        go.set()
        for _ in range(20):
            await ward.after(0)
    assert ward.most_under_way == 64


# ---- with a dispatcher


CONFIG = """
[hosts.box]
type = "openai"
url = "{url}"
model = "m"
health_s = 0.05
"""


async def test_a_task_waits_for_a_server_that_is_down_and_why_says_so(tmp_path: Path) -> None:
    """D6: nothing is sent to a server that says it is not well; it is used as soon as it says it is."""
    well = asyncio.Event()

    async def act(call: Call) -> None:
        if call.path == "/v1/models":
            await call.send(http(200, {"data": [{"id": "m"}]}) if well.is_set() else http(500, b"loading"))
        else:
            await call.send(http(200, chat("hi")))

    async with wire(act) as server:
        config = tmp_path / "penstock.toml"
        config.write_text(CONFIG.format(url=server.url))
        async with penstock.open(config) as p:
            await server.until(lambda: len(server.calls) >= 2)  # the first answer has been taken in
            task = await p.submit(Task("k", "hello"))
            seen = len(server.calls)
            await server.until(lambda: len(server.calls) >= seen + 2)
            well.set()
            result = await p.wait(task)
    assert result.state is State.DONE
    down = [wait for wait in result.waits if wait.reason == "host-down"]
    assert "500 loading" in down[0].detail
    assert result.attempts == 1
    assert result.value["text"] == "hi"


@pytest.mark.parametrize("health_s", [0, 30])
async def test_health_s_0_asks_never(tmp_path: Path, health_s: int) -> None:
    models = http(200, {"data": [{"id": "m"}]})

    async def act(call: Call) -> None:
        await call.send(models if call.path == "/v1/models" else http(200, chat("hi")))

    async with wire(act) as server:
        config = tmp_path / "penstock.toml"
        config.write_text(CONFIG.format(url=server.url).replace("0.05", str(health_s)))
        async with penstock.open(config) as p:
            assert (await p.wait(await p.submit(Task("k", "hello")))).state is State.DONE
    assert sum(call.path == "/v1/models" for call in server.calls) == bool(health_s)


async def test_a_hanging_server_does_not_delay_the_start(tmp_path: Path) -> None:
    async def act(call: Call) -> None:
        await call.gone.wait()

    async with wire(act) as server, wire(answering(http(200, chat("hi")))) as other:
        config = tmp_path / "penstock.toml"
        second = CONFIG.format(url=other.url).replace("hosts.box", "hosts.other").replace("0.05", "0")
        config.write_text(CONFIG.format(url=server.url) + second)
        async with penstock.open(config) as p:
            await server.until(lambda: bool(server.calls))
            assert (await p.wait(await p.submit(Task("k", "hello", host="other")))).state is State.DONE


async def test_c6_a_host_that_an_attempt_blames_is_asked_at_once_but_not_again_and_again() -> None:
    ward, book = Ward({"a": 30.0, "b": 30.0}), HealthBook()
    async with watching(ward, book=book):
        assert await ward.after(10) == []
        book.doubt("a")
        assert await ward.after(0) == ["a"]
        book.doubt("a")
        assert await ward.after(0.5) == []
        assert await ward.after(0.5) == ["a"]
        assert await ward.after(19) == ["b"]


async def test_what_only_a_person_can_mend_is_told_with_what_to_do_at_its_end() -> None:
    """E9: however much the server has to say."""
    ward = Ward({"a": 10.0})
    ward.now["a"] = Health(False, f"401 {'no ' * 400}; put the right key into X", needs_fix=True)
    async with watching(ward):
        (told,) = ward.told
        assert (told.up, told.needs_fix, len(told.detail)) == (False, True, 300)
        assert told.detail.endswith("…; put the right key into X")


async def test_the_log_names_a_host_that_is_down_once(caplog: pytest.LogCaptureFixture) -> None:
    """E9: adapters begin their errors with the host's name."""
    ward = Ward({"a": 10.0})
    ward.now["a"] = Health(False, "a: no connection; start it")
    async with watching(ward):
        assert [told.detail for told in ward.told] == ["a: no connection; start it"]
    assert caplog.messages == ["host a is down: no connection; start it"]
