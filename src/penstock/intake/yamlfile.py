"""YAML as plain JSON values, from a parser's events.

The usual loaders recurse (the C one to a crash), expand aliases without end and read `no` as false. Here
nesting and expansion have limits, tags are refused, and a plain word is a truth value, a number or nothing
only where YAML 1.2 says so: dates, `no` and `007` stay text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from penstock.config.places import KeyPath

MAX_DEPTH = 100
MAX_NODES = 10_000_000  # with every alias counted as often as it is used

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_WORDS = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
    ".inf": float("inf"),
    "-.inf": float("-inf"),
    ".nan": float("nan"),
}
_CORE = "tag:yaml.org,2002:"
_MERGE = "<<"


class NotYaml(Exception):
    """What is wrong, and on which line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def load_yaml(text: str, note: Callable[[KeyPath, int], object] | None = None) -> Any:
    """The one document of a text. `note` is told the line of every key and entry."""
    return _Builder(note).build(text)


class _Frame:
    """A list or mapping that is being filled."""

    __slots__ = ("anchor", "key", "merges", "nodes", "path", "value")

    def __init__(self, value: list[Any] | dict[str, Any], anchor: str | None, path: KeyPath) -> None:
        self.value = value
        self.anchor = anchor
        self.path = path
        self.nodes = 1
        self.key: str | None = None  # of a mapping: the key whose value comes next
        self.merges: list[dict[str, Any]] = []


class _Builder:
    def __init__(self, note: Callable[[KeyPath, int], object] | None) -> None:
        self._note = note
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int] | None] = {}  # None: still being filled
        self._root: Any = None
        self._documents = 0

    def build(self, text: str) -> Any:
        for event in _events(text):
            line = event.start_mark.line + 1
            match event:
                case yaml.ScalarEvent():
                    self._scalar(event, line)
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    self._begin(event, line)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._end(line)
                case yaml.AliasEvent():
                    self._alias(str(event.anchor), line)
                case yaml.DocumentStartEvent():
                    self._documents += 1
                    if self._documents > 1:
                        raise NotYaml(line, "a second document starts here; put all tasks into one")
        return self._root

    def _path(self) -> KeyPath:
        """Where the next value goes."""
        if not self._stack:
            return ()
        frame = self._stack[-1]
        return (*frame.path, len(frame.value) if frame.key is None else frame.key)

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        if event.tag not in (None, "!", _CORE + "str"):
            raise NotYaml(line, f"the tag {_tag(event.tag)} is not supported; remove it")
        frame = self._stack[-1] if self._stack else None
        if frame is not None and isinstance(frame.value, dict) and frame.key is None:
            key = event.value
            if key in frame.value or (key == _MERGE and frame.merges):
                raise NotYaml(line, f"{key[:60]!r} is given twice in one table; keep one")
            frame.key = key
            if self._note is not None:
                self._note((*frame.path, key), line)
            return
        plain = event.implicit[0] and event.tag is None
        self._keep(_resolved(event.value, line) if plain else event.value, 1, event.anchor, line)

    def _begin(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent, line: int) -> None:
        if event.tag not in (None, "!", _CORE + "map", _CORE + "seq"):
            raise NotYaml(line, f"the tag {_tag(event.tag)} is not supported; remove it")
        if len(self._stack) >= MAX_DEPTH:
            raise NotYaml(line, f"is nested deeper than {MAX_DEPTH} levels; flatten it")
        parent = self._stack[-1] if self._stack else None
        if parent is not None and isinstance(parent.value, dict) and parent.key is None:
            raise NotYaml(line, "a key must be text, not a list or table")
        path = self._path()
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        if self._note is not None:
            self._note(path, line)
        value: list[Any] | dict[str, Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._stack.append(_Frame(value, event.anchor, path))

    def _end(self, line: int) -> None:
        frame = self._stack.pop()
        if frame.merges and isinstance(frame.value, dict):
            for merged in frame.merges:
                for key, value in merged.items():
                    frame.value.setdefault(key, value)
        self._keep(frame.value, frame.nodes, frame.anchor, line)

    def _alias(self, anchor: str, line: int) -> None:
        if anchor not in self._anchors:
            raise NotYaml(line, f"*{anchor[:60]} stands for nothing; there is no &{anchor[:60]} before it")
        kept = self._anchors[anchor]
        if kept is None:
            raise NotYaml(line, f"*{anchor[:60]} contains itself")
        frame = self._stack[-1] if self._stack else None
        if frame is not None and isinstance(frame.value, dict) and frame.key is None:
            raise NotYaml(line, "a key must be text, not an alias")
        self._keep(kept[0], kept[1], None, line)

    def _keep(self, value: Any, nodes: int, anchor: str | None, line: int) -> None:
        """A finished value goes where it belongs."""
        if anchor is not None:
            self._anchors[anchor] = (value, nodes)
        if not self._stack:
            self._root = value
            return
        frame = self._stack[-1]
        frame.nodes += nodes
        if frame.nodes > MAX_NODES:
            raise NotYaml(line, f"its aliases stand for more than {MAX_NODES} values; write less")
        if isinstance(frame.value, list):
            if self._note is not None:
                self._note(self._path(), line)
            frame.value.append(value)
        elif frame.key == _MERGE:
            frame.key = None
            frame.merges = value if isinstance(value, list) else [value]
            if not frame.merges or not all(isinstance(merged, dict) for merged in frame.merges):
                raise NotYaml(line, "<< takes a table or a list of tables")
        else:
            assert frame.key is not None
            frame.value[frame.key] = value
            frame.key = None


def _events(text: str) -> Iterator[Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        yield from yaml.parse(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        raise NotYaml(line, f"is not YAML: {error.problem}; correct it") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise NotYaml(line, "holds a control character; remove it") from None


def _resolved(text: str, line: int) -> Any:
    """What a plain word means."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in "0123456789+-.":
        try:
            if _INT.fullmatch(text):
                return int(text, 0)
            if _FLOAT.fullmatch(text):
                return float(text)
        except ValueError:
            raise NotYaml(line, "holds a number with thousands of digits; make it shorter") from None
    return text


def _tag(tag: str) -> str:
    return repr("!!" + tag.removeprefix(_CORE) if tag.startswith(_CORE) else tag)[:80]
