"""How much a caller may do: requests in any minute, and tasks or calls that wait at the same time.

Both are counted per token, and together for all who come without one. The bodies of waiting calls are kept in
memory, so their bytes are bounded too: in all, and for one token by half of that, which leaves room to others;
a call may always wait alone. What waits is what this server took in
since it started: a task counts from its submit until its attempt starts, and again while it is queued for
another try.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from penstock.lifecycle import ENDED
from penstock.model import Rate, State
from penstock.scheduling.messages import Decision, End, Requeue, Start
from penstock.scheduling.rates import RateWindow
from penstock.web.auth import Caller
from penstock.web.refusals import RETRY_LATER_S, Refused

_MOST_LOOKED_AT = 5_000


class Limits:
    def __init__(self, max_queued_bytes: int, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._most_bytes = max_queued_bytes
        self._bytes: defaultdict[str, int] = defaultdict(int)  # of waiting bodies, by token
        self._all_bytes = 0
        self._windows: dict[tuple[str, float], RateWindow] = {}
        self._waiting: defaultdict[str, int] = defaultdict(int)  # by token
        self._owners: dict[str, str] = {}  # live task -> token
        self._queued: set[str] = set()  # those of them that wait

    def admit(self, caller: Caller) -> None:
        """Count one request; Refused with 429 when there were too many in the last minute."""
        rate = caller.requests_per_min
        if rate is None:
            return
        window = self._windows.get((caller.token_id, rate))
        if window is None:
            window = self._windows[caller.token_id, rate] = RateWindow(Rate(requests_per_min=rate))
        now = self._now()
        free_at = window.free_at(now)
        if free_at > now:
            raise Refused(
                429,
                "rate_limited",
                f"{caller.name!r} may make {rate:g} requests a minute, and has",
                "try again after the seconds of Retry-After",
                retry_after_s=free_at - now,
            )
        window.take(now, 0.0)

    def enter(self, caller: Caller, count: int = 1, wait_s: Callable[[], float | None] | None = None) -> None:
        """So many more wait; Refused with 429 when those would be too many. `leave` undoes it.

        `wait_s` tells how long one would wait now, if it can.
        """
        waiting = self._waiting[caller.token_id]
        if waiting + count > caller.max_queued:
            raise Refused(
                429,
                "queue_full",
                f"{caller.name!r} has {waiting} waiting and may have {caller.max_queued}",
                "wait until some have started",
                retry_after_s=(wait_s() if wait_s is not None else None) or RETRY_LATER_S,
            )
        self._waiting[caller.token_id] += count

    def leave(self, caller: Caller, count: int = 1) -> None:
        self._leave(caller.token_id, count)

    def enter_call(self, caller: Caller, size_bytes: int, wait_s: Callable[[], float | None]) -> None:
        """As `enter`, for one call with so long a body. `leave_call` undoes it."""
        theirs = self._bytes.get(caller.token_id, 0)
        full = None
        if theirs and theirs + size_bytes > self._most_bytes // 2:
            full = f"{caller.name!r} has {theirs} bytes waiting and may have {self._most_bytes // 2}"
        elif self._all_bytes and self._all_bytes + size_bytes > self._most_bytes:
            full = f"{self._all_bytes} bytes wait, and {self._most_bytes} may"
        if full is not None:
            remedy = "wait until some have started, or raise `max_queued_bytes` of [server]"
            raise Refused(429, "queue_full", full, remedy, retry_after_s=wait_s() or RETRY_LATER_S)
        self.enter(caller, wait_s=wait_s)
        self._bytes[caller.token_id] += size_bytes
        self._all_bytes += size_bytes

    def leave_call(self, caller: Caller, size_bytes: int) -> None:
        self.leave(caller)
        self._all_bytes -= size_bytes
        self._bytes[caller.token_id] -= size_bytes
        if not self._bytes[caller.token_id]:
            del self._bytes[caller.token_id]

    # ---- tasks

    def enter_tasks(self, caller: Caller, ids: Sequence[str]) -> None:
        """As `enter`, for tasks that are about to be submitted; they leave by what is decided of them."""
        self.enter(caller, len(ids))
        self._owners.update(dict.fromkeys(ids, caller.token_id))
        self._queued.update(ids)

    def forget_tasks(self, ids: Iterable[str]) -> None:
        """They were not submitted after all, or have ended."""
        for id in ids:
            owner = self._owners.pop(id, None)
            if owner is not None and id in self._queued:
                self._queued.discard(id)
                self._leave(owner, 1)

    def is_of(self, caller: Caller, id: str) -> bool:
        """Whether a live task came from this caller, since this server began."""
        return self._owners.get(id) == caller.token_id

    def some_tasks(self) -> list[str]:
        """Live tasks that came from here, to be looked at; the next time others, where there are many."""
        some = list(islice(self._owners, _MOST_LOOKED_AT))
        if len(some) < len(self._owners):
            for id in some:
                self._owners[id] = self._owners.pop(id)
        return some

    def stand(self, states: Mapping[str, State]) -> None:
        """How some of them stand, where another dispatcher decides."""
        for id, state in states.items():
            if state in ENDED:
                self.forget_tasks((id,))
            elif id in self._owners and (state is State.QUEUED) is not (id in self._queued):
                if state is State.QUEUED:
                    self._queued.add(id)
                    self._waiting[self._owners[id]] += 1
                else:
                    self._queued.discard(id)
                    self._leave(self._owners[id], 1)

    def decided(self, decisions: Sequence[Decision]) -> None:
        owners = self._owners
        if not owners:
            return
        for decision in decisions:
            if isinstance(decision, Start):
                if decision.task in self._queued:
                    self._queued.discard(decision.task)
                    self._leave(owners[decision.task], 1)
            elif isinstance(decision, Requeue):
                if decision.task in owners and decision.task not in self._queued:
                    self._queued.add(decision.task)
                    self._waiting[owners[decision.task]] += 1
            elif isinstance(decision, End):
                self.forget_tasks((decision.task,))

    def _leave(self, token_id: str, count: int) -> None:
        left = self._waiting[token_id] - count
        if left > 0:
            self._waiting[token_id] = left
        else:
            del self._waiting[token_id]
