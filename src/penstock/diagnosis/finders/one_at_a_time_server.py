"""one-at-a-time-server: a host with several slots that gets through no more than with one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.diagnosis.finders import ideal
from penstock.diagnosis.finders.report import called, finding, host_table, seconds
from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.finders.stalled_loop import seen_late
from penstock.diagnosis.finders.turns import Turn
from penstock.diagnosis.findings import Finding
from penstock.diagnosis.speed import SpeedCurve
from penstock.diagnosis.speed_fit import NO_MORE
from penstock.diagnosis.speed_shapes import ONE, Workers
from penstock.diagnosis.steps import spans_of

NAME = "one-at-a-time-server"
_FEW = 2  # at once


def serves_one(curve: SpeedCurve) -> bool:
    """Where few were never seen, a curve with figures of its own says nothing of what one alone would do."""
    low, high = curve.observed
    if not curve.slows or high < 2 or (low > _FEW and curve.shape not in (ONE, Workers(1))):
        return False
    return max(curve.throughput(c) for c in range(1, high + 1)) <= NO_MORE


def find(scene: Scene, found: Sequence[Finding]) -> Iterator[Finding]:
    late = seen_late(found)
    for host, curve in scene.curves.items():
        if not serves_one(curve) or host in late:
            continue
        slots = max(2, scene.slots(host), curve.observed[1])
        own = [a for a in scene.by_host[host] if a.is_own and a.has_ended]
        alone = [scene.alone_s[a.task, a.number] for a in own]
        lost = [(max(0.0, a.seconds - s), a.task) for a, s in zip(own, alone, strict=True)]
        usual = sorted(alone)[len(alone) // 2]
        yield finding(
            scene,
            NAME,
            f"{called(host)} was given up to {curve.observed[1]} at once and works on one at a time: "
            f"an attempt takes about {seconds(usual)} alone, and as many times that as there are beside it",
            remedy="let the server take several at once (OLLAMA_NUM_PARALLEL, --parallel, Max Concurrent "
            f"Predictions); until it does, {host_table(host)} slots = 1 is as fast",
            lost=lost,
            gain_s=_gain_s(scene.presumed, host),
            spans=spans_of(scene.load[host], scene.end, 2),
            hosts=[host],
            facts=[
                f"{slots} slots",
                f"throughput with {curve.observed[1]} at once: "
                f"{curve.throughput(curve.observed[1]):.2f} times that of one",
                f"{curve.samples} attempts compared",
            ],
        )


def _gain_s(scene: Scene, host: str) -> float:
    """With a server that takes as many as it is given."""

    def took_s(turn: Turn) -> float | None:
        life = turn.life
        if life is None or life.host != host:
            return life.seconds if life is not None else None
        return min(life.seconds, scene.alone_s.get((life.task, life.number), life.seconds))

    return ideal.gain_s(scene, ideal.pieces(scene, seconds=took_s))
