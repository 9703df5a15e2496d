"""The size and the price of one call to a model, before it is made: expected, and at most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.config.councils import Council, Member
from penstock.council.plan.budget import tokens_of
from penstock.council.plan.prompts import REPAIR_TOKENS
from penstock.council.plan.steps import Turn
from penstock.council.plan.texts import Passage
from penstock.model import Price

# `tokens_of` counts upwards, for prompts that must fit; real tokenizers make some two thirds of it.
EXPECTED_SHARE = 2 / 3
# What a prompt says beside the question and its material, and the fences of each piece of that; counted upwards.
MEMBER_RULES, REVIEW_RULES, CHAIR_RULES = 300, 420, 520
TURN_FRAME, PASSAGE_FRAME, ANSWER_FRAME, BALLOT_FRAME = 70, 70, 55, 95
TOKENS_PER_WORD = 1.4  # of passages in prose
MOST_TOKENS_PER_WORD = 2.5
LEAST_ANSWERS = 3  # for a review: of two, each reviewer would rank a single one
BALLOT_TOKENS = 120  # for each answer that is ranked, scored and given a reason

_PER_MILLION = 1e-6


@dataclass(frozen=True, slots=True)
class Size:
    """In tokens."""

    expected: float
    most: float

    def __add__(self, other: Size) -> Size:
        return Size(self.expected + other.expected, self.most + other.most)

    def times(self, count: float, most: float | None = None) -> Size:
        return Size(self.expected * count, self.most * (count if most is None else most))


NOTHING = Size(0, 0)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one member: what it reads and what it writes."""

    member: Member
    reads: Size
    writes: Size

    @property
    def tokens(self) -> Size:
        return self.reads + self.writes

    def usd(self, price: Price) -> Size:
        return Size(
            (self.reads.expected * price.input + self.writes.expected * price.output) * _PER_MILLION,
            (self.reads.most * price.input + self.writes.most * price.output) * _PER_MILLION,
        )


def size_of(text: str) -> Size:
    tokens = tokens_of(text)
    return Size(tokens * EXPECTED_SHARE, tokens)


def question_size(query: str, turns: Iterable[Turn] = (), instructions: str = "") -> Size:
    """What everybody is shown of it: members, reviewers and the chair."""
    whole = size_of(query)
    if instructions:
        whole = whole + size_of(instructions)
    for turn in turns:
        whole = whole + size_of(turn.query) + size_of(turn.answer) + _counted(TURN_FRAME)
    return whole


def passages_size(council: Council, use_rag: bool) -> Size:
    """Of what a search will find, as far as the config tells."""
    retrieval = council.retrieval
    if retrieval is None or not use_rag:
        return NOTHING
    words = retrieval.top * retrieval.chunk_words
    return Size(words * TOKENS_PER_WORD, words * MOST_TOKENS_PER_WORD) + _counted(
        PASSAGE_FRAME * retrieval.top
    )


def passage_size(passage: Passage) -> Size:
    """Of one that was found."""
    return size_of(passage.text) + _counted(PASSAGE_FRAME)


def answer_size(member: Member) -> Size:
    """Nobody knows before it is written: half of what it may be."""
    return Size(member.max_tokens / 2, member.max_tokens)


def member_call(member: Member, question: Size, passages: Size) -> Call:
    reads = question + passages + size_of(member.persona + member.role) + _counted(MEMBER_RULES)
    return Call(member, _fitting(member, reads), answer_size(member))


def review_call(member: Member, question: Size, passages: Size, answers: Sequence[Size]) -> Call:
    """`answers` are those of the others. Reviewers read what the authors could read."""
    framed = question + passages + _counted(REVIEW_RULES + BALLOT_FRAME * len(answers))
    writes = Size(min(member.max_tokens, BALLOT_TOKENS * len(answers)), member.max_tokens)
    return Call(member, _fitting(member, _all(answers, framed)), writes)


def repair_call(review: Call) -> Call:
    """The same once more, with the reply that could not be read."""
    reads = review.reads + review.writes + _counted(REPAIR_TOKENS)
    return Call(review.member, _fitting(review.member, reads), review.writes)


def chair_call(chair: Member, question: Size, passages: Size, answers: Sequence[Size]) -> Call:
    framed = question + passages + size_of(chair.persona + chair.role)
    framed = framed + _counted(CHAIR_RULES + ANSWER_FRAME * len(answers))
    return Call(chair, _fitting(chair, _all(answers, framed)), answer_size(chair))


def _counted(tokens: int) -> Size:
    """What `tokens_of` makes of our own words."""
    return Size(tokens * EXPECTED_SHARE, tokens)


def _all(sizes: Sequence[Size], begin: Size) -> Size:
    return sum(sizes, begin)


def _fitting(member: Member, reads: Size) -> Size:
    """What does not fit into the model is cut from the prompt."""
    room = max(0, member.context_tokens - member.max_tokens)
    return Size(min(reads.expected, room), min(reads.most, room))
