"""What of the material goes into a prompt, where not all of it fits: the oldest turns go first, then the passages
that were ranked lowest, then the ends of the longest answers. Turns and passages go whole or not at all, and
everything that is left out is told.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from penstock.config.councils import Member
from penstock.council.plan.budget import tokens_of
from penstock.council.plan.fences import fenced, material, one_line
from penstock.council.plan.steps import Turn
from penstock.council.plan.texts import Answer, Passage
from penstock.errors import TaskError

LEAST_ANSWER = 48  # tokens: less than that of an answer cannot be judged
REST_LEFT_OUT = "(The rest of this answer is left out here.)"
_JOIN_TOKENS = 2  # the empty line between two blocks
_NOTE_TOKENS = tokens_of(REST_LEFT_OUT) + _JOIN_TOKENS
_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？\n]")


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a prompt, and how a note calls it when it is left out."""

    called: str
    what: str
    body: str
    code: str

    @property
    def text(self) -> str:
        return fenced(self.what, self.body, self.code)

    @property
    def tokens(self) -> int:
        return tokens_of(self.text) + _JOIN_TOKENS

    def shortened_to(self, tokens: int) -> Block:
        return replace(self, body=shortened(self.body, tokens - replace(self, body="").tokens))


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


def lay(given: Given, left: int, reader: Member, codes: tuple[str, ...]) -> Laid:
    """What fits into `left` tokens. The first of the codes fences, and none of them stays in the material."""
    room = room_for(reader)
    turns, passages = _turns(given.turns, codes), _passages(given.passages, codes)
    # An answer is longest with all its citations defused, as those of passages that are left out will be.
    answers = _answers(given.answers, codes, ())
    least = sum(min(block.tokens, replace(block, body="").tokens + LEAST_ANSWER) for block in answers)
    if answers:
        refuse_beyond(room, room - left + least, reader, f"the question with {len(answers)} answers")
    kept = keep(left - sum(block.tokens for block in answers), turns, passages)
    fitting = [*turns[len(turns) - kept[0] :], *passages[: kept[1]]]
    shown = tuple(passage.n for passage in given.passages[: kept[1]])
    answers, short = _fitted(
        _answers(given.answers, codes, shown), left - sum(block.tokens for block in fitting)
    )
    return Laid(
        "\n\n".join(block.text for block in [*fitting, *answers]),
        kept[0] > 0,
        shown,
        (*_notes(room, turns, passages, kept), *short),
    )


def _turns(turns: Sequence[Turn], codes: tuple[str, ...]) -> list[Block]:
    def body(turn: Turn) -> str:
        return f"Asked: {material(turn.query, *codes)}\n\nAnswered: {material(turn.answer, *codes)}"

    return [Block("", f"earlier turn {n}", body(turn), codes[0]) for n, turn in enumerate(turns, 1)]


def _passages(passages: Sequence[Passage], codes: tuple[str, ...]) -> list[Block]:
    blocks = []
    for passage in passages:
        source, heading = one_line(passage.source, *codes), one_line(passage.heading, *codes)
        head = [f"source: {source}", *([f"heading: {heading}"] if heading else []), ""]
        body = "\n".join([*head, material(passage.text, *codes)])
        blocks.append(Block(f"passage {passage.n} ({source})", f"passage [{passage.n}]", body, codes[0]))
    return blocks


def _answers(
    answers: Sequence[tuple[str, Answer]], codes: tuple[str, ...], citable: Collection[int]
) -> list[Block]:
    return [
        Block(
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


def keep(room: int, turns: Sequence[Block], passages: Sequence[Block]) -> tuple[int, int]:
    """How many turns (the latest) and passages (the first) fit."""
    used = sum(block.tokens for block in turns) + sum(block.tokens for block in passages)
    first = 0
    while used > room and first < len(turns):
        used -= turns[first].tokens
        first += 1
    kept = len(passages)
    while used > room and kept:
        kept -= 1
        used -= passages[kept].tokens
    return len(turns) - first, kept


def _notes(room: int, turns: Sequence[Block], passages: Sequence[Block], kept: tuple[int, int]) -> list[str]:
    gone = len(turns) - kept[0]
    told = [f"the oldest {gone} of {len(turns)} earlier turns: no room in {room} tokens"] if gone else []
    return told + [f"{one.called}: no room in {room} tokens" for one in passages[kept[1] :]]


def caps(room: int, sizes: Sequence[int]) -> list[int]:
    """Tokens for each of several texts that share the room: the long ones give, the short ones stay whole."""
    given = [0] * len(sizes)
    left = room
    order = sorted(range(len(sizes)), key=lambda n: sizes[n])
    for rank, n in enumerate(order):
        given[n] = min(sizes[n], max(0, left // (len(order) - rank)))
        left -= given[n]
    return given


def shortened(text: str, room: int) -> str:
    """The beginning of a text that fits, to the end of a paragraph or of a sentence if one is near."""
    if tokens_of(text) <= room:
        return text
    head = text[: _longest_head(text, room - _NOTE_TOKENS)]
    sentence = max((end.end() for end in _SENTENCE_END.finditer(head)), default=-1)
    bounds = (head.rfind("\n\n"), sentence, head.rfind(" "))
    near = next((bound for bound in bounds if bound >= len(head) // 2), len(head))
    return f"{head[:near].rstrip()}\n\n{REST_LEFT_OUT}"


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
