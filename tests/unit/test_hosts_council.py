"""D1, D2, D5: a question through the real dispatcher, its store and simulated models, from ask to record."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock import wiring
from penstock.config import load
from penstock.council.asking import so_far
from penstock.council.plan.course import moves
from penstock.council.recorded import read_record
from penstock.council.report import markdown
from penstock.hosts import council_attempt
from penstock.hosts.relay import COUNCIL_CALL
from penstock.model import OnCrash, State, Task
from penstock.store.base import Request
from penstock.store.ids import new_ids
from penstock.testing import Fault, ModelServer
from tests.unit.question_rig import KIND, Stage, models, staged, states
from tests.unit.test_dispatcher_calls import Silent


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(wiring._ADAPTERS, "library", "tests.unit.question_rig:quick_library")


async def told(stage: Stage, question: str, after: int = 0) -> list[dict[str, Any]]:
    async with asyncio.timeout(30), stage.dispatcher.live.follow(question, after) as events:
        return [dict(event) async for _, event in events]


def of(events: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [one for one in events if one["event"] == event]


async def test_a_question_is_answered_by_all_and_summed_up(tmp_path: Path) -> None:
    """D1, D8: members, agreement and chair are ordinary tasks of the same run; the record is the value."""
    async with ModelServer(models()) as server, staged(tmp_path, server) as stage:
        question = await stage.ask(priority=3, run="talk")
        done = await stage.ended(question)
        assert done.state is State.DONE, done.error
        record = done.value
        assert [one["name"] for one in record["responses"]] == ["A", "B", "C"]
        assert [one["answer"] for one in record["responses"]] == [
            f"The answer of {model} is forty-two." for model in "abc"
        ]
        assert record["synthesis"]["by"] == "CHAIR"
        assert record["synthesis"]["text"] == "The answer of chair is forty-two."
        assert record["agreement"]["score"] == 0.9
        assert record["tokens"] > 0
        steps = await stage.steps(question)
        assert states(steps) == dict.fromkeys(
            ("member/A", "member/B", "member/C", "agreement", "synthesis/CHAIR"), State.DONE
        )
        assert {record.task.run for record in steps.values()} == {"talk"}
        assert {record.task.lane for record in steps.values()} == {"calls"}
        assert steps["member/A"].task.priority == 3
        assert steps["synthesis/CHAIR"].task.priority == 2  # what is begun is finished first
        assert set(steps["synthesis/CHAIR"].task.after) >= {steps[f"member/{n}"].task.id for n in "ABC"}
        assert [stage.requests(model) for model in ("a", "b", "c", "chair")] == [1, 1, 1, 1]


async def test_followers_hear_of_every_stage_as_it_happens(tmp_path: Path) -> None:
    """D7: text as it comes, answers when they are whole, the record at the end."""
    async with ModelServer(models()) as server, staged(tmp_path, server) as stage:
        question = new_ids(1)[0]
        async with asyncio.TaskGroup() as group:
            hearing = group.create_task(told(stage, question))
            await stage.ask(id=question)
        events = hearing.result()
    assert [one["stage"] for one in of(events, "stage")] == ["members", "agreement", "synthesis"]
    texts: dict[str, str] = {}
    for one in of(events, "text"):
        texts[one["step"]] = texts.get(one["step"], "") + one["text"]
    assert texts == {
        "member/A": "The answer of a is forty-two.",
        "member/B": "The answer of b is forty-two.",
        "member/C": "The answer of c is forty-two.",
        "synthesis/CHAIR": "The answer of chair is forty-two.",
    }
    assert {one["name"]: one["success"] for one in of(events, "answer")} == {"A": True, "B": True, "C": True}
    assert of(events, "agreement")[0]["score"] == 0.9
    assert of(events, "synthesis")[0]["by"] == "CHAIR"
    assert events[-1]["event"] == "done"
    assert events[-1]["record"]["success_count"] == 3
    by_step = [(one["step"], one["state"]) for one in of(events, "step") if one["step"] == "member/A"]
    assert by_step == [("member/A", "queued"), ("member/A", "started"), ("member/A", "ended")]


async def test_text_of_an_attempt_that_broke_is_taken_back(tmp_path: Path) -> None:
    broken: list[int] = []

    def breaks(request: Any) -> Fault | None:
        if request.body["model"] != "a" or broken:
            return None
        broken.append(request.number)
        return Fault.disconnect(after_chunks=3)

    async with ModelServer(models(faults=breaks)) as server, staged(tmp_path, server) as stage:
        question = new_ids(1)[0]
        async with asyncio.TaskGroup() as group:
            hearing = group.create_task(told(stage, question))
            await stage.ask(id=question)
        events = hearing.result()
    seen = ""
    for one in events:
        if one["event"] == "again" and one["step"] == "member/A":
            assert seen
            seen = ""
        elif one["event"] == "text" and one["step"] == "member/A":
            seen += one["text"]
    assert seen == "The answer of a is forty-two."
    assert len(of(events, "again")) == 1


async def test_followers_lose_no_text_when_the_question_is_begun_again(tmp_path: Path) -> None:
    """D7: its time is over while members speak, again and again; they go on, and so does what is heard of them."""
    answer = "one two three four five six seven eight nine ten " * 2
    slow = models(answer=lambda request: answer, tokens_per_s=25.0)
    async with ModelServer(slow) as server, staged(tmp_path, server) as stage:
        question = new_ids(1)[0]
        async with asyncio.TaskGroup() as group:
            hearing = group.create_task(told(stage, question))
            await stage.ask(id=question, timeout_s=0.5, retries=100)
        events = hearing.result()
        done = await stage.ended(question)
    assert done.state is State.DONE, done.error
    assert done.attempts > 1
    seen: dict[str, str] = {}
    for one in events:
        if one["event"] == "again":
            seen[one["step"]] = ""
        elif one["event"] == "text":
            seen[one["step"]] = seen.get(one["step"], "") + one["text"]
    steps = ("member/A", "member/B", "member/C", "synthesis/CHAIR")
    assert {name: text.strip() for name, text in seen.items()} == dict.fromkeys(steps, answer.strip())


async def test_what_is_wrong_with_a_question_is_told_and_nobody_is_asked(tmp_path: Path) -> None:
    async with ModelServer(models()) as server, staged(tmp_path, server) as stage:
        done = await stage.ended(await stage.ask({"query": "x", "members": ["GOKU"]}))
        assert done.state is State.FAILED
        assert "no member 'GOKU'" in str(done.error)
        assert not stage.server.requests


async def test_a_question_that_nobody_answers_fails_with_its_record(tmp_path: Path) -> None:
    refusing = models(faults=lambda request: Fault.refuse(400))
    async with ModelServer(refusing) as server, staged(tmp_path, server) as stage:
        done = await stage.ended(await stage.ask())
        assert done.state is State.FAILED
        assert str(done.error).startswith("nobody answered: 3 failed (")
        assert [one["state"] for one in done.value["responses"]] == ["failed"] * 3


async def test_stragglers_are_cancelled_after_the_quorum_and_the_patience(tmp_path: Path) -> None:
    """D2: and they are recorded as such."""
    council = "min_answers = 2\npatience_s = 0.1\n"
    slow = models(faults=_hang("c"))
    async with ModelServer(slow) as server, staged(tmp_path, server, council) as stage:
        done = await stage.ended(await stage.ask())
        assert done.state is State.DONE
        answers = {one["name"]: (one["state"], one["error"]) for one in done.value["responses"]}
        assert answers["A"][0] == answers["B"][0] == "answered"
        assert answers["C"][0] == "cancelled"
        assert (await stage.rest(done.task.id))["member/C"].state is State.CANCELLED


def _hang(model: str) -> Any:
    return lambda request: Fault.hang() if request.body["model"] == model else None


async def test_a_cancelled_question_leaves_nothing_running(tmp_path: Path) -> None:
    """D7: cancel in the middle: its steps end with it."""
    async with ModelServer(models()) as server, staged(tmp_path, server) as stage:
        server.hold()
        question = await stage.ask()
        await server.wait_for(lambda stats: stats.in_flight == 3)
        await stage.cancel(question)
        assert (await stage.ended(question)).state is State.CANCELLED
        assert set(states(await stage.rest(question)).values()) == {State.CANCELLED}
        await server.wait_for(lambda stats: stats.in_flight == 0)
        assert not stage.dispatcher.statistics.running


async def test_a_question_out_of_its_time_leaves_nothing_running(tmp_path: Path) -> None:
    async with ModelServer(models()) as server, staged(tmp_path, server) as stage:
        server.hold()
        question = await stage.ask(timeout_s=0.2, retries=0)
        assert (await stage.ended(question)).state is State.FAILED
        assert set(states(await stage.rest(question)).values()) == {State.CANCELLED}


async def test_a_question_put_back_goes_on_with_what_was_answered(tmp_path: Path) -> None:
    """D1: a second stop puts it back; the next dispatcher joins its steps again."""
    async with ModelServer(models(faults=_hang("c"))) as server:
        async with staged(tmp_path, server) as stage:
            question = await stage.ask()
            await server.wait_for(lambda stats: stats.served == 2 and stats.received == 3)
            answered = (await stage.steps(question))["member/A"].task.id
            await stage.until(answered, lambda record: record.state is State.DONE)
        server.behaviour = models()
        async with staged(tmp_path, server) as stage:
            done = await stage.ended(question)
            assert done.state is State.DONE
            assert done.value["success_count"] == 3
            assert [stage.requests(model) for model in ("a", "b", "c")] == [1, 1, 2]
            assert (await stage.steps(question))["member/A"].task.id == answered


async def test_a_question_whose_time_is_up_when_it_goes_on_keeps_what_was_answered(tmp_path: Path) -> None:
    async with ModelServer(models(faults=_hang("c"))) as server:
        async with staged(tmp_path, server) as stage:
            question = await stage.ask()
            await server.wait_for(lambda stats: stats.served == 2 and stats.received == 3)
            for name in "AB":
                step = (await stage.steps(question))[f"member/{name}"].task.id
                await stage.until(step, lambda record: record.state is State.DONE)
        short = "limits = { council = { time_s = 0.001 } }\n"
        async with staged(tmp_path, server, short) as stage:
            record = (await stage.ended(question)).value
            assert [one["state"] for one in record["responses"]] == ["answered", "answered", "cancelled"]
            assert record["responses"][2]["error"] == "cancelled: time limit"
            assert record["synthesis"]["method"] == "list"
            assert [stage.requests(model) for model in ("a", "b", "chair")] == [1, 1, 0]


async def test_a_stop_lets_a_question_finish_with_steps_that_are_yet_to_come(tmp_path: Path) -> None:
    """The lane of its steps goes on while a question runs."""
    async with ModelServer(models()) as server, staged(tmp_path, server, put_back=False) as stage:
        server.hold()
        question = await stage.ask()
        await server.wait_for(lambda stats: stats.in_flight == 3)
        stage.dispatcher.stop()
        server.release()
        assert (await stage.ended(question)).value["synthesis"]["by"] == "CHAIR"


async def test_a_retried_question_asks_only_those_who_did_not_answer(tmp_path: Path) -> None:
    async with ModelServer(models(faults=_hang("c"))) as server, staged(tmp_path, server) as stage:
        question = await stage.ask()
        await server.wait_for(lambda stats: stats.served == 2 and stats.received == 3)
        await stage.cancel(question)
        await stage.ended(question)
        await stage.rest(question)
        server.behaviour = models()
        await stage.store.ask(Request("retry", {"tasks": [question]}))
        stage.store.ring()
        done = await stage.until(question, lambda record: record.state is State.DONE)
        assert done.value["success_count"] == 3
        assert [stage.requests(model) for model in ("a", "b", "c", "chair")] == [1, 1, 2, 1]


async def test_follow_up_questions_see_the_turns_before_them(tmp_path: Path) -> None:
    """D7: of the conversation that they name; what was asked beside it, or later, is no turn of it."""
    async with ModelServer(models()) as server, staged(tmp_path, server) as stage:
        await stage.ended(await stage.ask({"query": "First?", "conversation": "talk"}, run="talk"))
        await stage.ended(await stage.ask({"query": "Elsewhere?", "conversation": "other"}, run="other"))
        await stage.ended(await stage.ask("Beside?", run="talk"))
        server.requests.clear()
        await stage.ended(await stage.ask({"query": "Second?", "conversation": "talk"}, run="talk"))
        asked = str([request.body["messages"] for request in server.requests])
        assert "First?" in asked
        assert "The answer of chair is forty-two." in asked
        assert "Elsewhere?" not in asked
        assert "Beside?" not in asked, "it is in the run, but named no conversation"


async def test_a_question_that_names_no_conversation_sees_no_turns(tmp_path: Path) -> None:
    """D7: whatever was asked in its run before."""
    async with ModelServer(models()) as server, staged(tmp_path, server) as stage:
        await stage.ended(
            await stage.ask({"query": "The code is ORYX?", "conversation": "nightly"}, run="nightly")
        )
        await stage.ended(await stage.ask("The code is QUOLL?", run="nightly"))
        server.requests.clear()
        done = await stage.ended(await stage.ask("Which code?", run="nightly"))
        asked = str([request.body["messages"] for request in server.requests])
        assert "ORYX" not in asked
        assert "QUOLL" not in asked
        assert done.value["conversation"] is None


@pytest.mark.parametrize("run", ["nightly", ""])
async def test_a_conversation_that_is_not_the_run_is_refused(tmp_path: Path, run: str) -> None:
    """D7: nobody would find it there, and what is there belongs to others."""
    async with ModelServer(models()) as server, staged(tmp_path, server) as stage:
        done = await stage.ended(await stage.ask({"query": "And?", "conversation": "bob"}, run=run))
        assert done.state is State.FAILED
        assert f"`conversation` is 'bob', and its run '{run or 'r-'}" in str(done.error)
        assert not server.requests


async def test_long_answers_are_made_into_prompts_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is decided is the same; short ones are not worth a thread."""
    threads: list[bool] = []

    def watched(*given: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return moves(*given)

    monkeypatch.setattr(council_attempt, "moves", watched)
    for words in (5, 900):
        threads.clear()
        behaviour = models(answer=lambda request, words=words: "scatter " * words + request.body["model"])
        folder = tmp_path / str(words)
        folder.mkdir()
        async with ModelServer(behaviour) as server, staged(folder, server) as stage:
            done = await stage.ended(await stage.ask())
            assert done.state is State.DONE, done.error
            assert done.value["success_count"] == 3
            assert done.value["synthesis"]["text"].endswith("chair")
        assert threads[0] is True
        assert threads[-1] is (words == 5)


async def test_what_ends_while_it_is_decided_is_not_overlooked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is waited for may have ended by then: that is no defect, and is told like any end."""
    ends: list[str] = []
    all_ended = threading.Event()
    end = council_attempt.QuestionAttempt._end

    def counted(self: Any, task: str, how: Any) -> None:
        end(self, task, how)
        ends.append(task)
        if len(ends) == 3:
            all_ended.set()

    def slow(*given: Any) -> Any:
        if threading.current_thread() is not threading.main_thread() and len(given[3]) < 3:
            assert all_ended.wait(30)
        return moves(*given)

    monkeypatch.setattr(council_attempt.QuestionAttempt, "_end", counted)
    monkeypatch.setattr(council_attempt, "moves", slow)
    behaviour = models(answer=lambda request: "scatter " * 900 + request.body["model"])
    async with ModelServer(behaviour) as server, staged(tmp_path, server) as stage:
        question = new_ids(1)[0]
        async with asyncio.TaskGroup() as group:
            hearing = group.create_task(told(stage, question))
            await stage.ask(id=question)
        events = hearing.result()
    assert events[-1]["event"] == "done", events[-1]
    assert sorted(one["name"] for one in of(events, "answer")) == ["A", "B", "C"]


async def test_a_cancelled_question_keeps_what_was_answered(tmp_path: Path) -> None:
    """D7: its record is made of its steps whenever somebody asks for it, and says that it is unfinished."""
    async with ModelServer(models(faults=_hang("c"))) as server, staged(tmp_path, server) as stage:
        question = await stage.ask({"query": "What?", "conversation": "talk"}, run="talk")
        await server.wait_for(lambda stats: stats.served == 2 and stats.received == 3)
        for name in "AB":
            step = (await stage.steps(question))[f"member/{name}"].task.id
            await stage.until(step, lambda record: record.state is State.DONE)
        await stage.cancel(question)
        ended = await stage.ended(question)
        await stage.rest(question)
        council = load(tmp_path / "penstock.toml").councils["sages"]
        record = await so_far(stage.store, council, ended)
        assert record is not None
        assert record["unfinished"] == ended.error == "cancelled while it ran"
        assert [one["answer"] for one in record["responses"][:2]] == [
            f"The answer of {model} is forty-two." for model in "ab"
        ]
        assert record["responses"][2]["error"] == "cancelled with the question"
        assert record["synthesis"] is None
        assert record["conversation"] == "talk"
        assert "cancelled while it ran" in markdown(read_record(record, "the test"))


async def test_questions_of_one_submit_are_no_conversation(tmp_path: Path) -> None:
    """Though they are answered one after the other."""
    async with ModelServer(models()) as server, staged(tmp_path, server, "slots = 1") as stage:
        tasks = [Task(KIND, f"Question {n}?") for n in range(3)]
        for question in await stage.store.submit(tasks, run="many"):
            await stage.ended(question)
        for request in server.requests:
            assert str(request.body["messages"]).count("Question") >= 1
            assert sum(f"Question {n}?" in str(request.body["messages"]) for n in range(3)) == 1


async def test_a_question_of_the_front_door_ends_with_its_caller(tmp_path: Path) -> None:
    """D7: its client follows the hub; when it leaves, the call is cancelled, and so are its steps."""
    async with ModelServer(models()) as server, staged(tmp_path, server) as stage:
        ids = new_ids(2)
        for question in ids:
            relay = Silent()
            relay.endpoint, relay.payload = COUNCIL_CALL, {"query": "What?"}
            task = Task(KIND, id=question, run="v1", on_crash=OnCrash.CANCEL, queued_at=stage.dispatcher.now)
            if question == ids[1]:
                server.hold()
            ended = stage.dispatcher.call(task, relay)
            if question == ids[0]:
                events = await told(stage, question)
                assert events[-1]["record"]["success_count"] == 3
                assert events[-1]["record"]["conversation"] is None  # nothing of it is kept to follow
                assert (await ended).state is State.DONE
            else:
                await server.wait_for(lambda stats: stats.in_flight == 3)
                stage.dispatcher.cancel_call(question)
                assert (await ended).state is State.CANCELLED
                assert set(states(await stage.rest(question)).values()) == {State.CANCELLED}


async def test_a_call_open_at_the_stop_takes_its_steps_with_it(tmp_path: Path) -> None:
    """Nobody could be told of its answer: nothing of it is left in the queue."""
    async with ModelServer(models()) as server, staged(tmp_path, server) as stage:
        server.hold()
        relay = Silent()
        relay.endpoint, relay.payload = COUNCIL_CALL, {"query": "What?"}
        question = new_ids(1)[0]
        task = Task(KIND, id=question, run="v1", on_crash=OnCrash.CANCEL, queued_at=stage.dispatcher.now)
        stage.dispatcher.call(task, relay)
        await server.wait_for(lambda stats: stats.in_flight == 3)
        stage.dispatcher.stop()
        stage.dispatcher.stop()
        await stage.running
        assert set(states(await stage.steps(question)).values()) == {State.CANCELLED}


async def test_a_model_server_that_dies_fails_the_question_and_the_next_works(tmp_path: Path) -> None:
    """D9: nothing hangs: within the patience for hosts that are down."""
    async with ModelServer(models()) as server, staged(tmp_path, server, down_patience_s=0.1) as stage:
        server.hold()
        question = await stage.ask()
        await server.wait_for(lambda stats: stats.in_flight == 3)
        await server.kill()
        done = await stage.ended(question)
        assert done.state is State.FAILED
        assert "nobody answered" in str(done.error)
        await server.start()
        again = await stage.ended(await stage.ask())
        assert again.state is State.DONE, again.error


async def test_with_a_thread_for_each_kind_questions_end_as_well(tmp_path: Path) -> None:
    """One question at a time, and its steps are of other kinds: they wait for none of what it holds."""
    async with ModelServer(models()) as server, staged(tmp_path, server, dispatcher="threads") as stage:
        asked = [await stage.ask() for _ in range(3)]
        for question in asked:
            assert (await stage.ended(question)).state is State.DONE
