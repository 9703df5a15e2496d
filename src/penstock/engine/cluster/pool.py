"""The attempts of one host on its workers: given out, asked after, stopped, and lost with a worker that dies.

A place of attempts like the others of an engine (attempts.py); who there is to run them is its crew's (crew.py).
All of it runs on the dispatcher's loop and waits for nothing: the link brings every answer. A worker whose answer
fails is dead if the cluster says so, which is its host's fault; else it is asked again, as one that cannot be
reached: the same errand twice is the same attempt.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial

import msgspec

from penstock.engine.attempts import Finished, Reason, Run, not_returned
from penstock.engine.base import Delay, Key, Notice
from penstock.engine.cluster import nets
from penstock.engine.cluster.anteroom import Anteroom
from penstock.engine.cluster.crew import AGAIN_S, Crew, Hand, Heard, State, Terms, Times
from penstock.engine.cluster.frames import AWAY, CUT, REFUSED, Answer
from penstock.engine.cluster.letters import (
    Attempt,
    Errand,
    Hello,
    Over,
    Standing,
    Stopped,
    Stopping,
    read,
    written,
)
from penstock.engine.cluster.link import Link
from penstock.engine.cluster.news import Listener
from penstock.engine.cluster.remote import RemoteHost
from penstock.engine.outcomes import failure, timed_out
from penstock.engine.threads import UNKILLABLE
from penstock.errors import AttemptError
from penstock.model import Outcome, TimedOutcome, Verdict

_DEAF_S = 15.0  # a worker that does not even answer a request to stop is killed
_UNHEARD_S = 60.0  # without a line to its worker, what is out of time may still prove to have ended before
_LATE_S = 10.0  # beyond the time a worker said it needs to end an attempt
_LARGE_BYTES = 200_000  # what takes the loop over a millisecond to read is read in a thread
_MOST_ENDED = 20_000
_SAME_FAULT_S = 60.0

_log = logging.getLogger("penstock.engine")


class WorkerPool:
    grace_s = None  # a worker ends attempts in its own time, and is killed by the pool if it does not

    def __init__(
        self,
        remote: RemoteHost,
        link: Link,
        terms: Terms,
        finished: Finished,
        begun: Callable[[Run, float], None],
        notice: Notice,
    ) -> None:
        self.start_s = terms.start_s
        self._remote = remote
        self._host = remote.host.name
        self._link = link
        self._terms = terms
        self._finished = finished
        self._begun = begun
        self._notice = notice
        self._loop = asyncio.get_running_loop()
        # The time limit is kept by the worker; a process of its own must start before its time runs.
        self._slack_s = 30.0 if remote.host.options.get("isolation") == "process" else 0.0
        self._waiting = Anteroom(notice, terms.now)
        heard = Heard(self._fill, self._not_hired, self._found, self._lose)
        self.crew = Crew(remote, link, terms, heard)
        self._ended: dict[Key, Hand] = {}  # whose ends are not recorded yet
        self._faults: dict[str, float] = {}  # of nodes and workers, the last told last, and when
        self._withdrawn_but: Collection[str] | None = None  # of which lanes attempts still wait for a worker
        self._left: set[Key] | None = None  # what the next dispatcher is to find
        self._closing = False

    # ---- as a place

    def begin(self, runs: Sequence[Run]) -> None:
        self._waiting.add(runs)
        self._fill()
        if self._waiting:
            self._waiting.tell_in_time()

    def stop(self, run: Run) -> None:
        if run in self._waiting:
            self._waiting.remove(run)
            self._finished(run, None)
            return
        hand: Hand | None = run.where
        if hand is None:  # nobody knows yet where it runs; whoever has it will be told that it is unwanted
            self._finished(run, None)
            return
        self._say_stop(hand, run)

    def give_up(self, run: Run) -> None:
        self._waiting.remove(run)
        hand: Hand | None = run.where
        if hand is not None:
            self._release(hand, run)
        self._finished(run, None)

    async def close(self) -> None:
        """What was left goes on in its workers, or waits there for whoever records it; the others end."""
        self._closing = True
        self._waiting.close()
        await self.crew.close(self._is_left)

    # ---- for its engine

    def held(self) -> list[Key]:
        """The attempts that workers have; those that ended unheard are nobody's."""
        return [key for hand in self.crew.hands.values() for key, run in hand.runs.items() if not run.ended]

    def withdraw(self, but: Collection[str]) -> None:
        """Who stops does not wait for workers to begin."""
        self._withdrawn_but = but
        self.put_back("its dispatcher stopped before a Ray worker had begun it", but)

    def leave(self) -> None:
        self._left = set(self.held())

    def _is_left(self, hand: Hand) -> bool:
        """One that was deposed has reported ends that nobody would record: they are its successor's."""
        return self._left is not None and (hand.unrecorded > 0 or not self._left.isdisjoint(hand.runs))

    def recorded(self, ended: Iterable[Key]) -> None:
        for key in ended:
            hand = self._ended.pop(key, None)
            if hand is not None:
                hand.unrecorded -= 1
                hand.recorded.append(key)

    def enroll(self, name: str, hello: Hello, likeness: str, wanted: dict[Key, Run]) -> int:
        """Take over a worker that was found; how many attempts of its that nobody wants it is told to end."""
        hand = self.crew.enroll(name, hello)
        unwanted = 0
        for standing in hello.attempts:
            key = (standing.task, standing.attempt)
            run = wanted.pop(key, None)
            if run is not None and run.reason is None:  # else it was ended before anybody knew where it runs
                hand.runs[key] = run
                run.where = hand
                began_at = self._note_times(hand, standing).began_at
                self._notice(Delay(*key, began_at))  # if somebody knows that it waits it does so no longer
                self._begun(run, self._slack_s - standing.for_s)
                self._ask_after(hand, run)
                self._listen(hand)
            else:
                unwanted += not standing.is_over
                self._say_stop(hand, None, key)
                hand.recorded.append(key)
        if hello.likeness != likeness:
            hand.state = State.LEAVING
        self.crew.enlist(hand)
        return unwanted

    def _note_times(self, hand: Hand, standing: Standing) -> Times:
        """As the worker tells them. What is over when it is asked after has ended before."""
        now = self._terms.now()
        over_at = now - standing.over_s if standing.is_over else None
        times = hand.times[standing.task, standing.attempt] = Times(now - standing.for_s, over_at)
        return times

    def linked(self) -> None:
        """There is a driver again, which knows none of the workers yet."""
        self.crew.find_all()
        self._fill()

    def cut(self) -> None:
        """There is no driver: whoever was told to end may never say that it has."""
        for hand in self.crew.hands.values():
            for run in hand.runs.values():
                if run.reason is not None:
                    self._not_heard(hand, run)

    # ---- attempts

    def _fill(self) -> None:
        """Give work to those who have room, and hire for the rest."""
        if not self._link.is_up or self._closing:
            return
        free = self.crew.free
        while self._waiting and free:
            self._send(free[-1], self._waiting.take())
        if self._waiting and self._withdrawn_but is not None:
            self.withdraw(self._withdrawn_but)
        if self._waiting:
            self.crew.hire(len(self._waiting))

    def put_back(self, why: str, but: Collection[str] = ()) -> None:
        """What no worker has goes back to the queue, at no cost."""
        outcome = Outcome(Verdict.CANCELLED, error=why, unbegun=True)
        for run in [run for run in self._waiting if run.job.lane not in but]:
            self._waiting.remove(run)
            self._finished(run, outcome)

    def _not_hired(self, why: str) -> None:
        outcome = Outcome(Verdict.HOST, error=f"no Ray worker for host {self._host}: {why}")
        others = any(hand.state is State.READY for hand in self.crew.hands.values())
        hit = list(self._waiting)[: self._remote.per_worker if others else None]
        for run in hit:
            self._waiting.remove(run)
            self._finished(run, outcome)
        self._fill()

    def _send(self, hand: Hand, run: Run) -> None:
        job = run.job
        key = (job.task, job.attempt)
        try:
            way = self._remote.way
            access = None if way is None else way.admit(job, self._terms.secret)
            letter = written(
                Errand(
                    task=job.task,
                    attempt=job.attempt,
                    kind=job.kind,
                    payload=msgspec.Raw(written(job.payload)),
                    lane=job.lane,
                    run=job.run,
                    model=job.model,
                    timeout_s=run.timeout_s,
                    trace=job.trace,
                    priority=job.priority,
                    queued_at=job.queued_at,
                    url=None if access is None else access.url,
                    far_url=None if access is None else access.far_url,
                    net=None if access is None else nets.here(),
                    key=None if access is None else access.key,
                    recorded=hand.recorded,
                )
            )
        except (AttemptError, TypeError, ValueError) as error:
            self._finished(run, failure(error))
            return
        hand.recorded = []
        hand.runs[key] = run
        hand.letters[key] = letter
        run.where = hand
        if len(hand.runs) >= self._remote.per_worker:
            self.crew.unlist(hand)
        self._link.call(hand.name, "run", letter, partial(self._answered, hand, run))
        self._begun(run, self._slack_s)
        self._listen(hand)

    def _ask_after(self, hand: Hand, run: Run) -> None:
        """Once more: the worker knows what it has."""
        key = (run.job.task, run.job.attempt)
        if hand.runs.get(key) is not run:
            return
        letter = hand.letters.get(key)
        method, letter = ("attach", written(Attempt(*key))) if letter is None else ("run", letter)
        self._link.call(hand.name, method, letter, partial(self._answered, hand, run))
        if run.reason is not None:
            self._say_stop(hand, run)

    def _answered(self, hand: Hand, run: Run, answer: Answer, body: bytes) -> None:
        if hand.runs.get((run.job.task, run.job.attempt)) is not run or answer.fault == CUT:
            return
        if answer.fault == AWAY:
            self._loop.call_later(AGAIN_S, self._ask_after, hand, run)
        elif answer.fault == REFUSED:  # it lives, and nobody knows how: what it runs must end
            self.crew.end(hand)
            self._bury(hand, answer.error)
        elif answer.fault:
            self.crew.doubt(hand, answer.error)
        elif len(body) > _LARGE_BYTES:
            reading = self._loop.run_in_executor(self._terms.chores, read, body, Over)
            reading.add_done_callback(lambda done: self._over(hand, run, done.result()))
        else:
            self._over(hand, run, read(body, Over))

    def _over(self, hand: Hand, run: Run, over: Over) -> None:
        key = (run.job.task, run.job.attempt)
        if over.replaced or hand.runs.get(key) is not run:
            return
        if over.unknown:
            self._release(hand, run)
            self._finished(run, self._fault(hand, "it has lost the attempt"))
        elif hand.listener is not None and over.log_bytes > hand.listener.has(key):
            hand.listener.fetch(key, over.log_bytes, partial(self._end, hand, run, over))
        else:
            self._end(hand, run, over)

    def _end(self, hand: Hand, run: Run, over: Over) -> None:
        key = (run.job.task, run.job.attempt)
        if hand.runs.get(key) is not run:
            return
        times = hand.times.get(key)
        self._release(hand, run)
        if run.ended:  # nobody waited for it: its end is recorded already
            hand.recorded.append(key)
            self._fill()
            return
        if len(self._ended) >= _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ended[key] = hand
        hand.unrecorded += 1
        outcome = self._judged(hand, run, over)
        if outcome is not None:
            outcome = replace(outcome, node=hand.node or None)
            if times is not None:
                outcome = TimedOutcome.of(outcome, *times)
        self._finished(run, outcome)
        self._fill()

    def _judged(self, hand: Hand, run: Run, over: Over) -> Outcome | None:
        if over.in_thread and run.reason is not None:
            # It could not be told in time, or not at all; what it returned comes too late.
            return timed_out(run.timeout_s, UNKILLABLE) if run.reason is Reason.TIMED_OUT else None
        if over.outcome.verdict is Verdict.CANCELLED and run.reason is None:
            return self._fault(hand, "it was told to end")
        return over.outcome

    def _release(self, hand: Hand, run: Run) -> None:
        key = (run.job.task, run.job.attempt)
        hand.runs.pop(key, None)
        hand.letters.pop(key, None)
        hand.times.pop(key, None)
        if hand.listener is not None:
            hand.listener.forget(key)
        run.where = None
        if not hand.runs:
            hand.idle_since = time.monotonic()
        self.crew.enlist(hand)

    # ---- ending

    def _say_stop(self, hand: Hand, run: Run | None, key: Key | None = None) -> None:
        key = (run.job.task, run.job.attempt) if run is not None else key
        assert key is not None
        reason = None if run is None else run.reason
        letter = written(Stopping(*key, reason is Reason.TIMED_OUT))
        deaf = self._loop.call_later(_DEAF_S, self._overdue, hand, run)

        def told(answer: Answer, body: bytes) -> None:
            deaf.cancel()
            if run is None:
                return
            if answer.fault:  # dead ones are noticed by their attempts; the others are told again
                self._not_heard(hand, run)
                return
            within_s = read(body, Stopped).within_s
            if within_s is not None:
                self._loop.call_later(within_s + _LATE_S, self._overdue, hand, run)
            elif not run.told and hand.runs.get(key) is run:  # once, however often there is a new line to it
                run.told = True
                _log.warning("%s", not_returned(run))

        self._link.call(hand.name, "stop", letter, told)

    def _not_heard(self, hand: Hand, run: Run) -> None:
        out_of_time = run.reason is Reason.TIMED_OUT
        self._loop.call_later(_UNHEARD_S if out_of_time else 0.0, self._unheard, hand, run)

    def _unheard(self, hand: Hand, run: Run) -> None:
        """There is no line to its worker, perhaps for good: who told it to end goes on.

        It is its worker's until that has heard so, and until then the worker takes nothing else.
        """
        if hand.runs.get((run.job.task, run.job.attempt)) is run and not self._link.is_up:
            self._finished(run, None)

    def _overdue(self, hand: Hand, run: Run | None) -> None:
        if run is None or hand.runs.get((run.job.task, run.job.attempt)) is not run:
            return
        if not self._link.is_up:
            self._unheard(hand, run)
            return
        _log.error("host %s: the Ray worker of %s does not end it, and is killed", self._host, run.name)
        self.crew.end(hand)
        self._bury(hand, "it did not end an attempt, and was killed")

    def _lose(self, hand: Hand, why: str) -> None:
        if self.crew.drop(hand):
            self._bury(hand, why)

    def _bury(self, hand: Hand, why: str) -> None:
        """A worker is dead, or will be: so are its attempts."""
        runs = list(hand.runs.values())
        for of_attempts in (hand.runs, hand.letters, hand.times):  # also its listener's: it ends without any
            of_attempts.clear()
        for run in runs:
            run.where = None
            self._finished(run, self._fault(hand, why) if run.reason is None else None)
        self._fill()

    def _fault(self, hand: Hand, why: str) -> Outcome:
        """The host's fault. What fells many attempts at once counts once."""
        what = f"node {hand.node_id}" if "node" in why else hand.name
        now = time.monotonic()
        while self._faults and now - next(iter(self._faults.values())) >= _SAME_FAULT_S:
            del self._faults[next(iter(self._faults))]
        known = self._faults.pop(what, None) is not None
        self._faults[what] = now
        on = f" on {hand.node}" if hand.node else ""
        error = f"the Ray worker of host {self._host}{on} is gone: {why}"
        return Outcome(Verdict.HOST, error=error, known_fault=known, node=hand.node or None)

    def _found(self, hand: Hand, hello: Hello) -> None:
        for standing in hello.attempts:
            if standing.is_over and (standing.task, standing.attempt) in hand.runs:
                self._note_times(hand, standing)
        for run in list(hand.runs.values()):
            self._ask_after(hand, run)
        if hand.listener is not None:
            hand.listener.begin()

    def _listen(self, hand: Hand) -> None:
        if hand.listener is None:
            hand.listener = Listener(
                self._link,
                hand.name,
                self._host,
                hand.runs,
                self._notice,
                self._remote.work_dir,
                self._terms.chores,
                hand.stalls,
            )
        hand.listener.begin_soon()
