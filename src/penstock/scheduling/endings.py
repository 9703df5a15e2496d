"""How a task ends: once, and with it what waits after it."""

from __future__ import annotations

from penstock.lifecycle import step
from penstock.model import Outcome, State
from penstock.scheduling.agenda import Agenda
from penstock.scheduling.messages import CancelAsked, Decision, End, Stop
from penstock.scheduling.order import GONE, PENDING, READY, RUNNING, Entry
from penstock.scheduling.queueing import Queueing
from penstock.scheduling.roster import Roster

DONE = step(State.RUNNING, "finish")

# How a dependant ends when what it waits for ends otherwise than done.
INHERITED = {
    State.FAILED: "dependency-failed",
    State.CANCELLED: "dependency-cancelled",
    State.BLOCKED: "dependency-blocked",
}


class Endings:
    def __init__(self, roster: Roster, agenda: Agenda, queueing: Queueing, out: list[Decision]) -> None:
        self._roster = roster
        self._agenda = agenda
        self._queueing = queueing
        self._out = out

    def end(
        self,
        entry: Entry,
        how: str,
        now: float,
        outcome: Outcome | None,
        error: str | None,
        *,
        attempt: int | None = None,
        waited_for: str = "",
    ) -> None:
        """Give a task its one end, and its dependants what follows from it."""
        ran = entry.status == RUNNING or attempt is not None
        state = DONE if how == "finish" else step(State.RUNNING if ran else State.QUEUED, how)
        number = (entry.attempt if attempt is None else attempt) if ran else 0
        self._forget(entry)
        self._out.append(End(entry.id, number, state, how, now, outcome, error, waited_for))
        if self._roster.dependants:
            self._tell_dependants(entry.id, state, now)

    def expire(self, entry: Entry, now: float) -> None:
        reason, detail = self._waits_for(entry)
        what = "be tried again" if entry.attempt else "start"
        error = f"its deadline passed before it could {what}; it waited for {reason}"
        if detail:
            error += f" ({detail})"
        self.end(entry, "expire", now, None, error, waited_for=reason)

    def _waits_for(self, entry: Entry) -> tuple[str, str]:
        if entry.status == READY and entry.work_class is not None:
            return entry.work_class.reason or "order", entry.work_class.detail
        return ("dependency" if entry.id in self._roster.unmet else "scheduled"), ""

    def queue_or_expire(self, entry: Entry, now: float, *, keep_key: bool = False) -> None:
        """Nothing but its time holds a task back; and that is too late when its deadline has passed."""
        if not self._queueing.ready(entry, now, keep_key=keep_key):
            self.expire(entry, now)

    def cancel_asked(self, event: CancelAsked, now: float) -> None:
        entry = self._roster.tasks.get(event.task)
        if entry is None:
            return
        if entry.status != RUNNING:
            self.end(entry, "cancel", now, None, "cancelled in the queue")
        elif entry.id not in self._roster.stopping:
            assert entry.host is not None
            self._roster.stopping[entry.id] = "cancelled while it ran"
            self._out.append(Stop(entry.id, entry.attempt, entry.host.name, now, "cancel"))

    def _forget(self, entry: Entry) -> None:
        was_ready = entry.status == READY
        entry.status = GONE
        if was_ready:
            work_class = entry.work_class
            assert work_class is not None
            work_class.discard(entry)
            self._agenda.touch(work_class)
        self._roster.forget(entry)

    def _tell_dependants(self, task: str, state: State, now: float) -> None:
        # A list, not recursion: chains of dependants can be thousands long.
        ended = [(task, state)]
        while ended:
            task, state = ended.pop()
            for entry in self._roster.dependants.pop(task, ()):
                unmet = self._roster.unmet.get(entry.id)
                if unmet is None or entry.status != PENDING:
                    continue
                if state is State.DONE:
                    unmet.discard(task)
                    if not unmet:
                        del self._roster.unmet[entry.id]
                        self._roster.met[entry.id] = now
                        self.queue_or_expire(entry, now)
                    continue
                how = INHERITED[state]
                inherited = step(State.QUEUED, how)
                self._forget(entry)
                self._out.append(End(entry.id, 0, inherited, how, now, None, f"dependency {task}: {state}"))
                ended.append((entry.id, inherited))
