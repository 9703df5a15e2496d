"""Who goes first: tasks as the scheduler holds them, and the classes they queue in.

Tasks that could go to the same hosts under the same lane and gates, and need the same units, are one class.
The scheduler compares the heads of classes, never every task.

The order inside a class never changes as time passes. Waiting `aging_s` counts as one priority level, so a
task's urgency at `now` is `priority - (now - ready_at) / aging_s`; for any two tasks the difference is the
same at every `now`, and `key = ready_at + priority * aging_s` sorts them once and for all.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from penstock.scheduling.capacity import HostState, LaneState, Needs
    from penstock.scheduling.gates import GateState, ThreadGate
    from penstock.scheduling.tiers import Tier

# What the scheduler knows of a task's place; `lifecycle.State` is the users' view of it.
PENDING, READY, RUNNING, GONE = range(4)

_MANY_LATE = 1024  # of more than this that came out of order only so many are looked at
_LEVELS = 5  # sources of a class: a deque for each priority, then for each a heap of what came out of order


class Shape:
    """What many tasks have in common: which hosts fit, under which lane and gates, with which needs."""

    __slots__ = (
        "free",
        "gates",
        "lane",
        "name",
        "needs",
        "opened",
        "rivals",
        "simple",
        "thread",
        "tiers",
        "timed",
        "units",
        "usable",
        "variants",
    )

    def __init__(
        self,
        name: str,
        lane: LaneState,
        gates: tuple[GateState, ...],
        needs: Needs,
        tiers: tuple[Tier, ...],
        thread: ThreadGate | None = None,
    ) -> None:
        self.name = name
        self.lane = lane
        self.gates = gates
        self.thread = thread  # of its kind, where kinds have one; among the gates
        self.needs = needs
        self.tiers = tiers  # own hosts first, then fallback hosts by the wait that opens them
        self.free = tiers  # the same without the hosts that a lane's spent budget closes to it
        self.usable = tiers  # one or the other
        self.opened = sum(
            t.after_s is not None and t.after_s <= 0 for t in tiers
        )  # tiers open from the start
        self.simple = all(t.simple for t in tiers)  # one slot, and nothing is kept for anybody
        self.units = "" if needs.plain else f"needs {needs}"
        self.rivals = any(  # whether slots of its hosts are kept for other lanes
            other != lane.name and units.get("slots")
            for tier in tiers
            for host in tier.hosts
            for other, units in host.reserves.items()
        )
        self.timed = len(tiers) > 1 or not needs.plain  # whether waiting alone changes what is allowed
        self.variants: list[WorkClass] = []  # by how many fallback tiers have opened


class Entry:
    """A live task: a few words beside its id. The payload stays in the store."""

    __slots__ = (
        "attempt",
        "faults",
        "host",
        "id",
        "key",
        "priority",
        "retries",
        "seq",
        "shape",
        "status",
        "tries",
        "work_class",
    )

    def __init__(self, id: str, shape: Shape, priority: int, retries: int, seq: int) -> None:
        self.id = id
        self.shape = shape
        self.priority = priority
        self.retries = retries
        self.seq = seq
        self.key = 0.0
        self.status = PENDING
        self.attempt = 0
        self.tries = 0
        self.faults = 0
        self.host: HostState | None = None  # where it runs; while queued, the host that failed it last
        self.work_class: WorkClass | None = None

    def __lt__(self, other: Entry) -> bool:
        """For heaps: of two in one place one was discarded there, and which goes first is nobody's concern."""
        return False


def _place(entry: Entry) -> tuple[float, float]:
    return entry.key, entry.seq


Place: TypeAlias = "tuple[float, int, int, WorkClass]"  # key and number of its head, its id, and the class


class WorkClass:
    """A queue of tasks with one answer to "what are you waiting for?".

    Each priority is first come, first served, so a deque holds it and taking the head costs the same at any
    length; only tasks that come out of order (a retry keeps its place, one that was moved takes its own) need a
    heap. That is one for each priority too: within one, who is first has also waited longest.
    """

    __slots__ = (
        "_dead",
        "_fifos",
        "_lates",
        "claim",
        "detail",
        "head",
        "id",
        "late",
        "n",
        "noted",
        "opened",
        "place",
        "reason",
        "recorded",
        "registered",
        "shape",
        "source",
        "sources",
        "timer_at",
        "told_at",
    )

    def __init__(self, id: int, shape: Shape, opened: int) -> None:
        self.id = id
        self.shape = shape
        self.opened = opened  # how many fallback tiers its tasks have waited long enough for
        self.n = 0
        self.head: Entry | None = None
        self.source = 0  # where the head came from
        self.sources: list[tuple[int, deque[Entry]]] = []
        self.late: list[tuple[int, list[tuple[float, int, Entry]]]] = []
        self.registered = False
        self.place: Place | None = None  # in its lane's line; others of its places there are left
        self.reason: str | None = None
        self.detail = ""
        self.recorded: str | None = None
        self.noted = ""  # the detail that was recorded with it
        self.told_at = 0.0  # from when on it holds
        self.claim: HostState | None = None  # the host whose freed units are kept for its head
        self.timer_at: float | None = None
        self._fifos: list[deque[Entry] | None] = [None] * _LEVELS
        self._lates: list[list[tuple[float, int, Entry]] | None] = [None] * _LEVELS
        self._dead = 0

    def open_tiers(self) -> tuple[Tier, ...]:
        """Own hosts, and the fallback hosts that waiting, failures or sick own hosts have opened."""
        shape = self.shape
        own = shape.tiers[0]  # a host that money closes to a lane is still well
        if len(shape.tiers) == 1 or not own.healthy:
            return shape.usable
        return shape.usable[: self.opened + 1]

    def wait_for(self, reason: str, detail: str) -> None:
        self.reason = reason
        self.detail = detail

    def push(self, entry: Entry) -> None:
        priority = entry.priority
        fifo = self._fifos[priority]
        if fifo is None:
            fifo = self._fifos[priority] = deque()
            self.sources.append((priority, fifo))
        entry.work_class = self
        entry.status = READY
        if entry.attempt:
            self.timer_at = None  # it may have waited longer than those the timer was set for
        key = entry.key
        if fifo and (fifo[-1].key > key or (fifo[-1].key == key and fifo[-1].seq > entry.seq)):
            heapq.heappush(self._late(priority), (key, entry.seq, entry))
            source = _LEVELS + priority
        else:
            fifo.append(entry)
            source = priority
        self.n += 1
        head = self.head
        if head is None or key < head.key or (key == head.key and entry.seq < head.seq):
            self.head = entry
            self.source = source

    def push_all(self, entries: list[Entry]) -> None:
        """As `push` of each: entries of one priority that were never tried, in order among themselves."""
        self.push(entries[0])
        fifo = self._fifos[entries[0].priority]
        assert fifo is not None
        if not fifo or fifo[-1] is not entries[0]:  # others are behind the first, and maybe before the last
            for entry in entries[1:]:
                self.push(entry)
            return
        for entry in entries:
            entry.work_class = self
            entry.status = READY
        fifo.extend(entries[1:])
        self.n += len(entries) - 1

    def _late(self, priority: int) -> list[tuple[float, int, Entry]]:
        late = self._lates[priority]
        if late is None:
            late = self._lates[priority] = []
            self.late.append((_LEVELS + priority, late))
        return late

    def pop(self) -> Entry:
        """Take the head out."""
        entry = self.head
        assert entry is not None
        if self.source >= _LEVELS:
            late = self._late(self.source - _LEVELS)
            while heapq.heappop(late)[2] is not entry:
                pass  # one that was discarded
        else:
            fifo = self._fifos[self.source]
            assert fifo is not None
            while fifo.popleft() is not entry:
                pass
        self.n -= 1
        self._find_head()
        return entry

    def discard(self, entry: Entry) -> None:
        """Forget a queued entry wherever it stands; its status or class has been changed by the caller."""
        self.n -= 1
        self._dead += 1
        if entry is self.head:
            self._find_head()
        if self._dead > 64 and self._dead > self.n:
            self._sweep()

    def oldest(self, aging_s: float) -> float:
        """Since when the longest-waiting task has been ready."""
        return min(e.key - e.priority * aging_s for e in self._heads())

    def overdue(self, before: float, aging_s: float) -> list[Entry]:
        """Entries that have been ready since `before` or longer; call again until there are none."""
        return [e for e in self._heads() if e.key - e.priority * aging_s <= before]

    def ahead(self, key: float, seq: float) -> float:
        """How many of its tasks go before that place; about so many, where discarded ones still lie between."""
        place = key, seq
        before = held = 0
        for _, fifo in self.sources:
            held += len(fifo)
            before += bisect_left(fifo, place, key=_place)
        for _, late in self.late:
            held += len(late)
            some = late[:: len(late) // _MANY_LATE + 1]
            if some:
                before += len(late) * sum((k, s) < place for k, s, _ in some) // len(some)
        return before * self.n / held if held else 0.0

    def _heads(self) -> list[Entry]:
        """Entries among which the one that has waited longest is."""
        heads: list[Entry] = []
        for _, fifo in self.sources:
            while fifo and not self._counts(fifo[0]):
                fifo.popleft()
            if fifo:
                heads.append(fifo[0])
        for _, late in self.late:
            while late and not self._counts(late[0][2]):
                heapq.heappop(late)
            if late and late[0][2] not in heads:
                heads.append(late[0][2])
        return heads

    def __iter__(self) -> Iterator[Entry]:
        for _, fifo in self.sources:
            yield from (e for e in fifo if self._counts(e))
        for _, late in self.late:
            yield from (e for _, _, e in late if self._counts(e))

    def _counts(self, entry: Entry) -> bool:
        return entry.status == READY and entry.work_class is self

    def _find_head(self) -> None:
        if not self.n:
            self.head = None
            self._dead = 0
            for _, fifo in self.sources:
                fifo.clear()
            for _, late in self.late:
                late.clear()
            return
        best: Entry | None = None
        least = float("inf")
        for priority, fifo in self.sources:
            while fifo:
                entry = fifo[0]
                if entry.status == READY and entry.work_class is self:
                    key = entry.key
                    if key < least or (key == least and best is not None and entry.seq < best.seq):
                        best, least = entry, key
                        self.source = priority
                    break
                fifo.popleft()
        for source, late in self.late:
            while late and not self._counts(late[0][2]):
                heapq.heappop(late)
            if late and (best is None or late[0][:2] < (best.key, best.seq)):
                best = late[0][2]
                self.source = source
        self.head = best

    def _sweep(self) -> None:
        """Drop what was discarded, so that a queue of cancelled tasks gives its memory back."""
        for _, fifo in self.sources:
            kept = [e for e in fifo if self._counts(e)]
            fifo.clear()
            fifo.extend(kept)
        for _, late in self.late:
            late[:] = [item for item in late if self._counts(item[2])]
            heapq.heapify(late)
        self._dead = 0
        self._find_head()
