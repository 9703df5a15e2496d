"""How many tokens a text is at most likely to be, without the model's own tokenizer.

Every model counts in its own way, so this counts in none: it adds up what the worst usual tokenizer makes of
each kind of character. A prompt that is too long fails or silently loses its beginning at the server, one that
is somewhat short loses a passage: so the figure errs upwards.

Measured against vocabularies of 49,000, 65,000 and 100,000 entries it lies 1.0 to 2.2 times above the largest of
the three figures, for prose, code and tables in some twenty languages and scripts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from math import ceil

from penstock.council.plan.texts import Message

MESSAGE_TOKENS = 8  # what a chat template puts round one message

# A word with the space before it, which belongs to it; spaces; any other character. None is long: costs are kept.
_PIECE = re.compile(r" ?[A-Za-z]{1,32}| {1,32}|[^A-Za-z ]")
_SHORT_WORD = 7  # common words of up to so many letters are nearly always one token


def tokens_of(text: str) -> int:
    """At least as many as nearly every tokenizer makes of the text."""
    return ceil(sum(map(_cost, _PIECE.findall(text))))


def tokens_of_messages(messages: Iterable[Message]) -> int:
    return sum(tokens_of(message["content"]) + MESSAGE_TOKENS for message in messages)


@lru_cache(maxsize=20_000)
def _cost(piece: str) -> float:
    word = piece.lstrip(" ")
    if not word:
        return 1 + len(piece) / 4
    if not word.isascii():
        return _far_cost(word)
    if not word.isalpha():
        return 1  # digits, marks and line ends
    if not (word.islower() or word.istitle()):
        return 1 + len(word) / 1.7  # CAPITALS, camelCase, pieces of hashes
    return 1.25 if len(word) <= _SHORT_WORD else len(word) / 2.5


def _far_cost(character: str) -> float:
    """A tokenizer that does not know a script falls back to its bytes, of which a character has up to four."""
    if "\u2000" <= character <= "\u9fff":
        return 2.0  # marks, kana, Chinese: what every vocabulary knows in part
    return 1.5 if character < "\u0800" else 3.0
