"""Details of waits that others must know again: what they do then hangs on a name, and not on how it is worded.

Stored and shown is the text. So a history of an earlier version is read by `Detail.of`, and whoever words one
anew lets it know the old words too.
"""

from __future__ import annotations

import re
from enum import Enum


class Detail(Enum):
    # Of an attempt that had its slots and had not begun: what had to be there first.
    NO_WORKER = "no worker of the cluster had begun it yet"
    READ_FIRST = "its payload had to be read first"
    RECORDED_FIRST = "its start had to be recorded first"
    # Of `paused`: not by anybody's wish.
    STOPPING = "the dispatcher is stopping"

    @classmethod
    def of(cls, text: str) -> Detail | None:
        """Which one a wait tells by its text; None: one that is only for people."""
        return _BY_TEXT.get(text)


_BY_TEXT = {one.value: one for one in Detail}


# Of `host-down`: attempts failed there, and the breaker is open; anything else is the word of a health check.
TRIPPED = re.compile(r"failed (?:once|\d+ times in a row): ")


def tripped(host: str, failures: int, error: str) -> str:
    times = "once" if failures == 1 else f"{failures} times in a row"
    return f"{host} failed {times}: {error}"


_FAULT_CHARS = 300


def short(error: str) -> str:
    """An error for a line: of a long one its beginning and what it says to do, which is its last part."""
    if len(error) <= _FAULT_CHARS:
        return error
    said, _, remedy = error.rpartition("; ")
    if not said or len(remedy) > _FAULT_CHARS // 2:
        return error[: _FAULT_CHARS - 1] + "…"
    return f"{said[: _FAULT_CHARS - 3 - len(remedy)]}…; {remedy}"


# Of `host-down` on a cluster: no node can serve the host, so trying it would tell nobody more.
NO_NODE = "the Ray cluster has no node; start one"
_WAITS, _STARTS = "waits for a Ray node with ", ": start one, or change "


def no_such_node(wanted: str, none: str, change: str) -> str:
    """What a node must have, that none of those there has it, and the key of the config that asks for it."""
    return f"{_WAITS}{wanted}; {none}{_STARTS}{change}"


def node_remedy(detail: str) -> str | None:
    """What would help where `detail` tells of a node that is not there; None: it tells of something else."""
    if detail.endswith(NO_NODE):
        return "a node of the Ray cluster: `ray start` on a machine joins it"
    _, waits, asked = detail.partition(_WAITS)
    told, starts, change = asked.rpartition(_STARTS)
    if not waits or not starts:
        return None
    wanted, _, _ = told.rpartition("; ")
    return f"a Ray node with {wanted}, or less asked by {change}"
