"""What users know a task by: the part of its key that is theirs.

A key is `beads:ISSUE:CLAIM` for an issue of Beads, `QUEUE/NAME` for a request in a folder, `council/QUESTION/STEP`
for what a question asks of its members, and anything else for who submits with one. Claims, queues and steps have
names that nobody has ever seen, so a task is asked for by the rest.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.config.council_steps import step_of

_ISSUE = "beads:"
_SUFFIX = ".json"  # requests are files, and may be called so


class KeyedTask(NamedTuple):
    id: str
    key: str


def known_as(key: str) -> str:
    """The name that the user gave."""
    if key.startswith(_ISSUE) and key.count(":") > 1:
        return key.removeprefix(_ISSUE).rpartition(":")[0]
    if (step := step_of(key)) is not None:
        return step.shown
    return key.rpartition("/")[2].removesuffix(_SUFFIX) or key


def is_called(key: str, name: str) -> bool:
    return bool(name) and name in (key, known_as(key), key.rpartition("/")[2])


def one_of_them(found: list[KeyedTask], name: str) -> list[str]:
    """The ids of tasks that are called so, the newest first; of one issue's tasks only the newest.

    An issue that was given back and taken again has had several tasks, and who asks for it means the last.
    """
    called = [task for task in found if is_called(task.key, name)]
    issues = [task for task in called if task.key.startswith(_ISSUE)]
    return [task.id for task in called if task not in issues[1:]]
