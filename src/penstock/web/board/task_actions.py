"""What can be done with a task, by whom and when: cancel it, queue it again, make it more urgent or less.

The server decides; here is only what it would say, so that nobody presses a button in vain.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import quote

from penstock.lifecycle import LIVE, UNWELL
from penstock.model import DEFAULT_PRIORITY, PRIORITIES, State, Task, TaskRecord
from penstock.web.board.buttons import button
from penstock.web.board.elements import tag
from penstock.web.board.forms import select
from penstock.web.board.frame import Visit
from penstock.web.board.sheet import Sheet, node
from penstock.web.board.viewer import Viewer
from penstock.web.board.words import urgency

_CANCEL = "Cancel this task? An attempt that runs is stopped, and what it has done so far is lost."


def may_change(viewer: Viewer, task: Task) -> str | None:
    """Why not; None: he may."""
    if viewer.may("admin"):
        return None
    if not viewer.may("submit"):
        return f"{viewer.name} may look only: to cancel, retry or move tasks a token needs the scope admin."
    if viewer.lane is None or viewer.lane != task.lane:
        whose = "tasks of its own lane" if viewer.lane is None else f"tasks of lane {viewer.lane}"
        return f"{viewer.name} may change {whose} only; the scope admin may change all."
    return None


class Actions:
    """The buttons stay where they are while the task goes on: only whether they can be pressed changes."""

    def __init__(self, visit: Visit, record: TaskRecord, done: Callable[[], Awaitable[None]]) -> None:
        self._visit = visit
        self._id = record.task.id
        self._done = done
        self._told: tuple[State, int] | None = None
        self._refused = may_change(visit.viewer, record.task)
        if self._refused is not None:
            tag("p", self._refused, class_="soft")
            return
        with tag("div", class_="task-actions", role="group", aria_label="Actions"):
            self._cancel = button("Cancel task", self._cancelled, kind="danger", confirm=_CANCEL)
            self._retry = button("Retry", self._retried, kind="main")
            options = {str(one): urgency(one) for one in PRIORITIES}
            self._priority = select("Priority", options, str(DEFAULT_PRIORITY), hide_label=True)
            self._move = button("Change priority", self._moved)
            self._why_not = Sheet()

    def show(self, record: TaskRecord) -> None:
        told = record.state, record.task.priority
        if self._refused is not None or told == self._told:
            return
        if self._told is None or self._told[1] != record.task.priority:
            self._priority.value = str(record.task.priority)
        self._told = told
        is_live = record.state in LIVE
        over = f"It is {record.state}: it can no longer be cancelled or moved in the order."
        self._cancel.enable(None if is_live else over)
        self._move.enable(None if is_live else over)
        self._priority.enable(is_live)
        can_retry = record.state in UNWELL
        not_yet = "Only what failed, was cancelled or is blocked can be queued again."
        self._retry.enable(None if can_retry else not_yet)
        self._why_not.show(node("p", not_yet if is_live else over, class_="soft"))

    async def _cancelled(self) -> None:
        await self._asked("cancel")

    async def _retried(self) -> None:
        await self._asked("retry")

    async def _moved(self) -> None:
        await self._asked("priority", {"priority": int(self._priority.value)})

    async def _asked(self, what: str, body: dict[str, int] | None = None) -> None:
        path = f"/api/tasks/{quote(self._id, safe='')}/{what}"
        said = await self._visit.desk.api.post(self._visit.viewer, path, body)
        self._visit.notice("good", f"The task {said['said']}.")
        await self._done()
