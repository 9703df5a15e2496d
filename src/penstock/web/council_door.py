"""A question over HTTP: which council, what is asked, and the task that it becomes.

What is wrong with a question is told before it is queued, by the same rules that its attempt reads it with.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.config import Config, TaskChecker
from penstock.config.councils import Council
from penstock.config.problems import meant
from penstock.council.asking import so_far
from penstock.council.conversations import conversation_of, new_conversation, turns_before
from penstock.council.past import seconds_of
from penstock.council.plan.asking import read_question
from penstock.council.plan.estimate import estimate, prices_of
from penstock.council.plan.steps import Question
from penstock.errors import TaskError
from penstock.lifecycle import ENDED
from penstock.model import State, TaskRecord
from penstock.store.base import TaskFilter
from penstock.web.admission import Admission
from penstock.web.auth import Caller
from penstock.web.refusals import Refused

if TYPE_CHECKING:
    from penstock.web.app import Parts

ASKED = ("query", "mode", "members", "use_rag", "conversation")  # what a question says of itself
_HOW = ("priority", "lane", "key")  # how its task is queued
FIELDS = (*ASKED, *_HOW)
_SHENRON = "shenron"
_PAGE, _MOST_PAGES = 100, 20  # questions that are looked at for a list of conversations


class CouncilDoor:
    def __init__(self, config: Config) -> None:
        self.councils = config.councils
        self.life = format(time.time_ns(), "x")  # of this server: numbers of events count anew in each
        self._hosts = config.plant.hosts
        self._admission = Admission(config, TaskChecker(config))

    def known(self, name: str) -> Council:
        found = self.councils.get(name)
        if found is None:
            raise Refused(404, "unknown_council", f"there is no council {name[:80]!r}", self._which(name))
        return found

    def _which(self, name: str) -> str:
        if not self.councils:
            return "add [councils.NAME] to penstock.toml"
        return meant(name, self.councils, "councils").removeprefix("; ")

    def original(self) -> Council:
        """The one that clients of the original server mean: it has no name there."""
        if _SHENRON in self.councils:
            return self.councils[_SHENRON]
        if len(self.councils) == 1:
            return next(iter(self.councils.values()))
        raise Refused(
            404,
            "unknown_council",
            f"there is no council {_SHENRON!r}",
            f"name one so in penstock.toml: [councils.{_SHENRON}]",
        )

    def payload(self, council: Council, body: Mapping[str, Any]) -> dict[str, Any]:
        """What a question's task carries, of what was sent. Refused tells what is wrong with it."""
        payload = {name: body[name] for name in ASKED if body.get(name) is not None}
        must_be_question(council, payload)
        return payload

    async def ask(
        self, parts: Parts, caller: Caller, council: Council, body: Mapping[str, Any], trace: str | None
    ) -> TaskRecord:
        """Keep a question; it is durable when this returns."""
        payload = self.payload(council, body)
        conversation = payload.get("conversation") or new_conversation()
        payload["conversation"] = conversation
        entry = {"kind": council.kind, "payload": payload, "run": conversation}
        entry |= {name: body[name] for name in _HOW if body.get(name) is not None}
        (task,), _ = await self._admission.read(entry, caller, time.time())
        parts.limits.enter_tasks(caller, [task.id])
        kept = ""
        try:
            (kept,) = (await parts.client.submit_many([task], trace=trace)).task_ids
        finally:
            if kept != task.id:
                parts.limits.forget_tasks((task.id,))
        record = await parts.client.get(kept)
        if record.task.kind != council.kind:
            raise Refused(
                409, "conflict", f"the key belongs to a task of kind {record.task.kind!r}", "use another key"
            )
        return record

    async def estimate(self, parts: Parts, council: Council, body: Mapping[str, Any]) -> dict[str, Any]:
        """What a question would take with the turns it would be told, without asking it."""
        question = must_be_question(council, self.payload(council, body))
        turns = await turns_before(parts.store.tasks, council.kind, question.conversation, time.time())
        prices = prices_of(council, self._hosts)
        found = estimate(
            council,
            question.mode,
            question.members,
            question.query,
            prices,
            use_rag=question.use_rag,
            turns=turns,
            seconds=await seconds_of(parts.store.tasks, council.kind),
            instructions=question.instructions,
        )
        return found.as_record()

    async def question(self, parts: Parts, council: Council, id: str) -> TaskRecord:
        record = await parts.store.get(id)
        if record is None or record.task.kind != council.kind:
            raise Refused(
                404,
                "not_found",
                f"there is no question {id[:200]!r} of council {council.name!r}",
                f"GET /api/councils/{council.name}/questions lists them",
            )
        if (
            record.state in ENDED and record.value is None
        ):  # it was ended: what was there by then is its record
            return replace(record, value=await so_far(parts.client, council, record))
        return record

    async def questions(
        self,
        parts: Parts,
        council: Council,
        *,
        states: tuple[State, ...] | None = None,
        conversation: str | None = None,
        limit: int,
        after: int | None,
        newest: bool = True,
    ) -> list[TaskRecord]:
        chosen = TaskFilter(states, conversation, council.kind, limit=limit, after=after, newest=newest)
        return await parts.store.tasks(chosen)

    async def conversations(
        self, parts: Parts, council: Council, limit: int, after: int | None
    ) -> tuple[list[str], int | None]:
        """Those whose newest question comes after that one, and where to go on, if there is more to look at."""
        found: list[str] = []
        looked_at: set[str] = set()
        for _ in range(_MOST_PAGES):
            page = await self.questions(parts, council, limit=_PAGE, after=after)
            for one in page:
                after, run = one.number, one.task.run
                if run in looked_at or conversation_of(one.task) is None:
                    continue
                looked_at.add(run)
                newest = await self.questions(parts, council, conversation=run, limit=1, after=None)
                if newest and newest[0].number == one.number:
                    found.append(run)
                if len(found) == limit:
                    return found, after
            if len(page) < _PAGE:
                return found, None
        return found, after

    async def cancel(self, parts: Parts, caller: Caller, record: TaskRecord) -> tuple[bool, str]:
        """Whether it is being cancelled, and what is said to that. Who asked may cancel, whatever the lane."""
        may = "admin" in caller.scopes or caller.lane == record.task.lane is not None
        if not may and not parts.limits.is_of(caller, record.task.id):
            raise Refused(
                403,
                "forbidden",
                f"the token {caller.name!r} may cancel its own questions and those of its lane only",
                "use one with the scope admin",
            )
        answer = await parts.client.cancel(record.task.id)
        said = answer.data.get("tasks", {}).get(record.task.id, answer.detail)
        return answer.ok, said


def must_be_question(council: Council, payload: Mapping[str, Any]) -> Question:
    try:
        return read_question(council, payload, "", 0.0)
    except TaskError as error:
        raise Refused(422, "invalid_request", " ".join(str(error).split())) from None
