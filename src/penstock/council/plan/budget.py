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
from math import ceil

from penstock.council.plan.texts import Message

MESSAGE_TOKENS = 8  # what a chat template puts round one message

_PIECES = re.compile(
    r"(?P<word>[A-Za-z]+)"
    r"|(?P<space> (?=[A-Za-z]))"  # belongs to the word after it
    r"|(?P<spaces> +)"
    r"|(?P<one>[\x00-\x7f])"  # digits, marks, line ends: a token each
    r"|(?P<far>[^\x00-\x7f])"
)
_SHORT_WORD = 7  # common words of up to so many letters are nearly always one token


def tokens_of(text: str) -> int:
    """At least as many as nearly every tokenizer makes of the text."""
    return ceil(sum(_piece_tokens(piece) for piece in _PIECES.finditer(text)))


def tokens_of_messages(messages: Iterable[Message]) -> int:
    return sum(tokens_of(message["content"]) + MESSAGE_TOKENS for message in messages)


def _piece_tokens(piece: re.Match[str]) -> float:
    text = piece.group()
    match piece.lastgroup:
        case "word":
            return _word_tokens(text)
        case "space":
            return 0
        case "spaces":
            return 1 + len(text) / 4
        case "one":
            return 1
    return _far_tokens(text)


def _word_tokens(word: str) -> float:
    if not (word.islower() or word.istitle()):
        return 1 + len(word) / 1.7  # CAPITALS, camelCase, pieces of hashes
    return 1.25 if len(word) <= _SHORT_WORD else len(word) / 2.5


def _far_tokens(character: str) -> float:
    """A tokenizer that does not know a script falls back to its bytes, of which a character has up to four."""
    size_bytes = len(character.encode("utf-8", "surrogatepass"))
    if size_bytes == 3 and "\u2000" <= character <= "\u9fff":
        return 2.0  # marks, kana, Chinese: what every vocabulary knows in part
    return 1.5 if size_bytes == 2 else 3.0
