"""`{name}` in the texts of an entry: in its payload, its key, and the path of its output.

A payload is anybody's text: only names that are known are filled in there, and other braces stay. A path is ours:
an unknown name in it is a mistake, and what fills it can neither end a folder's name nor lead out of a folder.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from penstock.config.problems import meant, quoted

UID_LENGTH = 3
# Stands in a pattern for a uid that may be any; no path has it, being unprintable.
HOLE = "\ue000" * UID_LENGTH
IS_UID = re.compile(rf"[A-Za-z0-9_-]{{{UID_LENGTH}}}")

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NAME = r"[A-Za-z_][A-Za-z0-9_-]{0,63}"
_PLACEHOLDER = re.compile(rf"\{{\{{({_NAME})\}}\}}|\{{({_NAME})\}}")
_WHOLE = re.compile(rf"\{{({_NAME})\}}")
_PATH_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_UNSAFE = re.compile(r"[^\w.+=@-]+")


# ---- payloads and keys


def names_in(value: object) -> set[str]:
    """Every name in braces in a payload's texts."""
    return {
        found[2] for text in _texts(value) for found in _PLACEHOLDER.finditer(text) if found[2] is not None
    }


def _texts(value: object) -> Iterator[str]:
    left = [value]
    while left:
        here = left.pop()
        if isinstance(here, str):
            yield here
        elif isinstance(here, Mapping):
            left.extend(here.values())
        elif isinstance(here, list | tuple):
            left.extend(here)


def filled(value: Any, values: Mapping[str, Any]) -> Any:
    """A copy with every known `{name}` filled in; a text that is nothing but one takes the value as it is.

    `{{name}}` is a known name in braces; what is not known stays as it stands.
    """
    if isinstance(value, str):
        whole = _WHOLE.fullmatch(value)
        if whole is not None and whole[1] in values:
            return values[whole[1]]
        return _PLACEHOLDER.sub(lambda found: _one(found, values), value)
    if isinstance(value, Mapping):
        return {key: filled(inner, values) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [filled(inner, values) for inner in value]
    return value


def _one(found: re.Match[str], values: Mapping[str, Any]) -> str:
    if found[1] is not None:
        return f"{{{found[1]}}}" if found[1] in values else found[0]
    return str(values[found[2]]) if found[2] in values else found[0]


# ---- paths


class PathTemplate(NamedTuple):
    """A path with names to fill in: texts and names in turn, texts first."""

    texts: tuple[str, ...]
    names: tuple[str, ...]

    def path(self, values: Mapping[str, str], uid: str) -> str:
        """`uid` stands for its name; a HOLE there makes the path a pattern."""
        parts = [self.texts[0]]
        for name, text in zip(self.names, self.texts[1:], strict=True):
            parts += (uid if name == "uid" else values[name], text)
        return _tidy("".join(parts))


def read_path(text: str, known: Collection[str]) -> PathTemplate | str:
    """The template, or what is wrong with it."""
    texts, names = [""], []
    end = 0
    for token in _PATH_TOKEN.finditer(text):
        texts[-1] += text[end : token.start()]
        end = token.end()
        if token[0] in ("{{", "}}"):
            texts[-1] += token[0][0]
        elif token[1] is None:
            return f"has a single {token[0]!r}; write {{name}}, or {token[0] * 2} for the character itself"
        elif token[1] not in known:
            return f"there is no {quoted('{' + token[1] + '}')} here{meant(token[1], known, 'names')}"
        else:
            names.append(token[1])
            texts.append("")
    texts[-1] += text[end:]
    return PathTemplate(tuple(texts), tuple(names))


def in_a_name(value: object) -> str:
    """A value as part of a file's name: no separators, no blanks, nothing that a folder is called by."""
    return _UNSAFE.sub("-", str(value)).strip(".") or "-"


def _tidy(path: str) -> str:
    """Without empty parts and dots: the folder of an input may be none. Two dots stay, to be refused."""
    start = "/" if path.startswith("/") else ""
    tail = "/" if path.endswith("/") else ""  # a folder, which is no file: to be refused
    return start + "/".join(part for part in path.split("/") if part not in ("", ".")) + tail


def uid_of(*what: Any) -> str:
    """Three characters that follow from what a task is: the same file gives the same ones."""
    digest = sha256(msgspec.json.encode(what, order="deterministic")).digest()
    number = int.from_bytes(digest[:8])
    characters = []
    for _ in range(UID_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        characters.append(_DIGITS[digit])
    return "".join(characters)
