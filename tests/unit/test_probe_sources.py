"""`nvml:` and `prometheus:` probes: what they read, and what every fault of a driver or a page becomes. E5."""

from __future__ import annotations

import asyncio
import gzip
import sys
from collections.abc import AsyncIterator, Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from penstock.clock import ManualClock
from penstock.config.keys import NVML_PROBES
from penstock.config.probes import FOLDS, BadProbe, Series, labels, series
from penstock.dispatcher import metrics_page
from penstock.dispatcher.metrics_page import value_of
from penstock.dispatcher.probes import Probes, read_once
from penstock.errors import HostError
from penstock.model import Gate
from penstock.scheduling.messages import GateRead

GIB = 1024**3


def gate(probe: str, name: str = "g") -> Gate:
    return Gate(name, probe=probe, min=1, every_s=1.0, holds_lanes=("default",))


class RoundClock(ManualClock):
    """Tells how many samplers have gone to sleep until their next round."""

    def __init__(self) -> None:
        super().__init__()
        self._slept: asyncio.Queue[float] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        self._slept.put_nowait(seconds)
        await super().sleep(seconds)

    async def wait_until_asleep(self, count: int) -> None:
        while count:
            seconds = await asyncio.wait_for(self._slept.get(), 10)
            count -= seconds == 1.0  # the others are how long a reading may take


async def read(probe: str) -> GateRead:
    (reading,) = await read_once([gate(probe)], 10)
    return reading


# ---- nvml, with a stand-in for the driver's library


class NVMLError(Exception):
    def __init__(self, value: int, text: str = "") -> None:
        super().__init__(text or f"error {value}")
        self.value = value


class Driver(ModuleType):
    """Two GPUs: a busy one and an idle one."""

    NVMLError = NVMLError
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_TEMPERATURE_GPU = 0

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.connected = 0
        self.began = 0
        self.fault: NVMLError | None = None
        self.gpus = [
            SimpleNamespace(
                name="NVIDIA H200", uuid="GPU-aaaa", free=4, used=12, load=97, heat=81, power=650_500
            ),
            SimpleNamespace(
                name=b"NVIDIA L4", uuid="GPU-bbbb", free=20, used=4, load=3, heat=40, power=30_000
            ),
        ]

    def _ask(self) -> None:
        assert self.connected == 1
        if self.fault is not None:
            raise self.fault

    def nvmlInit(self) -> None:
        self.began += 1
        self.connected += 1

    def nvmlShutdown(self) -> None:
        self.connected -= 1

    def nvmlDeviceGetCount(self) -> int:
        self._ask()
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> Any:
        self._ask()
        return self.gpus[number]

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> Any:
        self._ask()
        found = [gpu for gpu in self.gpus if gpu.uuid == uuid.decode()]
        if not found:
            raise NVMLError(6, "Not Found")
        return found[0]

    def nvmlDeviceGetName(self, gpu: Any) -> Any:
        return gpu.name

    def nvmlDeviceGetMemoryInfo(self, gpu: Any) -> Any:
        self._ask()
        return SimpleNamespace(free=gpu.free * GIB, total=(gpu.free + gpu.used) * GIB)

    def nvmlDeviceGetUtilizationRates(self, gpu: Any) -> Any:
        return SimpleNamespace(gpu=gpu.load, memory=1)

    def nvmlDeviceGetTemperature(self, gpu: Any, sensor: int) -> int:
        assert sensor == self.NVML_TEMPERATURE_GPU
        return int(gpu.heat)

    def nvmlDeviceGetPowerUsage(self, gpu: Any) -> int:
        return int(gpu.power)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


@pytest.mark.parametrize(
    ("probe", "value"),
    [
        ("memory_free_gb", 4),
        ("memory_free_gb#1", 20),
        ("memory_free_gb#GPU-bbbb", 20),
        ("memory_free_gb#l4", 20),
        ("memory_free_gb#nvidia", 4),
        ("memory_used_gb", 12),
        ("memory_used_gb#1", 4),
        ("memory_percent", 75),
        ("utilization_percent", 97),
        ("utilization_percent#1", 3),
        ("temperature_c", 81),
        ("power_w", 650.5),
        ("power_w#L4", 30),
    ],
)
async def test_e5_gpus_are_read(driver: Driver, probe: str, value: float) -> None:
    """E5, C7: without a GPU named, the one with the least headroom is read."""
    assert await read(f"nvml:{probe}") == GateRead("g", value, "")
    assert driver.connected == 0, "the driver is let go of at the end"


async def test_every_gpu_reading_the_config_takes_can_be_read(driver: Driver) -> None:
    told = await read_once([gate(f"nvml:{name}", name) for name in NVML_PROBES], 10)
    assert [reading.error for reading in told] == [""] * len(NVML_PROBES)
    assert driver.began == 1, "all gates share one connection to the driver"


@pytest.mark.parametrize(
    ("probe", "error"),
    [
        ("memory_free_gb#2", "there is no GPU 2; `nvidia-smi -L` lists 0 to 1"),
        ("memory_free_gb#A100", "no GPU is called 'A100'; there is: NVIDIA H200, NVIDIA L4"),
        ("memory_free_gb#GPU-cccc", "the NVIDIA driver says: Not Found"),
    ],
)
async def test_a_gpu_that_is_not_there(driver: Driver, probe: str, error: str) -> None:
    assert await read(f"nvml:{probe}") == GateRead("g", None, error)


async def test_a_gpu_that_does_not_tell(driver: Driver) -> None:
    driver.fault = NVMLError(3)
    assert (
        await read("nvml:memory_free_gb")
    ).error == "this GPU does not tell memory_free_gb; use another probe"


async def test_no_gpu_at_all(driver: Driver) -> None:
    driver.gpus = []
    assert (await read("nvml:power_w")).error == "the NVIDIA driver knows no GPU"


async def test_a_lost_gpu_is_read_again_when_it_is_back(driver: Driver) -> None:
    """E5: after a fault the driver is asked anew from the start."""
    clock = RoundClock()
    told: asyncio.Queue[GateRead] = asyncio.Queue()
    probes = Probes([gate("nvml:memory_free_gb#0")], told.put_nowait, clock=clock)
    await probes.open()
    try:
        assert (await asyncio.wait_for(told.get(), 10)).value == 4
        for fault, value, began in ((NVMLError(15, "GPU is lost"), None, 1), (None, 4.0, 2)):
            driver.fault = fault
            await clock.wait_until_asleep(1)
            clock.advance(1)
            reading = await asyncio.wait_for(told.get(), 10)
            assert (reading.value, driver.began) == (value, began)
            assert reading.error == ("the NVIDIA driver says: GPU is lost" if fault else "")
    finally:
        await probes.close()
    assert driver.connected == 0


async def test_without_the_library_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    told = await read("nvml:memory_free_gb")
    assert told == GateRead(
        "g", None, "the library for NVIDIA GPUs is missing; pip install 'penstock-ai[gpu]'"
    )


# ---- prometheus: the text


PAGE = r"""
# HELP vllm:num_requests_waiting Number of requests waiting.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="qwen"} 3.0
vllm:num_requests_waiting{engine="1",model_name="qwen"} 5.0 1712345678000
vllm:num_requests_waiting_total 99
vllm:kv_cache_usage_perc{model_name="say \"hi\"\n, {ok}",engine="0"} 1.5e-1
plain 7
spaced   { a = "b" , }   8   # {trace="x"} 1
broken{a="b 1
broken 2 3 4 {
 indented 4
not_yet NaN
endless{le="+Inf"} +Inf
huge{a="1"} 1.7e308
huge{a="2"} 1.7e308
wordy twelve
twice 1
twice 2
windows 6
""".replace("windows 6", "windows 6\r")


@pytest.mark.parametrize(
    ("selector", "value"),
    [
        ("vllm:num_requests_waiting", 8),
        ("sum(vllm:num_requests_waiting)", 8),
        ("max(vllm:num_requests_waiting)", 5),
        ("min(vllm:num_requests_waiting)", 3),
        ("avg(vllm:num_requests_waiting)", 4),
        ('vllm:num_requests_waiting{engine="1"}', 5),
        ('max(vllm:num_requests_waiting{engine="0",model_name="qwen"})', 3),
        (r'vllm:kv_cache_usage_perc{model_name="say \"hi\"\n, {ok}"}', 0.15),
        ("plain", 7),
        ("plain{}", 7),
        ('spaced{a="b"}', 8),
        ("broken", 2),
        ("indented", 4),
        ("twice", 2),
        ("windows", 6),
    ],
)
def test_e5_numbers_of_a_metrics_page(selector: str, value: float) -> None:
    """E5: series that a probe's labels leave are made one number, their sum unless it says otherwise."""
    assert value_of(series(f"http://h/metrics#{selector}"), PAGE) == pytest.approx(value)


@pytest.mark.parametrize(
    ("selector", "error"),
    [
        (
            "vllm:num_request_waiting",
            "the page has no metric 'vllm:num_request_waiting'; did you mean 'vllm:num_requests_waiting'?",
        ),
        (
            'vllm:num_requests_waiting{engine="7"}',
            'no vllm:num_requests_waiting has {engine="7"}; there is: {engine="0",model_name="qwen"}',
        ),
        ("not_yet", "not_yet is NaN; the server has no number for it yet"),
        ("endless", "endless is +Inf; the server has no number"),
        ("wordy", "wordy is 'twelve', which is no number"),
        ("huge", "huge is too large to add up"),
    ],
)
def test_a_page_without_the_number_says_what_it_has(selector: str, error: str) -> None:
    with pytest.raises(HostError) as raised:
        value_of(series(f"http://h/metrics#{selector}"), PAGE)
    assert str(raised.value).startswith(error)


@pytest.mark.parametrize("page", ["", "<html><body>hello</body></html>", '{"error": "no"}', "\0\0{{{"])
def test_what_is_no_metrics_page(page: str) -> None:
    with pytest.raises(HostError, match="the page has no metrics; correct its URL"):
        value_of(Series("http://h", "m"), page)


def test_a_hostile_line_costs_little() -> None:
    many = ",".join(f'l{n}="{n}"' for n in range(50_000))
    assert value_of(Series("http://h", "m"), f"m{{{many}}} 3\nm{{{many} 4\n" + '"' * 100_000) == 3


def test_labels_are_read_as_they_are_written() -> None:
    assert labels(r'a="x\\y\"z\n", b="",') == {"a": 'x\\y"z\n', "b": ""}
    for wrong in ("a=b", 'a="b', 'a="b" c="d"', '="b"', ","):
        with pytest.raises(BadProbe):
            labels(wrong)


def test_every_function_of_the_config_is_known() -> None:
    for fold in FOLDS:
        assert value_of(series(f"http://h#{fold}(plain)"), PAGE) == 7


# ---- prometheus: the page


class Site:
    """A web server whose one page a test writes."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: Callable[[web.Request], Any] = lambda _: web.Response(text="m 1")

    async def _page(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        answer = self.answer(request)
        reply: web.StreamResponse = await answer if asyncio.iscoroutine(answer) else answer
        return reply

    async def open(self) -> None:
        app = web.Application()
        app.router.add_get("/metrics", self._page)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/metrics"

    async def close(self) -> None:
        await self._runner.cleanup()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    await made.open()
    yield made
    await made.close()


async def test_e5_a_servers_own_metrics_are_read(site: Site) -> None:
    """E5: several gates on one page ask for it once."""
    site.answer = lambda _: web.Response(text=PAGE, content_type="text/plain")
    told = await read_once(
        [
            gate(f"prometheus:{site.url}#vllm:num_requests_waiting", "waiting"),
            gate(f"prometheus:{site.url}#plain", "plain"),
            gate(f"prometheus:{site.url}#gone", "gone"),
        ],
        10,
    )
    assert [(reading.gate, reading.value) for reading in told] == [
        ("waiting", 8),
        ("plain", 7),
        ("gone", None),
    ]
    assert site.asked == 1


async def test_each_round_asks_for_the_page_anew(site: Site) -> None:
    clock = RoundClock()
    told: asyncio.Queue[GateRead] = asyncio.Queue()
    site.answer = lambda _: web.Response(text=f"m {site.asked}")
    gates = [gate(f"prometheus:{site.url}#m", name) for name in ("a", "b")]
    probes = Probes(gates, told.put_nowait, clock=clock)
    await probes.open()
    try:
        for number in (1, 2, 3):
            readings = [await asyncio.wait_for(told.get(), 10) for _ in gates]
            assert {(r.gate, r.value) for r in readings} == {("a", number), ("b", number)}
            await clock.wait_until_asleep(len(gates))
            clock.advance(1)
    finally:
        await probes.close()


async def endless(request: web.Request) -> web.StreamResponse:
    reply = web.StreamResponse()
    await reply.prepare(request)
    try:
        while True:
            await reply.write(b"# " + b"x" * 65_536 + b"\n")
    except ConnectionError:
        return reply


async def silent(request: web.Request) -> web.StreamResponse:
    reply = web.StreamResponse()
    await reply.prepare(request)
    await reply.write(b"m ")
    await asyncio.Event().wait()
    return reply


def bomb(_: web.Request) -> web.Response:
    body = gzip.compress(b"# " + b"\n" * (metrics_page.MAX_BYTES * 3))
    return web.Response(body=body, headers={"Content-Encoding": "gzip"})


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda _: web.Response(status=404, text="m 1"), "the page answers 404, not 200; correct its URL"),
        (lambda _: web.Response(status=302, headers={"Location": "/x"}), "the page answers 302, not 200"),
        (lambda _: web.Response(body=b"\xff\xfe\x00"), "the page has no metrics; correct its URL"),
        (lambda _: web.Response(body=b"nope", headers={"Content-Encoding": "gzip"}), "no page: "),
        (bomb, "the page is over 8 MiB; that is no metrics page"),
        (endless, "the page is over 8 MiB; that is no metrics page"),
        (silent, "no page within 0.2 s; is the server overloaded?"),
    ],
    ids=["404", "redirect", "binary", "bad-gzip", "bomb", "endless", "silent"],
)
async def test_whatever_the_server_does_is_a_failed_reading(
    site: Site, monkeypatch: pytest.MonkeyPatch, answer: Any, error: str
) -> None:
    if "within" in error:
        monkeypatch.setattr(metrics_page, "TIMEOUT_S", 0.2)
    site.answer = answer
    told = await read(f"prometheus:{site.url}#m")
    assert told.value is None
    assert told.error.startswith(error)


async def test_a_server_that_is_not_there(site: Site) -> None:
    url = site.url
    await site.close()
    assert "cannot connect (Connection refused)" in (await read(f"prometheus:{url}#m")).error
    told = await read("prometheus:http://no-such-host.invalid/metrics#m")
    assert "cannot connect" in told.error


async def test_a_reading_that_does_not_come_in_time_has_failed(site: Site) -> None:
    site.answer = silent
    told = await read_once([gate(f"prometheus:{site.url}#m")], 0.05)
    assert told == [GateRead("g", None, "no reading for 0.05 s")]
