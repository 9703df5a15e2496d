"""What of the material goes into a prompt, where not all of it fits: the oldest turns go first, then the passages
that were ranked lowest, then the ends of the longest answers. Turns and passages go whole or not at all, and
everything that is left out is told.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from penstock.config.councils import Member
from penstock.council.plan.budget import tokens_of
from penstock.council.plan.fences import fenced, material, one_line
from penstock.council.plan.steps import Turn
from penstock.council.plan.texts import Answer, Passage
from penstock.errors import TaskError

LEAST_ANSWER = 48  # tokens: less than that of an answer cannot be judged
REST_LEFT_OUT = "(The rest of this answer is left out here.)"
_JOIN_TOKENS = 2  # the empty line between two blocks
_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？\n]")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced piece of a prompt, and how a note calls it when it is left out."""

    called: str
    what: str
    body: str
    code: str
    tokens: int  # with its fence, and the empty line after it

    @classmethod
    def of(cls, called: str, what: str, body: str, code: str) -> Block:
        return cls(called, what, body, code, tokens_of(fenced(what, body, code)) + _JOIN_TOKENS)

    @property
    def text(self) -> str:
        return fenced(self.what, self.body, self.code)

    @property
    def bare_tokens(self) -> int:
        """Of the fence alone."""
        return tokens_of(fenced(self.what, "", self.code)) + _JOIN_TOKENS

    def shortened_to(self, tokens: int) -> Block:
        return Block.of(self.called, self.what, shortened(self.body, tokens - self.bare_tokens), self.code)


@dataclass(frozen=True, slots=True)
class Given:
    """What there is for a prompt, before it is cut. An answer comes with the label it gets."""

    turns: Sequence[Turn] = ()
    passages: Sequence[Passage] = ()
    answers: Sequence[tuple[str, Answer]] = ()


@dataclass(frozen=True, slots=True)
class Laid:
    """What of it goes into the prompt."""

    text: str
    has_turns: bool
    shown: tuple[int, ...]
    cut: tuple[str, ...]
    spare: int  # tokens that are left


def lay(given: Given, left: int, reader: Member, codes: tuple[str, ...]) -> Laid:
    """What fits into `left` tokens. The first of the codes fences, and none of them stays in the material."""
    room = room_for(reader)
    # An answer is longest with all its citations defused, as those of passages that are left out will be.
    answers = _answers(given.answers, codes, ())
    if answers:
        least = sum(min(block.tokens, block.bare_tokens + LEAST_ANSWER) for block in answers)
        refuse_beyond(room, room - left + least, reader, f"the question with {len(answers)} answers")
    passages = _passages(given.passages, codes)
    fitting, spare = _first_that_fit(passages, left - sum(block.tokens for block in answers))
    turns = _latest_that_fit(given.turns, codes, spare) if len(fitting) == len(passages) else []
    shown = tuple(passage.n for passage in given.passages[: len(fitting)])
    left -= sum(block.tokens for block in [*turns, *fitting])
    written, short = _fitted(_answers(given.answers, codes, shown), left) if shown else _fitted(answers, left)
    cut = [f"{block.called}: no room in {room} tokens" for block in passages[len(fitting) :]]
    if gone := len(given.turns) - len(turns):
        cut.insert(0, f"the oldest {gone} of {len(given.turns)} earlier turns: no room in {room} tokens")
    text = "\n\n".join(block.text for block in [*turns, *fitting, *written])
    spare = left - sum(block.tokens for block in written)
    return Laid(text, bool(turns), shown, (*cut, *short), spare)


def _first_that_fit(blocks: Sequence[Block], room: int) -> tuple[list[Block], int]:
    """The best passages, without a gap, and the tokens that are left."""
    for n, block in enumerate(blocks):
        if block.tokens > room:
            return list(blocks[:n]), room
        room -= block.tokens
    return list(blocks), room


def _latest_that_fit(turns: Sequence[Turn], codes: tuple[str, ...], room: int) -> list[Block]:
    """Looked at from the latest back, so that a long conversation costs no more than what fits of it."""
    kept: list[Block] = []
    for n in range(len(turns), 0, -1):
        turn = turns[n - 1]
        body = f"Asked: {material(turn.query, *codes)}\n\nAnswered: {material(turn.answer, *codes)}"
        block = Block.of("", f"earlier turn {n}", body, codes[0])
        room -= block.tokens
        if room < 0:
            break
        kept.insert(0, block)
    return kept


def _passages(passages: Sequence[Passage], codes: tuple[str, ...]) -> list[Block]:
    blocks = []
    for passage in passages:
        source, heading = one_line(passage.source, *codes), one_line(passage.heading, *codes)
        head = [f"source: {source}", *([f"heading: {heading}"] if heading else []), ""]
        body = "\n".join([*head, material(passage.text, *codes)])
        blocks.append(Block.of(f"passage {passage.n} ({source})", f"passage [{passage.n}]", body, codes[0]))
    return blocks


def _answers(
    answers: Sequence[tuple[str, Answer]], codes: tuple[str, ...], citable: Collection[int]
) -> list[Block]:
    return [
        Block.of(
            f"the answer of {answer.name}",
            f"answer {one_line(label, *codes)}",
            material(answer.text, *codes, citable=citable),
            codes[0],
        )
        for label, answer in answers
    ]


def _fitted(blocks: Sequence[Block], room: int) -> tuple[list[Block], list[str]]:
    sizes = [block.tokens for block in blocks]
    fitted, told = [], []
    for block, size, cap in zip(blocks, sizes, caps(room, sizes), strict=True):
        fitted.append(block if cap >= size else block.shortened_to(cap))
        told += [f"the end of {block.called}: room for {cap} of its {size} tokens"] if cap < size else []
    return fitted, told


def room_for(reader: Member) -> int:
    """Tokens that a prompt for this model may have."""
    return reader.context_tokens - reader.max_tokens


def refuse_beyond(room: int, tokens: int, reader: Member, what: str) -> None:
    """For what cannot be cut."""
    if tokens > room:
        raise TaskError(
            f"{reader.name}: {what} needs about {tokens} tokens, but its model holds {reader.context_tokens} less "
            f"{reader.max_tokens} for its reply: ask in fewer words, lower its max_tokens, or raise its "
            "context_tokens if the model can hold more"
        )


def caps(room: int, sizes: Sequence[int]) -> list[int]:
    """Tokens for each of several texts that share the room: the long ones give, the short ones stay whole."""
    given = [0] * len(sizes)
    left = room
    order = sorted(range(len(sizes)), key=lambda n: sizes[n])
    for rank, n in enumerate(order):
        given[n] = min(sizes[n], max(0, left // (len(order) - rank)))
        left -= given[n]
    return given


def shortened(text: str, room: int, note: str = REST_LEFT_OUT) -> str:
    """The beginning of a text that fits, to the end of a paragraph or of a sentence if one is near."""
    if tokens_of(text) <= room:
        return text
    head = text[: _longest_head(text, room - tokens_of(note) - _JOIN_TOKENS)]
    sentence = max((end.end() for end in _SENTENCE_END.finditer(head)), default=-1)
    bounds = (head.rfind("\n\n"), sentence, head.rfind(" "))
    near = next((bound for bound in bounds if bound >= len(head) // 2), len(head))
    return f"{head[:near].rstrip()}\n\n{note}"


def _longest_head(text: str, room: int) -> int:
    """In characters, found by halving: more text is hardly ever fewer tokens."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if tokens_of(text[:middle]) <= room:
            low = middle
        else:
            high = middle - 1
    return low
