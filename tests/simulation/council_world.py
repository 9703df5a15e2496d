"""A world for one question: a council, fates for its steps, a driver that may die, and a clock that only it moves.

What becomes of a step depends on the seed and the step's name alone. So a world with kills and one without have
the same members, who say the same: only the times differ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from penstock.config.councils import Council, Member, Mode, ModeLimits, Quick, Retrieval
from penstock.council.plan.course import moves
from penstock.council.plan.steps import Moves, Question, Step, StepEnd
from penstock.council.plan.synthesis import mark_of
from penstock.model import Price, State

NAMES = ("GOKU", "VEGETA", "PICCOLO", "GOHAN", "KRILLIN", "BULMA")
ASKED_AT = 1_000_000.0
MOST_LOOKS = 2_000  # a question that needs more has lost its way
ERRORS = ("surtr answered 500: boom", "timed out after 5 s", "ConnectionError: refused", "", None)


@dataclass(frozen=True, slots=True)
class Fate:
    """How a step ends, and how long after it was asked."""

    after_s: float
    state: State
    value: Any = None
    error: str | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class World:
    seed: int
    council: Council
    question: Question
    prices: Mapping[str, Price]
    trouble: float  # the share of steps that go wrong


@dataclass(frozen=True, slots=True)
class Look:
    """One time that the plan was asked, and what it was told."""

    now: float
    asked: Mapping[str, float]
    ended: Mapping[str, StepEnd]
    found: Moves


def world(seed: int, **fixed: Any) -> World:
    """A council by chance; `fixed` are fields of it that are not left to chance."""
    chance = Random(f"council {seed}")
    members = tuple(_member(chance, name) for name in NAMES[: chance.choice([1, 2, 3, 3, 4, 5, 6])])
    chair = chance.choice([*members, Member("SHENRON", model="big")])
    given: dict[str, Any] = {
        "name": "shenron",
        "members": members,
        "chair": chair,
        "min_answers": chance.randint(1, len(members)),
        "patience_s": chance.choice([None, None, 0.0, 1.0, 3.0]),
        "retrieval": chance.choice([None, Retrieval("kb", top=chance.randint(1, 3), path="/kb")]),
        "quick": Quick(
            members=tuple(
                one.name for one in chance.sample(members, min(len(members), chance.randint(0, 2)))
            ),
            risk_words=chance.choice([(), ("dose",)]),
        ),
        "limits": {
            mode: ModeLimits(
                cost_usd=chance.choice([None, None, None, 0.0, 0.02, 0.05, 0.1]),
                time_s=chance.choice([None, None, 0.5, 6.0, 9.0, 12.0]),
            )
            for mode in chance.sample(list(Mode), chance.randint(0, 3))
        },
    }
    council = Council(**given | fixed)
    some = chance.sample(members, chance.randint(1, len(members)))
    asked = members if chance.random() < 0.6 else tuple(one for one in members if one in some)
    question = Question(
        id=f"q-{seed}",
        query=chance.choice(["Why is the sky blue?", "What dose is safe?", "Why? " * 150]),
        mode=chance.choice(list(Mode)),
        members=tuple(one.name for one in asked),
        use_rag=council.retrieval is not None and chance.random() < 0.8,
        asked_at=ASKED_AT,
    )
    prices = {one.name: Price(5.0, 20.0) for one in (*members, chair) if chance.random() < 0.5}
    return World(seed, council, question, prices, chance.choice([0.0, 0.0, 0.1, 0.1, 0.4, 0.9]))


def _member(chance: Random, name: str) -> Member:
    return Member(
        name,
        emoji="🥋",
        role=f"role of {name}",
        model=chance.choice(["small", "big", None]),
        kind=chance.choice(["chat", "chat", "chat", "calculate"]),
        temperature=chance.choice([None, 0.7]),
        max_tokens=chance.choice([256, 1024]),
        timeout_s=chance.choice([4.0, 10.0, 10.0]),
        weight=chance.choice([0.5, 1.0, 2.0]),
        context_tokens=chance.choice([8192] * 8 + [1200]),
    )


def fate_of(world: World, step: Step) -> Fate:
    """The same whenever the step is asked."""
    chance = Random(f"{world.seed} {step.name}")
    after_s = round(chance.uniform(0.05, 6.0), 3)
    if step.timeout_s is not None and after_s > step.timeout_s:
        return Fate(step.timeout_s, State.FAILED, error=f"timed out after {step.timeout_s:g} s")
    if chance.random() < world.trouble:
        return _trouble(chance, after_s, step)
    return Fate(after_s, State.DONE, _value(world, chance, step), cost_usd=chance.choice([None, 0.002, 0.02]))


def _trouble(chance: Random, after_s: float, step: Step) -> Fate:
    kind = chance.randrange(8)
    if kind < 3:
        return Fate(after_s, State.FAILED, error=chance.choice(ERRORS))
    if kind == 3:
        return Fate(after_s, State.CANCELLED, error="cancelled")
    if kind == 4:
        return Fate(after_s, State.BLOCKED, error="its dispatcher died")
    if kind == 5 and step.name.startswith("review/"):
        return Fate(after_s, State.FAILED, error="surtr answered 400: no response_format")
    nonsense: list[Any] = [
        "",
        None,
        7,
        ["text"],
        {},
        {"text": 7},
        {"text": ""},
        {"text": "", "refusal": "No."},
    ]
    return Fate(after_s, State.DONE, chance.choice(nonsense))


def _value(world: World, chance: Random, step: Step) -> Any:
    if step.name == "retrieve":
        rows = [
            {"n": n, "source": f"{n}.md", "heading": "", "text": f"Fact {n}.", "score": 0.5} for n in (1, 2)
        ]
        return {"passages": rows[: chance.randint(0, 2)], "how": "hybrid", "problem": None}
    if step.name.startswith("agreement"):
        lists: dict[str, list[str]] = {
            "pairs": [],
            "shared": [],
            "alone": [],
            "conflicts": [],
            "disputes": [],
        }
        return {"measured": True, "how": "words", "score": round(chance.random(), 3), "why": None, **lists}
    text = f"{step.name} says: it scatters [1]."
    if step.name.startswith("member/"):
        text += f"\nCONFIDENCE: {chance.choice([20, 60, 95])}" if "CONFIDENCE" in str(step.payload) else ""
    elif step.name.startswith("synthesis/"):
        text += f"\n{mark_of(world.question.id)}\n" + json.dumps({"disputes": ["one"], "dissent": []})
    else:
        text = _ballot(chance, step)
    finish = chance.choice(["stop", "stop", "length"])
    return chance.choice([text, {"text": text, "finish_reason": finish, "model": "served"}])


def _ballot(chance: Random, step: Step) -> str:
    """A vote by chance, or words that are none; a repair is likelier to be one."""
    prompt = step.payload["messages"][-1]["content"]
    labels = [label for label in "ABCDEF" if f"answer {label} " in prompt]
    if chance.random() < (0.3 if step.name.endswith("/repair") else 0.5):
        return "I like all of them."
    chance.shuffle(labels)
    rubric = ("accuracy", "completeness", "clarity")
    return json.dumps(
        {
            "ranking": labels,
            "scores": {label: {point: chance.randint(1, 5) for point in rubric} for label in labels},
            "reasons": dict.fromkeys(labels, "it is so"),
        }
    )


class Life:
    """One question from its first look to its record, with a driver that is killed `kills` times."""

    def __init__(self, world: World, kills: int = 0, late_s: float = 0.0) -> None:
        self.world = world
        self.now = ASKED_AT
        self.asked: dict[str, float] = {}
        self.steps: dict[str, Step] = {}
        self.seen: dict[str, StepEnd] = {}  # what the driver has been told
        self.looks: list[Look] = []
        self.cancelled: dict[str, float] = {}
        self._fates: dict[str, Fate] = {}
        self._kills = kills
        self._late_s = late_s  # how long it may take until an end is told
        self._chance = Random(f"life {world.seed} {kills} {late_s}")

    def run(self) -> Moves:
        while len(self.looks) < MOST_LOOKS:
            found = self._look()
            if found.record is not None:
                return found
            if self._kills and self._chance.random() < 0.3:
                self._die(found)
                continue
            self._act(found, len(found.ask))
            self._wait(found.wake_at)
        raise AssertionError(f"seed {self.world.seed}: no end after {MOST_LOOKS} looks")

    def ends(self) -> dict[str, StepEnd]:
        """All that has ended by now, whether the driver knows it or not."""
        ended = {name: self._end(name) for name in self.asked}
        return {name: end for name, end in ended.items() if end.ended_at <= self.now}

    def _look(self) -> Moves:
        of = self.world
        asked, ended = dict(self.asked), dict(self.seen)
        found = moves(of.council, of.question, asked, ended, self.now, of.prices)
        self.looks.append(Look(self.now, asked, ended, found))
        return found

    def _act(self, found: Moves, count: int) -> None:
        for step in found.ask[:count]:
            assert step.name not in self.asked, f"seed {self.world.seed}: {step.name} is asked twice"
            self.asked[step.name] = self.now
            self.steps[step.name] = step
            self._fates[step.name] = fate_of(self.world, step)
        for name in found.cancel:
            self.cancelled.setdefault(name, self.now + self._chance.choice([0.0, 0.2]))

    def _die(self, found: Moves) -> None:
        """In the middle of what it does; its next life reads from the store what was asked and what ended."""
        self._kills -= 1
        self._act(replace(found, cancel=()), self._chance.randint(0, len(found.ask)))
        self.now += self._chance.choice([0.0, 0.5, 8.0])
        self.seen = self.ends()

    def _end(self, name: str) -> StepEnd:
        fate, queued_at = self._fates[name], self.asked[name]
        ended_at = queued_at + fate.after_s
        at = self.cancelled.get(name)
        if at is not None and at < ended_at:
            return StepEnd(State.CANCELLED, queued_at, at, error="cancelled", attempts=1)
        return StepEnd(
            fate.state,
            queued_at,
            ended_at,
            value=fate.value,
            error=fate.error,
            host="surtr",
            attempts=1,
            tokens=100 if fate.state is State.DONE else None,
            cost_usd=fate.cost_usd,
        )

    def _wait(self, wake_at: float | None) -> None:
        """Until the driver is told of something, or wakes by itself; and sometimes for nothing."""
        told = {name: self._end(name) for name in self.asked if name not in self.seen}
        times = [end.ended_at for end in told.values()] + ([wake_at] if wake_at is not None else [])
        if not times:
            return
        self.now = max(self.now, min(times))
        if wake_at is None or self.now < wake_at:
            self.now += self._chance.uniform(0, self._late_s)
        for name in sorted(told, key=lambda _: self._chance.random()):
            if told[name].ended_at <= self.now and (self._chance.random() < 0.7 or self.now == min(times)):
                self.seen[name] = told[name]
