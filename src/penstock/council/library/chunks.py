"""A document cut into chunks that are found and cited: windows of words, sections, or blocks of code. Pure.

Every word of a document is in some chunk, and no chunk is empty. A chunk's text is a stretch of the document as
it stands; its heading is that of the place where it begins.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from penstock.council.library.sections import Form, Section

_TINY_SHARE = 10  # a section of less than a tenth of a chunk is joined to the next
_BETWEEN = "\n\n"

# What counts as a word: a sign of a script without blanks, or what stands between blanks. Of that at most so
# much: an encoded picture or a line of a minimised script is no word.
_SIGNS = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_SIGNS}]|[^\s{_SIGNS}]{{1,64}}")


class By(StrEnum):
    WORDS = "words"
    HEADINGS = "headings"


@dataclass(frozen=True, slots=True)
class Chunking:
    by: By = By.WORDS
    chunk_words: int = 500
    overlap_words: int = 100

    def problem(self) -> str | None:
        """What is wrong with it, if anything is."""
        if self.chunk_words < 1:
            return f"chunks of {self.chunk_words} words hold nothing; at least 1"
        if not 0 <= self.overlap_words < self.chunk_words:
            return (
                f"an overlap of {self.overlap_words} words must be less than the chunk's {self.chunk_words}"
            )
        return None


@dataclass(frozen=True, slots=True)
class Chunk:
    text: str
    heading: str
    position: int  # in its document, from 0


def cut(form: Form, sections: Sequence[Section], chunking: Chunking) -> list[Chunk]:
    """The chunks of a document, in its order."""
    if (problem := chunking.problem()) is not None:
        raise ValueError(problem)
    if form is Form.CODE:
        pieces = _code(_BETWEEN.join(section.text for section in sections), chunking)
    elif chunking.by is By.HEADINGS:
        pieces = _by_headings(sections, chunking)
    else:
        pieces = _windows(sections, chunking)
    return [Chunk(text, heading, position) for position, (heading, text) in enumerate(pieces)]


def count_words(text: str) -> int:
    return sum(1 for _ in _WORD.finditer(text))


# ---- windows of words

Piece = tuple[str, str]  # heading, text
_Counted = tuple[Section, int]  # with its words


def _windows(sections: Sequence[Section], chunking: Chunking) -> Iterator[Piece]:
    """Windows over all of the text, whatever its sections."""
    starts: list[int] = []
    length = 0
    for section in sections:
        starts.append(length)
        length += len(section.text) + len(_BETWEEN)
    text = _BETWEEN.join(section.text for section in sections)
    words = [match.span() for match in _WORD.finditer(text)]
    for first, last in _spans(len(words), chunking.chunk_words, chunking.overlap_words):
        begin, end = words[first][0], words[last - 1][1]
        yield sections[bisect_right(starts, begin) - 1].heading, text[begin:end]


def _spans(words: int, size: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Windows over so many words; the last one ends where they do."""
    first = 0
    while first < words:
        last = min(first + size, words)
        yield first, last
        if last == words:
            return
        first += size - overlap


# ---- sections


def _by_headings(sections: Sequence[Section], chunking: Chunking) -> Iterator[Piece]:
    for section in _joined(sections, chunking.chunk_words):
        yield from _windows([section], chunking)


def _joined(sections: Sequence[Section], chunk_words: int) -> Iterator[Section]:
    """Tiny ones together with what follows them, the last ones with what went before."""
    tiny = chunk_words // _TINY_SHARE
    before: list[_Counted] = []
    kept: list[_Counted] = []
    for section in sections:
        words = count_words(section.text)
        if not words:
            continue
        if kept and sum(count for _, count in kept) >= tiny:
            if before:
                yield _one(before)
            before, kept = kept, []
        kept.append((section, words))
    if before and sum(count for _, count in kept) >= tiny:
        yield _one(before)
        before = []
    if before or kept:
        yield _one(before + kept)


def _one(kept: Sequence[_Counted]) -> Section:
    """Named by the longest of them."""
    longest = max(kept, key=lambda one: one[1])[0]
    return Section(longest.heading, _BETWEEN.join(section.text.strip("\n") for section, _ in kept))


# ---- code


def _code(text: str, chunking: Chunking) -> Iterator[Piece]:
    """Whole lines, and by headings whole blocks where they fit; a line that is longer than a chunk is cut.

    The heading tells the lines.
    """
    lines = text.splitlines()
    words = [count_words(line) for line in lines]
    is_whole = chunking.by is By.WORDS
    for first, last in [(0, len(lines))] if is_whole else _blocks(lines, words, chunking.chunk_words):
        for begin, end in _line_windows(words, first, last, chunking):
            begin, end = _without_empty(words, begin, end)
            if begin == end:
                continue
            where = f"line {begin + 1}" if end == begin + 1 else f"lines {begin + 1}-{end}"
            whole = "\n".join(lines[begin:end])
            if end == begin + 1 and words[begin] > chunking.chunk_words:
                yield from _windows([Section(where, whole)], chunking)
            else:
                yield where, whole


def _blocks(lines: Sequence[str], words: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """As many blocks together as are one chunk. A block begins at the margin, after an empty line."""
    begins = [0] + [
        number
        for number in range(1, len(lines))
        if lines[number][:1].strip() and not lines[number - 1].strip()
    ]
    begun, held = 0, 0
    for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True):
        count = sum(words[begin:end])
        if held and held + count > most:
            yield begun, begin
            begun, held = begin, 0
        held += count
    yield begun, len(lines)


def _line_windows(
    words: Sequence[int], first: int, last: int, chunking: Chunking
) -> Iterator[tuple[int, int]]:
    """Windows of whole lines, each of at most a chunk's words; a longer line stands alone."""
    begin = first
    while begin < last:
        end, held = begin, 0
        while end < last and (end == begin or held + words[end] <= chunking.chunk_words):
            held += words[end]
            end += 1
        yield begin, end
        if end == last:
            return
        following, repeated = end, 0
        while following - 1 > begin and repeated + words[following - 1] <= chunking.overlap_words:
            following -= 1
            repeated += words[following]
        begin = following if repeated + words[end] <= chunking.chunk_words else end


def _without_empty(words: Sequence[int], begin: int, end: int) -> tuple[int, int]:
    while begin < end and not words[begin]:
        begin += 1
    while begin < end and not words[end - 1]:
        end -= 1
    return begin, end
