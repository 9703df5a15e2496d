"""The bytes of a file as a document: its text in sections, by what kind of file it is.

What cannot be read raises `Unreadable` with the reason in a few words; whoever reads many files tells of it and
goes on. PDF and HTML need the extra `rag`; both are loaded only when such a file is met.
"""

from __future__ import annotations

import codecs
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from penstock.council.library.sections import (
    Form,
    Section,
    markdown_sections,
    named,
    rst_sections,
)
from penstock.errors import UsageError, install_line

_NO_TEXT = "holds no text"
_LONGEST_BLANK = 120  # columns; a deeper indentation than that tells nobody anything
_BLANKS = re.compile(rf"([^\S\n]{{{_LONGEST_BLANK}}})[^\S\n]+")
_EMPTY_LINES = re.compile(r"\n[^\S\n]*\n(?:[^\S\n]*\n)+")
_CONTROL = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff]")
_MOST_PAGES = 20_000


class Unreadable(Exception):
    """A file that should be read and cannot be; the message is the reason."""


class NoText(Unreadable):
    """A file in which there is nothing to read, which is no fault of it."""


@dataclass(frozen=True, slots=True)
class Document:
    form: Form
    sections: tuple[Section, ...]
    note: str | None = None  # how it had to be read, where a person should know


def read(form: Form, data: bytes) -> Document:
    if form is Form.PDF:
        return Document(form, _tidied(_pdf_sections(data)))
    text, note = decoded(data)
    if form is Form.HTML:
        sections = _html_sections(text)
    elif form is Form.MARKDOWN:
        sections = markdown_sections(text)
    elif form is Form.RST:
        sections = rst_sections(text)
    else:
        sections = (Section("", text),)
    return Document(form, _tidied(sections), note)


# ---- text

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def is_binary(head: bytes) -> bool:
    """Whether a file that begins so is no text."""
    return b"\0" in head and not head.startswith(tuple(bom for bom, _ in _BOMS))


def decoded(data: bytes) -> tuple[str, str | None]:
    """The text of a file, and a note where its encoding had to be guessed. Line ends are "\\n"."""
    note = None
    encoding = next((name for bom, name in _BOMS if data.startswith(bom)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding != "utf-8":
            raise Unreadable(
                f"begins as {encoding.upper()} but is not: damaged at byte {error.start}"
            ) from None
        text = data.decode("latin-1")
        note = f"is not UTF-8 (byte {error.start}); read as Latin-1"
    return text.replace("\r\n", "\n").replace("\r", "\n"), note


def _tidied(sections: tuple[Section, ...]) -> tuple[Section, ...]:
    kept = tuple(
        Section(" ".join(_CONTROL.sub(" ", section.heading).split()), _tidy(section.text))
        for section in sections
    )
    if not any(section.text.strip() for section in kept):
        raise NoText(_NO_TEXT)
    return kept


def _tidy(text: str) -> str:
    """Without what no reader sees: signs of control, and stretches of blanks without an end."""
    return _EMPTY_LINES.sub("\n\n", _BLANKS.sub(r"\1", _CONTROL.sub(" ", text)))


# ---- PDF


def _pdf_sections(data: bytes) -> tuple[Section, ...]:
    try:
        import pypdf
        import pypdf.errors
    except ImportError:
        raise UsageError(f"reading a PDF needs pypdf; {install_line('rag')}") from None

    log = logging.getLogger("pypdf")
    level = log.level
    log.setLevel(logging.CRITICAL)  # what it thinks of a file is no line of ours
    try:
        return _pages(pypdf, data)
    except Unreadable:
        raise
    except pypdf.errors.DependencyError:
        raise Unreadable(
            "is encrypted in a way that cannot be opened here; save it without a password"
        ) from None
    except Exception as error:  # noqa: BLE001 - a damaged file makes it raise anything
        told = " ".join(str(error).split())[:120] or type(error).__name__
        raise Unreadable(f"is damaged or no PDF: {told}") from None
    finally:
        log.setLevel(level)


def _pages(pypdf: Any, data: bytes) -> tuple[Section, ...]:
    reader = pypdf.PdfReader(BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        raise Unreadable("is encrypted; save it without a password")
    if len(reader.pages) > _MOST_PAGES:
        raise Unreadable(f"has {len(reader.pages)} pages; at most {_MOST_PAGES}: split it")
    sections = tuple(
        Section(f"page {number}", page.extract_text() or "") for number, page in enumerate(reader.pages, 1)
    )
    if not any(section.text.strip() for section in sections):
        pages = "1 page" if len(sections) == 1 else f"{len(sections)} pages"
        raise Unreadable(f"{_NO_TEXT} on its {pages}: scanned? Run it through text recognition first")
    return sections


# ---- HTML

_UNSEEN = ("script", "style", "nav", "noscript", "template", "svg", "iframe", "object", "title")
_HEADINGS = {"h1": 1, "h2": 2, "h3": 3, "h4": 4, "h5": 5, "h6": 6}
_INLINE = (
    "a abbr b bdi bdo big cite code del dfn em font i ins kbd label mark q s samp small span strike strong "
    "sub sup time tt u var wbr"
)
_PARAGRAPHS = "article blockquote dl ol p pre section table ul"
_EDGES = {
    "td": "\t",
    "th": "\t",
    **dict.fromkeys(_INLINE.split(), ""),
    **dict.fromkeys(_PARAGRAPHS.split(), "\n\n"),
}


def _html_sections(text: str) -> tuple[Section, ...]:
    try:
        from bs4 import BeautifulSoup
    except ImportError:
        raise UsageError(f"reading HTML needs beautifulsoup4; {install_line('rag')}") from None

    try:
        soup = BeautifulSoup(text, "html.parser")
        title = " ".join(soup.title.get_text().split()) if soup.title is not None else ""
        for unseen in soup.find_all(_UNSEEN):
            unseen.decompose()
        path: list[tuple[int, str]] = [(0, title)] if title else []
        sections: list[Section] = []
        words: list[str] = []
        for piece in _html_pieces(soup):
            if isinstance(piece, str):
                words.append(piece)
                continue
            _close(sections, path, words)
            level, heading = piece
            while path and path[-1][0] >= level:
                path.pop()
            path.append((level, heading))
            words = [heading, "\n\n"]
        _close(sections, path, words)
    except RecursionError:
        raise Unreadable("is nested too deeply") from None
    return tuple(sections)


def _close(sections: list[Section], path: list[tuple[int, str]], words: list[str]) -> None:
    text = "\n".join(line.rstrip(" ") for line in "".join(words).split("\n"))
    text = re.sub(r"\n (?=\S)", "\n", text).strip()  # of more blanks it is an indentation
    if text:
        # A page's title is often its first heading as well.
        names = [name for place, (_, name) in enumerate(path) if not place or name != path[place - 1][1]]
        sections.append(Section(named(name for name in names if name), text + "\n"))


def _html_pieces(soup: Any) -> Iterator[str | tuple[int, str]]:
    """Texts and headings in their order. With a stack of its own: pages nest deeper than Python may."""
    from bs4 import NavigableString, Tag
    from bs4.element import PreformattedString

    stack: list[tuple[Any, bool]] = [(soup, False)]  # with whether its blanks are kept
    while stack:
        node, kept = stack.pop()
        if isinstance(node, PreformattedString):
            continue  # a comment, a doctype
        if isinstance(node, NavigableString):
            yield str(node) if kept else re.sub(r"\s+", " ", str(node))
        elif isinstance(node, str):
            yield node
        elif isinstance(node, Tag) and node.name in _HEADINGS:
            heading = " ".join(node.get_text(" ").split())
            if heading:
                yield _HEADINGS[node.name], heading
        elif isinstance(node, Tag):
            edge = _EDGES.get(node.name, "\n")  # between it and its neighbours
            kept = kept or node.name in ("pre", "textarea")
            stack.append((edge, kept))
            if node.contents:
                stack.extend((child, kept) for child in reversed(node.contents))
                stack.append((edge, kept))
