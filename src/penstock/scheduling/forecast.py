"""How long a task will wait, about: from what is ahead of it, the slots it may use and how long attempts take.

A forecast for people and for `Retry-After`, never for a decision. It costs a look at each class and each host,
not at each task: counting what is ahead in a class is a search in its ordered queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, inf
from typing import NamedTuple

from penstock.scheduling.capacity import LIMITED, HostState, LaneState, Needs
from penstock.scheduling.gates import GateState
from penstock.scheduling.order import WorkClass
from penstock.scheduling.tiers import Tier

_NEAR = 1e-9
_OVERDUE = 0.1  # an attempt that took longer than most: so much of the mean is thought to be left
_MOST_SORTED = 512  # with more attempts running, their ends are as good as evenly spread


class Ask(NamedTuple):
    """What is asked about: a task's place in the order, and where it may run."""

    key: float
    seq: float
    lane: LaneState
    needs: Needs
    gates: Sequence[GateState]
    hosts: Sequence[HostState]


class Room(NamedTuple):
    """What one host gives to the task that is asked about and to others like it."""

    host: HostState
    slots: float  # outside other lanes' reserves
    free: float
    per_s: float  # attempts it gets through, when full


class Queued(NamedTuple):
    """A lane's tasks that compete, in slots of the hosts in question."""

    lane: LaneState
    urgent: float  # of more urgent levels
    alike: float  # of the same level


def predicted_wait_s(
    ask: Ask,
    waiting: Iterable[tuple[WorkClass, Sequence[Tier]]],
    now: float,
    aging_s: float,
) -> float | None:
    """About how many seconds until it starts; None when that cannot be told.

    `waiting` are the classes it competes with, each with its open tiers.
    """
    if ask.lane.paused or not all(g.open for g in ask.gates):
        return None
    hosts = [h for h in ask.hosts if h.condition <= LIMITED]
    known = [h.mean_s for h in hosts if h.mean_s is not None]
    if not known:
        return None
    typical_s = max(sum(known) / len(known), _NEAR)
    rooms = [room for h in hosts if (room := _room(h, ask.lane.name, typical_s)).slots > 0]
    per_s = sum(room.per_s for room in rooms)
    if not per_s:
        return None
    own, others = _ahead(ask, waiting, rooms, now, aging_s)
    slots = sum(room.slots for room in rooms)
    ahead, left = _behind_others(ask.lane, own, others, slots)
    wanted = ahead + ask.needs.slots - sum(room.free for room in rooms)
    wait_s = 0.0
    if wanted > _NEAR:
        ends = [s for room in rooms for s in _ends(room, ask.lane.name, now, typical_s)]
        # Of the room that comes free a part goes to lanes that hold their limit.
        wait_s = _until(1 + (wanted - 1) * slots / left, slots, slots / per_s, ends)
        if any(room.host.rate is not None for room in rooms):  # ends are not what it waits for alone
            wait_s = max(wait_s, ahead / per_s)
    limited_s = min(_limited_s(room.host, now) for room in rooms)
    return max(wait_s, limited_s, _lane_wait_s(ask, own, now, slots / per_s))


def competing(lanes: Iterable[LaneState]) -> Iterator[tuple[WorkClass, Sequence[Tier]]]:
    """Classes with queued tasks that nothing but room holds back, and where they may go."""
    for lane in lanes:
        if not lane.paused:
            for work_class in lane.waiting:
                if all(gate.open for gate in work_class.shape.gates):
                    yield work_class, work_class.open_tiers()


def _room(host: HostState, lane: str, typical_s: float) -> Room:
    mean_s = max(host.mean_s if host.mean_s is not None else typical_s, _NEAR)
    kept = sum(units.get("slots", 0.0) for other, units in host.reserves.items() if other != lane)
    slots = host.slots - kept
    free = host.free - host.unused_slots + host.unused.get(lane, 0.0)
    per_s = slots / mean_s
    rate = host.host.rate
    if rate is not None and rate.requests_per_min is not None:
        per_s = min(per_s, rate.requests_per_min / 60)
    return Room(host, slots, max(0.0, min(free, slots)), per_s)


def _ahead(
    ask: Ask,
    waiting: Iterable[tuple[WorkClass, Sequence[Tier]]],
    rooms: Sequence[Room],
    now: float,
    aging_s: float,
) -> tuple[float, list[Queued]]:
    """Slots wanted first by tasks of its own lane, and by lane those of the others."""
    mine = {room.host for room in rooms}
    level = ceil((ask.key - now) / aging_s - _NEAR)
    own = 0.0
    others: dict[LaneState, Queued] = {}
    shares: dict[Tier, tuple[float, float]] = {}
    for work_class, tiers in waiting:
        here = everywhere = 0.0
        for tier in tiers:
            if tier not in shares:
                shares[tier] = _overlap(tier, mine)
            here += shares[tier][0]
            everywhere += shares[tier][1]
        if not here:
            continue
        # What may also go elsewhere takes its part of the room there.
        each = work_class.shape.needs.slots * here / everywhere
        lane = work_class.shape.lane
        if lane is ask.lane:
            own += work_class.ahead(ask.key, ask.seq) * each
            continue
        urgent = work_class.ahead(now + (level - 1) * aging_s, inf) * each
        alike = work_class.ahead(now + level * aging_s, inf) * each - urgent
        before = others.get(lane, Queued(lane, 0.0, 0.0))
        others[lane] = Queued(lane, before.urgent + urgent, before.alike + alike)
    return own, list(others.values())


def _overlap(tier: Tier, mine: set[HostState]) -> tuple[float, float]:
    """A tier's slots on these hosts, and in all."""
    able = [h for h in tier.hosts if h.condition <= LIMITED]
    return sum(h.slots for h in able if h in mine), sum(h.slots for h in able)


def _behind_others(
    lane: LaneState, own: float, others: Sequence[Queued], slots: float
) -> tuple[float, float]:
    """Slots given away before its turn, and slots left for that by lanes that cannot take more.

    More urgent levels go first; within a level lanes share by weight. A lane at its limit holds so many slots
    for as long as it has tasks: either these are gone for it, or all its tasks go first, whichever is sooner.
    """
    ahead, left = own, slots
    rivals = sum(other.lane.weight for other in others if other.alike)
    share = max(slots * lane.weight / (lane.weight + rivals), _NEAR)
    due = share - len(lane.live)  # it catches up alone; from then on each end is replaced from its own lane
    turns = (own // share * share if due > 0 else own) / lane.weight
    if due < 0 < rivals:
        turns -= due / rivals  # the others catch up before it
    for other in others:
        running = len(other.lane.live)
        first = other.urgent + min(other.alike, turns * other.lane.weight)
        limit = other.lane.limit
        if limit < left and (ahead + 1) / (left - limit) < (ahead + first + 1) / left:
            left -= limit
            ahead += min(first, max(0.0, limit - running))
        else:
            ahead += first
    return ahead, left


def _ends(room: Room, lane: str, now: float, typical_s: float) -> list[float]:
    """Seconds until each running attempt's end that gives room, as far as the mean tells."""
    host = room.host
    mean_s = max(host.mean_s if host.mean_s is not None else typical_s, _NEAR)
    if not host.reserves:
        return [_left_s(started, now, mean_s) for _, _, started in host.live.values()]
    kept = {other: units.get("slots", 0.0) for other, units in host.reserves.items() if other != lane}
    ends = []
    for needs, holder, started in host.live.values():
        if kept.get(holder, 0.0) > _NEAR:
            kept[holder] -= needs.slots  # what ends in another lane's reserve stays there
        else:
            ends.append(_left_s(started, now, mean_s))
    return ends


def _left_s(started: float, now: float, mean_s: float) -> float:
    return max(mean_s - (now - started), _OVERDUE * mean_s)


def _until(wanted: float, slots: float, round_s: float, ends: list[float]) -> float:
    """When so many slots have come free: whole rounds of all slots, then running attempts one by one."""
    if not ends or len(ends) > _MOST_SORTED:
        return wanted / slots * round_s
    rounds, rest = divmod(max(wanted - 1, 0.0), len(ends))
    return rounds * round_s * len(ends) / slots + sorted(ends)[int(rest)]


def _limited_s(host: HostState, now: float) -> float:
    """How long it takes nothing because it said so, or because its rate is used up."""
    return max(host.limited_until, host.rate.free_at(now) if host.rate else now) - now


def _lane_wait_s(ask: Ask, own: float, now: float, round_s: float) -> float:
    """Until the lane itself has room for it."""
    lane = ask.lane
    wanted = own + 1 - (lane.limit - len(lane.live))
    if not lane.limited or wanted <= _NEAR:
        return 0.0
    ends = []
    for entry in lane.live.values():
        host = entry.host
        if host is not None and entry.id in host.live:
            mean_s = host.mean_s if host.mean_s is not None else round_s
            ends.append(_left_s(host.live[entry.id][2], now, mean_s))
    return _until(wanted, lane.limit, round_s, ends)
