"""One attempt of a question: asks the plan what is next, has it done, waits for what ends, until there is a record.

Nothing is decided here. What is known of a question is what its tasks came to, and those are in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from penstock.clock import Clock
from penstock.config.council_steps import step_key
from penstock.config.councils import Council
from penstock.council.plan.counting import counts
from penstock.council.plan.course import moves
from penstock.council.plan.replies import read_reply
from penstock.council.plan.steps import Moves, Question, Stage, Step, StepEnd
from penstock.errors import PermanentError
from penstock.hosts.base import Job
from penstock.hosts.council_news import News
from penstock.hosts.inner_desk import Inner
from penstock.model import Outcome, Price, Task, Verdict
from penstock.store.ids import new_ids

_LONG_CHARS = 6_000  # of question and answers: what is made of less takes some ten milliseconds
_SOONEST_S = 0.01  # the clock and the loop's timers may differ by less
_URGENT = (Stage.REVIEW, Stage.SYNTHESIS)  # what is begun is finished before something else is


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the attempts of a council's questions have in common."""

    council: Council
    inner: Inner
    clock: Clock
    prices: Mapping[str, Price]
    since: float = 0.0  # steps that ended before, and are not done, are asked for again
    known: frozenset[str] = frozenset()  # keys of steps that an earlier attempt of the question has asked for


class QuestionAttempt:
    """Listens to its own tasks; all of it on the dispatcher's loop."""

    def __init__(self, given: Circumstances, question: Question, job: Job) -> None:
        self._council = given.council
        self._inner = given.inner
        self._clock = given.clock
        self._prices = given.prices
        self._since = given.since
        self._keys = given.known
        self._replays = bool(given.known)
        self._question = question
        self._job = job
        self._news = News(given.inner.live, given.council, question, is_first=job.attempt < 2)
        self._steps: dict[str, str] = {}  # task -> step
        self._tasks: dict[str, str] = {}  # step -> task
        self._asked: dict[str, float] = {}
        self._ends: dict[str, StepEnd] = {}  # by task
        self._seen: Mapping[str, StepEnd] = {}  # ends that were last decided by
        self._told: set[str] = set()  # ends of steps that followers were told of
        self._unwanted: set[str] = set()
        self._joined: set[str] = set()  # steps that an earlier attempt has asked for
        self._numbers: dict[str, int] = {}  # of steps that are asked for once more
        self._used: dict[str, StepEnd] = {}  # by step: what those before it have used
        self._chars = 0  # of all answers
        self._heard = asyncio.Event()

    async def run(self) -> Outcome:
        try:
            while True:
                next_ = await self._next()
                if next_.record is not None:
                    self._cancel(next_.cancel)
                    self._tell_ends()
                    self._news.concluded(next_.record)
                    if next_.error is not None:
                        return Outcome(Verdict.PERMANENT, dict(next_.record), error=next_.error)
                    return Outcome(Verdict.DONE, dict(next_.record))
                self._cancel(next_.cancel)
                wanted = [step for step in next_.ask if step.name not in self._asked]
                if wanted:
                    await self._ask(wanted)
                elif not self._heard.is_set():  # else something ended while this was decided
                    self._tell_ends()
                    await self._wait(next_.wake_at)
        finally:
            self._inner.leave(self)

    async def _next(self) -> Moves:
        self._heard.clear()
        if again := await self._known_steps():
            return Moves(ask=again)
        return await self._moves(self._clock.now())

    async def _moves(self, now: float) -> Moves:
        """What is next, by what is known at this moment: long answers take long to be made into prompts, and the
        loop is everybody's."""
        self._seen = self._ended()
        given = (self._council, self._question, dict(self._asked), self._seen, now, self._prices)
        if len(self._question.query) + self._chars < _LONG_CHARS:
            return moves(*given)
        return await asyncio.to_thread(moves, *given)

    async def _known_steps(self) -> tuple[Step, ...]:
        """What an earlier attempt asked for, before the clock is looked at: an answer that came in time counts,
        though the time is up by now."""
        if not self._replays:
            return ()
        then = self._question.asked_at
        found = await self._moves(then)
        again = tuple(step for step in found.ask if self._is_known(step) and step.name not in self._asked)
        self._replays = bool(again)
        return again

    def _is_known(self, step: Step) -> bool:
        return step_key(self._question.id, step.name, step.material) in self._keys

    def _tell_ends(self) -> None:
        """Of what was last decided by: the words that this needs have been made for that."""
        now = self._clock.now()
        for step in self._seen:
            if step not in self._told:
                self._told.add(step)
                self._news.ended(step, self._asked, self._seen, now)

    def _ended(self) -> dict[str, StepEnd]:
        return {
            step: _sum(self._ends[task], self._used.get(step))
            for step, task in self._tasks.items()
            if task in self._ends
        }

    async def _wait(self, wake_at: float | None) -> None:
        """Until something ends, or the plan wants to look again."""
        if wake_at is None and all(task in self._ends for task in self._tasks.values()):
            raise PermanentError("a defect of Penstock: the question has nothing left to wait for")
        delay_s = None if wake_at is None else max(_SOONEST_S, wake_at - self._clock.now())
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._heard.wait()

    def _cancel(self, steps: Iterable[str]) -> None:
        tasks = [self._tasks[step] for step in steps if step in self._tasks]
        wanted = [task for task in tasks if task not in self._unwanted and task not in self._ends]
        self._unwanted.update(wanted)
        self._inner.cancel(wanted)

    async def _ask(self, steps: Sequence[Step]) -> None:
        await asyncio.gather(self._submit(steps), self._tell_asked(steps))
        for step in steps:
            if step.name in self._joined:
                self._news.went_on(step.name, self._said(step))

    def _said(self, step: Step) -> str:
        task = self._tasks[step.name]
        end = self._ends.get(task)
        if end is None:
            return self._inner.said(task)
        return read_reply(end, max_tokens=0).text if end.is_done else ""

    async def _submit(self, steps: Sequence[Step]) -> None:
        """Those that came to nothing before the question was asked again are asked once more."""
        tasks = [self._task(step, id) for step, id in zip(steps, new_ids(len(steps)), strict=True)]
        for step, task in zip(steps, tasks, strict=True):
            self._steps[task.id] = step.name  # before it can start
        found = await self._inner.submit(self._question.id, tasks, self, self._since)
        again: list[Step] = []
        for step, task, asked in zip(steps, tasks, found, strict=True):
            if asked.id != task.id:
                del self._steps[task.id]
                if self._is_void(step, asked.end):
                    assert asked.end is not None
                    self._used[step.name] = _sum(asked.end, self._used.get(step.name))
                    self._numbers[step.name] = self._number(step) + 1
                    again.append(step)
                    continue
                self._steps[asked.id] = step.name
                self._joined.add(step.name)
            self._tasks[step.name] = asked.id
            self._asked[step.name] = asked.queued_at
            if asked.end is not None:
                self._end(asked.id, asked.end)
        if again:
            await self._submit(again)

    def _is_void(self, step: Step, end: StepEnd | None) -> bool:
        """The plan takes it for nothing, of what had ended when the question was asked again."""
        return end is not None and end.ended_at <= self._since and not counts(self._question, step, end)

    def _number(self, step: Step) -> int:
        """How often it was asked for; the latest is what counts."""
        number = self._numbers.get(step.name, 1)
        while step_key(self._question.id, step.name, step.material, number + 1) in self._keys:
            number += 1
        return number

    async def _tell_asked(self, steps: Sequence[Step]) -> None:
        """While the disk is busy: followers are told of what ended, then of what is asked for next."""
        self._tell_ends()
        for step in steps:
            self._news.asked(step)

    def _task(self, step: Step, id: str) -> Task:
        job = self._job
        done = (self._tasks[name] for name in step.after if name in self._tasks)
        return Task(
            kind=step.kind,
            payload=step.payload,
            priority=max(0, job.priority - 1) if step.stage in _URGENT else job.priority,
            lane=self._council.calls_lane,
            run=job.run,
            after=tuple(task for task in done if task in self._ends and self._ends[task].is_done),
            host=step.host,
            model=step.model,
            timeout_s=step.timeout_s,
            retries=step.retries,
            key=step_key(self._question.id, step.name, step.material, self._number(step)),
            id=id,
            queued_at=self._clock.now(),
            trace=job.trace,
        )

    # ---- what the desk tells

    def started(self, task: str, host: str, attempt: int, at: float) -> None:
        if (step := self._steps.get(task)) is not None:
            self._news.started(step, host, attempt)

    def text(self, task: str, piece: str) -> None:
        if (step := self._steps.get(task)) is not None:
            self._news.text(step, piece)

    def ended(self, task: str, end: StepEnd) -> None:
        self._end(task, end)
        self._heard.set()

    def _end(self, task: str, end: StepEnd) -> None:
        self._ends[task] = end
        self._chars += _chars_of(end.value)


def _sum(end: StepEnd, before: StepEnd | None) -> StepEnd:
    """With what the same step used before."""
    if before is None:
        return end
    tokens = [one.tokens for one in (end, before) if one.tokens is not None]
    cost_usd = [one.cost_usd for one in (end, before) if one.cost_usd is not None]
    return replace(
        end,
        attempts=end.attempts + before.attempts,
        tokens=sum(tokens) if tokens else None,
        cost_usd=sum(cost_usd) if cost_usd else None,
    )


def _chars_of(value: Any) -> int:
    """Of what prompts are made of: an answer, or the passages that were found."""
    if isinstance(value, str):
        return len(value)
    if not isinstance(value, Mapping):
        return 0
    passages = value.get("passages")
    rows = passages if isinstance(passages, list) else []
    return _chars_of(value.get("text")) + sum(_chars_of(row) for row in rows)
