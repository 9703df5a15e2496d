"""How a host's attempts slow down with how many run at once, as told by a recording. For diagnosis and what-if.

A curve says the speed of one attempt beside others, relative to alone. Its form is the best of

    Scalability   1 / (1 + σ(c-1) + κc(c-1)): the universal scalability law, σ, κ ≥ 0
    Onset         full speed up to some attempts at once, beyond them (knee / c) ** exponent
    Workers       a server that works on so many at once and lets the others wait inside, first come first served

and flat where nothing slows down, or where it cannot be told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from penstock.diagnosis import speed_fit
from penstock.diagnosis.attempts import Lived, lived, resolution_s
from penstock.diagnosis.recording import Recording
from penstock.diagnosis.speed_fit import Fit
from penstock.diagnosis.speed_shapes import FLAT, Shape, Workers
from penstock.diagnosis.steps import Steps

_ENOUGH = 0.95  # of the greatest throughput: from here on more at once brings nothing worth having
_SURE = 0.15  # standard error of the exponent in speed ~ c ** -exponent, up to which "flat" is knowledge

Key: TypeAlias = tuple[str, int]  # task, number of the attempt


@dataclass(frozen=True, slots=True)
class SpeedCurve:
    """Of one host. `observed` is from how few to how many at once the recording has seen."""

    host: str
    shape: Shape = FLAT
    observed: tuple[int, int] = (0, 0)
    samples: int = 0  # attempts that could be compared with others of their kind and model
    error: float = float(
        "inf"
    )  # of the exponent in speed ~ c ** -exponent: how much the recording leaves open
    proof: float = 0.0  # by how much, in natural logarithms of likelihood, the curve beats a flat one

    def speed(self, at_once: float) -> float:
        """Of one attempt among so many, relative to alone."""
        return 1.0 if at_once <= 1 else self.shape.speed(at_once)

    def throughput(self, at_once: float) -> float:
        """Of all of them together, in attempts that are alone."""
        return at_once * self.speed(at_once)

    @property
    def slows(self) -> bool:
        return self.shape is not FLAT

    @property
    def is_known(self) -> bool:
        """Whether the recording is evidence for this curve: a slow-down, or that there is none."""
        return self.slows or (self.observed[1] > self.observed[0] and self.error <= _SURE)

    @property
    def knee(self) -> int | None:
        """How many at once are enough for all that the host gave; None where more would have given more."""
        high = self.observed[1]
        if not self.is_known or high < 2:
            return None
        best = max(self.throughput(c) for c in range(1, high + 1))
        knee = next(c for c in range(1, high + 1) if self.throughput(c) >= _ENOUGH * best)
        return knee if knee < high else None


def speed_of(recording: Recording, *, guess: bool = False) -> Mapping[str, SpeedCurve]:
    """The curve of every host that ran something; flat, and not known, where the recording does not tell.

    With `guess`, whatever is likelier than not; else what is proven.
    """
    resolution = resolution_s(recording)
    lives = sorted(lived(recording).items())
    return {host: curve_of(host, attempts, resolution, guess=guess) for host, attempts in lives}


def curve_of(
    host: str, attempts: Sequence[Lived], resolution: float = 0.0, *, guess: bool = False
) -> SpeedCurve:
    """Of the attempts of one host: all of them load it, those that ended well are compared."""
    fit: Fit = speed_fit.fit(attempts, resolution, guess=guess)
    return SpeedCurve(host, fit.shape, fit.observed, fit.samples, fit.error, fit.proof)


def alone_s(recording: Recording, curves: Mapping[str, SpeedCurve]) -> Mapping[Key, float]:
    """How long each attempt that ended would have taken alone on its host."""
    return alone_of(lived(recording), curves, resolution_s(recording))


def alone_of(
    hosts: Mapping[str, Sequence[Lived]], curves: Mapping[str, SpeedCurve], resolution: float
) -> Mapping[Key, float]:
    """The same, of the attempts by host."""
    works: dict[Key, float] = {}
    for host, attempts in hosts.items():
        curve = curves.get(host) or SpeedCurve(host)
        if isinstance(curve.shape, Workers):
            blur_s = speed_fit.blur_of(attempts, resolution)
            served = [max(0.0, s) for s in speed_fit.served_s(attempts, curve.shape.count, blur_s)]
        elif curve.slows:
            load = Steps((a.start, a.end) for a in attempts)
            served = [
                sum((b - a) * curve.speed(n) for a, b, n in load.pieces(x.start, x.end)) for x in attempts
            ]
        else:
            served = [a.end - a.start for a in attempts]
        works.update({(a.task, a.number): s for a, s in zip(attempts, served, strict=True) if a.has_ended})
    return works
