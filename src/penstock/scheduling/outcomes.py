"""What follows from an attempt that is over: its task ends, or is tried again after a while.

Rule 5 of the rules of order, as far as tasks go; what the host learns from it is decided in `experience`.
"""

from __future__ import annotations

from penstock.model import Outcome, RetryRule, TimedOutcome, Verdict
from penstock.scheduling.begins import Begins
from penstock.scheduling.capacity import OK, HostState
from penstock.scheduling.endings import DONE, Endings
from penstock.scheduling.experience import Experience
from penstock.scheduling.messages import Decision, End, Finished, PutBack, Refuse, Requeue
from penstock.scheduling.order import GONE, PENDING, RUNNING, Entry
from penstock.scheduling.placing import Placer
from penstock.scheduling.retry import backoff_s
from penstock.scheduling.roster import Roster


class Outcomes:
    def __init__(
        self,
        rule: RetryRule,
        roster: Roster,
        placer: Placer,
        experience: Experience,
        endings: Endings,
        begins: Begins,
        out: list[Decision],
    ) -> None:
        self._rule = rule
        self._roster = roster
        self._placer = placer
        self._experience = experience
        self._endings = endings
        self._begins = begins
        self._out = out

    def finished(self, event: Finished, now: float, ended_at: float | None = None) -> None:
        """Heard of now, it ended at `ended_at`, or now."""
        task, attempt, outcome, chance = event
        if type(outcome) is TimedOutcome:
            self._finished_before(event, outcome, now)
            return
        entry = self._roster.tasks.get(task)
        if entry is None or entry.status != RUNNING or entry.attempt != attempt:
            self._out.append(Refuse(task, attempt, now, "this attempt no longer counts"))
            return
        host = entry.host
        assert host is not None
        if self._roster.delayed:
            self._begins.never(entry, host, now)
        seconds = self._placer.vacate(host, task, entry.shape, now)
        self._experience.finished(entry, host, outcome, seconds, now)
        if outcome.verdict is Verdict.DONE:
            if self._roster.beside:
                self._endings.end(entry, "finish", now, outcome, None)
            else:  # the common case: nothing else is known of it
                del self._roster.tasks[task]
                entry.status = GONE
                self._out.append(End(task, attempt, DONE, "finish", now, outcome, None))
            return
        stopped = self._roster.stopping.get(task)
        if stopped is not None:
            self._endings.end(entry, "cancel", now, outcome, stopped)
        else:
            self._failed(entry, host, outcome, chance, now, now if ended_at is None else ended_at)

    def _finished_before(self, event: Finished, outcome: TimedOutcome, now: float) -> None:
        """It ended a while ago, and perhaps began later than was known. Its room is free now."""
        task = event.task
        entry = self._roster.tasks.get(task)
        place, ended_at = len(self._out), now
        if entry is not None and entry.status == RUNNING and entry.attempt == event.attempt:
            host = entry.host
            assert host is not None
            if outcome.began_at is not None:
                self._begins.had_worker(entry, host, min(outcome.began_at, now))
            needs, lane, since = host.live[task]
            if outcome.ended_at is not None:  # by the clock of nobody who would let it end before it began
                ended_at = min(max(since, outcome.ended_at), now)
            self._begins.never(entry, host, ended_at)
            place, since = len(self._out), host.live[task][2]
            host.live[task] = needs, lane, since + now - ended_at  # so long it has run, when it is over now
        self.finished(event._replace(outcome=outcome.plain()), now, ended_at)
        for i in range(place, len(self._out)):
            decision = self._out[i]
            if isinstance(decision, End) and decision[:2] == event[:2]:
                self._out[i] = decision._replace(at=ended_at)

    def put_back(self, event: PutBack, now: float) -> None:
        entry = self._roster.tasks.get(event.task)
        if entry is None or entry.status != RUNNING or entry.attempt != event.attempt:
            self._out.append(Refuse(event.task, event.attempt, now, "this attempt no longer counts"))
            return
        host = entry.host
        assert host is not None
        self._begins.never(entry, host, now)
        seconds = self._placer.vacate(host, entry.id, entry.shape, now)
        self._experience.put_back(entry, host, event.cost_usd, seconds, now)
        entry.host = None
        error = event.why or f"the dispatcher stopped while attempt {entry.attempt} ran; on_stop = block"
        outcome = Outcome(
            Verdict.CANCELLED,
            error=error if event.block else f"put back: {event.why or 'the dispatcher stopped'}",
            tokens=event.tokens,
            cost_usd=event.cost_usd,
        )
        stopped = self._roster.stopping.get(entry.id)
        if stopped is not None:
            self._endings.end(entry, "cancel", now, outcome, stopped)
        elif event.block:
            self._endings.end(entry, "block", now, outcome, error)
        else:
            self._requeue(entry, outcome, now, now, now)

    def _failed(
        self, entry: Entry, host: HostState, outcome: Outcome, chance: float, now: float, ended_at: float
    ) -> None:
        rule = self._rule
        verdict = outcome.verdict
        entry.host = None
        if verdict is Verdict.PERMANENT:
            self._endings.end(entry, "fail", now, outcome, outcome.error)
            return
        if verdict is Verdict.THROTTLED:
            self._requeue(entry, outcome, now, ended_at, ended_at)
            return
        if verdict is Verdict.HOST:
            entry.faults += 1
            if entry.faults >= rule.host_faults:
                text = f"{outcome.error}; {entry.faults} host faults are enough (retry.host_faults)"
                self._endings.end(entry, "fail", now, outcome, text)
                return
            entry.host = host  # others first; and for want of others, fallback hosts
            others = any(h is not host and h.condition == OK for t in entry.shape.usable for h in t.hosts)
            delay = 0.0 if others else backoff_s(rule, entry.faults, chance, outcome.retry_after_s)
        else:
            entry.tries += 1
            if entry.tries > entry.retries:
                self._endings.end(entry, "fail", now, outcome, outcome.error)
                return
            delay = backoff_s(rule, entry.tries, chance, outcome.retry_after_s)
        self._requeue(entry, outcome, now, ended_at, ended_at + delay)

    def _requeue(self, entry: Entry, outcome: Outcome, now: float, ended_at: float, retry_at: float) -> None:
        self._out.append(
            Requeue(
                entry.id,
                entry.attempt,
                ended_at,
                retry_at,
                entry.tries,
                entry.faults,
                outcome.verdict,
                outcome.error,
                outcome.tokens,
                outcome.node,
            )
        )
        entry.status = PENDING
        if retry_at > now:
            self._roster.not_before[entry.id] = retry_at
        self._endings.queue_or_expire(entry, now, keep_key=True)
