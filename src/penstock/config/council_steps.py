"""The keys of tasks that a question of a council asks for: whose they are, and how they are called.

    council/QUESTION/STEP

STEP is retrieve, member/GOKU, review/GOKU, review/GOKU/repair, agreement, synthesis/SHENRON.
The same step of the same question has the same key, so it is one task however often it is asked for.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.config.councils import STEP_KEYS
from penstock.model import Task

_MEMBER = "member"


class StepOf(NamedTuple):
    question: str  # the id of its task
    stage: str  # retrieve, member, review, agreement, synthesis
    name: str = ""  # of who is asked; "" where it is the library
    more: str = ""  # a review: repair or plain; an agreement: quick

    @property
    def shown(self) -> str:
        """By its member, as people speak of it."""
        if self.stage == _MEMBER:
            return self.name
        return " ".join(filter(None, (self.name, self.stage, self.more)))


def step_key(question: str, step: str) -> str:
    return f"{STEP_KEYS}{question}/{step}"


def step_of(key: str | None) -> StepOf | None:
    """None: the key of anything else."""
    if key is None or not key.startswith(STEP_KEYS):
        return None
    question, _, step = key.removeprefix(STEP_KEYS).partition("/")
    stage, *rest = step.split("/")
    if not question or not stage:
        return None
    if stage in (_MEMBER, "review", "synthesis"):
        return StepOf(question, stage, rest[0], " ".join(rest[1:])) if rest and rest[0] else None
    return StepOf(question, stage, "", " ".join(rest))


def called(task: Task) -> str:
    """A step by its member, any other task by its id."""
    step = step_of(task.key)
    return task.id if step is None else step.shown
