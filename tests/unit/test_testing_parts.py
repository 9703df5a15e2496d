"""The parts of the simulated model server: its clock of work, its schemas, its processes, and its page."""

from __future__ import annotations

import asyncio
import dataclasses
import heapq
import inspect
import json
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast, get_args

import aiohttp
import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock.testing
from penstock.errors import UsageError
from penstock.testing import Fault, ModelBehaviour, ModelServer, RateLimit, ServerStats
from penstock.testing.behaviour import STYLES
from penstock.testing.faults import Garbage
from penstock.testing.room import Meter, WorkClock
from penstock.testing.schemas import example

ASKING: dict[str, Any] = {"model": "simulated", "messages": [{"role": "user", "content": "one two three"}]}
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "testing.md").read_text(encoding="utf-8")


# ---- time


class ManualLoop:
    """As much of a loop as the clock uses; its time moves when it is told."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []

    def time(self) -> float:
        return self.now

    def create_future(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    def call_at(self, at: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(at, call, (), asyncio.get_running_loop())
        heapq.heappush(self._timers, (at, len(self._timers), timer))
        return timer

    async def until(self, at: float) -> None:
        while self._timers and self._timers[0][0] <= at:
            self.now, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled():
                timer._run()
            await _others_run()
        self.now = at
        await _others_run()


async def _others_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Work:
    """Pieces of work on a clock, and when each was done."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.loop = ManualLoop()
        self.clock = WorkClock(cast(asyncio.AbstractEventLoop, self.loop))
        self.ended: dict[str, float] = {}
        self._group = group

    async def begin(self, name: str, work_s: float) -> asyncio.Task[None]:
        task = self._group.create_task(self._done(name, self.clock.now() + work_s))
        await _others_run()
        return task

    async def _done(self, name: str, due_s: float) -> None:
        await self.clock.until(due_s)
        self.ended[name] = self.loop.now


def test_work_takes_its_time() -> None:
    async def scene(work: Work) -> None:
        await work.begin("long", 3)
        await work.begin("short", 1)
        await work.loop.until(2)
        await work.begin("later", 1.5)
        await work.loop.until(10)
        assert work.ended == pytest.approx({"short": 1, "long": 3, "later": 3.5})

    _played(scene)


def test_work_under_way_slows_down_with_the_load() -> None:
    async def scene(work: Work) -> None:
        await work.begin("a", 4)
        await work.loop.until(2)
        work.clock.set_speed(0.5)  # half of it is left, at half the speed
        await work.begin("b", 1)
        await work.loop.until(5)
        work.clock.set_speed(1)
        await work.loop.until(10)
        assert work.ended == pytest.approx({"b": 4, "a": 5.5})

    _played(scene)


def test_held_work_stands_still() -> None:
    async def scene(work: Work) -> None:
        await work.begin("a", 2)
        await work.loop.until(1)
        work.clock.hold(True)
        await work.begin("nothing", 0)
        await work.loop.until(100)
        assert not work.ended
        work.clock.hold(False)
        await work.loop.until(200)
        assert work.ended == pytest.approx({"nothing": 100, "a": 101})

    _played(scene)


def test_given_up_work_holds_nobody_up() -> None:
    async def scene(work: Work) -> None:
        left = await work.begin("left", 1)
        await work.begin("a", 2)
        left.cancel()
        await work.loop.until(5)
        assert work.ended == pytest.approx({"a": 2})

    _played(scene)


def _played(scene: Callable[[Work], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        async with asyncio.TaskGroup() as group:
            await scene(Work(group))

    asyncio.run(play())


@pytest.mark.parametrize(
    ("slowdown", "speeds"),
    [
        ("shared", {1: 1, 4: 1, 8: 0.5, 16: 0.25}),
        ("thrashing", {1: 1, 4: 1, 8: 0.25, 16: 1 / 16}),
        ("batching", {1: 1, 5: 0.5, 9: 1 / 3}),
        (lambda load: 1 / load, {1: 1, 2: 0.5}),
    ],
)
def test_e5_speed_falls_with_load(slowdown: Any, speeds: dict[int, float]) -> None:
    behaviour = ModelBehaviour(knee=4, slowdown=slowdown)
    assert {load: behaviour.speed(load) for load in speeds} == pytest.approx(speeds)


def test_a_prompt_is_read_at_its_speed() -> None:
    assert ModelBehaviour(first_token_s=2).prompt_s(1000) == 2
    assert ModelBehaviour(first_token_s=2, prompt_tokens_per_s=100).prompt_s(1000) == 12


def test_without_a_knee_load_costs_nothing() -> None:
    assert {ModelBehaviour().speed(load) for load in (1, 10, 1000)} == {1}


def test_jitter_is_the_same_for_the_same_seed() -> None:
    one, same, other = (ModelBehaviour(jitter=0.2, seed=seed) for seed in (1, 1, 2))
    stretches = [one.stretch(number) for number in range(50)]
    assert stretches == [same.stretch(number) for number in range(50)]
    assert stretches != [other.stretch(number) for number in range(50)]
    assert all(0.8 <= stretch <= 1.2 for stretch in stretches)
    assert len(set(stretches)) > 10


def test_a_rate_refills_with_time() -> None:
    meter = Meter(RateLimit(requests_per_min=60, burst=2), now=0)
    assert [meter.take(0, 0.0) for _ in range(3)] == [0, 0, 1]
    assert meter.take(0, 0.5) == pytest.approx(0.5)
    assert meter.take(0, 1.0) == 0
    assert [meter.take(0, 100.0) for _ in range(3)] == [0, 0, 1]


def test_a_call_larger_than_a_minute_passes_when_all_is_there() -> None:
    meter = Meter(RateLimit(tokens_per_min=10), now=0)
    assert meter.take(50, 0) == 0
    assert meter.take(1, 0) > 0


async def test_e5_every_change_of_load_changes_the_speed() -> None:
    loads: list[int] = []

    def slowdown(load: int) -> float:
        loads.append(load)
        return 1.0

    async with ModelServer(ModelBehaviour(slots=2, slowdown=slowdown)) as server:
        server.hold()
        async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(http.post(f"{server.url}/chat/completions", json=ASKING))
            await server.wait_for(lambda stats: stats.in_flight == 2 and stats.queued == 1)
            assert (loads[0], loads[-1], max(loads)) == (1, 2, 2)
            server.release()
        assert loads[-1] == 0


# ---- schemas


def schemas(depth: int = 2) -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from(["a", "b", "c"])
    plain = st.one_of(
        st.builds(lambda n: {"type": "string", "minLength": n, "maxLength": n + 2}, st.integers(0, 9)),
        st.builds(lambda n: {"type": "integer", "minimum": n, "maximum": n + 3}, st.integers(-9, 9)),
        st.builds(lambda n: {"type": "number", "exclusiveMinimum": n}, st.integers(-9, 9)),
        st.builds(lambda n: {"type": "integer", "multipleOf": n, "minimum": 5}, st.integers(1, 9)),
        st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"enum": [3, "x"]}, {"const": [1]}]),
        st.just({"type": ["null", "string"]}),
    )
    if not depth:
        return plain
    inner = schemas(depth - 1)
    return st.one_of(
        plain,
        st.builds(
            lambda items, n: {"type": "array", "items": items, "minItems": n}, inner, st.integers(0, 3)
        ),
        st.builds(
            lambda properties: {
                "type": "object",
                "properties": properties,
                "required": sorted(properties),
                "additionalProperties": False,
            },
            st.dictionaries(names, inner),
        ),
        st.builds(lambda one, two: {"anyOf": [one, two]}, inner, inner),
    )


@given(schemas())
@settings(deadline=None)
def test_an_example_fits_its_schema(schema: dict[str, Any]) -> None:
    jsonschema_rs.validate(schema, example(schema))


def test_references_and_merged_schemas_are_followed() -> None:
    schema = {
        "$defs": {"name": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
        "allOf": [{"$ref": "#/$defs/name"}, {"properties": {"x": {"const": 1}}, "required": ["x"]}],
    }
    assert example(schema) == {"n": 1, "x": 1}
    jsonschema_rs.validate(schema, example(schema))


def test_a_schema_that_holds_itself_ends() -> None:
    names = ["a", "b", "c"]
    schema = {"type": "object", "properties": {name: {"$ref": "#"} for name in names}, "required": names}
    assert len(json.dumps(example(schema))) < 1_000_000
    deep: Any = {"type": "string"}
    for _ in range(500):
        deep = {"type": "array", "items": deep, "minItems": 1}
    json.dumps(example(deep))


@given(st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner)))
@settings(deadline=None, max_examples=50)
def test_any_schema_gives_something(schema: Any) -> None:
    json.dumps(example(schema))


# ---- where it runs


def test_it_runs_in_a_process_of_its_own() -> None:
    with ModelServer.in_process(ModelBehaviour(models=("a",), faults=[Fault.refuse(500)])) as server:

        async def use() -> int:
            async with aiohttp.ClientSession() as http:
                async with http.get(f"{server.url}/models") as response:
                    assert (await response.json())["data"][0]["id"] == "a"
                async with http.post(f"{server.url}/chat/completions", json=ASKING) as response:
                    return response.status

        assert asyncio.run(use()) == 500
        counts = server.counts()
        assert (counts["received"], counts["refused"]) == (1, 1)
        assert counts["endpoints"] == {"/v1/chat/completions": 1, "/v1/models": 1}


def test_a_process_that_cannot_listen_says_why() -> None:
    with (
        ModelServer.in_thread() as taken,
        pytest.raises(UsageError, match=f"port {taken.port}"),
        ModelServer.in_process(port=taken.port),
    ):
        pass


async def test_it_can_be_watched_and_killed_from_another_loop() -> None:
    with ModelServer.in_thread(ModelBehaviour(slots=1)) as server:
        async with aiohttp.ClientSession() as http:
            server.hold()
            async with asyncio.TaskGroup() as group:
                calls = [group.create_task(_lost(http, server)) for _ in range(2)]
                await server.wait_for(lambda stats: stats.in_flight == 1 and stats.queued == 1)
                await server.kill()
                assert all(await asyncio.gather(*calls))
            await server.start()
            async with http.post(f"{server.url}/chat/completions", json=ASKING) as response:
                assert response.status == 200
        assert (server.stats.aborted, server.stats.served) == (2, 1)


async def _lost(http: aiohttp.ClientSession, server: ModelServer) -> bool:
    try:
        await http.post(f"{server.url}/chat/completions", json=ASKING)
    except aiohttp.ClientConnectionError:
        return True
    return False


async def test_a_server_that_does_not_run_is_not_held() -> None:
    server = ModelServer()
    with pytest.raises(UsageError, match="start it first"):
        server.hold()
    with pytest.raises(UsageError, match="start it first"):
        server.fail_next(None)
    async with server:
        with pytest.raises(UsageError, match="runs already"):
            await server.start()


async def test_hundreds_of_streams_are_held_at_once() -> None:
    count = 300
    connector = aiohttp.TCPConnector(limit=0)
    async with ModelServer(ModelBehaviour(tokens=5)) as server:
        async with aiohttp.ClientSession(connector=connector) as http, asyncio.TaskGroup() as group:
            server.hold()
            calls = [group.create_task(_streamed(http, server)) for _ in range(count)]
            await server.wait_for(lambda stats: stats.in_flight == count)
            server.release()
            assert all(body.endswith(b"data: [DONE]\n\n") for body in await asyncio.gather(*calls))
        assert (server.stats.served, server.stats.most_in_flight) == (count, count)


async def _streamed(http: aiohttp.ClientSession, server: ModelServer) -> bytes:
    async with http.post(f"{server.url}/chat/completions", json=ASKING | {"stream": True}) as response:
        return await response.read()


async def test_headers_may_come_before_the_first_token() -> None:
    async with ModelServer(ModelBehaviour(early_headers=True)) as server, aiohttp.ClientSession() as http:
        server.hold()
        asked = http.post(f"{server.url}/chat/completions", json=ASKING | {"stream": True})
        async with asyncio.timeout(30), asked as response:
            server.release()
            assert (await response.read()).endswith(b"[DONE]\n\n")


# ---- the page


def test_everything_public_is_on_the_page() -> None:
    names = {*penstock.testing.__all__, *STYLES, *get_args(Garbage), *ServerStats.__slots__}
    names |= {field.name for kind in (ModelBehaviour, RateLimit) for field in dataclasses.fields(kind)}
    names |= {
        f"Fault.{name}"
        for name, value in inspect.getmembers(Fault, inspect.ismethod)
        if not name.startswith("_")
    }
    names |= {name for name in vars(ModelServer) if not name.startswith("_")}
    assert not [name for name in sorted(names) if not re.search(rf"(?<![\w]){re.escape(name)}(?!\w)", PAGE)]
