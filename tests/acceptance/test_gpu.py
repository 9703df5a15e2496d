"""`nvml:` probes on the real driver: against `nvidia-smi` where there is one, else that its absence is told. E5."""

from __future__ import annotations

import subprocess

import pytest
from pynvml import NVMLError, nvmlInit, nvmlShutdown

from penstock.dispatcher.probes import read_once
from penstock.model import Gate

MIB = 1 / 1024  # in GiB

# A reading, what `nvidia-smi` calls it, its unit in ours, and how far two moments may lie apart.
READINGS = {
    "memory_free_gb": ("memory.free", MIB, 1.0),
    "temperature_c": ("temperature.gpu", 1.0, 10.0),
    "power_w": ("power.draw", 1.0, 150.0),
    "utilization_percent": ("utilization.gpu", 1.0, 100.0),
}


def has_driver() -> bool:
    try:
        nvmlInit()
    except NVMLError:
        return False
    nvmlShutdown()
    return True


def by_nvidia_smi(gpu: int, what: str) -> float:
    argv = ["nvidia-smi", f"--id={gpu}", f"--query-gpu={what}", "--format=csv,noheader,nounits"]
    return float(subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout)


@pytest.mark.parametrize("name", READINGS)
async def test_e5_the_driver_is_read(name: str) -> None:
    """E5: as `nvidia-smi` reads it; a machine without a driver says so and does not fail."""
    gate = Gate("gpu", probe=f"nvml:{name}#0", min=0, holds_lanes=("default",))
    (reading,) = await read_once([gate], 30)
    if not has_driver():
        assert reading.value is None
        assert reading.error.startswith("no NVIDIA driver answers here (")
        return
    what, unit, apart = READINGS[name]
    assert reading.error == ""
    assert reading.value == pytest.approx(by_nvidia_smi(0, what) * unit, abs=apart)


async def test_e5_used_and_free_memory_make_up_the_whole() -> None:
    gates = [
        Gate(name, probe=f"nvml:{name}", min=0, holds_lanes=("default",))
        for name in ("memory_free_gb", "memory_used_gb", "memory_percent")
    ]
    told = {reading.gate: reading for reading in await read_once(gates, 30)}
    if not has_driver():
        assert {reading.value for reading in told.values()} == {None}
        return
    values = {name: reading.value or 0.0 for name, reading in told.items()}
    whole = by_nvidia_smi(0, "memory.total") * MIB
    assert values["memory_free_gb"] + values["memory_used_gb"] == pytest.approx(whole, abs=1.0)
    assert values["memory_percent"] == pytest.approx(100 * values["memory_used_gb"] / whole, abs=2.0)
