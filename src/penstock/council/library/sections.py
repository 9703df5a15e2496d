"""A text as sections under headings: where a Markdown or reStructuredText document has its breaks. Pure.

Nothing is taken out: the texts of the sections, one after the other, are the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

ABOVE = " › "  # between a heading and those below it
# Characters; what is longer is a paragraph by mistake, and would stand above every section.
_LONGEST_TITLE = 200


class Form(StrEnum):
    """How a document is read."""

    MARKDOWN = "markdown"
    RST = "rst"
    TEXT = "text"
    HTML = "html"
    PDF = "pdf"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Section:
    """`heading` names it with those above it: "Install › On Linux"; empty: the document has none there."""

    heading: str
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A heading: the line on which its section begins, how deep it is (1 is the title), and its words."""

    line: int
    level: int
    title: str


def markdown_sections(text: str) -> tuple[Section, ...]:
    return _cut(text, _markdown_marks)


def rst_sections(text: str) -> tuple[Section, ...]:
    return _cut(text, _rst_marks)


def _cut(text: str, marks_of: Callable[[Sequence[str]], Iterator[Mark]]) -> tuple[Section, ...]:
    lines = text.splitlines(keepends=True)
    path: list[tuple[int, str]] = []  # the headings that hold where we are, with their levels
    sections: list[Section] = []
    begun = 0
    for mark in marks_of([line.rstrip("\r\n") for line in lines]):
        if mark.line > begun:
            sections.append(Section(named(title for _, title in path), "".join(lines[begun : mark.line])))
        while path and path[-1][0] >= mark.level:
            path.pop()
        path.append((mark.level, mark.title))
        begun = mark.line
    if begun < len(lines):
        sections.append(Section(named(title for _, title in path), "".join(lines[begun:])))
    return tuple(sections)


def named(titles: Iterable[str]) -> str:
    """A section by the headings that hold it, the outermost first."""
    return ABOVE.join(
        title if len(title) <= _LONGEST_TITLE else title[: _LONGEST_TITLE - 1] + "…" for title in titles
    )


# ---- Markdown

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HASHES = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_NO_PARAGRAPH = re.compile(r"\s*$| {4}|\t| {0,3}(?:[-*+>|]|\d+[.)])")  # a rule below it makes no heading
_FRONT_MATTER = ("---", "+++")


def _markdown_marks(lines: Sequence[str]) -> Iterator[Mark]:
    fence: str | None = None  # in a block of code: what ends it
    for number in range(_after_front_matter(lines), len(lines)):
        line = lines[number]
        if found := _FENCE.match(line):
            if fence is None:
                fence = found[1]
            elif found[1].startswith(fence) and not line[found.end() :].strip():
                fence = None
        elif fence is not None:
            continue
        elif hashes := _HASHES.match(line):
            yield Mark(number, len(hashes[1]), _plain(_without_closing(line[hashes.end() :])))
        elif (
            number + 1 < len(lines)
            and (under := _UNDERLINE.match(lines[number + 1]))
            and not _NO_PARAGRAPH.match(line)
        ):
            yield Mark(number, 1 if under[1][0] == "=" else 2, _plain(line))


def _after_front_matter(lines: Sequence[str]) -> int:
    if lines and lines[0].rstrip() in _FRONT_MATTER:
        for number, line in enumerate(lines[1:], 1):
            if line.rstrip() == lines[0].rstrip():
                return number + 1
    return 0


def _without_closing(title: str) -> str:
    """Hashes may stand at the end of a heading too."""
    title = title.strip(" \t")
    words = title.rstrip("#")
    return words.rstrip(" \t") if not words or words[-1] in " \t" else title


# Linear whatever a line says: what may repeat ends where the next one would begin.
_LINK = re.compile(r"!?\[([^\[\]]*+)\]\((?:[^()]++|\([^()]*+\))*+\)")
_LOOKS = re.compile(r"[`*]+|_+")


def _plain(title: str) -> str:
    """Without the signs that only mean how it looks."""
    title = _LINK.sub(r"\1", title)

    def kept(found: re.Match[str]) -> str:
        within = all(
            one.isalnum()
            for one in (title[found.start() - 1 : found.start()], title[found.end() : found.end() + 1])
        )
        return found[0] if within and found[0][0] == "_" else ""

    return " ".join(_LOOKS.sub(kept, title).split())


# ---- reStructuredText

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{2,}\s*$")


def _rst_marks(lines: Sequence[str]) -> Iterator[Mark]:
    styles: list[tuple[str, bool]] = []  # in the order of their first use, which is what their levels are
    for number in range(1, len(lines)):
        under = _ADORNMENT.match(lines[number])
        title = lines[number - 1]
        if under is None or not title.strip() or _ADORNMENT.match(title):
            continue
        above = _ADORNMENT.match(lines[number - 2]) if number > 1 else None
        over = above is not None and lines[number - 2].rstrip() == lines[number].rstrip()
        if len(lines[number].rstrip()) < len(title.strip()) or (title[:1].isspace() and not over):
            continue
        style = under[1], over
        if style not in styles:
            styles.append(style)
        yield Mark(number - 2 if over else number - 1, styles.index(style) + 1, " ".join(title.split()))
