"""Where probes read: which source a probe belongs to, and what `psutil:` and `python:` stand for.

Probes of one source are read one after the other in one thread. A user's function has a source of its own, so
that one that hangs stops no other; the GPUs share one, for so they share a driver; gates on the same metrics
page share one, so that the page is asked for once.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from penstock.clock import Clock
from penstock.config import probes
from penstock.engine.calls import look_anew
from penstock.model import Gate

_FIRST_CPU_S = 0.1
_GIB = 1024**3

Read: TypeAlias = Callable[[], Any]  # the reading, or a coroutine that comes to it


class Source(Protocol):
    """Used by its one thread alone."""

    def read_of(self, gate: Gate) -> Read:
        """How a gate's probe is read; what cannot be read raises."""

    def close(self) -> None: ...


def source_name(gate: Gate) -> str:
    """Gates with the same one are read together."""
    scheme, _, rest = _probe(gate).partition(":")
    match scheme:
        case "nvml":
            return "nvml"
        case "prometheus":
            return rest.partition("#")[0]
    return gate.name


def make_source(gate: Gate, clock: Clock) -> Source:
    scheme, _, rest = _probe(gate).partition(":")
    match scheme:
        case "nvml":
            from penstock.dispatcher.nvml import Gpus

            return Gpus()
        case "prometheus":
            from penstock.dispatcher.metrics_page import MetricsPage

            return MetricsPage(probes.series(rest).url, clock)
    return Own()


def _probe(gate: Gate) -> str:
    assert gate.probe is not None
    return gate.probe


class Own:
    """This machine, or a function of the user's."""

    def read_of(self, gate: Gate) -> Read:
        scheme, _, rest = _probe(gate).partition(":")
        match scheme:
            case "psutil":
                return _psutil_read(rest)
            case "python":
                return _python_read(rest)
        raise ValueError(f"unknown probe scheme {scheme!r}")

    def close(self) -> None:
        pass


def _python_read(target: str) -> Read:
    module_name, _, path = target.partition(":")
    look_anew()  # its file may have been added since the last reading
    found: Any = importlib.import_module(module_name)
    for part in path.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{target} is not a function")
    return found  # type: ignore[no-any-return]


def _psutil_read(rest: str) -> Read:
    import psutil

    what, _, folder = rest.partition("#")
    reads: dict[str, Read] = {
        "cpu_percent": _cpu_percent(psutil),
        "memory_percent": lambda: psutil.virtual_memory().percent,
        "memory_free_gb": lambda: psutil.virtual_memory().available / _GIB,
        "load1": lambda: psutil.getloadavg()[0],
        "disk_free_gb": lambda: psutil.disk_usage(folder or os.curdir).free / _GIB,
    }
    if what not in reads:
        raise ValueError(f"unknown psutil probe {what!r}; known: {', '.join(sorted(reads))}")
    return reads[what]


def _cpu_percent(psutil: Any) -> Read:
    """Use since the last reading. The first has none before it and would be 0, so it takes a moment."""
    begun = False

    def read() -> float:
        nonlocal begun
        if not begun:
            begun = True
            psutil.cpu_percent(interval=None)
            time.sleep(_FIRST_CPU_S)
        return float(psutil.cpu_percent(interval=None))

    return read
