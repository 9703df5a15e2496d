"""Prompts are made once for a question, for what they are made of, and are forgotten with it."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from penstock.config.councils import Council
from penstock.council.plan import prompts, remembered
from penstock.council.plan.so_far import SoFar
from penstock.council.plan.steps import Question
from penstock.council.plan.texts import Passage
from penstock.errors import TaskError
from tests.unit.course_rig import Table, agreed, chat, council, member, question


def looked_at(of: Council, asked: Question) -> SoFar:
    return SoFar(of, asked, {}, {}, 0.0)


def test_a_question_that_is_followed_to_its_end_makes_each_prompt_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    for name in ("member_prompt", "chair_prompt"):
        real = getattr(prompts, name)

        def counted(*given: Any, name: str = name, real: Any = real, **more: Any) -> Any:
            made.append(f"{name} {given[2].name}")
            return real(*given, **more)

        monkeypatch.setattr(prompts, name, counted)
    table = Table(council("A", "B"), question(council("A", "B"), id="followed"))
    for name in "AB":
        table.look()
        table.say(name, "It scatters.")
    table.look()
    table.done("agreement", agreed(1))
    table.look()
    table.done("synthesis/SHENRON", chat("So it is."))
    table.record()
    assert sorted(made) == ["chair_prompt SHENRON", "member_prompt A", "member_prompt B"]


def test_other_material_makes_other_words() -> None:
    of = council("A")
    so_far = looked_at(of, question(of, id="material"))
    goku = of.members[0]
    bare = remembered.member_prompt(so_far, goku, (), quick=False)
    fed = remembered.member_prompt(so_far, goku, [Passage(1, "sky.md", text="It scatters.")], quick=False)
    unsure = remembered.member_prompt(so_far, goku, (), quick=True)
    assert (bare.shown, fed.shown) == ((), (1,))
    assert "CONFIDENCE" in unsure.messages[-1]["content"]
    assert "CONFIDENCE" not in bare.messages[-1]["content"]
    assert remembered.member_prompt(so_far, goku, (), quick=False) is bare


def test_a_question_that_does_not_fit_is_refused_every_time() -> None:
    small = member("SMALL", context_tokens=1100, max_tokens=1024)
    of = council(members=(small,))
    so_far = looked_at(of, question(of, id="long", query="why " * 500))
    for _ in range(2):
        with pytest.raises(TaskError, match="SMALL: the question needs about"):
            remembered.member_prompt(so_far, small, (), quick=False)


def test_what_is_kept_goes_with_its_question() -> None:
    of = council("A")
    gc.collect()
    before = len(remembered._KEPT)
    asked: Question | None = question(of, id="passing")
    assert asked is not None
    remembered.member_prompt(looked_at(of, asked), of.members[0], (), quick=False)
    assert len(remembered._KEPT) == before + 1
    asked = None
    gc.collect()
    assert len(remembered._KEPT) == before
