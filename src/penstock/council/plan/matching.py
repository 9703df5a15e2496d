"""What two claims are to each other: the same, in conflict, or neither. By the cosine of their vectors, and vetoes.

Vectors tell what a claim is about, and hardly what it says of that: "is safe" and "is not safe" are nearly the same
to them, and so are 5 mg and 50 mg, Sydney and Canberra. So three things keep claims that are alike from being the
same: other figures, another name or thing in the same words, and that one of them denies. Vetoes only take
agreement away, they never make any. Claims that are in the same words but for that are in conflict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

# Chosen by labelled pairs, for the local model: docs/how-to/council-agreement.md.
ALIKE = 0.7
# How far words may move a claim that another claim says in other ones: what is missing to a cosine of 1, by the
# share of the words that differ. A synonym in the place of a word moves it little, another thing much.
MOVES = 0.45
IN_PLACE = 0.5  # up to this share of differing words, claims are about the same and say another thing of it

_READ_ONCE = 1024  # claims that are compared with each other, kept as they were read
_WORD = re.compile(r"(?<!°)[^\W_]+(?:[.,]\d+)*(?:['’][^\W\d_]+)?")
_NAME = re.compile(r"(?<![\w°])[^\W\d_][^\W_]*(?:-[^\W_]+)*")
_OWNED = re.compile(r"['’]s$")
_BEGINS = re.compile(r"(?:^|[.!?:;•\"“(])\s*$")  # a sentence: a capital after it says nothing
_GERMAN = re.compile(
    r"\b(?:der|das|ist|und|nicht|ein|eine|einen|dem|den|wird|sind)\b"
)  # each noun has a capital
_FIGURE = re.compile(r"(?<![\w.,])(?P<number>-?\d+(?:[.,]\d+)*)(?:[\s-]?(?P<unit>[^\W\d_]+|[%°]))?")
_DENIES = re.compile(
    r"\b(?:not(?! (?:only|just|merely|necessarily)\b)|no(?! (?:doubt|matter|later|more|less)\b)|never|none|nor"
    r"|nobody|nothing|cannot|without|nicht(?! nur\b)|kein\w{0,2}|nie|niemals|ohne|pas|jamais|aucune?|nunca|non|não"
    r"|не|нет)\b|n['’]t\b|[不没未]|ない",
    re.IGNORECASE,
)
_NEAR = 0.02  # "about 300,000 km/s" is no other figure than 299,792
_COUNTS = 10_000  # whole numbers below it are years and counts: near is not the same
_SHORTEST_STEM = 4
_SAME_STEM = 2 / 3  # of the longer word
_LONGEST_PREFIX = 3


class Relation(Enum):
    SAME = auto()
    CONFLICT = auto()
    NEITHER = auto()


class _Read(NamedTuple):
    """In small letters."""

    words: tuple[str, ...]
    starts: dict[str, list[str]]  # the words by their first letters
    names: tuple[str, ...]
    figures: tuple[tuple[float, str], ...]  # with the word after them, which mostly is the unit
    denials: int


def relation(one: str, other: str, cosine: float) -> Relation:
    if cosine < ALIKE:
        return Relation.NEITHER
    mine, theirs = _read(one), _read(other)
    if _have_others(mine, theirs) and _have_others(theirs, mine):
        return Relation.CONFLICT if _count_the_same(mine, theirs) else Relation.NEITHER
    only_mine, only_theirs = _others(mine.words, theirs), _others(theirs.words, mine)
    if (mine.denials + theirs.denials + _is_turned(only_mine, only_theirs)) % 2:
        return Relation.CONFLICT
    differing = max(len(only_mine), len(only_theirs)) / max(1, len(mine.words), len(theirs.words))
    # Else one of them only says more.
    is_moved = only_mine and only_theirs and 1 - cosine >= MOVES * differing
    if is_moved or _names_differ(mine, theirs):
        return Relation.CONFLICT if differing <= IN_PLACE else Relation.NEITHER
    return Relation.SAME


@lru_cache(maxsize=_READ_ONCE)
def _read(text: str) -> _Read:
    words = [_OWNED.sub("", word).casefold() for word in _WORD.findall(text)]
    names = [match.group() for match in _NAME.finditer(text) if _is_name(text, match)]
    figures = [
        (_value(match["number"]), (match["unit"] or "").casefold()) for match in _FIGURE.finditer(text)
    ]
    names = [name.casefold().replace("-", " ") for name in names]
    starts = _by(words, slice(_SHORTEST_STEM))
    return _Read(tuple(words), starts, tuple(names), tuple(figures), len(_DENIES.findall(text)))


def _is_name(text: str, match: re.Match[str]) -> bool:
    """A word with a capital for another reason than that a sentence begins: Sydney, LIFO, Last-In."""
    capitals = sum(map(str.isupper, match.group()))
    if capitals != 1:
        return capitals > 1
    begins = _BEGINS.search(text[: match.start()]) is not None
    return match.group() != "I" and not begins and _GERMAN.search(text) is None


# ---- words


def _by(words: Iterable[str], part: slice) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word in words:
        found.setdefault(word[part], []).append(word)
    return found


def _others(words: Iterable[str], other: _Read) -> list[str]:
    """Those that the other claim has not, in whatever form."""
    starts = other.starts
    return [
        word
        for word in words
        if not any(_is_form(word, one) for one in starts.get(word[:_SHORTEST_STEM], ()))
    ]


def _is_form(one: str, other: str) -> bool:
    """Of the same word, as far as its beginning shows: reduce, reduces, reduced."""
    if one == other:
        return True
    return _common_start(one, other) >= max(_SHORTEST_STEM, _SAME_STEM * max(len(one), len(other)))


def _is_turned(mine: Iterable[str], theirs: Iterable[str]) -> bool:
    """Words that differ in their first letters alone say the opposite: legal, illegal; increase, decrease."""
    ends = _by(theirs, slice(-_SHORTEST_STEM, None))
    return any(
        (same := _common_start(one[::-1], other[::-1])) >= _SHORTEST_STEM
        and max(len(one), len(other)) - same <= _LONGEST_PREFIX
        and (one + other).isalpha()
        for one in mine
        for other in ends.get(one[-_SHORTEST_STEM:], ())
    )


def _common_start(one: str, other: str) -> int:
    at = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        at += 1
    return at


def _names_differ(mine: _Read, theirs: _Read) -> bool:
    """Whether each names something that the other does not, or one names things of which the other names none."""
    only_mine, only_theirs = _unnamed(mine, theirs), _unnamed(theirs, mine)
    if only_mine and only_theirs:
        return True
    return any(
        only and len(only) == len(read.names) for only, read in ((only_mine, mine), (only_theirs, theirs))
    )


def _unnamed(mine: _Read, theirs: _Read) -> list[str]:
    """The names of one that the other has in no form. The US are the United States, whoever says which."""
    said = f" {' '.join(theirs.words)} "
    ours, others = ("".join(name[0] for name in read.names) for read in (mine, theirs))
    if len(ours) > 1 and f" {ours} " in said:
        return []
    return [
        name
        for name in _others(mine.names, theirs)
        if f" {name} " not in said and not (len(name) > 1 and name in others)
    ]


# ---- figures


def _have_others(mine: _Read, theirs: _Read) -> bool:
    """Whether one has a figure that the other has not. It takes both: who gives more of them says nothing else."""
    return any(not any(_is_near(a, b) for b, _ in theirs.figures) for a, _ in mine.figures)


def _count_the_same(mine: _Read, theirs: _Read) -> bool:
    """Two hours and 120 minutes are other figures, and may be the same time."""
    ours, others = ({unit for _, unit in read.figures} for read in (mine, theirs))
    return bool(ours & others) or "" in ours | others


def _is_near(one: float, other: float) -> bool:
    most = max(abs(one), abs(other))
    if most < _COUNTS and one.is_integer() and other.is_integer():
        return one == other
    return abs(one - other) <= _NEAR * most


def _value(text: str) -> float:
    """Commas and dots as they are written: 1,000.5 and 1.000,5, 3.14 and 3,14."""
    *groups, last = re.split("[.,]", text)
    whole = "".join(groups)
    marks = re.sub("[^.,]", "", text)
    is_grouped = (
        len(last) == 3 and len(set(marks)) == 1 and (len(marks) > 1 or marks == ",") and whole.strip("-0")
    )
    return float(f"{whole}{last}" if is_grouped or not groups else f"{whole}.{last}")
