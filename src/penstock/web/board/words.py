"""Words that several pages say alike: how urgent a priority is, how many of something, commands in a sentence.

The browser gets its share of them from `/board/words.js`.
"""

from __future__ import annotations

import re

import msgspec

from penstock.model import PRIORITIES

URGENCY = ("most urgent", "urgent", "usual", "can wait", "least urgent")
assert len(URGENCY) == len(PRIORITIES)
_COMMAND = re.compile(r"`([^`]+)`")


def urgency(priority: int) -> str:
    """A priority with what it means: 0 – most urgent."""
    return f"{priority} – {URGENCY[priority]}"


def counted(number: int, noun: str) -> str:
    """1 task, 1,010 tasks."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def pieces(text: str) -> list[tuple[bool, str]]:
    """A sentence cut where commands stand in it, between backticks: whether it is one, and the text."""
    return [(place % 2 == 1, piece) for place, piece in enumerate(_COMMAND.split(text)) if piece]


def script() -> str:
    return f"export const URGENCY = {msgspec.json.encode(URGENCY).decode()};\n"
