"""The machine that a comparison ran on, and how much of it others used meanwhile."""

from __future__ import annotations

import os
import platform
import time
from typing import NamedTuple

import psutil

from penstock import __version__


class Machine(NamedTuple):
    """As it was when the comparison began."""

    version: str  # of Penstock
    python: str
    cores: int
    load: float  # runnable processes, the mean of a minute

    @property
    def busy(self) -> bool:
        return self.load > self.cores / 2


def seen() -> Machine:
    return Machine(__version__, platform.python_version(), os.cpu_count() or 1, round(os.getloadavg()[0], 2))


class Others:
    """Cores that are used by whoever is neither this process nor the one that is measured."""

    def __init__(self) -> None:
        self._began = (time.monotonic(), _used_s(), time.process_time())

    def cores(self, measured_s: float) -> float:
        """The mean since this was made, without `measured_s` of a core."""
        wall, used, ours = self._began
        passed_s = time.monotonic() - wall
        others_s = _used_s() - used - (time.process_time() - ours) - measured_s
        return max(0.0, others_s / passed_s) if passed_s else 0.0


def _used_s() -> float:
    """By all of the machine; what a host of virtual machines kept for itself counts."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - _counted_twice(times))


def _counted_twice(times: object) -> float:
    """Linux counts guests in user and nice as well."""
    return float(getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0))
