"""Whether two claims that share their words have another one in the same place: another name, thing, letter, month.

"The capital is Sydney" and "the capital is Canberra" are much alike, and not the same. Names, letters, months and
days that differ are other ones for sure. Of all other words it takes a model to tell a synonym from another thing,
so these are only found here, and `agreement` asks how alike they are.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from penstock.council.plan.contradictions import is_figure, is_unit
from penstock.council.plan.words_alike import READ_ONCE, is_slight, stem_of

_WORD = re.compile(r"[^\W_]+(?:[.,]\d+)*(?:['’][^\W\d_]+)?")
_STARTS = re.compile(r"(?:^|[.!?:;]\s|[•\"“(]\s?)$")  # a sentence: the next capital says nothing
_EDGE = ""  # the neighbour of the first word, and of the last
_FEWEST_SHARED = 0.5  # of the words of the shorter one, that the claims are about the same
_LONGEST_SWAP = 4  # words: more are another way to say it
_SHORT_ANSWER = 5  # words: "It is Paris." says nothing but the one that differs
_FEWEST_WEIGHED = 2
_SHORTEST_PREFIX = 4
_LOOKED_BACK = 3
_KINDS_LISTED = """
january february march april may june july august september october november december
monday tuesday wednesday thursday friday saturday sunday
spring summer autumn winter
red green blue yellow black white brown orange purple pink
north south east west
first second third fourth fifth
morning afternoon evening night
hour day week month year hourly daily weekly monthly yearly
"""
# Words of one line exclude each other. "May" and "march" are months where they have their capital.
_KINDS = {
    stem_of(word): line
    for line, words in enumerate(_KINDS_LISTED.strip().split("\n"))
    for word in words.split()
}
# Where one of them is, there may be more than the one that is told.
_LISTING_LISTED = """
contain contains include includes including used many some several another other others also too can could
may might one among example like such often sometimes various few either both add check
"""
_LISTING = frozenset(_LISTING_LISTED.split())
_GERMAN_LISTED = "der das ist und ein eine einen nicht den dem wird sind"
_GERMAN = frozenset(_GERMAN_LISTED.split())  # where every noun has a capital
_ARTICLE_FOLLOWED = re.compile(r"\s+(?!is\b|was\b)[a-z]")  # "A dog", and not the letter in "A is right"
# After the first word, without an article before it: mostly a name ("Sydney is", "Lisbon hosted").
_OF_A_NAME = re.compile(r"\W*[^\W\d_]+(?:\s[A-Z]\w+)?\s(?:is|was|has|had|will|[a-z]{2,20}ed)\b")


class Swaps(NamedTuple):
    open: tuple[tuple[str, str], ...]  # another thing, or another word for it
    are_certain: bool  # one of them excludes the other
    is_whole: bool  # the claims are the same but for one
    may_both_be: bool  # what they tell need not be the only one
    may_be_names: bool  # which are alike without being synonyms
    words: int  # of the longer claim, that tell what it is about


class _Word(NamedTuple):
    text: str
    stem: str
    is_name: bool


def swaps_of(one: str, other: str) -> Swaps | None:
    """None where no word stands in another's place, or so many do that it is said in other words altogether."""
    mine, theirs = _content(one), _content(other)
    my_stems, their_stems = {word.stem for word in mine}, {word.stem for word in theirs}
    fewest = min(len(my_stems), len(their_stems))
    is_about_the_same = len(my_stems & their_stems) >= _FEWEST_SHARED * fewest
    if not fewest or not (is_about_the_same or (_is_short(one) and _is_short(other))):
        return None
    my_runs, their_runs = _runs(mine, their_stems), _runs(theirs, my_stems)
    places = [
        (my_runs[place], their_runs[place])
        for place in my_runs
        if place in their_runs and not _are_one(my_runs[place], their_runs[place])
    ]
    are_certain = any(_exclude(*runs) for runs in places)
    if not places or (not are_certain and len(places) < max(len(my_runs), len(their_runs))):
        return None
    return Swaps(
        open=tuple((_said(mine), _said(theirs)) for mine, theirs in places),
        are_certain=are_certain,
        is_whole=len(my_runs) == len(their_runs) == 1,
        may_both_be=_lists(one) or _lists(other),
        may_be_names=(mine[0].stem not in their_stems and theirs[0].stem not in my_stems)
        and _OF_A_NAME.match(one) is not None
        and _OF_A_NAME.match(other) is not None,
        words=max(len(mine), len(theirs), _FEWEST_WEIGHED),
    )


@lru_cache(maxsize=READ_ONCE)
def _content(text: str) -> tuple[_Word, ...]:
    """The words that tell what a claim is about, in their order."""
    found = []
    after_figure = False
    for match in _WORD.finditer(text):
        word = match.group()
        folded = re.sub(r"['’]s$", "", word.casefold())
        after_figure = is_figure(folded) or (after_figure and is_unit(folded))
        if after_figure:  # `contradictions` compares those
            continue
        is_name = word[0].isupper() and word != "I" and not _must_be_great(text, match)
        if is_name or not is_slight(folded):
            found.append(_Word(word, stem_of(folded), is_name))
    if any(match.group() in _GERMAN for match in _WORD.finditer(text)):
        return tuple(word._replace(is_name=False) for word in found)
    return tuple(found)


def _must_be_great(text: str, match: re.Match[str]) -> bool:
    """Whether its capital says nothing, because a sentence begins with it."""
    if _STARTS.search(text[max(0, match.start() - _LOOKED_BACK) : match.start()]) is None:
        return False
    return len(match.group()) > 1 or _ARTICLE_FOLLOWED.match(text, match.end()) is not None


def _is_short(text: str) -> bool:
    return len(_WORD.findall(text)) <= _SHORT_ANSWER


@lru_cache(maxsize=READ_ONCE)
def _lists(text: str) -> bool:
    # As it is written: "May" is a month, and "may" is not.
    return any(
        word in _LISTING or (at == 0 and word.casefold() in _LISTING)
        for at, word in enumerate(_WORD.findall(text))
    )


def _runs(words: tuple[_Word, ...], known: set[str]) -> dict[tuple[str, str], list[_Word]]:
    """Words next to each other that the other claim has not, by what stands before and after them."""
    found: dict[tuple[str, str], list[_Word]] = {}
    run: list[_Word] = []
    before = _EDGE
    for word in words:
        if word.stem not in known:
            run.append(word)
            continue
        if run:
            found.setdefault((before, word.stem), run)
            run = []
        before = word.stem
    if run:
        found.setdefault((before, _EDGE), run)
    return found


def _are_one(mine: list[_Word], theirs: list[_Word]) -> bool:
    """Too much to be a thing in another's place, or the same one in short."""
    is_long = max(len(mine), len(theirs)) > _LONGEST_SWAP
    return is_long or _is_short_for(mine, theirs) or _is_short_for(theirs, mine)


def _exclude(mine: list[_Word], theirs: list[_Word]) -> bool:
    return bool(_class_of(mine) & _class_of(theirs)) or (_has_name(mine) and _has_name(theirs))


def _has_name(run: list[_Word]) -> bool:
    return any(word.is_name for word in run)


def _class_of(run: list[_Word]) -> set[int]:
    return {
        _KINDS[word.stem]
        for word in run
        if word.stem in _KINDS and (word.is_name or word.text not in ("may", "march", "second", "orange"))
    }


def _is_short_for(short: list[_Word], long: list[_Word]) -> bool:
    """US, United States; Postgres, PostgreSQL."""
    told, whole = (_said(run).casefold() for run in (short, long))
    if len(short) == 1 and len(long) > 1 and told == "".join(word.text[0] for word in long).casefold():
        return True
    return len(told) >= _SHORTEST_PREFIX and whole.startswith(told)


def _said(run: list[_Word]) -> str:
    return " ".join(word.text for word in run)
