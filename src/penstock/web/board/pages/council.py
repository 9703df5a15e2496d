"""Ask a council, and watch it answer; what it was asked before.

The browser follows the events of a question by itself. Here it is told what the store knows beside them: which
task each step is, and what those that are queued wait for.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from nicegui.events import GenericEventArguments

from penstock.config.councils import Council
from penstock.council.asking import step_of
from penstock.council.conversations import conversation_of
from penstock.council.shown import clean_line
from penstock.errors import PenstockError, UnknownTask
from penstock.lifecycle import ENDED
from penstock.model import State, TaskRecord
from penstock.store.base import TaskFilter
from penstock.web.board import council_history
from penstock.web.board.council_history import Sought
from penstock.web.board.council_parts import AskForm, Question
from penstock.web.board.council_words import estimate_told, waits_for
from penstock.web.board.elements import code_block, empty, prose, section, tag
from penstock.web.board.frame import Visit
from penstock.web.council_records import council_record, mode_of, query_of

_LOOK_S = 0.5
_SHORT = 80
_EXAMPLE = """[councils.sages]
chair = { name = "CHAIR", model = "qwen2.5-32b" }
members = [
  { name = "ADA", emoji = "🧮", role = "the careful one", model = "qwen2.5-32b" },
  { name = "BOB", emoji = "🔧", role = "the practical one", model = "llama-3.1-8b" },
]"""


async def build(visit: Visit) -> None:
    councils = visit.desk.config.councils
    given = visit.request.query_params
    if not councils:
        empty("There is no council yet.", "In one, several models answer a question and another sums up.")
        prose(
            "p", "Describe one in penstock.toml, with models of your hosts, and start `penstock serve` again:"
        )
        code_block(_EXAMPLE, label="Example")
        return
    name = given.get("council") or next(iter(councils))
    council = councils.get(name)
    _choice(list(councils), name)
    if council is None:
        tag("p", f"There is no council {name[:_SHORT]!r}; choose one above.", class_="told warning")
        return
    page = CouncilPage(visit, council)
    before = given.get("before", "")
    sought = Sought(
        name,
        given.get("conversation") or None,
        given.get("words", "").strip()[:200],
        int(before) if before.isascii() and before.isdigit() and len(before) < 19 else None,
    )
    await page.build(given.get("question") or None, sought)


def _choice(names: list[str], current: str) -> None:
    if len(names) < 2:
        return
    with tag("nav", aria_label="Councils", class_="councils"):
        for name in names:
            here = "true" if name == current else None
            tag("a", name, href=f"/board/council?{urlencode({'council': name})}", aria_current=here)


class CouncilPage:
    """One council: its form, the question that is looked at, and its history."""

    def __init__(self, visit: Visit, council: Council) -> None:
        self._visit = visit
        self._council = council
        self._sought = Sought(council.name)
        self._form: AskForm | None = None
        self._question: Question | None = None
        self._record: TaskRecord | None = None
        self._listed: dict[str, State] | None = None  # as the history shows them
        self._current: str | None = None

    async def build(self, question: str | None, sought: Sought) -> None:
        self._sought = sought
        if self._visit.viewer.may("submit"):
            self._form = AskForm(council_record(self._council))
            self._form.on("ask", self._ask).on("estimate", self._estimate).on("afresh", self._afresh)
        else:
            prose("p", "Your token may read and not ask: it lacks the scope `submit`.", class_="told")
        self._shown = tag("div", class_="shown")
        with section("History"):
            council_history.search_form(sought)
            self._history = tag("div", class_="stack")
        self._visit.follow(self._news, least_s=_LOOK_S)
        if question is not None:
            await self._open(question)
        await self._list()

    # ---- asking

    async def _ask(self, event: GenericEventArguments) -> None:
        assert self._form is not None
        self._form.tell(busy=True, problem="")
        try:
            told = await self._visit.desk.api.post(
                self._visit.viewer, f"{self._path}/ask", self._body(event.args)
            )
        except PenstockError as error:
            self._form.tell(busy=False, problem=str(error))
            return
        self._form.tell(busy=False, estimate="")
        self._form.count("asked")
        await self._open(told["id"], is_fresh=True)
        await self._list()

    async def _estimate(self, event: GenericEventArguments) -> None:
        assert self._form is not None
        try:
            made = await self._visit.desk.api.post(
                self._visit.viewer, f"{self._path}/estimate", self._body(event.args)
            )
        except PenstockError as error:
            self._form.tell(estimate="", problem=str(error))
            return
        self._form.tell(estimate=estimate_told(made), problem="")

    def _body(self, given: Any) -> dict[str, Any]:
        assert self._form is not None
        conversation = self._form._props.get("conversation")
        body = dict(given) if isinstance(given, dict) else {}
        return {**body, "conversation": conversation} if conversation else body

    def _follow(self) -> None:
        """The next question belongs to the conversation of the one that is shown."""
        conversation = None if self._record is None else conversation_of(self._record.task)
        if self._form is None or self._record is None:
            return
        if conversation is None:
            self._form.tell(problem="That question belongs to no conversation, so none can follow it.")
            return
        query = clean_line(query_of(self._record), _SHORT)
        self._form.tell(conversation=conversation, following=query, problem="")
        self._form.count("focus")

    def _afresh(self) -> None:
        assert self._form is not None
        self._form.tell(conversation="", following="", estimate="")
        self._form.count("focus")

    @property
    def _path(self) -> str:
        return f"/api/councils/{quote(self._council.name, safe='')}"

    # ---- the question that is looked at

    async def _open(self, id: str, *, is_fresh: bool = False) -> None:
        """Fresh: just asked, so that whoever asked wants to see it."""
        self._shown.clear()
        self._question = None
        try:
            record = await self._visit.desk.client.get(id)
        except UnknownTask as error:
            self._say(str(error))
            return
        if record.task.kind != self._council.kind:
            self._say(f"{id[:_SHORT]} is no question of council {self._council.name!r}.")
            return
        self._record = record
        with self._shown:
            self._question = self._made(record, is_fresh=is_fresh)
        await self._look()

    def _say(self, problem: str) -> None:
        with self._shown:
            tag("p", problem, class_="told warning")

    def _made(self, record: TaskRecord, *, is_fresh: bool) -> Question:
        council, viewer = self._council, self._visit.viewer
        payload = record.task.payload if isinstance(record.task.payload, dict) else {}
        asked = payload.get("members")
        names = {str(one).casefold() for one in asked} if isinstance(asked, list) and asked else None
        members = council_record(council)["members"]
        made = Question(
            members=[one for one in members if names is None or one["name"].casefold() in names],
            council=council.name,
            question=record.task.id,
            query=query_of(record),
            mode=mode_of(council, record),
            address=f"/board/council?{urlencode({'council': council.name, 'question': record.task.id})}",
            mayCancel=viewer.may("submit") or viewer.may("admin"),
            mayAsk=viewer.may("submit"),
            fresh=is_fresh,
        )
        made.on("cancel", self._cancel).on("follow", self._follow).on("over", self._over)
        return made

    async def _cancel(self) -> None:
        shown, record = self._question, self._record
        if shown is None or record is None:
            return
        shown.tell(cancelling=True)
        try:
            await self._visit.desk.api.post(
                self._visit.viewer, f"{self._path}/questions/{record.task.id}/cancel"
            )
        except PenstockError as error:
            shown.tell(cancelling=False)
            self._say(str(error))

    async def _over(self) -> None:
        """The browser has heard the last of it. The store may not have: then it rings once more."""
        await self._look()
        await self._list()

    async def _news(self) -> None:
        """Something was recorded: perhaps of the question, perhaps of one that is listed."""
        record = self._record
        if self._question is not None and record is not None and record.state not in ENDED:
            self._record = await self._visit.desk.client.get(record.task.id)
            await self._look()
        if any(state not in ENDED for state in (self._listed or {}).values()):
            await self._list()

    async def _look(self) -> None:
        """Which task each step is; what those that are queued wait for."""
        shown, record = self._question, self._record
        if shown is None or record is None:
            return
        client, task = self._visit.desk.client, record.task
        wanted = TaskFilter(run=task.run, lane=self._council.calls_lane, since=task.queued_at)
        steps: dict[str, dict[str, str]] = {}
        for one in await client.tasks(wanted):
            step = step_of(task.id, one)
            if step is not None:
                why = waits_for(await client.why(one.task.id)) if one.state is State.QUEUED else ""
                steps[step] = {"task": one.task.id, "why": why}
        shown.tell(steps=steps)

    # ---- history

    async def _list(self) -> None:
        found = await council_history.found(self._visit.desk.client, self._council, self._sought)
        current = None if self._record is None or self._question is None else self._record.task.id
        states = {one.task.id: one.state for one in found.questions}
        if states == self._listed and current == self._current:
            return
        self._listed, self._current = states, current
        self._history.clear()
        with self._history:
            council_history.show(self._council, self._sought, found, current)
