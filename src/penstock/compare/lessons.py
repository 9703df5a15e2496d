"""What a workload shows, said only where the figures of this run say it too.

A lesson is a clause and a test of it. One that fails is told as not seen, and where others used the machine, or it
has too few cores, that is said instead: such figures tell of the machine and not of the ways. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from penstock.compare.contenders import LEGACY, OURS
from penstock.compare.judge import Figures
from penstock.compare.machine import Machine
from penstock.compare.stories import Story

CLOSE = 1.07  # times the best: no reader should care for less
_ABOUT = 1.25  # times: the same, for a call of some seconds and all that is around it
_MORE_MEMORY = 2.0
_QUIET = 0.25  # share of the cores that others may use
_THREADS, _PROCESSES, _ASYNCIO = "thread_pool", "process_pool", "asyncio_limits"
_BOUND_EARLY = (_THREADS, _PROCESSES, _ASYNCIO)
_IN_THREADS = (LEGACY, _THREADS, _ASYNCIO)

Played: TypeAlias = Mapping[str, Figures]


@dataclass(frozen=True, slots=True)
class Lesson:
    clause: str
    holds: Callable[[Played], bool]
    needs: Sequence[str]  # it says something of all these that were played
    least: int  # so many of them must have been
    hero: str | None = None  # and this one too


def lessons(story: Story, figures: Iterable[Figures], machine: Machine) -> str:
    """In whole sentences; nothing of ways that were not played, or broke."""
    played = {one.contender: one for one in figures if one.error is None}
    told = []
    for lesson in _DEATH if story.death is not None else _OF.get(story.name, ()):
        about = {name: played[name] for name in lesson.needs if name in played}
        if len(about) >= lesson.least and lesson.hero in (None, *about):
            told.append(_told(lesson, about, story, machine))
    return " ".join(told)


def _told(lesson: Lesson, about: Played, story: Story, machine: Machine) -> str:
    if lesson.holds(about):
        return f"{lesson.clause[0].upper()}{lesson.clause[1:]}."
    cores = f"{machine.cores} core{'s' if machine.cores > 1 else ''}"
    if story.cpu_bound and machine.cores < sum(host.slots for host in story.workload.plant.hosts):
        return f"A machine with {cores} cannot tell whether {lesson.clause}."
    others = max(one.others_cores for one in about.values())
    if others > machine.cores * _QUIET:
        return (
            f"The machine was too busy to tell whether {lesson.clause}: other work used {others:.1f} of {cores} "
            f"meanwhile, and its load was {machine.load:.1f} at the start."
        )
    return f"Not so in this run: {lesson.clause}."


def _all(names: Sequence[str], clause: str, holds: Callable[[Figures], bool]) -> Lesson:
    return Lesson(clause, lambda played: all(map(holds, played.values())), names, 1)


def _sooner(one: str, others: Sequence[str], clause: str) -> Lesson:
    """By more than a reader should overlook, than each of the others that were played."""

    def holds(played: Played) -> bool:
        rest = [played[name].makespan_s for name in others if name in played]
        return played[one].makespan_s * CLOSE < min(rest)

    return Lesson(clause, holds, (one, *others), 2, one)


def _left_idle(played: Played) -> bool:
    best = min(one.makespan_s for name, one in played.items() if name != LEGACY)
    return played[LEGACY].makespan_s > best * CLOSE


def _costs_memory_only(played: Played) -> bool:
    processes, threads = played[_PROCESSES], played[_THREADS]
    more = processes.peak_memory_mb > threads.peak_memory_mb * _MORE_MEMORY
    return more and processes.makespan_s * CLOSE > threads.makespan_s


_SLOTS = (
    Lesson("one thread per kind left slots idle that Penstock filled", _left_idle, (LEGACY, OURS), 2),
    Lesson(
        "a thread pool as large as the slots did as well as Penstock",
        lambda played: played[_THREADS].makespan_s <= played[OURS].makespan_s * CLOSE,
        (_THREADS, OURS),
        2,
    ),
)
_DEATH = (
    _all(
        _BOUND_EARLY,
        "in the pools and behind the semaphores every task learned by itself that its host was dead",
        lambda one: one.failed_calls > 0 and not one.noticed,
    ),
    _all(
        (OURS,),
        "Penstock took the host out, kept its tasks waiting as host-down, and did all of them when it was back",
        lambda one: "host-down" in one.noticed and one.all_done,
    ),
)
_OF: Mapping[str, Sequence[Lesson]] = {
    "six": _SLOTS,
    "forty": _SLOTS,
    "fifty": _SLOTS,
    "urgent": (
        _all(
            _BOUND_EARLY,
            "pools and semaphores, which are first come, first served, started ordinary tasks before urgent ones "
            "that waited",
            lambda one: one.inversions > 0,
        ),
        _all((OURS,), "Penstock passed over no urgent task", lambda one: one.inversions == 0),
        _sooner(
            OURS,
            (_THREADS,),
            "Penstock, which gives a task to a host when a slot is free, was sooner through than a thread pool",
        ),
    ),
    "council": (
        _all(
            (LEGACY, _THREADS, _ASYNCIO),
            "six calls took about the time of one, with threads too",
            lambda one: one.to_ideal <= _ABOUT,
        ),
        Lesson("processes cost memory and brought nothing", _costs_memory_only, (_PROCESSES, _THREADS), 2),
    ),
    "one-at-a-time": (
        _all(
            (LEGACY, *_BOUND_EARLY, OURS),
            "in every way the calls waited inside the server, which is the queue",
            lambda one: one.inside > 0,
        ),
    ),
    "cpu": (
        _sooner(
            _PROCESSES,
            _IN_THREADS,
            "processes won, for they use a core each, and threads that compute share one",
        ),
        _sooner(
            OURS,
            _IN_THREADS,
            'Penstock, whose host has isolation = "process", was sooner through than the threads',
        ),
    ),
}
