"""All about one task, and what can be done with it."""

from __future__ import annotations

from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from penstock.errors import UnknownTask
from penstock.model import TaskRecord
from penstock.trace import trace_id
from penstock.web.board import task_why, task_words
from penstock.web.board.elements import BASE, empty, link, section, tag
from penstock.web.board.frame import Visit
from penstock.web.board.sheet import Node, Sheet, node, task_link
from penstock.web.board.task_actions import Actions
from penstock.web.board.task_reading import Seen, TaskReading
from penstock.web.board.task_texts import Copy, Logs, Whole
from penstock.wiring import are_traced

_MOST_SHOWN = 80  # characters of a name that nobody knows


async def build(visit: Visit) -> Response | None:
    asked = str(visit.request.path_params["task_id"])
    try:
        record = await visit.desk.client.get(asked)
    except UnknownTask:
        await _not_found(visit, asked)
        return None
    if record.task.id != asked:  # what is before the path is added on its way out
        return RedirectResponse(f"/tasks/{quote(record.task.id, safe='')}", 307)
    page = TaskPage(visit, record)
    await page.refresh()
    visit.follow(page.refresh)
    return None


async def _not_found(visit: Visit, asked: str) -> None:
    visit.client.status_code = 404
    visit.title("No such task")
    shown = asked if len(asked) <= _MOST_SHOWN else asked[: _MOST_SHOWN - 1] + "…"
    matches = await visit.desk.client.ids_like(asked)
    if matches:
        empty(f"Several tasks could be {shown}", "Which of them is meant?")
        Sheet(node("ul", *(node("li", task_link(one), key=one) for one in matches)))
        return
    days = visit.desk.config.keep_days
    kept = "" if days is None else f" Tasks that have ended are kept for {days:g} days."
    empty(
        f"There is no task {shown}", f"Look for it by its name, kind, run or error.{kept}", "penstock tasks"
    )
    with tag("p"):
        link("Search the queue", f"/queue?q={quote(shown, safe='')}", class_="button")


class TaskPage:
    """What the page shows of a task, and how it follows it."""

    def __init__(self, visit: Visit, record: TaskRecord) -> None:
        self._visit = visit
        task = record.task
        self._reading = TaskReading(visit.desk, task.id)
        self._traced = are_traced(visit.desk.config)
        url = f"{BASE}/data/tasks/{quote(task.id, safe='')}"
        with tag("div", class_="task-head"):
            with tag("p", class_="task-id"):
                tag("code", task.id)
                Copy(task.id, "the task's id")
                if task_words.is_traced(task, self._traced):
                    Copy(f"{trace_id(task):032x}", "trace id")
            self._headline = Sheet()
            self._actions = Actions(visit, record, self.refresh)
        self._error = Sheet()
        self._fields = Sheet()
        with section("Where its time went"):
            self._why = Sheet()
        self._steps = Sheet()
        with section("Attempts"):
            self._attempts = Sheet()
        self._logs = Logs(visit.desk.config, f"{url}/log")
        self._result = Whole("Result", f"{url}/result")
        self._payload = Whole("Payload", f"{url}/payload")
        with section("What happened"):
            self._events = Sheet()

    async def refresh(self) -> None:
        seen = await self._reading.look()
        if seen is not None:
            await self._show(seen)

    async def _show(self, seen: Seen) -> None:
        record, plant = seen.record, self._visit.desk.config.plant
        self._visit.title(f"{record.state} · {record.task.kind} {record.task.id}")
        self._headline.show(task_words.headline(seen))
        self._actions.show(record)
        self._error.show(_error(record))
        self._fields.show(task_words.fields(seen, plant, self._traced))
        self._why.show(task_why.why(seen, plant))
        course = seen.why.course
        if course is not None and course.steps:
            self._steps.show(node("section", node("h2", "Steps"), task_words.steps(course), class_="part"))
        self._attempts.show(task_words.attempts(seen))
        self._logs.show(seen)
        await self._result.show(record.value)
        await self._payload.show(record.task.payload)
        self._events.show(task_words.events(seen.events, record.task.queued_at))


def _error(record: TaskRecord) -> Node | None:
    if record.error is None:
        return None
    text = node("pre", record.error, class_="code", tabindex=0, role="region", aria_label="Error")
    return node("section", node("h2", "Error"), text, class_="part wrong")
