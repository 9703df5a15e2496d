"""Plays the driver of one question for the tests of its plan: asks for moves, and lets steps end as a test says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.config.councils import Council, Member, Mode, Retrieval
from penstock.council.plan.ballots import LEAST_SCORE
from penstock.council.plan.course import moves
from penstock.council.plan.steps import Moves, Question, Step, StepEnd
from penstock.council.plan.synthesis import mark_of
from penstock.model import Price, State

ASKED_AT = 1_000.0
RUBRIC = ("accuracy", "completeness", "clarity")


def member(name: str, **fields: Any) -> Member:
    return Member(name=name, emoji="🥋", role=f"the role of {name}", model=f"model-of-{name}", **fields)


def council(*names: str, **fields: Any) -> Council:
    """Members of these names, and a chair who only sums up unless one is given."""
    members = tuple(member(name) for name in names)
    given: dict[str, Any] = {"name": "shenron", "members": members, "chair": member("SHENRON")}
    return Council(**given | fields)


def question(of: Council, **fields: Any) -> Question:
    given: dict[str, Any] = {
        "id": "q-1",
        "query": "Why is the sky blue?",
        "mode": Mode.COUNCIL,
        "members": tuple(one.name for one in of.members),
        "use_rag": of.retrieval is not None,
        "asked_at": ASKED_AT,
    }
    return Question(**given | fields)


LIBRARY = Retrieval("knowledge_base", top=3, path="/library")
PASSAGES = [
    {"n": n, "id": f"p{n}", "source": f"sky-{n}.md", "heading": "Light", "text": f"Fact {n}.", "score": 1 / n}
    for n in (1, 2, 3)
]


def chat(text: str, **fields: Any) -> dict[str, Any]:
    """A model's value."""
    return {"text": text, "finish_reason": "stop", "model": "served", **fields}


def found(*passages: Mapping[str, Any], problem: str | None = None) -> dict[str, Any]:
    how = "hybrid"
    return {"passages": list(passages), "how": how, "problem": problem, "collection": "knowledge_base"}


def agreed(score: float) -> dict[str, Any]:
    return {
        "measured": True,
        "how": "words",
        "score": score,
        "pairs": [],
        "shared": ["it scatters"],
        "alone": [],
        "conflicts": [],
        "disputes": [],
        "why": None,
    }


def summed_up(text: str, asked: Question, disputes: list[str], dissent: list[dict[str, str]]) -> str:
    """As a chair writes it."""
    trailer = json.dumps({"disputes": disputes, "dissent": dissent})
    return f"{text}\n\n{mark_of(asked.id)}\n{trailer}"


def ballot(labels: str) -> str:
    """As a reviewer writes it, the best label first."""
    scores = {label: dict.fromkeys(RUBRIC, max(LEAST_SCORE, 5 - place)) for place, label in enumerate(labels)}
    reasons = {label: f"{label} is in place {place}" for place, label in enumerate(labels, 1)}
    return json.dumps({"ranking": list(labels), "scores": scores, "reasons": reasons})


class Table:
    """The council's table: what was asked, what ended, and the time."""

    def __init__(
        self, of: Council, asked: Question | None = None, prices: Mapping[str, Price] | None = None
    ) -> None:
        self.council = of
        self.question = asked or question(of)
        self.prices = prices
        self.now = ASKED_AT
        self.asked: dict[str, float] = {}
        self.ended: dict[str, StepEnd] = {}
        self.steps: dict[str, Step] = {}
        self.cancelled: list[str] = []
        self.last = Moves()

    def look(self) -> Moves:
        """What the plan wants at this moment; what it asks for is asked."""
        found = moves(self.council, self.question, self.asked, self.ended, self.now, self.prices)
        for step in found.ask:
            assert step.name not in self.asked, f"{step.name} was asked before"
            self.asked[step.name] = self.now
            self.steps[step.name] = step
        self.cancelled += [name for name in found.cancel if name not in self.cancelled]
        self.last = found
        return found

    def names(self) -> list[str]:
        """What the plan asks for at this moment."""
        return [step.name for step in self.look().ask]

    def pass_s(self, seconds: float) -> None:
        self.now += seconds

    def done(self, name: str, value: Any, **fields: Any) -> None:
        self._end(name, State.DONE, value=value, **fields)

    def say(self, who: str, text: str, **fields: Any) -> None:
        """A member answers."""
        self.done(f"member/{who}", chat(text), **fields)

    def fail(self, name: str, error: str | None, **fields: Any) -> None:
        self._end(name, State.FAILED, error=error, **fields)

    def cancel(self, name: str, error: str | None = None) -> None:
        self._end(name, State.CANCELLED, error=error)

    def _end(self, name: str, state: State, **fields: Any) -> None:
        assert name in self.asked, f"{name} was never asked"
        assert name not in self.ended, f"{name} has ended"
        given: dict[str, Any] = {"host": "surtr", "attempts": 1, "started_at": self.asked[name]}
        self.ended[name] = StepEnd(state, self.asked[name], self.now, **given | fields)

    def record(self) -> dict[str, Any]:
        found = self.look()
        assert found.record is not None, f"not over: {found}"
        return dict(found.record)

    def response(self, name: str) -> dict[str, Any]:
        return next(one for one in self.record()["responses"] if one["name"] == name)
