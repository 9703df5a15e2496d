"""The keys of tasks that a question of a council asks for: whose they are, and how they are called.

    council/QUESTION/STEP
    council/QUESTION/STEP/@MATERIAL
    council/QUESTION/STEP/@MATERIAL.2

STEP is retrieve, member/GOKU, review/GOKU, review/GOKU/repair, agreement, synthesis/SHENRON.
MATERIAL is a digest of what the step is made from, where that is what others came to; a number follows where the
same was asked for once more. So the same step, made from the same, is one task however often it is asked for.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.config.councils import STEP_KEYS
from penstock.model import Task

_MEMBER = "member"
_NAMED = (_MEMBER, "review", "synthesis")
_MARK = "@"


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


def step_key(question: str, step: str, material: str = "", number: int = 1) -> str:
    mark = f"/{_MARK}{material}" if material or number > 1 else ""
    return f"{STEP_KEYS}{question}/{step}{mark}" + (f".{number}" if number > 1 else "")


def unmarked(step: str) -> str:
    """A step's name, from what follows the question in its key."""
    name, _, mark = step.rpartition("/")
    # A member may be called @anything: its name is the second part, and a mark comes after it.
    is_mark = mark.startswith(_MARK) and bool(name) and name not in _NAMED
    return name if is_mark else step


def step_of(key: str | None) -> StepOf | None:
    """None: the key of anything else."""
    if key is None or not key.startswith(STEP_KEYS):
        return None
    question, _, step = key.removeprefix(STEP_KEYS).partition("/")
    stage, *rest = unmarked(step).split("/")
    if not question or not stage:
        return None
    if stage in _NAMED:
        return StepOf(question, stage, rest[0], " ".join(rest[1:])) if rest and rest[0] else None
    return StepOf(question, stage, "", " ".join(rest))


def called(task: Task) -> str:
    """A step by its member, any other task by its name within its run, or by its id."""
    step = step_of(task.key)
    return task.name or task.id if step is None else step.shown
