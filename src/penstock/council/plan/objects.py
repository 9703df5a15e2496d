"""The one JSON object in a model's reply, where there is exactly one that can be meant.

Small models put prose and code fences round what they were asked for. That is put up with as long as the reply
leaves no choice: one object with the wanted key, and that key nowhere else in the reply. Two of them, a key given
twice, a number that is no JSON: nothing is picked, and what is wrong is told in words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

MOST_CHARACTERS = 100_000
_MOST_STARTS = 200  # a reply with more braces than that is no ballot
_START = re.compile(r'\{\s*"')
_THOUGHT = re.compile(r"(?:\s*<think>.*?(?:</think>|\Z))+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why a reply cannot be read, for the one who is asked to repair it."""

    problem: str


def spoken(text: str) -> str:
    """A reply without the thinking that some models put before it."""
    thought = _THOUGHT.match(text)
    return text[thought.end() :] if thought else text


def the_object(reply: str, *keys: str) -> dict[str, Any] | Flaw:
    """The one object of the reply that has any of these keys."""
    text = spoken(reply)
    if len(text) > MOST_CHARACTERS:
        return Flaw(f"the reply has {len(text)} characters, of at most {MOST_CHARACTERS}")
    found: list[dict[str, Any]] = []
    rest: list[str] = []  # what is not one of those objects
    problem = ""
    at = tries = 0
    while start := _START.search(text, at):
        tries += 1
        if tries > _MOST_STARTS:
            return Flaw("the reply has too many braces for one JSON object")
        try:
            value, end = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError) as error:
            problem = problem or _in_words(error)
            rest.append(text[at : start.end()])
            at = start.end()
            continue
        if any(key in value for key in keys):
            found.append(value)
            rest.append(text[at : start.start()])
        else:
            rest.append(text[at:end])
        at = end
    rest.append(text[at:])
    return _the_only(found, "".join(rest), keys, problem)


def _the_only(
    found: list[dict[str, Any]], rest: str, keys: Sequence[str], problem: str
) -> dict[str, Any] | Flaw:
    wanted = " or ".join(f'"{key}"' for key in keys)
    if len(found) > 1:
        return Flaw(f"the reply has {len(found)} JSON objects with {wanted}: give exactly one")
    if not found:
        why = f": {problem}" if problem else ""
        return Flaw(f"the reply has no JSON object with {wanted}{why}")
    if any(f'"{key}"' in rest for key in keys):
        return Flaw(f"the reply has {wanted} outside its JSON object as well: give exactly one object")
    return found[0]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key, part in pairs:
        if key in value:
            raise ValueError(f"the key {quoted(key)} is given twice")
        value[key] = part
    return value


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_json)


def quoted(value: Any, limit: int = 40) -> str:
    """A piece of a reply in a message of ours: on one line, and short."""
    text = repr(value if isinstance(value, str) else str(value))
    return text if len(text) <= limit else text[:limit] + "…"


def plain(text: str, limit: int) -> str:
    """A model's sentence as one line that every store and terminal takes."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: limit * 2]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _in_words(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} (line {error.lineno}, column {error.colno})"
    return str(error)
