"""D1: tasks that a question asks of its own dispatcher: durable, once per key, told when they end, gone with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from penstock.clock import SystemClock
from penstock.config import load
from penstock.config.call_tasks import call_task
from penstock.council.live import Hub
from penstock.council.plan.steps import StepEnd
from penstock.dispatcher.doorway import Doorway
from penstock.dispatcher.inner import Inner, Ways
from penstock.dispatcher.loop import Dispatcher
from penstock.engine.base import Engine, Report
from penstock.errors import AttemptError, PermanentError, TemporaryError
from penstock.hosts.base import Job
from penstock.hosts.inner_desk import Asked, InnerDesk
from penstock.hosts.relay import Relay
from penstock.model import Fault, Outcome, State, Task, TaskRecord, Verdict
from penstock.scheduling.details import Detail
from penstock.scheduling.messages import Began, CancelAsked, Event, HostChange, HostHealth, Submitted
from penstock.store.base import Request, Store, TaskFilter
from penstock.store.ids import new_ids
from penstock.wiring import open_store
from tests.unit.test_dispatcher_calls import ME, ByHand

PATIENCE_S = 20.0
CONFIG = """
[server]
down_patience_s = 0.05
[hosts.asker]
type = "simulated"
slots = 8
serves = ["question"]
[hosts.m]
type = "openai"
url = "http://127.0.0.1:9/v1"
model = "big"
slots = 2
serves = ["chat"]
[hosts.runs]
type = "file_prompt"
serves = ["prompt"]
[models]
sage = "big"
"""


@dataclass
class Ear:
    """A listener that remembers."""

    starts: list[tuple[str, int]] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    ends: dict[str, StepEnd] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def started(self, task: str, host: str, attempt: int, at: float) -> None:
        self.starts.append((task, attempt))
        self.news.set()

    def text(self, task: str, piece: str) -> None:
        self.texts.append((task, piece))

    def ended(self, task: str, end: StepEnd) -> None:
        assert task not in self.ends
        self.ends[task] = end
        self.news.set()

    async def end_of(self, task: str) -> StepEnd:
        async with asyncio.timeout(PATIENCE_S):
            while task not in self.ends:
                self.news.clear()
                await self.news.wait()
        return self.ends[task]


@dataclass
class Stage:
    store: Store
    dispatcher: Dispatcher
    engine: ByHand
    desk: InnerDesk
    ear: Ear = field(default_factory=Ear)

    async def question(self) -> str:
        (question,) = await self.store.submit([Task("question")])
        await self.started(question)
        return question

    async def started(self, task: str) -> Job:
        async with asyncio.timeout(PATIENCE_S):
            while task not in self.engine.live:
                self.engine.begun.clear()
                await self.engine.begun.wait()
        return self.engine.live[task]

    async def ask(self, question: str, *names: str, since: float = 0.0, **fields: object) -> list[Asked]:
        tasks = [step(question, name, **fields) for name in names]
        return await self.desk.inner.submit(question, tasks, self.ear, since)

    async def until(self, task: str, state: State) -> None:
        bell = self.store.bell()
        try:
            async with asyncio.timeout(PATIENCE_S):
                while (record := await self.store.get(task)) is None or record.state is not state:
                    await bell.wait()
        finally:
            bell.close()

    async def states(self, question: str) -> list[State]:
        await self.store.record([])
        records = await self.store.tasks(TaskFilter(lane="calls"))
        return [r.state for r in records if str(r.task.key).startswith(f"council/{question}/")]


def step(question: str, name: str, **fields: object) -> Task:
    given = {"kind": "chat", "model": "sage", "run": "r", **fields}
    key = f"council/{question}/{name}"
    return Task(payload={"prompt": name}, lane="calls", id=new_ids(1)[0], key=key, **given)  # type: ignore[arg-type]


@asynccontextmanager
async def staged(folder: Path, *, put_back: bool = True, text: str = CONFIG) -> AsyncIterator[Stage]:
    path = folder / "penstock.toml"
    path.write_text(text)
    config = load(path)
    store = open_store(config)
    await store.open()
    made: list[ByHand] = []
    desk = InnerDesk()

    def make(report: Report, on_stall: object) -> Engine:
        made.append(ByHand(report))
        return made[0]

    dispatcher = Dispatcher(config, store, make, ME, doorway=Doorway(lanes=("calls",), desk=desk))
    ready = asyncio.Event()
    running = asyncio.ensure_future(dispatcher.run(on_ready=ready.set))
    await ready.wait()
    try:
        yield Stage(store, dispatcher, made[0], desk)
    finally:
        dispatcher.stop()
        if put_back:
            dispatcher.stop()
        with suppress(asyncio.CancelledError):
            await running
        await store.close()


async def test_a_task_is_kept_started_and_its_end_is_told_with_what_it_used(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        question = await stage.question()
        (asked,) = await stage.ask(question, "member/A")
        assert asked.end is None
        job = await stage.started(asked.id)
        assert (job.kind, job.model, job.lane, job.run) == ("chat", "big", "calls", "r")  # by its other name
        assert job.tap is not None
        job.tap("he")
        job.tap("llo")
        stage.engine.finish(asked.id, Outcome(Verdict.DONE, {"text": "hello"}, tokens=7.0, cost_usd=0.5))
        end = await stage.ear.end_of(asked.id)
        assert stage.ear.texts == [(asked.id, "he"), (asked.id, "llo")]
        assert (end.state, end.value, end.tokens, end.cost_usd) == (State.DONE, {"text": "hello"}, 7.0, 0.5)
        assert (end.host, end.attempts) == ("m", 1)
        assert end.started_at is not None
        assert end.queued_at == asked.queued_at <= end.started_at <= end.ended_at


async def test_a_step_that_began_late_has_started_then(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        question = await stage.question()
        (asked,) = await stage.ask(question, "member/A")
        await stage.started(asked.id)
        now = stage.dispatcher.now
        stage.dispatcher._tell(Began(asked.id, 1, now, Detail.RECORDED_FIRST))
        stage.engine.finish(asked.id, Outcome(Verdict.DONE, "x"))
        assert (await stage.ear.end_of(asked.id)).started_at == now


async def test_what_failed_attempts_used_is_counted_too(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        question = await stage.question()
        (asked,) = await stage.ask(question, "member/A", retries=1)
        await stage.started(asked.id)
        failed = Outcome(Verdict.TEMPORARY, error="no", tokens=3.0, cost_usd=0.25, retry_after_s=0.0)
        stage.engine.finish(asked.id, failed)
        await stage.started(asked.id)
        stage.engine.finish(asked.id, Outcome(Verdict.DONE, "x", tokens=4.0, cost_usd=0.5))
        end = await stage.ear.end_of(asked.id)
        assert (end.attempts, end.tokens, end.cost_usd) == (2, 7.0, 0.75)
        assert stage.ear.starts == [(asked.id, 1), (asked.id, 2)]


async def test_the_same_key_is_the_same_task_also_in_the_next_life(tmp_path: Path) -> None:
    """D1: what was answered is not asked again, and its figures are read from the store."""
    async with staged(tmp_path) as stage:
        question = await stage.question()
        done, running = await stage.ask(question, "member/A", "member/B")
        await stage.started(done.id)
        stage.engine.finish(done.id, Outcome(Verdict.DONE, {"text": "hi"}, tokens=7.0, cost_usd=0.5))
        told = await stage.ear.end_of(done.id)
        await stage.started(running.id)
    async with staged(tmp_path) as stage:
        await stage.started(question)
        again = await stage.ask(question, "member/A", "member/B")
        assert [one.id for one in again] == [done.id, running.id]
        assert again[0].end is not None
        assert again[0].end == told
        assert again[1].end is None  # it was put back, and its end will be heard
        await stage.started(running.id)
        stage.engine.finish(running.id, Outcome(Verdict.DONE, "late"))
        assert (await stage.ear.end_of(running.id)).value == "late"


async def test_what_was_asked_twice_in_one_life_is_told_to_the_last(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        question = await stage.question()
        (first,) = await stage.ask(question, "member/A")
        await stage.started(first.id)
        other = Ear()
        (second,) = await stage.desk.inner.submit(question, [step(question, "member/A")], other)
        assert second.id == first.id
        stage.engine.finish(first.id, Outcome(Verdict.DONE, "x"))
        assert (await other.end_of(first.id)).value == "x"
        assert not stage.ear.ends


async def test_a_task_that_ends_while_it_is_looked_up_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1: its end was decided before anybody listened, and after its record was read."""
    async with staged(tmp_path) as stage:
        question = await stage.question()
        (asked,) = await stage.ask(question, "member/A")
        await stage.started(asked.id)
        stage.desk.inner.leave(stage.ear)
        read, looked = stage.store.get, 0

        async def get(task: str) -> TaskRecord | None:
            nonlocal looked
            record = await read(task)
            looked += 1
            if looked == 1:
                stage.engine.finish(asked.id, Outcome(Verdict.DONE, "x"))
                await stage.until(asked.id, State.DONE)
            return record

        monkeypatch.setattr(stage.store, "get", get)
        (again,) = await stage.ask(question, "member/A")
        assert again.end is not None
        assert (again.id, again.end.state, again.end.value) == (asked.id, State.DONE, "x")


async def test_a_question_that_ended_takes_its_tasks_along(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        question = await stage.question()
        asked = await stage.ask(question, "member/A", "member/B", "member/C")  # two slots: one waits
        await stage.started(asked[0].id)
        stage.engine.finish(question, Outcome(Verdict.DONE, "over"))
        for one in asked:
            assert (await stage.ear.end_of(one.id)).state is State.CANCELLED
        assert await stage.states(question) == [State.CANCELLED] * 3


async def test_a_cancelled_question_takes_its_tasks_along(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        question = await stage.question()
        (asked,) = await stage.ask(question, "member/A")
        await stage.started(asked.id)
        await stage.store.ask(Request("cancel", {"tasks": [question]}))
        stage.store.ring()
        assert (await stage.ear.end_of(asked.id)).state is State.CANCELLED


async def test_tasks_of_a_question_that_is_gone_are_swept_when_a_dispatcher_starts(tmp_path: Path) -> None:
    """What a crash between a question's end and theirs left behind."""
    path = tmp_path / "penstock.toml"
    path.write_text(CONFIG)
    store = open_store(load(path))
    await store.open()
    orphan = step("nobody", "member/B")
    somebodys = replace(
        step("nobody", "member/A", model="big"), lane="default"
    )  # a user's own key, in a lane of users
    await store.submit([orphan, somebodys])
    await store.close()
    async with staged(tmp_path) as stage:
        await stage.until(orphan.id, State.CANCELLED)
        await stage.started(somebodys.id)
        assert orphan.id not in stage.engine.live


async def test_a_task_that_comes_when_its_question_is_gone_never_starts(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        question = await stage.question()
        stage.engine.finish(question, Outcome(Verdict.DONE, "over"))
        await stage.until(question, State.DONE)
        (asked,) = await stage.ask(question, "member/A")
        assert (await stage.ear.end_of(asked.id)).state is State.CANCELLED
        assert stage.ear.starts == []


async def test_a_cancel_reaches_a_task_wherever_it_is(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        question = await stage.question()
        asked = await stage.ask(question, "member/A", "member/B", "member/C")
        stage.desk.inner.cancel([one.id for one in asked])
        for one in asked:
            assert (await stage.ear.end_of(one.id)).state is State.CANCELLED


async def test_a_cancel_reaches_a_task_that_is_just_being_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is on its way to the scheduler, which does not know it yet."""
    async with staged(tmp_path) as stage:
        question = await stage.question()
        steps = stage.dispatcher._steps
        tell_first = steps.tell_first

        def told(events: Sequence[Event]) -> None:
            tell_first(events)
            new = [task.id for event in events if isinstance(event, Submitted) for task in event.tasks]
            stage.desk.inner.cancel(new)

        monkeypatch.setattr(steps, "tell_first", told)
        (asked,) = await stage.ask(question, "member/A")
        assert (await stage.ear.end_of(asked.id)).state is State.CANCELLED


async def test_who_has_left_hears_nothing_and_the_tasks_go_on(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        question = await stage.question()
        (asked,) = await stage.ask(question, "member/A")
        job = await stage.started(asked.id)
        stage.desk.inner.leave(stage.ear)
        assert job.tap is not None
        job.tap("unheard")
        stage.engine.finish(asked.id, Outcome(Verdict.DONE, "x"))
        await stage.until(asked.id, State.DONE)
        assert (stage.ear.texts, stage.ear.ends) == ([], {})


async def test_text_that_came_while_nobody_listened_is_kept_for_who_comes(tmp_path: Path) -> None:
    """D7: a question that is begun again while its members speak."""
    async with staged(tmp_path) as stage:
        question = await stage.question()
        (asked,) = await stage.ask(question, "member/A", retries=1)
        first = await stage.started(asked.id)
        assert first.tap is not None
        first.tap("he")
        stage.desk.inner.leave(stage.ear)
        first.tap("llo")
        other = Ear()
        await stage.desk.inner.submit(question, [step(question, "member/A", retries=1)], other)
        assert stage.desk.inner.said(asked.id) == "hello"
        first.tap(" you")
        assert (stage.ear.texts, other.texts) == ([(asked.id, "he")], [(asked.id, " you")])
        stage.engine.finish(asked.id, Outcome(Verdict.TEMPORARY, error="no", retry_after_s=0.0))
        second = await stage.started(asked.id)
        assert stage.desk.inner.said(asked.id) == ""  # what was said is void
        first.tap(" late")
        assert second.tap is not None
        second.tap("well")
        assert stage.desk.inner.said(asked.id) == "well"
        assert other.texts == [(asked.id, " you"), (asked.id, "well")]
        stage.engine.finish(asked.id, Outcome(Verdict.DONE, "well"))
        await other.end_of(asked.id)
        assert stage.desk.inner.said(asked.id) == ""


async def test_a_task_that_starts_while_nobody_listens_is_heard_by_who_comes(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        question = await stage.question()
        asked = await stage.ask(question, "member/A", "member/B", "member/C")  # two slots: one waits
        for one in asked[:2]:
            await stage.started(one.id)
        stage.desk.inner.leave(stage.ear)
        stage.engine.finish(asked[0].id, Outcome(Verdict.DONE, "x"))
        job = await stage.started(asked[2].id)
        assert job.tap is not None
        job.tap("early")
        other = Ear()
        await stage.desk.inner.submit(question, [step(question, "member/C")], other)
        assert stage.desk.inner.said(asked[2].id) == "early"
        job.tap(" late")
        assert other.texts == [(asked[2].id, " late")]


async def test_what_could_never_run_has_failed_at_once_and_the_others_go_on(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        question = await stage.question()
        tasks = [step(question, "member/A"), step(question, "member/B", kind="nobodys", model=None)]
        tasks.append(step(question, "member/C", timeout_s=-1.0))
        good, bad, worse = await stage.desk.inner.submit(question, tasks, stage.ear)
        assert good.end is None
        assert bad.end is not None
        assert bad.end.state is State.FAILED
        assert "no host serves kind 'nobodys'" in str(bad.end.error)
        assert worse.end is not None
        await stage.started(good.id)


async def test_a_payload_that_the_store_refuses_fails_its_own_task_alone(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        question = await stage.question()
        huge = Task(
            "chat",
            {"prompt": "x" * 20_000_000},
            lane="calls",
            run="r",
            id=new_ids(1)[0],
            key=f"council/{question}/b",
        )
        good, bad = await stage.desk.inner.submit(question, [step(question, "a"), huge], stage.ear)
        assert good.end is None
        assert bad.end is not None
        assert "are allowed" in str(bad.end.error)


async def test_hosts_that_stay_down_fail_a_task_instead_of_holding_its_question(tmp_path: Path) -> None:
    """D9: a model server that died: all fail cleanly within a time that the config says."""
    async with staged(tmp_path) as stage:
        question = await stage.question()
        stage.dispatcher._tell(HostHealth("m", False, "refused the connection"))
        (asked,) = await stage.ask(question, "member/A")
        end = await stage.ear.end_of(asked.id)
        assert end.state is State.FAILED
        assert end.error is not None
        assert "no host that could answer is up: " in end.error


class Hosts:
    """As much of a dispatcher as the look at hosts needs."""

    is_down = True
    fix: str | None = None

    def needed_fix(self, task: Task) -> str | None:
        return self.fix

    def waits_for_hosts(self, task: Task) -> bool:
        return self.is_down

    def why_down(self, task: Task) -> str:
        return "m: Connection refused" if self.is_down else ""


def patient(tmp_path: Path, hosts: Hosts, told: list[object]) -> Inner:
    ways = Ways(hosts, told.append, lambda task: True)  # type: ignore[arg-type]
    path = tmp_path / "penstock.toml"
    path.write_text(CONFIG.replace("down_patience_s = 0.05", "down_patience_s = 30"))
    return Inner(load(path), None, Hub(SystemClock()), ways)  # type: ignore[arg-type]


async def test_the_patience_with_hosts_is_counted_from_when_they_are_down(tmp_path: Path) -> None:
    """Not from a look before, nor twice; and hosts that are up in between have it anew."""
    told: list[object] = []
    hosts = Hosts()
    inner = patient(tmp_path, hosts, told)
    watch = inner._watch(step("q", "member/A"), Ear())
    (look,) = inner._looks.values()
    assert look.when() - asyncio.get_running_loop().time() < 30 / 4
    look.cancel()
    for now, is_down in ((0, True), (29, True), (29.5, False), (30, True), (59.9, True)):
        hosts.is_down = is_down
        inner._give_up([watch], now)
        assert not told, now
    inner._give_up([watch], 60)
    assert told == [CancelAsked(watch.task.id)]
    assert watch.why_failed == "no host that could answer is up: m: Connection refused"
    inner._give_up([watch], 61)
    assert len(told) == 1
    assert inner._at(watch) == "its host is down: m: Connection refused"


async def test_hosts_that_need_a_fix_are_not_waited_for(tmp_path: Path) -> None:
    """E9: a question with a member whose key is refused goes on without it, at once."""
    told: list[object] = []
    hosts = Hosts()
    inner = patient(tmp_path, hosts, told)
    watch = inner._watch(step("q", "member/A"), Ear())
    (look,) = inner._looks.values()
    look.cancel()
    fault = Fault("401: wrong key; put the right one into X", needs_fix=True)
    inner.decided([HostChange("m", 0.0, "down", 1, "", Fault("Connection refused"))])
    assert not told
    hosts.fix = fault.error
    inner.decided([HostChange("m", 1.0, "down", 1, "", fault)])
    assert told == [CancelAsked(watch.task.id)]
    assert watch.why_failed == f"no host that could answer is up: {fault.error}"


async def test_what_is_cancelled_tells_what_it_was_at(tmp_path: Path) -> None:
    """Running; waiting for a slot; waiting to be tried again."""
    async with staged(tmp_path) as stage:
        question = await stage.question()
        asked = await stage.ask(question, "member/A", "member/B", "member/C")
        await stage.started(asked[0].id)
        await stage.started(asked[1].id)
        stage.desk.inner.cancel([asked[0].id, asked[2].id])
        assert (await stage.ear.end_of(asked[0].id)).last == "it was answering on m"
        assert (await stage.ear.end_of(asked[2].id)).last == "it waited for a slot"
        busy = Outcome(Verdict.TEMPORARY, error="m answered 503", retry_after_s=3600.0)
        stage.engine.finish(asked[1].id, busy)
        await stage.until(asked[1].id, State.QUEUED)
        stage.desk.inner.cancel([asked[1].id])
        end = await stage.ear.end_of(asked[1].id)
        assert end.last == "it waited to be tried again; its last attempt: m answered 503"


async def test_what_failed_before_the_question_was_asked_again_is_asked_again(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        question = await stage.question()
        done, failed = await stage.ask(question, "member/A", "member/B")
        await stage.started(failed.id)
        stage.engine.finish(done.id, Outcome(Verdict.DONE, "x"))
        stage.engine.finish(failed.id, Outcome(Verdict.PERMANENT, error="no"))
        ended_at = max([(await stage.ear.end_of(one.id)).ended_at for one in (done, failed)])
        same = await stage.ask(question, "member/A", "member/B")
        assert [one.end and one.end.state for one in same] == [State.DONE, State.FAILED]
        later = await stage.ask(question, "member/A", "member/B", since=ended_at)
        assert later[0].end is not None  # what was answered is not asked again
        assert later[1].end is None
        stage.ear.ends.clear()
        assert (await stage.started(failed.id)).attempt == 2
        stage.engine.finish(failed.id, Outcome(Verdict.DONE, "now"))
        assert (await stage.ear.end_of(failed.id)).value == "now"


async def test_a_call_brings_its_answer_and_none_of_it_is_stored(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        task = call_task("embeddings", "big", lane="calls", run="r", id="e1")
        async with asyncio.TaskGroup() as group:
            calling = group.create_task(stage.desk.inner.call(task, "embeddings", b'{"input": "x"}'))
            relay = (await stage.started("e1")).payload
            assert isinstance(relay, Relay)
            assert (relay.endpoint, relay.body) == ("embeddings", b'{"input": "x"}')
            await relay.whole(200, (), "m", 1, b'{"data": []}')
            stage.engine.finish("e1", Outcome(Verdict.DONE, relay.record()))
        assert calling.result() == b'{"data": []}'
        await stage.store.record([])
        record = await stage.store.get("e1")
        assert record is not None
        assert (record.state, record.value) == (State.DONE, {})


@pytest.mark.parametrize(
    ("verdict", "error"), [(Verdict.PERMANENT, PermanentError), (Verdict.TEMPORARY, TemporaryError)]
)
async def test_a_call_in_vain_says_whether_to_try_again(
    tmp_path: Path, verdict: Verdict, error: type[Exception]
) -> None:
    async with staged(tmp_path) as stage:
        task = call_task("embeddings", "big", lane="calls", retries=0, run="r", id="e1")
        calling = asyncio.ensure_future(stage.desk.inner.call(task, "embeddings", b"{}"))
        await stage.started("e1")
        stage.engine.finish("e1", Outcome(verdict, error="will not"))
        with pytest.raises(error, match="will not"):
            await calling


async def test_a_call_does_not_wait_for_ever_for_a_host_that_is_busy(tmp_path: Path) -> None:
    hasty = CONFIG.replace("[server]", "[server]\npatience_s = 0.2")
    async with staged(tmp_path, text=hasty) as stage:
        question = await stage.question()
        for one in await stage.ask(question, "member/A", "member/B"):  # all of its slots
            await stage.started(one.id)
        task = call_task("embeddings", "big", lane="calls", run="r", id="e1")
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(AttemptError):
                await stage.desk.inner.call(task, "embeddings", b"{}")
        assert "e1" not in stage.engine.live


async def test_a_call_that_nobody_waits_for_any_more_ends(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        task = call_task("embeddings", "big", lane="calls", run="r", id="e1")
        calling = asyncio.ensure_future(stage.desk.inner.call(task, "embeddings", b"{}"))
        await stage.started("e1")
        calling.cancel()
        with suppress(asyncio.CancelledError):
            await calling
        await stage.until("e1", State.CANCELLED)
        assert stage.engine.stopped == ["e1"]


async def test_a_desk_that_nobody_opened_says_so() -> None:
    with pytest.raises(TemporaryError, match="desk is not open"):
        _ = InnerDesk().inner
