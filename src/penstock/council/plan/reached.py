"""How far a question has come, and what it waits for: what the course finds out and the record tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.council.plan.answering import Response
from penstock.council.plan.concluding import Conclusion, Material
from penstock.council.plan.retrieving import Retrieved
from penstock.council.plan.so_far import Patience
from penstock.council.plan.steps import Stage, Step
from penstock.council.plan.texts import Passage
from penstock.council.plan.voting import Review


@dataclass(slots=True)
class Reached:
    stage: Stage
    responses: tuple[Response, ...] = ()
    needed: int = 1  # answers, for a synthesis
    retrieved: Retrieved | None = None
    quick_names: frozenset[str] = frozenset()  # who was also asked how sure it is
    escalated: str | None = None
    review: Review | None = None
    agreement: Mapping[str, Any] | None = None
    conclusion: Conclusion | None = None
    notes: list[str] = field(default_factory=list)  # on limits
    settled: bool = False
    ask: list[Step] = field(default_factory=list)
    cancel: list[str] = field(default_factory=list)
    wakes: list[float] = field(default_factory=list)

    @property
    def passages(self) -> tuple[Passage, ...]:
        return self.retrieved.passages if self.retrieved else ()

    @property
    def material(self) -> Material:
        return Material(self.responses, self.passages, self.review)

    def wants(self, *ask: Step, cancel: Iterable[str] = (), wake_at: float | None = None) -> None:
        self.ask += ask
        self.cancel += cancel
        if wake_at is not None:
            self.wakes.append(wake_at)

    def is_patient(self, patience: Patience) -> None:
        self.wants(cancel=patience.cancel, wake_at=patience.wake_at)

    def conclude(self, conclusion: Conclusion | None, *, settled: bool = True) -> None:
        """None: nobody answered."""
        self.conclusion, self.settled = conclusion, settled
