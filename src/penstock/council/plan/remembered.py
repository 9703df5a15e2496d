"""The prompts of a question, each made once while somebody holds the question.

The course is followed anew at every end, and the record tells what each prompt could show. Making the words takes
milliseconds for each, on the loop that everything else runs on: so they are kept beside the question and go with
it. What is kept is what the same arguments would give again; nothing is decided by whether it was kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from penstock.config.councils import Member
from penstock.council.plan import prompts
from penstock.council.plan.ranking import Ranked
from penstock.council.plan.so_far import SoFar
from penstock.council.plan.steps import Question
from penstock.council.plan.texts import Answer, Passage, Prompt, ReviewPrompt
from penstock.errors import TaskError

T = TypeVar("T", Prompt, ReviewPrompt)

_KEPT: WeakKeyDictionary[Question, dict[Hashable, Any]] = WeakKeyDictionary()


def member_prompt(so_far: SoFar, member: Member, passages: Sequence[Passage], *, quick: bool) -> Prompt:
    """Raises TaskError where the question does not fit into the member's model."""
    return _once(
        so_far,
        ("member", member, tuple(passages), quick),
        lambda: prompts.member_prompt(so_far.council, so_far.question, member, passages, quick=quick),
    )


def review_prompt(
    so_far: SoFar, reviewer: Member, answers: Sequence[Answer], passages: Sequence[Passage]
) -> ReviewPrompt:
    """Raises TaskError where the answers do not fit into the reviewer's model."""
    return _once(
        so_far,
        ("review", reviewer, tuple(answers), tuple(passages)),
        lambda: prompts.review_prompt(so_far.council, so_far.question, reviewer, answers, passages),
    )


def chair_prompt(
    so_far: SoFar,
    chair: Member,
    answers: Sequence[Answer],
    passages: Sequence[Passage],
    ranking: Sequence[Ranked] | None,
) -> Prompt:
    """Raises TaskError where the answers do not fit into the chair's model."""
    places = None if ranking is None else tuple((one.name, one.points, one.score) for one in ranking)
    return _once(
        so_far,
        ("chair", chair, tuple(answers), tuple(passages), places),
        lambda: prompts.chair_prompt(so_far.council, so_far.question, chair, answers, passages, ranking),
    )


def _once(so_far: SoFar, key: tuple[Hashable, ...], make: Callable[[], T]) -> T:
    council = so_far.council
    kept = _KEPT.setdefault(so_far.question, {})
    whole = (council.name, council.members, council.rubric, *key)
    if whole not in kept:
        try:
            kept[whole] = make()
        except TaskError as error:
            kept[whole] = str(error)
    found = kept[whole]
    if isinstance(found, str):
        raise TaskError(found)
    made: T = found
    return made
