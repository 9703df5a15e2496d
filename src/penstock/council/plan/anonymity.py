"""Who wrote which answer, hidden from those who judge it: labels, an order of its own for each reviewer, masks.

Models like what stands first, and their own. So each reviewer sees the answers in an order drawn from a hash of
the question's id and its own name: over many questions every answer stands everywhere equally often. Its own
answer is not among them, and what an author says of itself is masked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from hashlib import sha256

from penstock.config.councils import Member
from penstock.council.plan.texts import Answer

MASK = "(the author)"
_LETTERS = 26
_LOOKED_BACK = 16  # characters before a name, that tell how it is meant
_BEGINS = re.compile(r"(?:^|[.!?:;\n])[\s\"'“‘«(*_>#-]{0,8}$")  # a sentence, a point of a list, a quotation
_INTRODUCED = re.compile(r"\b(?:I am|I['’]m|name is|call me|ich bin|je suis|soy)\s$", re.IGNORECASE)


def label_of(position: int) -> str:
    """A, B, … Z, AA, AB, …: letters, for models that number from 0 and models that number from 1."""
    label = ""
    position += 1
    while position:
        position, letter = divmod(position - 1, _LETTERS)
        label = chr(ord("A") + letter) + label
    return label


def order_for(question_id: str, reader: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names as this reader sees them. Any order is equally likely, and the same question gives the same."""
    return tuple(sorted(names, key=lambda name: (draw(question_id, reader, name), name)))


def draw(*words: str) -> bytes:
    """Chance that is the same whenever it is asked: no reviewer's order tells anything of another's."""
    return sha256("\0".join(words).encode("utf-8", "replace")).digest()


def others(answers: Iterable[Answer], reviewer: str) -> list[Answer]:
    """What a reviewer may judge: never its own."""
    return [answer for answer in answers if answer.name != reviewer]


def masked(text: str, author: Member | None) -> str:
    """The text without its author's name, emoji, model, and role where that is more than a word.

    A name that may be a word of the language is taken for one where it is written as one: what a mask spoils is
    this author's answer alone, and reviewers would know it by that.
    """
    if author is None:
        return text
    if author.emoji:
        text = re.sub(re.escape(author.emoji.rstrip("\ufe0f")) + "\ufe0f?", "", text)
    tells = [author.name, author.model or "", author.role if " " in author.role.strip() else ""]
    folded = text.casefold()  # most texts name nobody, and to look is cheaper than to replace
    for tell in sorted({tell.strip() for tell in tells} - {""}, key=len, reverse=True):
        if len(tell) == 1 or tell.casefold() not in folded:
            continue
        hidden = _hidden_word(tell) if _may_be_a_word(tell) else MASK
        text = re.sub(rf"(?<!\w){re.escape(tell)}(?!\w)", hidden, text, flags=re.IGNORECASE)
    return text


def _may_be_a_word(tell: str) -> bool:
    """Will, lawyer, SAGE; not Qwen2.5, McCoy or two words."""
    return tell.isalpha() and (tell.istitle() or tell.islower() or tell.isupper())


def _hidden_word(tell: str) -> Callable[[re.Match[str]], str]:
    """Masks a word that is written as a name: as its owner writes it, or with a capital that no sentence asks for.

    Small letters are a name only for those who call themselves by it.
    """

    def hidden(found: re.Match[str]) -> str:
        word = found.group()
        before = found.string[max(0, found.start() - _LOOKED_BACK) : found.start()]
        if word == tell and not tell.islower():
            return MASK
        if word[0].isupper() and not _BEGINS.search(before):
            return MASK
        return MASK if _INTRODUCED.search(before) else word

    return hidden
