"""What can be done with a selection of tasks: cancel, retry, another priority; asked first, with their number."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from nicegui.element import Element

from penstock.model import DEFAULT_PRIORITY, PRIORITIES
from penstock.store.base import TaskCount
from penstock.web.board.buttons import button, dialog
from penstock.web.board.elements import say, tag
from penstock.web.board.forms import select
from penstock.web.board.frame import Visit
from penstock.web.board.queue_asked import Asked
from penstock.web.board.viewer import Viewer
from penstock.web.board.words import counted, urgency

_WORDS = {"cancel": "Cancel", "retry": "Retry", "priority": "Change the priority of"}
_DONE = {"cancel": "cancelled or stopping", "retry": "queued again", "priority": "moved"}
_LOST = " What runs is stopped, and what it has done so far is lost."


def may_change(viewer: Viewer) -> str | None:
    """Why not; None: he may, all or those of his lane."""
    if viewer.may("admin") or (viewer.may("submit") and viewer.lane is not None):
        return None
    return f"{viewer.name} may look only: to cancel, retry or move tasks a token needs the scope admin."


class Actions:
    def __init__(self, visit: Visit, done: Callable[[], Awaitable[None]]) -> None:
        self._visit = visit
        self._done = done
        self._asked = Asked()
        self._count = TaskCount(0, is_exact=True)
        self._chosen: Sequence[str] = ()
        self._all = False
        self._do = "cancel"
        refused = may_change(visit.viewer)
        self.is_shown = refused is None
        self.shown: list[Element] = []  # what is of no use where there is nothing to act on
        if refused is not None:
            tag("p", refused, class_="soft")
            return
        with tag("div", class_="queue-actions", role="group", aria_label="Actions on the selection") as bar:
            self._told = tag("p", "", class_="queue-chosen", role="status")
            self._every = button("Select all that match", self._choose_all, kind="quiet")
            self._cancel = button("Cancel…", lambda: self._ask("cancel"), kind="danger")
            self._retry = button("Retry…", lambda: self._ask("retry"))
            words = {str(one): f"priority {urgency(one)}" for one in PRIORITIES}
            self._priority = select("New priority", words, str(DEFAULT_PRIORITY), hide_label=True)
            self._move = button("Set priority…", lambda: self._ask("priority"))
        with dialog("Sure?") as self._dialog:
            self._question = tag("p", "")
            with tag("div", class_="actions"):
                button("No, go back", self._dialog.close)
                button("Yes, do it", self._agreed, kind="danger")
        self.shown = [bar]
        self.choose([])

    def choose(self, task_ids: Sequence[str]) -> None:
        self._chosen = list(task_ids)
        self._all = False
        self._tell()

    def matching(self, asked: Asked, count: TaskCount) -> None:
        """What the page shows now: all that match may be chosen too."""
        self._all = self._all and asked == self._asked
        self._asked, self._count = asked, count
        self._tell()

    def _choose_all(self) -> None:
        self._all = not self._all
        self._tell()

    def _tell(self) -> None:
        if not self.is_shown:
            return
        number = self._number()
        say(self._told, f"{number} selected" if self._all or self._chosen else "Nothing selected")
        every = f"Select {'the' if self._is_one else 'all'} {self._matching()}"
        self._every.say("Select only the rows" if self._all else every)
        why_not = None if self._all or self._chosen else "Select tasks first."
        for one in (self._cancel, self._retry, self._move):
            one.enable(why_not)

    def _number(self) -> str:
        return (
            f"{'The' if self._is_one else 'All'} {self._matching()}"
            if self._all
            else f"{len(self._chosen):,}"
        )

    def _matching(self) -> str:
        return "1 that matches" if self._is_one else f"{self._count} that match"

    @property
    def _is_one(self) -> bool:
        return str(self._count) == "1"

    def _ask(self, do: str) -> None:
        self._do = do
        matching = (
            "the 1 task that matches" if str(self._count) == "1" else f"all {self._count} tasks that match"
        )
        which = matching if self._all else counted(len(self._chosen), "task")
        to = f" to {self._priority.value}" if do == "priority" else ""
        say(self._question, f"{_WORDS[do]} {which}{to}?{_LOST if do == 'cancel' else ''}")
        self._dialog.open()

    async def _agreed(self) -> None:
        self._dialog.close()
        body: dict[str, Any] = {"do": self._do}
        if self._do == "priority":
            body["priority"] = int(self._priority.value)
        if self._all:
            body["filter"] = self._asked.body()
        else:
            body["task_ids"] = list(self._chosen)
        counts = {"done": 0, "skipped": 0, "refused": 0}
        reasons: list[str] = []
        while True:
            told = await self._visit.desk.api.post(self._visit.viewer, "/api/tasks/actions", body)
            counts = {name: count + told[name] for name, count in counts.items()}
            reasons += [f"{one['task_id']} {one['said']}" for one in told["reasons"]]
            if told["next"] is None:
                break
            body["after"], body["until"] = told["next"], told["until"]
        self._report(counts, reasons)
        await self._done()

    def _report(self, counts: dict[str, int], reasons: Sequence[str]) -> None:
        text = f"{counted(counts['done'], 'task')} {_DONE[self._do]}"
        left = [f"{counts[name]:,} {name}" for name in ("skipped", "refused") if counts[name]]
        if left:
            text += f"; {', '.join(left)}: {reasons[0]}" if reasons else f"; {', '.join(left)}"
        self._visit.notice("good" if counts["done"] and not left else "warning", f"{text}.")
