"""What the GPU did meanwhile: utilisation and power by NVML, read ten times a second in a thread of its own."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any

_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Reading:
    utilisation_percent: float
    power_w: float
    energy_j: float
    samples: int


class Meter:
    """A context: `reading()` afterwards tells the means over its time."""

    def __init__(self, gpu: int = 0) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._nvml: Any = pynvml
        self._gpu = pynvml.nvmlDeviceGetHandleByIndex(gpu)
        self._busy: list[float] = []
        self._watts: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="nvml", daemon=True)

    def __enter__(self) -> Meter:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._took_s = time.monotonic() - self._began
        self._over.set()
        self._thread.join()

    def reading(self) -> Reading:
        count = max(1, len(self._busy))
        watts = sum(self._watts) / count
        return Reading(sum(self._busy) / count, watts, watts * self._took_s, len(self._busy))

    def _read(self) -> None:
        while not self._over.is_set():
            self._busy.append(float(self._nvml.nvmlDeviceGetUtilizationRates(self._gpu).gpu))
            self._watts.append(self._nvml.nvmlDeviceGetPowerUsage(self._gpu) / 1000)
            self._over.wait(_EVERY_S)
