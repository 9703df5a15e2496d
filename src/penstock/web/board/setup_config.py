"""The config file as it is on disk now, for the set-up page: its text without secrets, its errors by line, and what
of it is not what runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from penstock.config import Config
from penstock.config.masking import masked
from penstock.config.problems import file_shown
from penstock.config.running import Difference, compare_config, record_config
from penstock.errors import ConfigError
from penstock.web.board.sheet import Node, badge, node
from penstock.web.board.words import counted
from penstock.wiring import read_config

_MOST_LINES = 5_000
_LINE = re.compile(r":(\d+)(?::(\d+))?: (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Problem:
    line: int | None
    text: str


@dataclass(frozen=True, slots=True)
class ConfigFile:
    path: Path | None
    lines: tuple[str, ...] = ()  # without secrets
    problems: tuple[Problem, ...] = ()
    differs: Difference | None = None  # from what runs
    trouble: str = ""  # why there is no text


def read_file(running: Config) -> ConfigFile:
    """What the file says now."""
    if running.path is None:
        return ConfigFile(None, trouble="This config came from no file.")
    path = running.path
    try:
        text = path.read_text("utf-8-sig", errors="replace")
    except OSError as error:
        return ConfigFile(path, trouble=f"It cannot be read: {error.strerror}.")
    lines = tuple(masked(text).split("\n"))
    try:
        config = read_config(path)
    except ConfigError as error:
        return ConfigFile(path, lines, tuple(_problem(one, path) for one in error.problems))
    return ConfigFile(path, lines, differs=compare_config(config, record_config(running)))


def _problem(text: str, path: Path) -> Problem:
    rest = text.removeprefix(file_shown(path))
    found = _LINE.fullmatch(rest)
    if found is None:
        return Problem(None, rest.removeprefix(": "))
    return Problem(int(found[1]), found[3])


# ---- on the page


def about(file: ConfigFile) -> Node:
    if file.path is None or file.trouble:
        where = "" if file.path is None else f"{file.path}: "
        return node("p", f"{where}{file.trouble}", class_="soft")
    return node(
        "div", node("p", node("code", str(file.path)), " ", _verdict(file)), _problems(file), _differs(file)
    )


def _verdict(file: ConfigFile) -> Node:
    if not file.problems:
        return badge("up", "valid")
    return badge("down", counted(len(file.problems), "error"))


def _problems(file: ConfigFile) -> Node | None:
    if not file.problems:
        return None
    told = [
        node(
            "li",
            node("a", f"line {one.line}", href=f"#line-{one.line}") if one.line is not None else None,
            f"{': ' if one.line is not None else ''}{one.text}",
            key=str(place),
        )
        for place, one in enumerate(file.problems)
    ]
    after = "What runs is the config as it was; a restart with this file would be refused."
    return node("div", node("ul", *told, class_="problems"), node("p", after, class_="soft"), role="alert")


def _differs(file: ConfigFile) -> Node | None:
    if not file.differs:
        return None
    words = "It differs from what runs; restart to apply it:"
    return node(
        "div", badge("paused", "changed"), f" {words} ", node("code", str(file.differs)), class_="changed"
    )


def text_of(file: ConfigFile) -> Node | None:
    if not file.lines:
        return None
    wrong = {one.line: one.text for one in file.problems if one.line is not None}
    shown = [
        node(
            "span",
            node("i", str(number), aria_hidden="true"),
            node("span", line),
            node("em", f"  ← {wrong[number]}") if number in wrong else None,
            "\n",
            class_="line wrong" if number in wrong else "line",
            id=f"line-{number}",
            key=str(number),
        )
        for number, line in enumerate(file.lines[:_MOST_LINES], 1)
    ]
    cut = (
        f"{len(file.lines) - _MOST_LINES} more lines are not shown."
        if len(file.lines) > _MOST_LINES
        else None
    )
    text = node(
        "pre", *shown, class_="code numbered", tabindex=0, role="region", aria_label="Text of the config"
    )
    return node("div", text, node("p", cut, class_="soft") if cut else None)
