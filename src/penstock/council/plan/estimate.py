"""What a question would take, without asking it: calls, tokens and money of each stage, expected and at most.

Prices come from the config; members without one are named, for what they cost is not known. A time is only
told where it is known for everybody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.config.councils import Council, Member, Mode
from penstock.config.keys import AUTO_MODEL
from penstock.council.plan.calls import (
    LEAST_ANSWERS,
    NOTHING,
    Call,
    Size,
    answer_size,
    chair_call,
    member_call,
    passages_size,
    question_size,
    repair_call,
    review_call,
)
from penstock.council.plan.quick import quick_members, risk_word
from penstock.council.plan.steps import Stage, Turn
from penstock.model import Host, Plant, Price

FORMS = 2  # of a review: with structured output, and where that is refused without it
REVIEW_TRIES = FORMS + 1  # and repaired
CHAIR_TRIES = 2  # the chair, and whom it passes on to


@dataclass(frozen=True, slots=True)
class StageEstimate:
    stage: Stage
    calls: int
    calls_most: int
    tokens: Size = NOTHING
    usd: Size = NOTHING


@dataclass(frozen=True, slots=True)
class Estimate:
    mode: Mode
    stages: tuple[StageEstimate, ...]
    unpriced: tuple[str, ...]  # members whose calls count as free, because nothing says what they cost
    seconds: float | None = None
    limit_usd: float | None = None

    @property
    def calls(self) -> int:
        return sum(one.calls for one in self.stages)

    @property
    def calls_most(self) -> int:
        return sum(one.calls_most for one in self.stages)

    @property
    def tokens(self) -> Size:
        return sum((one.tokens for one in self.stages), NOTHING)

    @property
    def usd(self) -> float:
        return sum(one.usd.expected for one in self.stages)

    @property
    def usd_most(self) -> float:
        return sum(one.usd.most for one in self.stages)

    def as_record(self) -> dict[str, Any]:
        stages = [
            {
                "stage": one.stage.value,
                "calls": one.calls,
                "calls_most": one.calls_most,
                "tokens": round(one.tokens.expected),
                "tokens_most": round(one.tokens.most),
                "usd": round(one.usd.expected, 6),
                "usd_most": round(one.usd.most, 6),
            }
            for one in self.stages
        ]
        return {
            "mode": self.mode.value,
            "stages": stages,
            "calls": self.calls,
            "calls_most": self.calls_most,
            "tokens": round(self.tokens.expected),
            "tokens_most": round(self.tokens.most),
            "usd": round(self.usd, 6),
            "usd_most": round(self.usd_most, 6),
            "unpriced": list(self.unpriced),
            "seconds": self.seconds,
            "limit_usd": self.limit_usd,
        }


def estimate(
    council: Council,
    mode: Mode,
    members: Sequence[str],
    query: str,
    prices: Mapping[str, Price],
    *,
    use_rag: bool = True,
    turns: Sequence[Turn] = (),
    instructions: str = "",
    seconds: Mapping[str, float] | None = None,
) -> Estimate:
    """`prices` and `seconds` of one call: by member's name, where they are known.

    A quick question that holds a risk word is one for the council from the start.
    """
    if mode is Mode.QUICK and risk_word(council, query) is not None:
        found = estimate(
            council,
            Mode.COUNCIL,
            members,
            query,
            prices,
            use_rag=use_rag,
            turns=turns,
            instructions=instructions,
            seconds=seconds,
        )
        return replace(found, mode=mode, limit_usd=_limit_usd(council, mode))
    asked = tuple(one for one in council.members if one.name in members)
    question = question_size(query, turns, instructions)
    passages = passages_size(council, use_rag)
    stages = (
        *_retrieve(council, use_rag),
        _members(council, mode, asked, question, passages, prices),
        *_review(mode, asked, question, passages, prices),
        _agreement(council, mode, asked),
        _synthesis(council, mode, asked, question, passages, prices),
    )
    involved = {one.name for one in (*asked, council.chair)}
    return Estimate(
        mode=mode,
        stages=tuple(one for one in stages if one.calls_most),
        unpriced=tuple(sorted(involved - prices.keys())),
        seconds=_seconds(council, mode, asked, seconds or {}),
        limit_usd=_limit_usd(council, mode),
    )


def _limit_usd(council: Council, mode: Mode) -> float | None:
    limits = council.limits.get(mode)
    return limits.cost_usd if limits else None


def prices_of(council: Council, hosts: Sequence[Host]) -> dict[str, Price]:
    """By member: the dearest price of its model on a host that may answer for it, fallback hosts included.

    Where it takes any model of a host that has several, nobody knows which will answer: the dearest counts.
    """
    found: dict[str, Price] = {}
    plant = Plant(tuple(hosts))
    for member in (*council.members, council.chair):
        able = plant.hosts_for(member.kind, member.host, member.model)
        prices = [price for host in able if (price := _price(member, host)) is not None]
        if prices:
            found[member.name] = max(prices, key=_dearness)
    return found


def _price(member: Member, host: Host) -> Price | None:
    if member.model is not None and member.model in host.prices:
        return host.prices[member.model]
    if host.model is not None:
        return host.prices.get(host.model)
    is_any = member.model is None or member.model == AUTO_MODEL or member.model in host.serves
    return max(host.prices.values(), key=_dearness, default=None) if is_any else None


def _dearness(price: Price) -> tuple[float, float]:
    return price.output, price.input


def _priced(
    stage: Stage, calls: Sequence[Call], prices: Mapping[str, Price], tries: int = 1
) -> StageEstimate:
    tokens, usd = NOTHING, NOTHING
    for call in calls:
        tokens = tokens + call.tokens
        if call.member.name in prices:
            usd = usd + call.usd(prices[call.member.name])
    return StageEstimate(stage, len(calls), len(calls) * tries, tokens.times(1, tries), usd.times(1, tries))


def _retrieve(council: Council, use_rag: bool) -> tuple[StageEstimate, ...]:
    return (StageEstimate(Stage.RETRIEVE, 1, 1),) if council.retrieval is not None and use_rag else ()


def _members(
    council: Council,
    mode: Mode,
    asked: Sequence[Member],
    question: Size,
    passages: Size,
    prices: Mapping[str, Price],
) -> StageEstimate:
    everybody = _priced(Stage.MEMBERS, [member_call(one, question, passages) for one in asked], prices)
    if mode is not Mode.QUICK:
        return everybody
    first = [member_call(one, question, passages) for one in quick_members(council, asked)]
    few = _priced(Stage.MEMBERS, first, prices)
    return StageEstimate(
        Stage.MEMBERS,
        few.calls,
        everybody.calls_most,
        Size(few.tokens.expected, everybody.tokens.most),
        Size(few.usd.expected, everybody.usd.most),
    )


def _review(
    mode: Mode, asked: Sequence[Member], question: Size, passages: Size, prices: Mapping[str, Price]
) -> tuple[StageEstimate, ...]:
    if mode is not Mode.THOROUGH or len(asked) < LEAST_ANSWERS:
        return ()
    calls = [
        review_call(one, question, passages, [answer_size(other) for other in asked if other is not one])
        for one in asked
    ]
    found = _priced(Stage.REVIEW, calls, prices, FORMS)
    repairs = _priced(Stage.REVIEW, [repair_call(one) for one in calls], prices)
    return (
        replace(
            found,
            calls_most=len(calls) * REVIEW_TRIES,
            tokens=found.tokens + repairs.tokens.times(0, 1),
            usd=found.usd + repairs.usd.times(0, 1),
        ),
    )


def _agreement(council: Council, mode: Mode, asked: Sequence[Member]) -> StageEstimate:
    if mode is Mode.QUICK:
        pair = len(quick_members(council, asked)) > 1
        return StageEstimate(Stage.AGREEMENT, int(pair), int(pair) + int(len(asked) > 1))
    several = int(len(asked) > 1)
    return StageEstimate(Stage.AGREEMENT, several, several)


def _synthesis(
    council: Council,
    mode: Mode,
    asked: Sequence[Member],
    question: Size,
    passages: Size,
    prices: Mapping[str, Price],
) -> StageEstimate:
    if len(asked) < 2:
        return StageEstimate(Stage.SYNTHESIS, 0, 0)
    call = chair_call(council.chair, question, passages, [answer_size(one) for one in asked])
    found = _priced(Stage.SYNTHESIS, [call], prices, CHAIR_TRIES)
    if mode is not Mode.QUICK:
        return found
    tokens, usd = Size(0, found.tokens.most), Size(0, found.usd.most)
    return StageEstimate(Stage.SYNTHESIS, 0, found.calls_most, tokens, usd)


def _seconds(
    council: Council, mode: Mode, asked: Sequence[Member], seconds: Mapping[str, float]
) -> float | None:
    """The slowest of each stage, one stage after the other, as if every host were free."""
    first = quick_members(council, asked) if mode is Mode.QUICK else asked
    needed = [one.name for one in first]
    sums_up = mode is not Mode.QUICK and len(asked) > 1
    if any(name not in seconds for name in (*needed, *([council.chair.name] if sums_up else []))):
        return None
    slowest = max((seconds[name] for name in needed), default=0.0)
    rounds = 2 if mode is Mode.THOROUGH and len(asked) >= LEAST_ANSWERS else 1
    return round(rounds * slowest + (seconds[council.chair.name] if sums_up else 0.0), 3)
