"""contention: attempts take the longer the more of them run on a host; and the knee beyond which more is no use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.diagnosis.finders.one_at_a_time_server import serves_one
from penstock.diagnosis.finders.report import called, finding, host_table, seconds, set_slots
from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.finders.stalled_loop import seen_late
from penstock.diagnosis.findings import Finding
from penstock.diagnosis.steps import spans_of

NAME = "contention"
_SLOWER = 0.8  # of the speed alone: what is above it is borne


def find(scene: Scene, found: Sequence[Finding]) -> Iterator[Finding]:
    late = seen_late(found)
    for host, curve in scene.curves.items():
        high = curve.observed[1]
        if not curve.slows or host in late or serves_one(curve) or curve.speed(high) > _SLOWER:
            continue
        own = [a for a in scene.by_host[host] if a.is_own and a.has_ended]
        alone = [scene.alone_s[a.task, a.number] for a in own]
        lost = [(max(0.0, a.seconds - s), a.task) for a, s in zip(own, alone, strict=True)]
        best = max(curve.throughput(c) for c in range(1, high + 1))
        busy_s = sum(b - a for a, b in scene.busy[host])
        knee = curve.knee
        where = (
            f"beyond {knee} at once nothing is gained"
            if knee is not None
            else f"up to {high} at once throughput still grows"
        )
        yield finding(
            scene,
            NAME,
            f"attempts on {called(host)} take {1 / curve.speed(high):.1f} times as long with {high} at once "
            f"as alone; {where}",
            remedy=f"{host_table(host)} slots = {knee}"
            if knee is not None
            else f"{host_table(host)} slots = {high}  # more pays less and less: penstock whatif --sweep shows it",
            change=set_slots(host, high if knee is None else knee),
            lost=lost,
            gain_s=busy_s - sum(alone) / best,
            spans=spans_of(scene.load[host], scene.end, 2),
            hosts=[host],
            facts=[
                f"speed of each: {', '.join(f'{c} at once {curve.speed(c):.0%}' for c in _shown(high))}",
                f"{seconds(sum(s for s, _ in lost))} longer than alone, all attempts together",
                f"{curve.samples} attempts compared",
            ],
        )


def _shown(high: int) -> list[int]:
    return sorted({1, 2, (high + 1) // 2, high})
