"""How alike two claims are by their words alone: for where there is no model that knows what they mean.

It sees the same thing said in the same words, and little else: a paraphrase counts as something else. So it is
never passed off as more; what it finds is called so in the record (`"how": "words"`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

_WORD = re.compile(r"[^\W_]+(?:[.,]\d+)*(?:['’][^\W\d_]+)?")
_FIRST_WITHOUT_SPACES = 0x2E80  # Chinese, Japanese and their like: pairs of characters are their words
_SLIGHT = 0.25  # the weight of a word that every text has
_SLIGHT_WORDS_LISTED = """
a an the of to in on at by for from with as and or but is are was were be been being it its this that these
those there which who what when than then so such do does did has have had can could may might will would
should must also very just only about into over your you we they he she his her their our i der die das den
dem des ein eine einen einem einer und oder ist sind war waren es im auf mit von für zu zum le la les un une
du de et ou est sont il elle dans sur avec pour que qui el los las una unos y o son en con por para del al
se lo gli uno e sono di da os um uma é são dos na no
"""
_SLIGHT_WORDS = frozenset(_SLIGHT_WORDS_LISTED.split())
_ENDINGS = ("ations", "ation", "ingly", "edly", "ings", "ing", "ies", "ed", "es", "ly", "s", "e")
_SHORTEST_STEM = 3
READ_ONCE = (
    1024  # claims that are compared with each other, kept as they were read: more than one question has
)


def alike(texts: Sequence[str]) -> list[list[float]]:
    """A row for each text with its likeness to every one: 1 for the same words, 0 for none in common."""
    weighed = [_weighed(text) for text in texts]
    return [[_likeness(one, other) for other in weighed] for one in weighed]


@lru_cache(maxsize=READ_ONCE)
def stems(text: str) -> frozenset[str]:
    """The words of a text that tell what it is about, without their endings."""
    weighed = _weighed(text)
    return frozenset(word for word, weight in weighed.items() if weight > _SLIGHT) or frozenset(weighed)


def words_of(text: str) -> list[str]:
    return _WORD.findall(text.casefold().replace("’", "'"))


def is_slight(word: str) -> bool:
    """In small letters: one that most texts have, whatever they are about."""
    return word in _SLIGHT_WORDS


def _weighed(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for word in words_of(text):
        if ord(word[0]) >= _FIRST_WITHOUT_SPACES:
            pairs = [word[at : at + 2] for at in range(max(1, len(word) - 1))]
            found |= dict.fromkeys(pairs, 1.0)
        else:
            found[stem_of(word)] = _SLIGHT if word in _SLIGHT_WORDS else 1.0
    return found


def stem_of(word: str) -> str:
    if not word.isalpha():
        return word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            return word.removesuffix(ending)
    return word


def _likeness(one: dict[str, float], other: dict[str, float]) -> float:
    """Twice what they share, of what both have."""
    if not one or not other:
        return 0.0
    if one.keys() == other.keys():
        return 1.0
    shared = sum(min(weight, other[word]) for word, weight in sorted(one.items()) if word in other)
    return 2 * shared / (sum(sorted(one.values())) + sum(sorted(other.values())))
