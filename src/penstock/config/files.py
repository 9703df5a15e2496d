"""Where penstock.toml is, and what its text says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config.document import Config, read_document
from penstock.config.keys import AVAILABLE, MAX_FILE_BYTES, HostTypes
from penstock.config.problems import file_shown
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.config.places import Lines

NAME = "penstock.toml"
VARIABLE = "PENSTOCK_CONFIG"
_END = " (at end of document)"


def find(start: Path) -> Path | None:
    """The config for work in a folder: there, in a parent, as PENSTOCK_CONFIG says, or the user's own."""
    folder = start.absolute()
    for candidate in (folder, *folder.parents):
        if _is_file(candidate / NAME):
            return candidate / NAME
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser().absolute()
    if _is_file(own := user_config()):
        return own
    return None


def user_config() -> Path:
    """Where a user's own config lies, if there is one."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~/.config"))
    return folder / "penstock" / NAME


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a parent that may not be read holds no config for us
        return False


def load(path: Path | None = None, *, types: HostTypes = AVAILABLE) -> Config:
    """The config of that file, or of the one that `find` finds from the current folder."""
    chosen = find(Path.cwd()) if path is None else path
    if chosen is None:
        raise ConfigError(
            f"no {NAME} in this folder or its parents, in {VARIABLE} or at {user_config()}; "
            "`penstock init` writes one"
        )
    return parse(_text_of(chosen), chosen, types=types)


def _text_of(path: Path) -> str:
    name = file_shown(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{name}: there is no such file; `penstock init` writes one") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"{name}: cannot be read: {reason}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{name}: is over {MAX_FILE_BYTES // 1024**2} MiB; that is no config")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name}:{line}: is not UTF-8 text; save the file as UTF-8") from None


def parse(text: str, path: Path | None = None, *, types: HostTypes = AVAILABLE) -> Config:
    """The config that a TOML text describes; paths in it are relative to the folder of `path`."""
    import tomllib

    name = file_shown(path)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}:{syntax_error(str(error), text)}") from None
    except RecursionError:
        raise ConfigError(f"{name}: is nested too deeply; flatten it") from None
    except ValueError:  # Python's own limit on the digits of a number
        raise ConfigError(f"{name}: has a number with thousands of digits; make it shorter") from None
    place = None if path is None else _without_dots(path)
    return read_document(document, place, types=types, lines=lambda: _lines_of(text))


def _without_dots(path: Path) -> Path:
    """Absolute, and without `..`: what lies beside it is compared by its path.

    Behind a link `..` is where the link leads to; else links stay as they are written.
    """
    return path.parent.resolve() / path.name if os.pardir in path.parts else path.absolute()


def _lines_of(text: str) -> Lines:
    from penstock.config.places import toml_lines

    return toml_lines(text)


def syntax_error(message: str, text: str) -> str:
    """line:column: what is wrong."""
    import re

    if found := re.search(r" \(at line (\d+), column (\d+)\)$", message):
        line, column, message = found[1], found[2], message[: found.start()]
    else:
        lines = text.splitlines() or [""]
        line, column, message = str(len(lines)), str(len(lines[-1]) + 1), message.removesuffix(_END)
    return f"{line}:{column}: is not TOML: {message[:1].lower()}{message[1:]}; correct it"
