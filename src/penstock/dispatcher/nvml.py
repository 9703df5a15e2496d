"""What `nvml:` probes read: memory, use, heat and power of NVIDIA GPUs, asked of the driver.

A probe that names no GPU, or a name that several have, reads the one with the least headroom: the least
free memory, the most of everything else. After any fault the driver is asked anew from the start, so that a
GPU that was lost and came back, or a driver that was loaded late, is seen.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.config import probes
from penstock.config.problems import quoted
from penstock.dispatcher.readings import Read
from penstock.errors import HostError, install_line
from penstock.model import Gate

_GIB = 1024**3
_LEAST = ("memory_free_gb",)  # the smaller, the less headroom
_UUIDS = ("GPU-", "MIG-")


class Gpus:
    """The GPUs of this machine, by way of the library `pynvml`."""

    def __init__(self) -> None:
        self._nvml: Any = None  # the library, while it is connected to the driver

    def read_of(self, gate: Gate) -> Read:
        assert gate.probe is not None
        what, gpu = probes.nvml(gate.probe.partition(":")[2])
        return lambda: self._read(what, gpu)

    def close(self) -> None:
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def _read(self, what: str, gpu: str) -> float:
        nvml = self._connected()
        try:
            values = [_READINGS[what](nvml, handle) for handle in _chosen(nvml, gpu)]
        except nvml.NVMLError as error:
            self.close()
            if error.value == nvml.NVML_ERROR_NOT_SUPPORTED:
                raise HostError(f"this GPU does not tell {what}; use another probe") from None
            raise HostError(f"the NVIDIA driver says: {error}") from None
        return min(values) if what in _LEAST else max(values)

    def _connected(self) -> Any:
        if self._nvml is not None:
            return self._nvml
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            raise HostError(f"the library for NVIDIA GPUs is missing; {install_line('gpu')}") from None
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise HostError(
                f"no NVIDIA driver answers here ({error}); install it, or remove the gate"
            ) from None
        self._nvml = nvml
        return nvml


def _chosen(nvml: Any, gpu: str) -> list[Any]:
    if gpu.upper().startswith(_UUIDS):
        return [nvml.nvmlDeviceGetHandleByUUID(gpu.encode())]
    count = int(nvml.nvmlDeviceGetCount())
    if not count:
        raise HostError("the NVIDIA driver knows no GPU")
    if gpu.isdecimal():
        if int(gpu) >= count:
            raise HostError(f"there is no GPU {gpu}; `nvidia-smi -L` lists 0 to {count - 1}")
        return [nvml.nvmlDeviceGetHandleByIndex(int(gpu))]
    handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
    if not gpu:
        return handles
    names = [_text(nvml.nvmlDeviceGetName(handle)) for handle in handles]
    found = [handle for handle, name in zip(handles, names, strict=True) if gpu.lower() in name.lower()]
    if not found:
        there = ", ".join(dict.fromkeys(names))
        raise HostError(f"no GPU is called {quoted(gpu)}; there is: {there}")
    return found


def _text(name: str | bytes) -> str:
    """Old versions of the library return bytes."""
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def _free_gb(nvml: Any, handle: Any) -> float:
    return float(nvml.nvmlDeviceGetMemoryInfo(handle).free / _GIB)


def _used_gb(nvml: Any, handle: Any) -> float:
    """All that is not free: what the driver keeps for itself cannot be had either."""
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return float((memory.total - memory.free) / _GIB)


def _memory_percent(nvml: Any, handle: Any) -> float:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return float(100 * (memory.total - memory.free) / memory.total)


_READINGS: dict[str, Callable[[Any, Any], float]] = {
    "memory_free_gb": _free_gb,
    "memory_percent": _memory_percent,
    "memory_used_gb": _used_gb,
    "power_w": lambda nvml, handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
    "temperature_c": lambda nvml, handle: float(
        nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
    ),
    "utilization_percent": lambda nvml, handle: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
}
