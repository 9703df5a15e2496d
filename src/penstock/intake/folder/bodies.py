"""The text of a request → its task, or what is wrong with it.

Two forms are known. A *command*, as Ploinky's agents write it:

    {"id": "…", "command": "report", "params": ["a", "b"], "metadata": {…}, "timestamp": …}

Its kind is the command and its payload the `params`. Where the command is mapped to another kind, the payload is
`{"command", "params", "metadata"}`, because the kind no longer tells it. `metadata` and `timestamp` are the
requester's own. In the queue of an agent every request is one of its commands: the payload is
`{"command", "params", "stdin"}`. And a *task*, as in a task file: `{"kind": …, "payload": …, "priority": …}`. Both
take the other fields of a task beside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from penstock.config import TaskChecker
from penstock.config.problems import Problem, dotted, kind_of, meant, quoted
from penstock.intake.entries import FIELDS, Setting, read_entry
from penstock.model import DEFAULT_LANE, OnCrash, Task

ANY_COMMAND = "*"
COMMAND_FIELDS = ("command", "params", "metadata", "timestamp")
# The queue's own affair: the file's name is the id, and each request stands alone.
_NOT_HERE = ("run", "key", "after", "matrix")
_MOST_PROBLEMS = 5
_MARK = b"\xef\xbb\xbf"  # some editors begin a text with it


class Unfinished:
    """Not JSON, or not yet: the rest may be on its way."""

    def __init__(self, why: str) -> None:
        self.why = why


@dataclass(frozen=True, slots=True)
class Refused:
    """It will never be a task; `why` is for the requester."""

    why: str
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Reader:
    """How the requests of one queue become tasks."""

    queue: str  # its name: with the request's it makes the key
    checker: TaskChecker
    lane: str = DEFAULT_LANE
    kinds: Mapping[str, str] = field(default_factory=dict)  # command, or "*" → kind
    on_crash: OnCrash = OnCrash.RETRY
    no_outputs: str | None = None  # why a request may not name one
    agent_kind: str | None = None  # all are commands of an agent: tasks of this kind

    def read(self, name: str, data: bytes, now: float) -> Task | Refused | Unfinished:
        text = data.removeprefix(_MARK)
        if not text.strip():
            return Unfinished("is empty")
        try:
            body = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            return Unfinished(f"is not JSON: {str(error).removeprefix('JSON is malformed: ')}")
        except UnicodeDecodeError:
            return Unfinished("is not UTF-8 text")
        except RecursionError:
            return Refused("is nested too deeply; flatten it")
        if not isinstance(body, Mapping):
            return Refused(f"must be an object with `command` or `kind`, not {kind_of(body)}")
        return self._task(name, body, now)

    def _task(self, name: str, body: Mapping[str, Any], now: float) -> Task | Refused:
        entry = {key: value for key, value in body.items() if value is not None}
        given = entry.pop("id", name)
        if given not in (name, name.removesuffix(".json")):
            told = quoted(given) if isinstance(given, str) else kind_of(given)
            return Refused(f"id: is {told} but the file is {quoted(name)}; name the file after its id")
        found = [
            Problem((key,), f"a request has no `{key}`; leave it out")
            for key in _NOT_HERE
            if entry.pop(key, None) is not None
        ]
        is_command = "command" in entry
        if is_command:
            found += self._from_command(entry)
        elif self.agent_kind is not None and entry.get("kind") != self.agent_kind:
            what = f"give `command` and `params`, or kind {quoted(self.agent_kind)}"
            return Refused(f"is no command of the agent that this queue belongs to; {what}")
        elif "kind" not in entry:
            return Refused("has neither `command` nor `kind`; give one of them")
        if self.no_outputs is not None and entry.pop("output", None) is not None:
            found.append(Problem(("output",), self.no_outputs))
        setting = Setting(now=now, on_crash=self.on_crash, checker=self.checker)
        tasks, problems = read_entry({"lane": self.lane, **entry}, setting)
        found += [_in_words_of_commands(one) for one in problems] if is_command else problems
        if found:
            return Refused("; ".join(f"{dotted(p.path)}: {p.message}" for p in found[:_MOST_PROBLEMS]))
        return replace(tasks[0], key=f"{self.queue}/{name}")

    def _from_command(self, entry: dict[str, Any]) -> list[Problem]:
        """Turn a command into the entry of a task, in place; what is wrong with it."""
        found = [
            Problem((key,), "belongs to a task; with `command` give `params`")
            for key in ("kind", "payload")
            if entry.pop(key, None) is not None
        ]
        own = () if self.agent_kind is None else ("stdin",)
        known = (*COMMAND_FIELDS, *own, *(name for name in FIELDS if name not in _NOT_HERE))
        for key in [key for key in entry if key not in known]:
            found.append(Problem((key,), f"unknown field{meant(key, known, 'fields')}"))
            del entry[key]
        command, params = entry.pop("command"), entry.pop("params", [])
        metadata = entry.pop("metadata", None)
        entry.pop("timestamp", None)
        if not isinstance(params, list | Mapping):
            found.append(Problem(("params",), f"must be a list or an object, not {kind_of(params)}"))
        if not isinstance(command, str):
            found.append(Problem(("command",), f"must be text, not {kind_of(command)}"))
            return found
        if self.agent_kind is not None:
            stdin = {"stdin": entry.pop("stdin")} if "stdin" in entry else {}
            entry |= {"kind": self.agent_kind, "payload": {"command": command, "params": params} | stdin}
            return found
        kind = self.kinds.get(command, self.kinds.get(ANY_COMMAND, command))
        entry["kind"] = kind
        if kind == command:
            entry["payload"] = params
        else:
            said = {} if metadata is None else {"metadata": metadata}
            entry["payload"] = {"command": command, "params": params} | said
        return found


def _in_words_of_commands(problem: Problem) -> Problem:
    """Told by the field that the requester wrote."""
    path, message = problem
    names = {"kind": "command", "payload": "params"}
    return Problem((names.get(str(path[0]), path[0]), *path[1:]), message) if path else problem
