"""What a payload for an agent is: `{"command": "render", "params": [...] or {...}, "stdin": "text"}`."""

from __future__ import annotations

import re
from typing import Any

from penstock.agents.calls.calling import Ask
from penstock.config.problems import kind_of, meant
from penstock.errors import PermanentError

FIELDS = ("command", "params", "stdin")
COMMAND = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_COMMAND_RULE = "letters, digits, '_', '.' and '-', at most 128, first a letter, digit or '_'"


def read_payload(payload: Any) -> Ask:
    """What a payload asks for; PermanentError says what is wrong with it."""
    if not isinstance(payload, dict):
        raise PermanentError(
            f'a payload for an agent is {{"command": …, "params": […]}}, not {kind_of(payload)}'
        )
    for name in payload:
        if name not in FIELDS:
            raise PermanentError(
                f"the payload has an unknown field {name[:80]!r}{meant(name, FIELDS, 'fields')}"
            )
    command = payload.get("command")
    if not isinstance(command, str) or not COMMAND.fullmatch(command):
        what = "is missing" if command is None else f"must be {_COMMAND_RULE}"
        raise PermanentError(f"the payload's `command` {what}; name what the agent shall do")
    params = payload.get("params")
    if params is not None and not isinstance(params, list | dict):
        raise PermanentError(f"the payload's `params` must be a list or a table, not {kind_of(params)}")
    stdin = payload.get("stdin")
    if stdin is not None and not isinstance(stdin, str):
        raise PermanentError(f"the payload's `stdin` must be a text, not {kind_of(stdin)}")
    return Ask("", command, [] if params is None else params, stdin)
