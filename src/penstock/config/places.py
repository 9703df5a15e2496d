"""Where a key stands in a file: TOML and JSON parsers forget lines, and an error needs one.

Loaded only when something is wrong, and run on text that a real parser has accepted; so these scanners
need not judge, only count lines. They keep their own stack, because a file may nest deeper than Python
recurses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]
Lines: TypeAlias = Mapping[KeyPath, int]

_MAX_DEPTH = 16  # deeper keys are placed at their parent: nothing of ours lies that deep

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)+")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^\s,\]}#]+")
_JSON_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|\n|[^\s\[\]{},:"]+', re.DOTALL)


def place(lines: Lines, path: KeyPath) -> int | None:
    """The line of a key, or of the nearest thing around it."""
    for length in range(min(len(path), _MAX_DEPTH), 0, -1):
        line = lines.get(path[:length])
        if line is not None:
            return line
    return None


def toml_lines(text: str) -> Lines:
    """The line of every table, key and list entry of a TOML document."""
    return _TomlScan(text).run()


class _TomlScan:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._counted = 0  # newlines before this offset are in `_line`
        self._lines: dict[KeyPath, int] = {}
        self._entries: dict[KeyPath, int] = {}  # [[path]] -> how many so far
        self._header: KeyPath = ()
        self._open: list[tuple[str, KeyPath, int]] = []  # brackets: '{' or '[', whose, entries so far

    def run(self) -> Lines:
        while self._skip_blank():
            if self._text[self._at] == "[":
                self._read_header()
            else:
                self._read_pair(self._header)
                self._finish_value()
        return self._lines

    def _skip_blank(self) -> bool:
        """To the next thing that counts; False at the end."""
        if found := _BLANK.match(self._text, self._at):
            self._at = found.end()
        return self._at < len(self._text)

    def _note(self, path: KeyPath) -> None:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        for length in range(1, min(len(path), _MAX_DEPTH) + 1):
            self._lines.setdefault(path[:length], self._line)

    def _read_keys(self) -> list[str]:
        """A dotted key, its quotes taken off."""
        keys = []
        while self._skip_blank():
            if found := _STRING.match(self._text, self._at):
                keys.append(_unquoted(found.group()))
            elif found := _BARE_KEY.match(self._text, self._at):
                keys.append(found.group())
            else:
                break
            self._at = found.end()
            if not self._skip_blank() or self._text[self._at] != ".":
                break
            self._at += 1
        return keys

    def _read_header(self) -> None:
        many = self._text.startswith("[[", self._at)
        start = self._at
        self._at += 2 if many else 1
        keys = self._read_keys()
        end, self._at = self._at, start
        self._header = ()
        for key in keys[:-1]:
            self._header += (key,)
            if self._header in self._entries:
                self._header += (self._entries[self._header] - 1,)
        self._header += tuple(keys[-1:])
        if many:
            index = self._entries.get(self._header, 0)
            self._entries[self._header] = index + 1
            self._header += (index,)
        elif self._header in self._entries:
            self._header += (self._entries[self._header] - 1,)
        self._note(self._header)
        self._at = end + (2 if many else 1)

    def _read_pair(self, table: KeyPath) -> None:
        """A key and its `=`; the value is next."""
        start = self._at
        keys = self._read_keys()
        end, self._at = self._at, start
        path = table + tuple(keys[:_MAX_DEPTH])
        self._note(path)
        self._at = max(end, start) + 1
        self._value_of = path

    def _finish_value(self) -> None:
        """The value of a top-level pair, with everything inside it."""
        self._read_value(self._value_of)
        while self._open and self._skip_blank():
            bracket, whose, count = self._open[-1]
            mark = self._text[self._at]
            if mark in "]}":
                self._open.pop()
                self._at += 1
            elif mark == ",":
                self._at += 1
            elif bracket == "{":
                self._read_pair(whose)
                self._read_value(self._value_of)
            else:
                self._open[-1] = (bracket, whose, count + 1)
                entry = (*whose, count)
                self._note(entry)
                self._read_value(entry)

    def _read_value(self, path: KeyPath) -> None:
        """One value; brackets are left open for the caller's loop."""
        if not self._skip_blank():
            return
        mark = self._text[self._at]
        if mark in "[{":
            self._open.append((mark, path[:_MAX_DEPTH], 0))
            self._at += 1
        elif found := _STRING.match(self._text, self._at) or _SCALAR.match(self._text, self._at):
            self._at = found.end()
        else:
            self._at += 1
        if not self._open:  # a date may hold a space: nothing else stands on this line
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end


def _unquoted(literal: str) -> str:
    if literal.startswith("'") or "\\" not in literal:
        return literal[1:-1]
    import tomllib

    return str(next(iter(tomllib.loads(f"{literal} = 0"))))


def json_lines(text: str) -> Lines:
    """The line of every key and list entry of a JSON document."""
    lines: dict[KeyPath, int] = {}
    line = 1
    stack: list[tuple[str, KeyPath, int]] = []
    here: KeyPath = ()  # whose value comes next
    key_next = False
    for found in _JSON_WORD.finditer(text):
        word = found.group()
        if word == "\n":
            line += 1
        elif word in ("]", "}"):
            if stack:
                stack.pop()
            key_next = False
        elif word == ",":
            if stack:
                bracket, whose, count = stack[-1]
                stack[-1] = (bracket, whose, count + 1)
                key_next = bracket == "{"
                here = whose if key_next else (*whose, count + 1)[:_MAX_DEPTH]
        elif word == ":":
            key_next = False
        elif key_next:
            here = (*stack[-1][1], _json_key(word))[:_MAX_DEPTH]
            lines.setdefault(here, line)
        else:
            lines.setdefault(here, line)
            if word in ("[", "{"):
                stack.append((word, here, 0))
                key_next = word == "{"
                if word == "[":
                    here = (*here, 0)[:_MAX_DEPTH]
    return lines


def _json_key(token: str) -> str:
    if "\\" not in token:
        return token[1:-1]
    import json

    return str(json.loads(token))
