"""Task files that are read whole: YAML, TOML and JSON → plain values, and their lines for whoever asks."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from penstock.config.files import syntax_error
from penstock.config.places import KeyPath, Lines, json_lines, toml_lines
from penstock.errors import TaskError
from penstock.intake.yamlfile import NotYaml, load_yaml

MAX_DOCUMENT_BYTES = 64 * 1024**2


class Document(NamedTuple):
    data: Any
    lines: Callable[[], Lines]  # asked only to place a problem


def read_document(path: Path, name: str) -> Document | None:
    """The document in a file; None when its name ends in no form that is known here."""
    parse = _FORMS.get(path.suffix.lower())
    return None if parse is None else parse(_text_of(path, name), name)


@contextmanager
def opened(path: Path, name: str) -> Iterator[IO[bytes]]:
    """A file for reading; what stands in the way is told in a line."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise TaskError(f"{name}: there is no such file; correct the name") from None
    except (OSError, ValueError) as error:
        raise TaskError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    with file:
        yield file


@contextmanager
def no_collecting() -> Iterator[None]:
    """While millions of things are read and no garbage, the collector would only walk them over and over."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _text_of(path: Path, name: str) -> str:
    with opened(path, name) as file:
        try:
            data = file.read(MAX_DOCUMENT_BYTES + 1)
        except OSError as error:
            raise TaskError(f"{name}: cannot be read: {error.strerror or error}") from None
    if len(data) > MAX_DOCUMENT_BYTES:
        size = f"{MAX_DOCUMENT_BYTES // 1024**2} MiB"
        raise TaskError(f"{name}: is over {size}; use JSONL, which is read line by line")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TaskError(f"{name}:{line}: is not UTF-8 text; save the file as UTF-8") from None


def _json_document(text: str, name: str) -> Document:
    try:
        return Document(msgspec.json.decode(text), lambda: json_lines(text))
    except msgspec.DecodeError as error:
        line, what = json_error(str(error), text.encode())
        raise TaskError(f"{name}:{line}: {what}") from None
    except RecursionError:
        raise TaskError(f"{name}: is nested too deeply; flatten it") from None


def json_error(message: str, data: bytes) -> tuple[int, str]:
    """The line, and what is wrong there; the decoder counts bytes."""
    what, mark, rest = message.partition(" (byte ")
    number = rest.rstrip(")")
    at = int(number) if mark and number.isdigit() else len(data)
    what = what.removeprefix("JSON is malformed: ")
    return data.count(b"\n", 0, at) + 1, f"is not JSON: {what[:1].lower()}{what[1:]}; correct it"


def _yaml_document(text: str, name: str) -> Document:
    def lines() -> Lines:
        found: dict[KeyPath, int] = {}
        load_yaml(text, found.setdefault)
        return found

    try:
        return Document(load_yaml(text), lines)
    except NotYaml as error:
        raise TaskError(f"{name}:{error.line}: {error}") from None


def _toml_document(text: str, name: str) -> Document:
    import tomllib

    try:
        return Document(tomllib.loads(text), lambda: toml_lines(text))
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"{name}:{syntax_error(str(error), text)}") from None
    except RecursionError:
        raise TaskError(f"{name}: is nested too deeply; flatten it") from None
    except ValueError:  # Python's own limit on the digits of a number
        raise TaskError(f"{name}: has a number with thousands of digits; make it shorter") from None


_FORMS: dict[str, Callable[[str, str], Document]] = {
    ".json": _json_document,
    ".toml": _toml_document,
    ".yaml": _yaml_document,
    ".yml": _yaml_document,
}
