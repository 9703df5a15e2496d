"""A council as a host: a question is one task, and its attempt asks members, reviewers and chair through the queue.

The host is there by itself where a config has the council. An attempt asks the pure plan what is next, has it done
as ordinary tasks, and returns the record. What it asks for has keys made of its own id: run again, after a crash,
it finds what was answered before and asks nobody twice.

A question of the front door comes as a `Relay`, whose `payload` is that of a task. Nothing goes back through it:
whoever made it follows the hub of live events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.clock import Clock
from penstock.config.council_steps import step_key
from penstock.config.councils import Council
from penstock.config.wording import quoted
from penstock.council.conversations import turns_before
from penstock.council.plan.asking import read_question
from penstock.council.plan.estimate import prices_of
from penstock.council.plan.quick import expects_comparison
from penstock.council.plan.steps import Question, Turn
from penstock.errors import PermanentError, TaskError
from penstock.hosts.base import Health, Job, OwnCoroutine
from penstock.hosts.council_attempt import Circumstances, QuestionAttempt
from penstock.hosts.inner_desk import InnerDesk
from penstock.hosts.relay import COUNCIL_CALL, Relay
from penstock.model import Host, Outcome
from penstock.store.base import Store

_MOST_STEPS = 4096  # of one question, however often it is asked again
_REVIVED = "revived"  # the event of a task that is asked for again


class Placement(NamedTuple):
    """What a council's host must know of the config and the dispatcher it stands in."""

    council: Council
    hosts: tuple[Host, ...]  # those of the config: what their models cost
    desk: InnerDesk
    # Where earlier turns of a conversation are; None while only its config is looked at.
    store: Store | None = None


class CouncilAdapter:
    def __init__(self, placement: Placement, clock: Clock) -> None:
        self._council = placement.council
        self._desk = placement.desk
        self._store = placement.store
        self._clock = clock
        self._prices = prices_of(placement.council, placement.hosts)

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def check(self) -> Health:
        members = ", ".join(member.name for member in self._council.members)
        return Health(True, f"asks {members}; {self._council.chair.name} sums up")

    def work(self, job: Job) -> OwnCoroutine:
        payload = _payload_of(job)
        question = self._question(job, payload, job.queued_at)  # what is wrong is told before it begins
        if question.conversation not in ("", job.run):
            raise PermanentError(
                f"council {quoted(self._council.name)}: `conversation` is {quoted(question.conversation)}, "
                f"and its run {quoted(job.run)}: a conversation is a run, submit the question to that one"
            )
        return OwnCoroutine(lambda: self._answer(job, payload, question.conversation))

    async def _answer(self, job: Job, payload: Any, conversation: str) -> Outcome:
        since = await self._asked_again_at(job)
        turns = await self._turns(job, conversation)
        question = self._question(job, payload, since or job.queued_at, turns)
        if expects_comparison(self._council, question):
            self._desk.warm_library()
        known = await self._known(job)
        given = Circumstances(self._council, self._desk.inner, self._clock, self._prices, since, known)
        return await QuestionAttempt(given, question, job).run()

    def _question(self, job: Job, payload: Any, asked_at: float, turns: Sequence[Turn] = ()) -> Question:
        try:
            return read_question(self._council, payload, job.task, asked_at, turns)
        except TaskError as error:
            raise PermanentError(str(error)) from None

    async def _turns(self, job: Job, conversation: str) -> list[Turn]:
        """What was answered in the conversation it names when it was asked; the same in each of its attempts."""
        if self._store is None or isinstance(job.payload, Relay):
            return []
        return await turns_before(self._store.tasks, job.kind, conversation, job.queued_at)

    async def _known(self, job: Job) -> frozenset[str]:
        """The keys of the steps that an earlier attempt has asked for."""
        if job.attempt < 2 or self._store is None or isinstance(job.payload, Relay):
            return frozenset()
        return frozenset(await self._store.find_keys(step_key(job.task, ""), _MOST_STEPS))

    async def _asked_again_at(self, job: Job) -> float:
        """When it was last asked for again, after an end; 0.0 where it never was."""
        if job.attempt < 2 or self._store is None or isinstance(job.payload, Relay):
            return 0.0
        await self._store.record([])  # an attempt begins before its start is on the disk
        events = await self._store.events(task=job.task)
        return max((event.at for event in events if event.type == _REVIVED), default=0.0)


def _payload_of(job: Job) -> Any:
    if not isinstance(job.payload, Relay):
        return job.payload
    if job.payload.endpoint != COUNCIL_CALL:
        raise PermanentError(f"{job.host} is a council and answers no calls of models but its own")
    return job.payload.payload


def make(host: Host, clock: Clock) -> CouncilAdapter:
    return CouncilAdapter(host.options["placement"], clock)
