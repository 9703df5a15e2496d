"""The Markdown of answers, made safe: what a model wrote is text, and can become no markup but this small set.

Headings, lists, quotes, tables, code, bold and italics; no links, no images, no HTML. Every character of the text
is escaped before anything is added to it. The cost is linear in the text, whatever it says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from html import escape
from typing import NamedTuple

from penstock.council.shown import clean

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*[\w+#.-]{0,30}[ \t]*$")  # with the name of a language
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)$")
_ITEM = re.compile(r"([ \t]*)([-*+]|\d{1,9}[.)])[ \t]+(\S.*)$")
_QUOTE = re.compile(r" {0,3}> ?(.*)$")
_RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$")
_DASHES = re.compile(r"[ \t|:-]+$")
_TICKS = re.compile(r"(`+)")
_STARS = re.compile(r"(\*\*|\*)")
_BRACKET = re.compile(r"\[(?!\d{1,3}\](?![(:\[]))")
_MARK = re.compile(r"\[(\d{1,3})\]")
_DEEPEST = 6  # lists and quotes in each other
_FIRST_HEADING = 4  # the page's own headings are above


class Block(NamedTuple):
    """`what` is text, heading, item, quote, code, table or rule; `level` is that of a heading or an item."""

    what: str
    lines: tuple[str, ...]
    level: int = 0
    mark: str = ""  # of an item: as it was written


def blocks(text: str) -> list[Block]:
    lines = text.expandtabs(4).splitlines()
    found: list[Block] = []
    place = 0
    while place < len(lines):
        made, place = _block(lines, place)
        if made is not None:
            found.append(made)
    return found


def _block(lines: Sequence[str], place: int) -> tuple[Block | None, int]:
    line = lines[place]
    if not line.strip():
        return None, place + 1
    if fence := _FENCE.match(line):
        return _code(lines, place + 1, fence[1])
    if heading := _HEADING.match(line):
        return Block("heading", (heading[2].rstrip("# "),), len(heading[1])), place + 1
    if _RULE.match(line):
        return Block("rule", ()), place + 1
    if _QUOTE.match(line):
        return _run(lines, place, "quote", _QUOTE, lambda found: found[1])
    if "|" in line and place + 1 < len(lines) and _is_dashes(lines[place + 1]):
        end = place + 2
        while end < len(lines) and "|" in lines[end]:
            end += 1
        return Block("table", (line, *lines[place + 2 : end])), end
    if item := _ITEM.match(line):
        end = _text_end(lines, place + 1)
        level = min(len(item[1]) // 2, _DEEPEST - 1)
        return Block("item", (item[3], *_stripped(lines[place + 1 : end])), level, item[2]), end
    end = _text_end(lines, place + 1)
    return Block("text", tuple(_stripped(lines[place:end]))), end


def _is_dashes(line: str) -> bool:
    return "|" in line and "-" in line and _DASHES.match(line) is not None


def _code(lines: Sequence[str], begin: int, fence: str) -> tuple[Block, int]:
    """To the fence that closes it, or to the end."""
    for place in range(begin, len(lines)):
        closing = lines[place].strip()
        if len(closing) >= len(fence) and closing == fence[0] * len(closing):
            return Block("code", tuple(lines[begin:place])), place + 1
    return Block("code", tuple(lines[begin:])), len(lines)


def _run(
    lines: Sequence[str], begin: int, what: str, form: re.Pattern[str], taken: Callable[[re.Match[str]], str]
) -> tuple[Block, int]:
    kept: list[str] = []
    place = begin
    while place < len(lines) and (found := form.match(lines[place])):
        kept.append(taken(found))
        place += 1
    return Block(what, tuple(kept)), place


def _text_end(lines: Sequence[str], place: int) -> int:
    forms = (_FENCE, _HEADING, _RULE, _QUOTE, _ITEM)
    while place < len(lines) and lines[place].strip() and not any(f.match(lines[place]) for f in forms):
        place += 1
    return place


def _stripped(lines: Sequence[str]) -> list[str]:
    return [line.strip() for line in lines]


# ---- as HTML


def html_of(text: str, cited: Collection[int] = ()) -> str:
    """Elements of the small set. `cited` are passages of the page, whose marks [n] become links to them."""
    return _html(blocks(text), frozenset(cited), 0)


def _html(found: Sequence[Block], cited: frozenset[int], depth: int) -> str:
    made: list[str] = []
    place = 0
    while place < len(found):
        block = found[place]
        if block.what == "item":
            end = place
            while end < len(found) and found[end].what == "item":
                end += 1
            made.append("".join(_list(found[place:end], cited)))
            place = end
            continue
        made.append(_element(block, cited, depth))
        place += 1
    return "".join(made)


def _element(block: Block, cited: frozenset[int], depth: int) -> str:
    if block.what == "code":
        return f"<pre><code>{escape(chr(10).join(block.lines))}</code></pre>"
    if block.what == "rule":
        return "<hr>"
    if block.what == "heading":
        level = min(_FIRST_HEADING - 1 + block.level, 6)
        return f"<h{level}>{inline(block.lines[0], cited)}</h{level}>"
    if block.what == "table":
        return _table(block.lines, cited)
    if block.what == "quote" and depth < _DEEPEST:
        return f"<blockquote>{_html(blocks(chr(10).join(block.lines)), cited, depth + 1)}</blockquote>"
    return f"<p>{_lines(block.lines, cited)}</p>"


def _lines(lines: Sequence[str], cited: frozenset[int]) -> str:
    return inline("\n".join(lines), cited).replace("\n", "<br>")


def _list(items: Sequence[Block], cited: frozenset[int]) -> Iterator[str]:
    opened: list[tuple[int, str]] = []  # level and element
    for item in items:
        kind = "ul" if item.mark in "-*+" else "ol"
        while opened and (opened[-1][0] > item.level or opened[-1] == (item.level, _other(kind))):
            yield f"</li></{opened.pop()[1]}>"
        if opened and opened[-1][0] == item.level:
            yield "</li><li>"
        else:
            opened.append((item.level, kind))
            yield f"<{kind}><li>"
        yield _lines(item.lines, cited)
    while opened:
        yield f"</li></{opened.pop()[1]}>"


def _other(kind: str) -> str:
    return "ol" if kind == "ul" else "ul"


def _table(lines: Sequence[str], cited: frozenset[int]) -> str:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    head = "".join(f"<th>{inline(cell, cited)}</th>" for cell in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{inline(cell, cited)}</td>" for cell in row) + "</tr>" for row in rows[1:]
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def inline(text: str, cited: Collection[int] = ()) -> str:
    """Text within a block: code spans, bold, italics, marks of passages; all else is escaped."""
    pieces = _TICKS.split(text)
    closings = _closings(pieces)
    made: list[str] = []
    place = 0
    while place < len(pieces):
        piece = pieces[place]
        if place % 2 and (end := closings.get(place)) is not None:
            made.append(f"<code>{escape(''.join(pieces[place + 1 : end]).strip())}</code>")
            place = end + 1
            continue
        made.append(piece if place % 2 else _cites(_emphasis(escape(piece)), cited))
        place += 1
    return "".join(made)


def _closings(pieces: Sequence[str]) -> dict[int, int]:
    """For each run of backticks the next one of the same length."""
    last: dict[int, int] = {}
    found: dict[int, int] = {}
    for place in range(len(pieces) - 2, 0, -2):
        length = len(pieces[place])
        if length in last:
            found[place] = last[length]
        last[length] = place
    return found


_TAGS = {"**": "strong", "*": "em"}


def _emphasis(text: str) -> str:
    """Stars that open and close something; all others stay stars."""
    pieces = _STARS.split(text)
    made: list[str] = []
    opened: list[tuple[str, int]] = []
    for place, piece in enumerate(pieces):
        if place % 2 == 0:
            made.append(piece)
            continue
        behind, before = pieces[place - 1][-1:], pieces[place + 1][:1]
        if behind.strip() and piece in {star for star, _ in opened[-2:]}:
            while opened[-1][0] != piece:
                opened.pop()
            made[opened.pop()[1]] = f"<{_TAGS[piece]}>"
            made.append(f"</{_TAGS[piece]}>")
        else:
            if before.strip():
                opened.append((piece, len(made)))
            made.append(piece)
    return "".join(made)


def _cites(text: str, cited: Collection[int]) -> str:
    if not cited:
        return text
    return _MARK.sub(
        lambda found: (
            f'<a href="#passage-{int(found[1])}">{found[0]}</a>' if int(found[1]) in cited else found[0]
        ),
        text,
    )


# ---- as Markdown within a Markdown page of ours


def quoted(text: str) -> str:
    """The text as a quote: each line begins with our mark, so that none of it can pass for ours.

    Code stays code, in a fence that it cannot close. Elsewhere nothing can become HTML, an image or a link, and
    nowhere is a sign that steers a terminal.
    """
    lines: list[str] = []
    for block in blocks(clean(text)):
        if lines and not (
            block.what == "item" and lines[-1] != "" and lines[-1].lstrip()[:1] in "-*+0123456789"
        ):
            lines.append("")
        lines += _rewritten(block)
    return "\n".join(f"> {line}".rstrip() for line in lines) or ">"


def _rewritten(block: Block) -> list[str]:
    if block.what == "code":
        longest = max((len(run) for line in block.lines for run in _TICKS.findall(line)), default=0)
        fence = "`" * max(3, longest + 1)
        return [fence, *block.lines, fence]
    if block.what == "table":  # its cells end before code does, wherever that stands
        rows = ["|".join(tamed(cell) for cell in line.split("|")) for line in block.lines]
        cells = rows[0].strip().strip("|").count("|") + 1
        return [rows[0], "|" + "---|" * cells, *rows[1:]]
    tame = [tamed(line) for line in block.lines]
    if block.what == "heading":
        return [f"{'#' * min(_FIRST_HEADING - 1 + block.level, 6)} {tame[0]}"]
    if block.what == "rule":
        return ["---"]
    if block.what == "quote":
        return [f"> {line}".rstrip() for line in tame]
    if block.what == "item":
        indent = "  " * block.level
        return [f"{indent}{block.mark} {tame[0]}", *(f"{indent}  {line}" for line in tame[1:])]
    return tame


def tamed(text: str, *, code: bool = True) -> str:
    """A line that no reader of Markdown takes for HTML, an image or a link.

    Spans of code stay, unless `code` is false; every backtick that is of none is escaped, so that readers see the
    same spans as we do, also where they read the lines of a paragraph as one text.
    """
    pieces = _TICKS.split(text)
    closings = _closings(pieces) if code else {}
    made: list[str] = []
    place = 0
    while place < len(pieces):
        piece = pieces[place]
        if place % 2 and (end := closings.get(place)) is not None:
            made += pieces[place : end + 1]
            place = end + 1
            continue
        made.append("\\`" * len(piece) if place % 2 else _inert(piece))
        place += 1
    tame = "".join(made)
    return "\\" + tame.lstrip() if tame.lstrip().startswith("~~~") else tame


def _inert(text: str) -> str:
    """Marks of passages stay as they are: with nothing behind them they are no link, and nothing can define one."""
    text = _BRACKET.sub(r"\\[", text.replace("\\", "\\\\"))
    return text.replace("&", "&amp;").replace("<", "&lt;")
