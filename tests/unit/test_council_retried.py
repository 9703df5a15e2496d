"""A question that is asked again after its end: what counts of what was there, and what is asked once more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock import wiring
from penstock.clock import Clock
from penstock.config.council_steps import step_key, step_of, unmarked
from penstock.config.councils import Mode
from penstock.council.plan.counting import counts
from penstock.council.plan.material import digest_of
from penstock.council.plan.steps import Question, Stage, Step, StepEnd
from penstock.council.plan.texts import Answer, Passage
from penstock.hosts.base import Job, OwnCoroutine
from penstock.model import Host, Outcome, State, TaskRecord
from penstock.store.base import Answer as Told
from penstock.store.base import Request, TaskFilter
from penstock.testing import Fault, ModelBehaviour, ModelServer
from tests.unit.question_rig import PATIENCE_S, QuickLibrary, models, said, staged
from tests.unit.question_rig import Stage as RigStage

HASTY = (
    "min_answers = 2\npatience_s = 0.1\n"  # for a straggler that never answers: a busy machine is one, too
)


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(wiring._ADAPTERS, "library", "tests.unit.question_rig:quick_library")


def hanging(*names: str) -> ModelBehaviour:
    return models(faults=lambda request: Fault.hang() if request.body["model"] in names else None)


async def given_up(stage: RigStage, question: str) -> None:
    await stage.cancel(question)
    await stage.ended(question)
    await stage.rest(question)


async def asked_again(stage: RigStage, question: str) -> TaskRecord:
    before = await stage.ended(question)
    await stage.store.ask(Request("retry", {"tasks": [question]}))
    stage.store.ring()
    return await stage.until(
        question, lambda record: record.ended_at is not None and record.attempts > before.attempts
    )


def shown_to(stage: RigStage, model: str) -> list[str]:
    return [str(r.body["messages"]) for r in stage.server.requests if r.body["model"] == model]


async def test_a_retried_question_is_summed_up_from_all_the_answers_it_tells_of(tmp_path: Path) -> None:
    """D1: the straggler answers this time, and chair and library see its answer, too."""
    async with ModelServer(hanging("c", "chair")) as server:
        async with staged(tmp_path, server, HASTY) as stage:
            question = await stage.ask()
            await server.wait_for(lambda stats: any(r.body["model"] == "chair" for r in server.requests))
            measured = (await stage.steps(question))["agreement"]
            await stage.until(measured.task.id, lambda record: record.state is State.DONE)
            await given_up(stage, question)
        server.behaviour = models()
        server.requests.clear()
        async with staged(tmp_path, server) as stage:
            done = await asked_again(stage, question)
            assert done.state is State.DONE, done.error
            assert [one["state"] for one in done.value["responses"]] == ["answered"] * 3
            assert sorted(r.body["model"] for r in server.requests) == ["c", "chair"]
            (shown,) = shown_to(stage, "chair")
            assert all(f"The answer of {model} is" in shown for model in "abc")
            again = (await stage.steps(question))["agreement"]
            assert [one["name"] for one in again.task.payload["answers"]] == ["A", "B", "C"]
            assert [one["name"] for one in measured.task.payload["answers"]] == ["A", "B"]


class PairsTakeLong(QuickLibrary):
    """Of two answers it never says whether they agree."""

    def work(self, job: Job) -> OwnCoroutine:
        own = super().work(job)
        if len(job.payload.get("answers", ())) != 2:
            return own

        async def never() -> Outcome:
            await asyncio.Event().wait()
            raise AssertionError

        return OwnCoroutine(never)


def pairs_take_long(host: Host, clock: Clock) -> QuickLibrary:
    return PairsTakeLong()


async def test_a_synthesis_of_fewer_answers_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1: it was done when the question was cancelled, which waited for the library alone."""
    monkeypatch.setitem(wiring._ADAPTERS, "library", "tests.unit.test_council_retried:pairs_take_long")
    async with ModelServer(hanging("c")) as server:
        async with staged(tmp_path, server, HASTY) as stage:
            question = await stage.ask()
            await server.wait_for(lambda stats: any(r.body["model"] == "chair" for r in server.requests))
            first = (await stage.steps(question))["synthesis/CHAIR"].task.id
            await stage.until(first, lambda record: record.state is State.DONE)
            await given_up(stage, question)
        server.behaviour = models()
        server.requests.clear()
        async with staged(tmp_path, server) as stage:
            done = await asked_again(stage, question)
            assert done.value["success_count"] == 3
            (shown,) = shown_to(stage, "chair")
            assert all(f"The answer of {model} is" in shown for model in "abc")
            assert (await stage.steps(question))["synthesis/CHAIR"].task.id != first


async def test_what_was_summed_up_from_the_same_answers_is_kept(tmp_path: Path) -> None:
    """D1: nothing is asked twice where nothing has changed: only the chair, who had not answered."""
    async with ModelServer(hanging("chair")) as server, staged(tmp_path, server) as stage:
        question = await stage.ask()
        await server.wait_for(lambda stats: any(r.body["model"] == "chair" for r in server.requests))
        first = await stage.steps(question)
        await stage.until(first["agreement"].task.id, lambda record: record.state is State.DONE)
        await given_up(stage, question)
        server.behaviour = models()
        server.requests.clear()
        assert (await asked_again(stage, question)).state is State.DONE
        assert [r.body["model"] for r in server.requests] == ["chair"]
        assert {n: r.task.id for n, r in (await stage.steps(question)).items()} == {
            name: record.task.id for name, record in first.items()
        }


async def test_ballots_on_fewer_answers_do_not_count_in_a_retried_question(tmp_path: Path) -> None:
    def voted(request: Any) -> str:
        return "no ballot" if "response_format" in request.body else said(request)

    def hangs(request: Any) -> Fault | None:
        return Fault.hang() if request.body["model"] in ("c", "chair") else None

    fourth = '[[councils.sages.members]]\nname = "D"\nmodel = "b"\n'
    thorough = 'mode = "thorough"\n'
    async with ModelServer(models(answer=voted, faults=hangs)) as server:
        async with staged(tmp_path, server, f"{thorough}{HASTY}{fourth}") as stage:
            question = await stage.ask()
            await server.wait_for(lambda stats: any(r.body["model"] == "chair" for r in server.requests))
            before = (await stage.steps(question))["review/A"]
            await given_up(stage, question)
        server.behaviour = models(answer=voted)
        server.requests.clear()
        async with staged(tmp_path, server, f"{thorough}{fourth}") as stage:
            done = await asked_again(stage, question)
            assert done.state is State.DONE, done.error
            ballots = {one["reviewer"]: set(one["order"]) for one in done.value["review"]["ballots"]}
            assert ballots == {name: set("ABCD") - {name} for name in "ABCD"}
            reviews = [text for text in shown_to(stage, "a") if "The answer of b is" in text]
            assert reviews
            assert all("The answer of c is" in text for text in reviews)
            assert (await stage.steps(question))["review/A"].task.id != before.task.id


async def test_a_member_whose_answer_was_no_use_is_asked_again(tmp_path: Path) -> None:
    """All of them gave nothing; their server was mended since. What the first answers used is counted."""
    async with ModelServer(models(answer=lambda request: "")) as server, staged(tmp_path, server) as stage:
        question = await stage.ask()
        first = await stage.ended(question)
        assert first.state is State.FAILED
        assert "A, B, C: an empty answer" in str(first.error)
        server.behaviour = models()
        done = await asked_again(stage, question)
        assert done.state is State.DONE, done.error
        assert done.value["success_count"] == 3
        assert [stage.requests(model) for model in ("a", "b", "c", "chair")] == [2, 2, 2, 1]
        alone = (await stage.steps(question))["member/A"]
        assert alone.task.key == step_key(question, "member/A", number=2)
        assert done.value["responses"][0]["attempts"] == 2


async def test_a_member_may_be_asked_any_number_of_times(tmp_path: Path) -> None:
    """Also over the end of a dispatcher: the latest of its tasks is the one that counts."""
    async with ModelServer(models(answer=lambda request: "")) as server:
        async with staged(tmp_path, server) as stage:
            question = await stage.ask()
            await stage.ended(question)
            again = await asked_again(stage, question)
            assert again.state is State.FAILED
            assert [stage.requests(model) for model in "abc"] == [2, 2, 2]
        async with staged(tmp_path, server) as stage:
            server.behaviour = hanging("c")
            before = len(server.requests)
            await stage.store.ask(Request("retry", {"tasks": [question]}))
            stage.store.ring()
            await server.wait_for(lambda stats: len(server.requests) == before + 3)
            for name in "AB":
                step = (await stage.steps(question))[f"member/{name}"].task
                assert step.key == step_key(question, f"member/{name}", number=3)
                await stage.until(step.id, lambda record: record.state is State.DONE)
        server.behaviour = models()
        async with staged(tmp_path, server) as stage:
            done = await stage.ended(question)
            assert done.state is State.DONE, done.error
            # What was answered after it was asked again counts when it goes on: only the third is asked anew.
            assert [stage.requests(model) for model in ("a", "b", "c", "chair")] == [3, 3, 4, 1]


async def test_a_retry_asks_what_a_mended_config_says(tmp_path: Path) -> None:
    """A failed step is queued again only where it would ask the same."""
    async with ModelServer(models(faults=lambda request: Fault.refuse(400))) as server:
        async with staged(tmp_path, server, member_s=40.0) as stage:
            question = await stage.ask()
            assert (await stage.ended(question)).state is State.FAILED
            before = await stage.rest(question)
        server.behaviour = models()
        async with staged(tmp_path, server, member_s=50.0) as stage:
            done = await asked_again(stage, question)
            assert done.value["success_count"] == 3
            steps = await stage.steps(question)
            assert [steps[f"member/{name}"].task.timeout_s for name in "ABC"] == [50.0] * 3
            assert {before[f"member/{name}"].state for name in "ABC"} == {State.FAILED}


async def test_a_question_goes_on_without_reading_the_rest_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D9: a thousand questions of one run cost each of them nothing when it is begun again."""
    async with ModelServer(hanging("c")) as server:
        async with staged(tmp_path, server) as stage:
            question = await stage.ask(run="night")
            await server.wait_for(lambda stats: stats.served == 2 and stats.received == 3)
            for name in "AB":
                step = (await stage.steps(question))[f"member/{name}"].task.id
                await stage.until(step, lambda record: record.state is State.DONE)
        server.behaviour = models()
        async with staged(tmp_path, server) as stage:
            chosen: list[TaskFilter] = []
            read = stage.store.tasks

            async def tasks(wanted: TaskFilter) -> list[TaskRecord]:
                chosen.append(wanted)
                return await read(wanted)

            monkeypatch.setattr(stage.store, "tasks", tasks)
            assert (await stage.ended(question)).state is State.DONE
            assert [one for one in chosen if one.limit is None] == []


# ---- what counts, and how steps are called


QUESTION = Question("q", "What?", Mode.COUNCIL, ("A",), use_rag=False, asked_at=0.0)


def ended(value: object, state: State = State.DONE) -> StepEnd:
    return StepEnd(state, 0.0, 1.0, value=value)


@pytest.mark.parametrize(
    ("stage", "value", "is_kept"),
    [
        (Stage.MEMBERS, {"text": "Yes."}, True),
        (Stage.MEMBERS, {"text": " "}, False),
        (Stage.MEMBERS, {"text": "", "refusal": "no"}, False),
        (Stage.MEMBERS, {"text": "<think>hm</think>"}, False),
        (Stage.REVIEW, {"text": "no ballot"}, True),
        (Stage.REVIEW, {"text": ""}, False),
        (Stage.SYNTHESIS, {"text": "All in all."}, True),
        (Stage.SYNTHESIS, {"text": ""}, False),
        (Stage.AGREEMENT, {"measured": True, "score": 0.5}, True),
        (Stage.AGREEMENT, {"measured": False, "why": "no model"}, False),
        (Stage.RETRIEVE, {"passages": []}, True),
    ],
)
def test_what_can_be_used_counts(stage: Stage, value: object, is_kept: bool) -> None:
    step = Step("s", stage, "chat", None)
    assert counts(QUESTION, step, ended(value)) is is_kept
    assert not counts(QUESTION, step, ended(value, State.FAILED))


def test_a_quick_answer_that_is_nothing_but_sure_does_not_count() -> None:
    step = Step("member/A", Stage.MEMBERS, "chat", None)
    quick = Question("q", "What?", Mode.QUICK, ("A",), use_rag=False, asked_at=0.0)
    assert not counts(quick, step, ended({"text": "CONFIDENCE: 90"}))
    assert counts(quick, step, ended({"text": "Yes.\nCONFIDENCE: 90"}))


def test_a_digest_tells_answers_passages_and_order_apart() -> None:
    a, b = Answer("A", "x"), Answer("B", "x")
    found = [Passage(1, "f", "h", "t")]
    all_different = [
        digest_of([a]),
        digest_of([b]),
        digest_of([a, b]),
        digest_of([Answer("A", "y"), b]),
        digest_of([a], found),
        digest_of([a], (), [("A", 1.0, None)]),
        digest_of([Answer("A", "\ud800")]),  # what a model wrote may be no text
    ]
    assert len(set(all_different)) == len(all_different)
    assert digest_of([a, b], found) == digest_of([a, b], [Passage(2, "f", "h", "t", 0.5)])


@pytest.mark.parametrize(
    "step", ["member/A", "member/@A", "review/@.2/repair", "agreement", "agreement/quick"]
)
@pytest.mark.parametrize(("material", "number"), [("", 1), ("abc", 1), ("", 2), ("abc", 12)])
def test_a_step_is_called_the_same_whatever_it_is_made_from(step: str, material: str, number: int) -> None:
    key = step_key("q", step, material, number)
    assert unmarked(key.removeprefix("council/q/")) == step
    assert step_of(key) == step_of(step_key("q", step))


def test_keys_of_different_tasks_differ() -> None:
    keys = [step_key("q", "member/A", of, n) for of in ("", "ab", "ab.2") for n in (1, 2, 3) if of != "ab.2"]
    assert len(set(keys)) == len(keys)


# ---- steps by themselves


async def retried(stage: RigStage, **args: Any) -> Told:
    number = await stage.store.ask(Request("retry", args))
    stage.store.ring()
    bell = stage.store.bell()
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (answer := await stage.store.answer_to(number)) is None:
                await bell.wait()
            return answer
    finally:
        bell.close()


FAILED = ["failed", "cancelled", "blocked"]


async def test_a_retry_of_a_run_leaves_the_steps_of_questions_that_are_over_alone(tmp_path: Path) -> None:
    """A conversation is a run: its stragglers were given up, and nobody would read what they say."""
    async with ModelServer(hanging("c")) as server, staged(tmp_path, server, HASTY) as stage:
        question = await stage.ask(run="talk")
        assert (await stage.ended(question)).state is State.DONE
        straggler = (await stage.rest(question))["member/C"].task.id
        server.behaviour = models()
        before = len(server.requests)
        answer = await retried(stage, run="talk", states=FAILED)
        assert answer.ok
        assert answer.data["tasks"] == {
            straggler: f"is a step of question {question}: retry that one, it asks for what it needs"
        }
        named = await retried(stage, tasks=[straggler])
        assert not named.ok
        assert f"is a step of question {question}" in named.detail
        assert (await stage.steps(question))["member/C"].state is State.CANCELLED
        assert len(server.requests) == before


async def test_a_retry_of_a_run_asks_its_failed_questions_again(tmp_path: Path) -> None:
    """They ask for their steps themselves: each once."""
    refusing = models(faults=lambda request: Fault.refuse(400))
    async with ModelServer(refusing) as server, staged(tmp_path, server) as stage:
        question = await stage.ask(run="talk")
        assert (await stage.ended(question)).state is State.FAILED
        await stage.rest(question)
        server.behaviour = models()
        server.requests.clear()
        answer = await retried(stage, run="talk", states=FAILED)
        assert answer.ok
        assert answer.data["tasks"][question] == "queued again"
        done = await stage.until(question, lambda record: record.state is State.DONE)
        assert done.value["success_count"] == 3
        assert sorted(r.body["model"] for r in server.requests) == ["a", "b", "c", "chair"]
