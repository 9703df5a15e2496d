"""What a conversation is (D7): its turns are of questions that name it, and chats of `/v1` are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.council.conversations import conversation_of, newest_answered, turns_before
from penstock.council.past import seconds_of
from penstock.council.plan.steps import Turn
from penstock.model import State, Task, TaskRecord
from penstock.store.base import TaskFilter
from tests.unit.council_web_rig import QUERY, SUMMED_UP, council_web

KIND = "council-shenron"


class Past:
    """Questions in order of arrival, found as a store finds them."""

    def __init__(self) -> None:
        self._kept: list[TaskRecord] = []

    def ask(
        self, query: str, run: str, named: str | None = None, *, state: State = State.DONE, text: str = "So."
    ) -> str:
        number = len(self._kept) + 1
        payload = {"query": query} | ({} if named is None else {"conversation": named})
        value = {"query": query, "synthesis": {"text": text}} if state is State.DONE else None
        task = Task(KIND, payload, id=f"q{number}", run=run)
        self._kept.append(TaskRecord(task, number, state, value=value, ended_at=float(number)))
        return task.id

    async def tasks(self, chosen: TaskFilter) -> list[TaskRecord]:
        assert (chosen.kind, chosen.newest) == (KIND, True)
        found = [
            one
            for one in reversed(self._kept)
            if chosen.run in (None, one.task.run)
            and (chosen.states is None or one.state in chosen.states)
            and (chosen.after is None or one.number < chosen.after)
        ]
        return found[: chosen.limit]


@pytest.mark.parametrize(
    ("payload", "run", "found"),
    [
        ({"query": "?", "conversation": "talk"}, "talk", "talk"),
        ({"query": "?", "conversation": "talk"}, "nightly", None),
        ({"query": "?"}, "talk", None),
        ({"query": "?", "conversation": 5}, "5", None),
        ({"query": "?", "conversation": ""}, "", None),
        ({"query": "?", "conversation": "v1-2026-11-16"}, "v1-2026-11-16", None),
        ("?", "talk", None),
    ],
)
def test_a_question_belongs_to_the_conversation_it_names_and_is_in(
    payload: Any, run: str, found: str | None
) -> None:
    assert conversation_of(Task(KIND, payload, run=run)) == found


async def test_turns_are_those_answered_by_then_oldest_first() -> None:
    past = Past()
    past.ask("First?", "talk", "talk")
    past.ask("Beside?", "talk")
    past.ask("Lost?", "talk", "talk", state=State.CANCELLED)
    past.ask("Second?", "talk", "talk")
    past.ask("Silent?", "talk", "talk", text="")
    past.ask("Later?", "talk", "talk")
    found = await turns_before(past.tasks, KIND, "talk", 5.0)
    assert found == [Turn("First?", "So."), Turn("Second?", "So.")]


@pytest.mark.parametrize("run", ["", "v1-2026-11-16"])
async def test_what_is_no_conversation_has_no_turns(run: str) -> None:
    past = Past()
    past.ask("My salary?", run, run)
    assert await turns_before(past.tasks, KIND, run, 9.0) == []


async def test_the_newest_with_an_answer_is_followed_whatever_came_after_it() -> None:
    past = Past()
    answered = past.ask("What is a queue?", "talk", "talk")
    past.ask("And a stack?", "other", "other", state=State.CANCELLED)
    past.ask("Nobody?", "third", "third", state=State.FAILED)
    for n in range(120):  # more than a page of what everybody asks as a chat
        past.ask(f"Chat {n}?", "v1-2026-11-16")
    found = await newest_answered(past.tasks, KIND)
    assert found is not None
    assert (found.task.id, found.task.run) == (answered, "talk")


async def test_times_of_earlier_questions() -> None:
    """D6: an estimate tells seconds where everybody has answered lately."""

    def told(goku: float, chair: float, state: str = "synthesis") -> dict[str, Any]:
        responses = [
            {"name": "GOKU", "success": True, "response_time": goku},
            {"name": "VEGETA", "success": False, "response_time": 99.0},
        ]
        by = {"by": "SHENRON", "method": state, "response_time": chair}
        return {"responses": responses, "synthesis": by}

    values = [told(1.0, 5.0), told(2.0, 7.0), told(9.0, 6.0), told(2.0, 50.0, "list"), None, {"responses": 5}]
    kept = [
        TaskRecord(Task(KIND, {}, id=f"q{n}"), n, State.DONE, value=value) for n, value in enumerate(values)
    ]

    async def tasks(chosen: TaskFilter) -> list[TaskRecord]:
        assert chosen.states == (State.DONE,)
        return kept

    assert await seconds_of(tasks, KIND) == {"GOKU": 2.0, "SHENRON": 6.0}


async def test_nothing_to_follow() -> None:
    past = Past()
    past.ask("Chat?", "v1-2026-11-16")
    past.ask("Plain?", "nightly")
    assert await newest_answered(past.tasks, KIND) is None


async def test_what_was_asked_as_a_chat_is_told_to_nobody_else(tmp_path: Path) -> None:
    """D7: the run of chats is no conversation, by whatever way it is named."""
    async with council_web(tmp_path) as (web, talk):
        chat = {
            "model": "council:shenron",
            "messages": [{"role": "user", "content": "PRIVATE: is 90210 too little?"}],
        }
        response = await web.http.post("/v1/chat/completions", json=chat)
        assert response.status_code == 200
        run = (await web.parts.client.get(response.headers["x-penstock-task"])).task.run
        assert run.startswith("v1-")
        asking = {"query": "And then?", "conversation": run}
        refused = await web.post("/api/councils/shenron/ask", asking, 422)
        assert "are chats of everybody" in refused["message"]
        talk.server.requests.clear()
        for payload in ({"query": QUERY}, asking):
            (task,) = (await web.post("/api/tasks", {"kind": KIND, "payload": payload, "run": run}, 201))[
                "task_ids"
            ]
            async with web.parts.client.watching() as watch:
                while (record := await web.parts.client.get(task)).ended_at is None:
                    await watch()
            assert (record.state is State.DONE) == (payload is not asking)
        assert len(talk.server.requests) == 3, "the one that names it is refused, and nobody is asked"
        assert "90210" not in str([one.prompt for one in talk.server.requests])
        assert await newest_answered(web.store.tasks, KIND) is None
        assert (await web.get("/api/councils/shenron/conversations"))["conversations"] == []
        assert (await web.get(f"/api/councils/shenron/conversations/{run}", 404))["type"] == "not_found"
        first = await web.post("/api/councils/shenron/ask", {"query": QUERY}, 202)
        listed = (await web.get("/api/councils/shenron/questions"))["questions"]
        assert [one["conversation"] for one in listed] == [first["conversation"], None, None, None]
        assert SUMMED_UP in response.text
