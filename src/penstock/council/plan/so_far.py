"""What is known of a question at one moment: who was asked, what ended and how, and when its time is up.

Every stage reads this and nothing else. So what is decided depends on nothing that a crash could take away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.config.councils import LIBRARY, Council, Member, ModeLimits
from penstock.council.plan.steps import Question, Stage, Step, StepEnd
from penstock.model import Price

NO_LIMITS = ModeLimits()

RETRIEVE = "retrieve"
AGREEMENT = "agreement"
AGREEMENT_OF_PAIR = "agreement/quick"

LIBRARY_TIMEOUT_S = 60.0  # of one attempt: a local model embeds some thousand words in it, on one slow core
LIBRARY_RETRIES = 1
# The library is beside the question: where it is down or has much else to do, it is done without, and that is told.
RETRIEVE_PATIENCE_S = 15.0  # for passages, from when they are asked for
AGREEMENT_PATIENCE_S = 10.0  # for agreement, beyond the answer that it is measured beside


def member_step(name: str) -> str:
    return f"member/{name}"


def review_step(name: str) -> str:
    return f"review/{name}"


def plain_step(name: str) -> str:
    return f"{review_step(name)}/plain"


def repair_step(name: str) -> str:
    return f"{review_step(name)}/repair"


def synthesis_step(name: str) -> str:
    return f"synthesis/{name}"


@dataclass(frozen=True, slots=True)
class Patience:
    """What is done about a step that takes long: it is looked at again, or cancelled. Its end is waited for."""

    cancel: tuple[str, ...] = ()
    wake_at: float | None = None


NO_PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class SoFar:
    council: Council
    question: Question
    asked: Mapping[str, float]  # step -> when it was queued; those that ended included
    ended: Mapping[str, StepEnd]
    now: float
    prices: Mapping[str, Price] = field(
        default_factory=dict
    )  # by member; those whose model has none are missing

    @property
    def members(self) -> tuple[Member, ...]:
        """Who may be asked, in configured order."""
        return tuple(one for one in self.council.members if one.name in self.question.members)

    @property
    def limits(self) -> ModeLimits:
        return self.council.limits.get(self.question.mode, NO_LIMITS)

    @property
    def limit_at(self) -> float | None:
        """When its time is up, counted from when it was asked: waiting in the queue is waiting, too."""
        time_s = self.limits.time_s
        return None if time_s is None else self.question.asked_at + time_s

    @property
    def is_late(self) -> bool:
        return self.limit_at is not None and self.now >= self.limit_at

    @property
    def live(self) -> tuple[str, ...]:
        """Steps that were asked for and have not ended."""
        return tuple(name for name in self.asked if name not in self.ended)

    def is_live(self, name: str) -> bool:
        return name in self.asked and name not in self.ended

    def patience(self, name: str, until: float) -> Patience:
        """With a step that is waited for until then."""
        if not self.is_live(name):
            return NO_PATIENCE
        return Patience(cancel=(name,)) if self.now >= until else Patience(wake_at=until)

    def all_ended(self, names: Iterable[str]) -> bool:
        return all(name in self.ended for name in names)

    def someone(self, name: str) -> Member | None:
        """A member of this question, or the chair."""
        found = self.council.member(name)
        return self.council.chair if found is None and name == self.council.chair.name else found


def library_step(
    so_far: SoFar, name: str, stage: Stage, do: Mapping[str, object], after: Iterable[str]
) -> Step:
    """A task of the library's host, which says in its value what it could not do."""
    return Step(
        name=name,
        stage=stage,
        kind=LIBRARY,
        payload={**do, "council": so_far.council.name},
        timeout_s=LIBRARY_TIMEOUT_S,
        retries=LIBRARY_RETRIES,
        after=tuple(after),
    )
