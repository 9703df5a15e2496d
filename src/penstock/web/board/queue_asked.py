"""What the queue page is asked to show: from its address and back, as the store's filter and as the API's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import parse_qs, urlencode

from penstock.model import PRIORITIES, State
from penstock.store.base import TaskFilter

ROWS = 50
# What a choice of states is called in the address; each state by its own name too.
_STATES: Mapping[str, tuple[State, ...]] = {
    "live": (State.QUEUED, State.RUNNING),
    "unwell": (State.FAILED, State.CANCELLED, State.BLOCKED),
    **{str(state): (state,) for state in State},
}
STATES = {
    "": "any state",
    "live": "queued or running",
    "unwell": "failed, cancelled or blocked",
    **{str(state): str(state) for state in State},
}
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """Empty where nothing is asked; `after` is the number that the page begins beyond."""

    q: str = ""
    state: str = ""
    kind: str = ""
    lane: str = ""
    host: str = ""
    run: str = ""
    priority: str = ""
    after: str = ""

    @classmethod
    def of(cls, query: str) -> Asked:
        """Of what stands behind the question mark; what is not understood is left out."""
        given = {name: values[0][:_LONGEST] for name, values in parse_qs(query.lstrip("?")).items()}
        known = {one.name: given.get(one.name, "") for one in fields(cls)}
        if known["state"] not in _STATES:
            known["state"] = ""
        if known["priority"] not in {str(priority) for priority in PRIORITIES}:
            known["priority"] = ""
        if not known["after"].isdecimal():
            known["after"] = ""
        return cls(**known)

    @property
    def query(self) -> str:
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        return urlencode({name: value for name, value in told.items() if value})

    @property
    def narrows(self) -> bool:
        return any(getattr(self, one.name) for one in fields(self) if one.name != "after")

    def filter(self) -> TaskFilter:
        return TaskFilter(
            states=_STATES.get(self.state),
            run=self.run or None,
            kind=self.kind or None,
            lane=self.lane or None,
            host=self.host or None,
            limit=ROWS,
            after=int(self.after) if self.after else None,
            newest=True,
            search=self.q or None,
            priorities=(int(self.priority),) if self.priority else None,
        )

    def body(self) -> dict[str, Any]:
        """The same for `POST /api/tasks/actions`."""
        told: dict[str, Any] = {name: getattr(self, name) for name in ("kind", "lane", "host", "run")}
        told["search"] = self.q
        told = {name: value for name, value in told.items() if value}
        if self.state:
            told["state"] = [str(state) for state in _STATES[self.state]]
        if self.priority:
            told["priority"] = [int(self.priority)]
        return told
