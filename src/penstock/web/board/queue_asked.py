"""What the queue page is asked to show: from its address and back, as the store's filter and as the API's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import parse_qs, urlencode

from penstock.lifecycle import UNWELL
from penstock.model import PRIORITIES, State
from penstock.store.base import TaskFilter

ROWS = 50
# What a choice of states is called in the address; each state by its own name too.
_STATES: Mapping[str, tuple[State, ...]] = {
    "live": (State.QUEUED, State.RUNNING),
    "unwell": UNWELL,
    **{str(state): (state,) for state in State},
}
STATES = {
    "": "any state",
    "live": "queued or running",
    "unwell": "failed, cancelled or blocked",
    **{str(state): str(state) for state in State},
}
NEXT = "next"
ORDERS = {"": "newest first", NEXT: "next to start first"}
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
    order: str = ""  # only what is queued can be next to start
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
        if known["order"] not in ORDERS:
            known["order"] = ""
        if known["order"] == NEXT:
            known["state"] = str(State.QUEUED)
        if not known["after"].isdecimal():
            known["after"] = ""
        return cls(**known)

    @property
    def query(self) -> str:
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        return urlencode({name: value for name, value in told.items() if value})

    @property
    def narrows(self) -> bool:
        return any(getattr(self, one.name) for one in fields(self) if one.name not in ("after", "order"))

    def changed(self, given: Mapping[str, str]) -> Asked:
        """Asked for otherwise. Whoever wants to see what is next wants what is queued; whoever wants another state
        then, not that order."""
        asked = Asked(**given)
        if asked.order == NEXT and asked.state != State.QUEUED:
            return replace(asked, order="") if self.order == NEXT else replace(asked, state=str(State.QUEUED))
        return asked

    def filter(self, aging_s: float) -> TaskFilter:
        return TaskFilter(
            states=_STATES.get(self.state),
            run=self.run or None,
            kind=self.kind or None,
            lane=self.lane or None,
            host=self.host or None,
            limit=ROWS,
            after=int(self.after) if self.after else None,
            newest=self.order != NEXT,
            search=self.q or None,
            priorities=(int(self.priority),) if self.priority else None,
            aging_s=aging_s if self.order == NEXT else None,
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
