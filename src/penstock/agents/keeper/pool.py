"""Which containers of an agent there should be: pure decisions from values, for the keeper to carry out.

    STARTING ──► READY ◄──► PAUSING ──► PAUSED        READY takes calls, as long as it has room
                  ▲ │                     │
                  │ └─ in doubt ─► WAKING ◄┘          any of them ──► LEAVING ──► STOPPING ──► gone
                  └──────────────────┘

Rules, in order: who must go, who is stopped, who takes a waiting call, who is replaced because of its age (which
leaves its place to another), who is woken, how many are started, who was idle for too long, who is paused. Asked
again after its actions were `applied`, it wants nothing more: the keeper asks after each event, and else at
`next_at`.

The limits:
- `containers` take calls at a time, each at most `concurrency`, so `containers × concurrency` calls run in all;
- there are `containers + warm` of them in all, those that leave included. With two or more, one more may be there
  while one is being replaced, so that its replacement is ready before it goes. With one and no warm ones there
  are never two: whoever asked for that may have something that two cannot share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from penstock.config.agents import Pool

PAUSE_AFTER_S = 5.0  # a spare one that had nothing to do for so long is paused: waking it costs milliseconds
MOST_STARTS = 8  # at a time: more are slower for everybody


class State(StrEnum):
    STARTING = "starting"
    READY = "ready"
    WAKING = "waking"  # it is being resumed, or looked at because somebody doubts it
    PAUSING = "pausing"
    PAUSED = "paused"
    LEAVING = "leaving"  # it takes no calls; ends when those it has are over
    STOPPING = "stopping"


_GOING = (State.LEAVING, State.STOPPING)
_AT_REST = (State.READY, State.PAUSED)


@dataclass(frozen=True, slots=True)
class Instance:
    """One container as the pool sees it."""

    name: str
    state: State
    created_at: float
    idle_since: float  # when its last call ended; when it was ready, before its first
    running: int = 0  # calls of ours in it
    taken: int = 0  # calls it was ever given
    healthy: bool = True
    outdated: bool = False  # its image was built anew: it is replaced as an old one is

    @property
    def stays(self) -> bool:
        return self.state not in _GOING

    @property
    def at_work(self) -> bool:
        return self.running > 0 and self.stays


@dataclass(frozen=True, slots=True)
class Start:
    count: int


@dataclass(frozen=True, slots=True)
class Give:
    """The first of those who wait may call it."""

    name: str


@dataclass(frozen=True, slots=True)
class Wake:
    name: str


@dataclass(frozen=True, slots=True)
class Pause:
    name: str


@dataclass(frozen=True, slots=True)
class Leave:
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Nobody of ours uses it any more: it is drained, stopped and removed."""

    name: str


Action: TypeAlias = Start | Give | Wake | Pause | Leave | Stop


@dataclass(frozen=True, slots=True)
class Decision:
    actions: tuple[Action, ...] = ()
    next_at: float | None = None  # time alone changes nothing before


def per_container(pool: Pool) -> int:
    """How many calls one container takes at a time; one that is made for a single task takes one."""
    return pool.concurrency if pool.max_tasks is None else min(pool.concurrency, pool.max_tasks)


def most_running(pool: Pool) -> int:
    return pool.containers * per_container(pool)


def most_containers(pool: Pool) -> int:
    return pool.containers + max(pool.warm, 1 if pool.containers > 1 else 0)


def room(pool: Pool, instance: Instance) -> int:
    """How many more calls it could take, as far as it is concerned."""
    free = pool.concurrency - instance.running
    return max(0, free if pool.max_tasks is None else min(free, pool.max_tasks - instance.taken))


def is_old(pool: Pool, instance: Instance, now: float) -> bool:
    return instance.outdated or (pool.max_age_s is not None and now >= instance.created_at + pool.max_age_s)


def applied(instances: Mapping[str, Instance], action: Action) -> dict[str, Instance]:
    """The instances once the action has begun; those of Start are not here yet: their names are the keeper's."""
    after = dict(instances)
    if isinstance(action, Start):
        return after
    one = after[action.name]
    match action:
        case Give():
            after[one.name] = replace(one, running=one.running + 1, taken=one.taken + 1)
        case Wake():
            after[one.name] = replace(one, state=State.WAKING)
        case Pause():
            after[one.name] = replace(one, state=State.PAUSING)
        case Leave():
            after[one.name] = replace(one, state=State.LEAVING)
        case Stop():
            after[one.name] = replace(one, state=State.STOPPING)
    return after


def decide(
    pool: Pool,
    instances: Iterable[Instance],
    waiting: int,
    now: float,
    *,
    tries_from: float = 0.0,
    pauses_from: float = 0.0,
) -> Decision:
    """`waiting` calls have no container yet. Not before `tries_from` is one woken or started, and not
    before `pauses_from` is one paused: it failed just now."""
    plan = _Plan(pool, {one.name: one for one in instances}, waiting, now)
    plan.dismiss()
    plan.give()
    plan.replace_old()
    plan.give()
    if now >= tries_from:
        plan.wake()
        plan.start()
    plan.shrink()
    if now >= pauses_from:
        plan.pause()
    return Decision(tuple(plan.actions), plan.next_at(tries_from, pauses_from))


class _Plan:
    """The instances as they will be, while one decision is made."""

    def __init__(self, pool: Pool, instances: dict[str, Instance], waiting: int, now: float) -> None:
        self.pool = pool
        self.instances = instances
        self.waiting = waiting
        self.now = now
        self.actions: list[Action] = []
        self.started = 0
        self._stay: list[Instance] | None = None  # known until something is done

    # ---- what is there

    def _do(self, action: Action) -> None:
        self.actions.append(action)
        self.instances = applied(self.instances, action)
        self._stay = None

    def _staying(self) -> list[Instance]:
        if self._stay is None:
            self._stay = [one for one in self.instances.values() if one.stays]
        return self._stay

    @property
    def _running(self) -> int:
        return sum(one.running for one in self.instances.values())

    @property
    def _total(self) -> int:
        return len(self.instances) + self.started

    @property
    def _base(self) -> int:
        """How many the calls of this moment need."""
        calls = self._running + self.waiting
        needed = min(self.pool.containers, -(-calls // per_container(self.pool)))
        return max(needed, sum(one.at_work for one in self.instances.values()))

    @property
    def _wanted(self) -> int:
        return self._base + self.pool.warm

    @property
    def _fresh(self) -> int:
        """How many need no replacement."""
        return sum(not is_old(self.pool, one, self.now) for one in self._staying())

    # ---- the rules

    def dismiss(self) -> None:
        """The sick and the spent ones take nothing more; who leaves and has no call left is stopped."""
        for one in self._staying():
            if not one.healthy:
                self._do(Leave(one.name, "it is not healthy"))
            elif self.pool.max_tasks is not None and one.taken >= self.pool.max_tasks:
                self._do(Leave(one.name, f"it was given {one.taken} tasks (max_tasks)"))
        self._stop()

    def _stop(self) -> None:
        for one in list(self.instances.values()):
            if one.state is State.LEAVING and not one.running:
                self._do(Stop(one.name))

    def give(self) -> None:
        while self.waiting and (one := self._best()) is not None:
            self._do(Give(one.name))
            self.waiting -= 1
            if self.pool.max_tasks is not None and not room(self.pool, self.instances[one.name]):
                self.dismiss()

    def _best(self) -> Instance | None:
        if self._running >= most_running(self.pool):
            return None
        another = sum(one.at_work for one in self.instances.values()) < self.pool.containers
        able = [
            one
            for one in self.instances.values()
            if one.state is State.READY and room(self.pool, one) and (one.running or another)
        ]
        return min(able, key=self._preference, default=None)

    def _preference(self, one: Instance) -> tuple[bool, int, float, str]:
        return is_old(self.pool, one, self.now), one.running, -one.idle_since, one.name

    def wake(self) -> None:
        """As many paused ones as are needed beside those that are on their way."""
        if not self.waiting:
            return
        coming = [one for one in self._staying() if one.state in (State.STARTING, State.WAKING)]
        unmet = min(self.waiting, most_running(self.pool) - self._running)
        unmet -= sum(room(self.pool, one) for one in coming)
        places = self.pool.containers - sum(one.at_work for one in self.instances.values())
        places -= sum(not one.running for one in coming)
        asleep = [one for one in self._staying() if one.state is State.PAUSED and room(self.pool, one)]
        for one in sorted(asleep, key=self._preference):
            if unmet <= 0 or places <= 0:
                break
            self._do(Wake(one.name))
            unmet -= room(self.pool, one)
            places -= not one.running

    def start(self) -> None:
        on_the_way = sum(one.state is State.STARTING for one in self.instances.values())
        count = min(
            self._wanted - self._fresh, most_containers(self.pool) - self._total, MOST_STARTS - on_the_way
        )
        if count > 0:
            self._do(Start(count))
            self.started = count

    def replace_old(self) -> None:
        """An old one goes when there is another for what it does, or when there can be none beside it."""
        old = [one for one in self._staying() if one.state in _AT_REST and is_old(self.pool, one, self.now)]
        if not old:
            return
        for one in sorted(old, key=lambda one: (one.running, one.created_at, one.name)):
            at_rest = sum(other.state in _AT_REST for other in self._staying())
            if at_rest <= self._floor():
                break
            self._do(
                Leave(one.name, "its image was built anew" if one.outdated else "it is too old (max_age_s)")
            )
        self._stop()

    def _floor(self) -> int:
        """How many must be there once an old one has gone."""
        if most_containers(self.pool) == 1:
            return 0
        on_the_way = any(
            one.state in (State.STARTING, State.WAKING, State.PAUSING) for one in self._staying()
        )
        if on_the_way or self._total < most_containers(self.pool):
            return self._wanted
        return max(self._base, self._wanted - 1)

    def shrink(self) -> None:
        idle = [one for one in self._staying() if not one.running and one.state in _AT_REST]
        if not idle:
            return
        for one in sorted(idle, key=lambda one: (one.idle_since, one.name)):
            staying = sum(other.state is not State.STARTING for other in self._staying())
            if staying > self.pool.containers + self.pool.warm + self._being_replaced():
                self._do(Leave(one.name, "there are more than the pool may have"))
            elif self._fresh <= self._wanted and not is_old(self.pool, one, self.now):
                continue  # it would have to be made anew: the others are old, and will be replaced
            elif staying > self._wanted and self._idle_end(one) <= self.now:
                self._do(Leave(one.name, "it had nothing to do (idle_s)"))
        self._stop()

    def _being_replaced(self) -> int:
        return min(
            sum(is_old(self.pool, one, self.now) for one in self._staying()),
            most_containers(self.pool) - self.pool.containers - self.pool.warm,
        )

    def _idle_end(self, one: Instance) -> float:
        return one.idle_since + self.pool.idle_s if self.pool.idle_s else float("inf")

    def pause(self) -> None:
        if not self.pool.warm:
            return
        asleep = sum(one.state in (State.PAUSED, State.PAUSING) for one in self._staying())
        for one in sorted(self._sleepy(), key=lambda one: (one.idle_since, one.name)):
            if asleep >= self.pool.warm:
                break
            if self._pause_at(one) <= self.now:
                self._do(Pause(one.name))
                asleep += 1

    def _pause_at(self, one: Instance) -> float:
        """Before its server ends by itself, where that is soon."""
        return one.idle_since + min(PAUSE_AFTER_S, self.pool.idle_s / 2 or PAUSE_AFTER_S)

    def _sleepy(self) -> list[Instance]:
        return [one for one in self._staying() if one.state is State.READY and not one.running]

    # ---- time

    def next_at(self, tries_from: float, pauses_from: float) -> float | None:
        times = [tries_from]
        staying = self._staying()
        surplus = sum(one.state is not State.STARTING for one in staying) > self._wanted
        asleep = sum(one.state in (State.PAUSED, State.PAUSING) for one in staying)
        for one in staying:
            if self.pool.max_age_s is not None:
                times.append(one.created_at + self.pool.max_age_s)
            if surplus and not one.running:
                times.append(self._idle_end(one))
            if asleep < self.pool.warm and one.state is State.READY and not one.running:
                times.append(max(self._pause_at(one), pauses_from))
        later = [at for at in times if self.now < at < float("inf")]
        return min(later, default=None)
