"""What `prometheus:` probes read: numbers of a server's own metrics page.

The page is asked for once for all gates on it that read at about the same time. It comes from elsewhere and
may be anything: its size and time are bounded, lines that are no sample are passed over, and a number
that is none is a failed reading.
"""

from __future__ import annotations

import math
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from penstock.clock import Clock
from penstock.config import probes
from penstock.config.problems import meant, quoted
from penstock.dispatcher.readings import Read
from penstock.errors import HostError
from penstock.model import Gate

TIMEOUT_S = 5.0
MAX_BYTES = 8 * 1024 * 1024
_ACCEPT = "text/plain;version=0.0.4, text/plain;q=0.5, */*;q=0.1"
_SAMPLE = re.compile(
    r'([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]+([^ \t]+)(?:[ \t].*)?'
)
_MOST_SHOWN = 3
_FOLDS: dict[str, Callable[[Sequence[float]], float]] = {
    "avg": lambda values: math.fsum(values) / len(values),
    "max": max,
    "min": min,
    "sum": math.fsum,
}


class _Fetched(NamedTuple):
    at: float
    text: str
    error: str


class MetricsPage:
    """The page at a URL, and when it was read last."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._last: _Fetched | None = None

    def read_of(self, gate: Gate) -> Read:
        assert gate.probe is not None
        wanted = probes.series(gate.probe.partition(":")[2])

        async def read() -> float:
            return value_of(wanted, await self._page(gate.every_s / 2))

        return read

    def close(self) -> None:
        self._last = None

    async def _page(self, fresh_s: float) -> str:
        last = self._last
        if last is None or self._clock.now() - last.at >= fresh_s:
            at = self._clock.now()
            try:
                last = _Fetched(at, await _get(self._url), "")
            except HostError as error:  # for all gates on this page
                last = _Fetched(at, "", str(error))
            self._last = last
        if last.error:
            raise HostError(last.error)
        return last.text


class _Resolver(AbstractResolver):
    """Looks names up in this thread: a pool's thread that hangs in a look-up would keep the process from
    ending, and this one runs for its page alone."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        return [
            ResolveResult(hostname=host, host=str(to[0]), port=int(to[1]), family=kind, proto=proto, flags=0)
            for kind, _, proto, _, to in found
        ]

    async def close(self) -> None:
        pass


async def _get(url: str) -> str:
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    connector = aiohttp.TCPConnector(resolver=_Resolver(), force_close=True)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
            session.get(url, headers={"Accept": _ACCEPT}, allow_redirects=False) as reply,
        ):
            if reply.status != 200:
                raise HostError(f"the page answers {reply.status}, not 200; correct its URL")
            return await _body(reply)
    except TimeoutError:
        raise HostError(f"no page within {TIMEOUT_S:g} s; is the server overloaded?") from None
    except aiohttp.ClientConnectorCertificateError:
        raise HostError("the server's certificate is not trusted") from None
    except aiohttp.ClientConnectorError as error:
        raise HostError(f"cannot connect ({_cause(error)}); is the server running?") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise HostError(f"no page: {type(error).__name__}: {error}") from None


def _cause(error: aiohttp.ClientConnectorError) -> str:
    """In the system's words: those of the loop name an address that the reader did not write."""
    cause = error.os_error
    if cause.errno and not isinstance(
        error, aiohttp.ClientConnectorDNSError
    ):  # its numbers are of another kind
        return os.strerror(cause.errno)
    return cause.strerror or str(cause)


async def _body(reply: aiohttp.ClientResponse) -> str:
    data = bytearray()
    async for chunk in reply.content.iter_chunked(65_536):
        data += chunk
        if len(data) > MAX_BYTES:
            raise HostError(f"the page is over {MAX_BYTES // 1024**2} MiB; that is no metrics page")
    return data.decode(errors="replace")


# ---- what the page says


def value_of(wanted: probes.Series, page: str) -> float:
    """The one number that a probe wants of a page."""
    found = list(_samples(page, wanted.metric))
    if not found:
        raise HostError(_missing(wanted.metric, page))
    mine = [(labels, text) for labels, text in found if set(wanted.labels) <= labels.items()]
    if not mine:
        there = " or ".join(_shown(labels) for labels, _ in found[:_MOST_SHOWN])
        raise HostError(f"no {wanted.metric} has {_shown(dict(wanted.labels))}; there is: {there}")
    try:
        return _FOLDS[wanted.fold]([_number(wanted.metric, text) for _, text in mine])
    except OverflowError:
        raise HostError(f"{wanted.metric} is too large to add up") from None


def _samples(page: str, metric: str) -> Iterator[tuple[dict[str, str], str]]:
    """Labels and number of each series of a metric; the last of equal ones holds."""
    found: dict[tuple[tuple[str, str], ...], tuple[dict[str, str], str]] = {}
    for line in page.split("\n"):
        if not line.lstrip().startswith(metric):
            continue
        sample = _SAMPLE.fullmatch(line.strip())
        if sample is None or sample[1] != metric:
            continue
        try:
            labels = probes.labels(sample[2] or "")
        except probes.BadProbe:
            continue
        found[tuple(sorted(labels.items()))] = labels, sample[3]
    yield from found.values()


def _number(metric: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise HostError(f"{metric} is {quoted(text)}, which is no number") from None
    if not math.isfinite(number):
        raise HostError(f"{metric} is {text}; the server has no number for it yet")
    return number


def _missing(metric: str, page: str) -> str:
    names = {sample[1] for line in page.split("\n") if (sample := _SAMPLE.fullmatch(line.strip()))}
    if not names:
        return "the page has no metrics; correct its URL"
    return f"the page has no metric {quoted(metric)}{meant(metric, names, 'it has')}"


def _shown(labels: dict[str, Any]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
