"""Single fields changed in a file of JSON lines, every other byte as it was. Pure: bytes in, bytes out.

A line that is changed keeps the order of its keys, its blanks, and the very text of every value that is not
meant: a number of thirty digits, an escaped letter, a field of some other program. Lines that are no issue
(broken, half written, empty) are carried along. Where an id stands on several lines, as after a merge of git, the
issue is the line that was updated last, and only that one is changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from penstock.intake.beads.issues import BadIssue, Issue, read_issue

BOM = b"\xef\xbb\xbf"
_BLANKS = " \t\r\n"


class Removed:
    """As a value: the field is taken out."""


REMOVED: Final = Removed()


class Raw(NamedTuple):
    """As a value: this very text, which is JSON."""

    text: str


class Inside(NamedTuple):
    """As a value: these fields of the table that is there; one that is something else is left as it is."""

    fields: Mapping[str, Any]


Changes = Mapping[str, Mapping[str, Any]]  # by the id of the issue: field -> value, or REMOVED


class Member(NamedTuple):
    """A field of an object as it stands in its text: where it begins, where its value does, where that ends."""

    name: str
    start: int
    value_start: int
    end: int


class Line(NamedTuple):
    number: int
    issue: Issue
    fields: Mapping[str, Any]


class Document:
    """A whole file, read once: `lines` are those that hold an issue, by its id; `broken` are the others."""

    def __init__(self, data: bytes, before: Document | None = None) -> None:
        """`before` is the same file at another time: lines that it has as well are not read again."""
        self.data = data
        self._raw = data.split(b"\n")  # what stands after the last line feed is the last line, perhaps empty
        self._read: dict[bytes, _Parsed | None] = {}
        self.lines: dict[str, Line] = {}
        self.broken: list[int] = []
        known = {} if before is None else before._read
        for number, raw in enumerate(self._raw):
            if raw.strip() and raw != BOM:
                parsed = known[raw] if raw in known else _parsed(raw)
                self._read[raw] = parsed
                self._take(number, parsed)

    @property
    def issues(self) -> list[Issue]:
        return [line.issue for line in self.lines.values()]

    @property
    def is_half_written(self) -> bool:
        """Whether its end looks as if somebody were writing it: a last line without an end, and no JSON."""
        return self.tail is not None

    @property
    def tail(self) -> bytes | None:
        """The last line, if it has no end and is no JSON."""
        return self._raw[-1] if len(self._raw) - 1 in self.broken else None

    def no_issues(self) -> dict[int, bytes]:
        """Lines that hold none, by their number as people count."""
        return {number + 1: self._raw[number] for number in self.broken}

    def changed(self, changes: Changes) -> bytes:
        """The file with these fields set. Issues that are not there are left out."""
        raw = list(self._raw)
        for id, fields in changes.items():
            line = self.lines.get(id)
            if line is not None and fields:
                raw[line.number] = edited(raw[line.number], fields)
        return b"\n".join(raw)

    def _take(self, number: int, parsed: _Parsed | None) -> None:
        if parsed is None:
            self.broken.append(number)
            return
        issue = parsed.issue
        known = self.lines.get(issue.id)
        if known is None or (known.issue.updated_at or 0.0) <= (issue.updated_at or 0.0):
            self.lines[issue.id] = Line(number, issue, parsed.fields)


class _Parsed(NamedTuple):
    issue: Issue
    fields: Mapping[str, Any]


def _parsed(raw: bytes) -> _Parsed | None:
    """The issue of a line, or None when it has none."""
    try:
        fields = json.loads(raw.removeprefix(BOM).decode())
        return _Parsed(read_issue(fields), fields)
    except (ValueError, RecursionError):  # BadIssue and bad UTF-8 are ValueErrors
        return None


def edited(raw: bytes, fields: Mapping[str, Any]) -> bytes:
    """One line with some fields of its object set or taken out."""
    text = _edited_text(raw.removeprefix(BOM).decode(), fields)
    return (BOM if raw.startswith(BOM) else b"") + text.encode()


def _edited_text(text: str, fields: Mapping[str, Any]) -> str:
    for name, value in fields.items():
        text = _without(text, name) if isinstance(value, Removed) else _with(text, name, value)
    return text


def members(text: str) -> list[Member]:
    """The fields of the object that a text holds; ValueError when it holds none."""
    decoder = json.JSONDecoder()
    place = _past_blanks(text, 0)
    if text[place : place + 1] != "{":
        raise ValueError("no object")
    found: list[Member] = []
    place = _past_blanks(text, place + 1)
    while text[place : place + 1] != "}":
        start = place
        name, place = decoder.raw_decode(text, place)
        place = _past_blanks(text, place)
        if not isinstance(name, str) or text[place : place + 1] != ":":
            raise ValueError("no field")
        value_start = _past_blanks(text, place + 1)
        _, end = decoder.raw_decode(text, value_start)
        found.append(Member(name, start, value_start, end))
        place = _past_blanks(text, end)
        if text[place : place + 1] == ",":
            place = _past_blanks(text, place + 1)
        elif text[place : place + 1] != "}":
            raise ValueError("no end")
    return found


def _with(text: str, name: str, value: Any) -> str:
    found = members(text)
    for member in reversed(found):  # of two of the same name the last one counts
        if member.name == name:
            return (
                text[: member.value_start]
                + _set(text[member.value_start : member.end], value)
                + text[member.end :]
            )
    if isinstance(value, Inside):
        value = {key: inner for key, inner in value.fields.items() if not isinstance(inner, Removed)}
    addition = f"{written(name)}:{written(value)}"
    if not found:
        brace = text.index("{") + 1
        return f"{text[:brace]}{addition}{text[brace:]}"
    end = found[-1].end
    gap = text[found[-2].end : found[-1].start] if len(found) > 1 else ","  # in the style of the line
    return f"{text[:end]}{gap}{addition}{text[end:]}"


def _set(old: str, value: Any) -> str:
    if not isinstance(value, Inside):
        return written(value)
    if old == "null":
        old = "{}"
    return _edited_text(old, value.fields) if old.startswith("{") else old


def _without(text: str, name: str) -> str:
    while True:
        found = members(text)
        place = next((n for n, member in enumerate(found) if member.name == name), None)
        if place is None:
            return text
        if place + 1 < len(found):
            text = text[: found[place].start] + text[found[place + 1].start :]
        elif place:
            text = text[: found[place - 1].end] + text[found[place].end :]
        else:
            text = text[: found[place].start] + text[found[place].end :]


def written(value: Any) -> str:
    """A value as compact JSON, readable where its letters can be written as they are."""
    if isinstance(value, Raw):
        return value.text
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text


def _past_blanks(text: str, place: int) -> int:
    while place < len(text) and text[place] in _BLANKS:
        place += 1
    return place


def merged(base: bytes, theirs: bytes, ours: bytes) -> bytes:
    """`ours` with what `theirs` changed of `base`: lines of issues, fields of lines that both changed, new lines.

    Where both changed the same field, theirs stands. What they deleted is deleted, unless their file looks half
    written.
    """
    was, there, here = Document(base), Document(theirs), Document(ours)
    raw: list[bytes | None] = list(here._raw)
    for id, line in there.lines.items():
        text = there._raw[line.number]
        old, own = was.lines.get(id), here.lines.get(id)
        if old is not None and was._raw[old.number] == text:
            continue
        if own is None:
            if old is None:
                _append(raw, text)
        elif old is None or here._raw[own.number] == was._raw[old.number]:
            raw[own.number] = text
        else:
            mine = here._raw[own.number]
            raw[own.number] = edited(mine, _difference(was._raw[old.number], text, mine))
    if theirs.strip() and not there.is_half_written:
        for id, old in was.lines.items():
            own = here.lines.get(id)
            if id not in there.lines and own is not None and here._raw[own.number] == was._raw[old.number]:
                raw[own.number] = None
    known = {*was._raw, *here._raw}
    for number in there.broken:  # what is no issue is kept as well
        if there._raw[number] not in known:
            _append(raw, there._raw[number])
    return b"\n".join(line for line in raw if line is not None)


def _append(raw: list[bytes | None], line: bytes) -> None:
    """After the last line that is one."""
    if raw and raw[-1] == b"":
        raw.insert(len(raw) - 1, line)
    else:
        raw.append(line)


def _difference(base: bytes, theirs: bytes, ours: bytes) -> dict[str, Any]:
    """The fields that they changed, in their very text. What they only wrote in other words stands where we did not
    change it."""
    old, new, own = _texts(base), _texts(theirs), _texts(ours)
    changes: dict[str, Any] = {name: REMOVED for name in old if name not in new}
    for name, text in new.items():
        was = old.get(name)
        if was == text or (was is not None and own.get(name) != was and _meaning(was) == _meaning(text)):
            continue
        changes[name] = Raw(text)
    return changes


def _texts(raw: bytes) -> dict[str, str]:
    """The text of each value of a line; of two of the same name the last one counts."""
    text = raw.removeprefix(BOM).decode()
    return {member.name: text[member.value_start : member.end] for member in members(text)}


def _meaning(text: str) -> Any:
    """A value to compare: numbers with all their digits, and true is not 1."""
    return json.loads(text, parse_int=_number, parse_float=_number)


def _number(text: str) -> tuple[str, Decimal]:
    return "number", Decimal(text)


def issues_of(values: Iterable[Any]) -> list[Issue]:
    """Those of some JSON values that are issues."""
    found = []
    for value in values:
        try:
            found.append(read_issue(value))
        except BadIssue:
            continue
    return found
