"""retry-storm: a large part of the attempts are repeats that fail again, and quickly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

from penstock.diagnosis.attempts import Lived
from penstock.diagnosis.finders import ideal
from penstock.diagnosis.finders.host_down import found_down
from penstock.diagnosis.finders.report import called, finding, host_table, seconds
from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.finders.turns import Turn
from penstock.diagnosis.findings import Finding
from penstock.model import Verdict

NAME = "retry-storm"
_SOME = 8  # repeats that failed
_SHARE = 0.25  # of the attempts of a host or kind
_AGAIN = 0.5  # of the repeats fail again
_QUICK = 0.5  # of what an attempt takes that ends well


def find(scene: Scene, found: Sequence[Finding]) -> Iterator[Finding]:
    """Of the host, or the kind, in which the most was lost: a storm is told once."""
    groups: dict[tuple[str, str], list[Lived]] = defaultdict(list)
    down = found_down(found)
    for a in scene.lives:
        if a.has_ended and not (a.host in down and a.verdict is Verdict.HOST):
            groups["host", a.host].append(a)
            groups["kind", a.sort[0]].append(a)
    storms = [(name, lives) for name, lives in sorted(groups.items()) if _is_storm(scene, lives)]
    if not storms:
        return
    (what, name), lives = max(storms, key=lambda item: (_share(item[1]), len(item[1])))
    where = called(name) if what == "host" else f"kind {name}"
    failures = [a for a in lives if a.has_failed]
    lost = [(a.seconds, a.task) for a in failures] + list(_delays(scene, lives))
    hosts = {a.host for a in failures}
    repeats = [a for a in lives if a.number > 1]
    table = host_table(next(iter(hosts))) if len(hosts) == 1 else "[hosts.NAME]"
    yield finding(
        scene,
        NAME,
        f"{len(repeats)} of {len(lives)} attempts on {where} were repeats, of which "
        f"{sum(a.has_failed for a in repeats)} failed again after about "
        f"{seconds(median(a.seconds for a in failures))}",
        remedy=f"mend what fails; until then {table} breaker = {{ failures = 3, reset_s = 30 }}, "
        f"or [retry] base_s = {max(2.0, 2 * median(a.seconds for a in failures)):.0f}, spares the slots",
        lost=lost,
        gain_s=_gain_s(scene.presumed, {(a.task, a.number) for a in failures}),
        spans=[(a.start, a.end) for a in failures],
        hosts=hosts,
        facts=[
            f"{len(failures)} failed attempts",
            f"{seconds(sum(a.seconds for a in failures))} of slots spent on them",
        ],
    )


def _is_storm(scene: Scene, lives: Sequence[Lived]) -> bool:
    repeats = [a for a in lives if a.number > 1]
    failed = [a for a in repeats if a.has_failed]
    if len(failed) < _SOME or len(repeats) < _SHARE * len(lives) or len(failed) < _AGAIN * len(repeats):
        return False
    sorts = {a.sort for a in failed}
    well = [a.seconds for a in scene.lives if a.is_well and a.sort in sorts]
    return not well or median(a.seconds for a in failed) <= _QUICK * median(well)


def _share(lives: Sequence[Lived]) -> float:
    return sum(a.number > 1 and a.has_failed for a in lives) / len(lives)


def _delays(scene: Scene, lives: Sequence[Lived]) -> Iterator[tuple[float, str]]:
    """The time from a failure to the next try."""
    ends: dict[tuple[str, int], float] = {(a.task, a.number): a.end for a in scene.lives if a.has_failed}
    for a in lives:
        before = ends.get((a.task, a.number - 1))
        if before is not None and a.start > before:
            yield a.start - before, a.task


def _gain_s(scene: Scene, failures: set[tuple[str, int]]) -> float:
    """Had each of these tasks ended well the first time."""
    first: dict[str, float] = {}
    well: dict[str, float] = {}
    for turn in scene.turns:
        first.setdefault(turn.task.id, turn.since)
        if turn.life is not None and turn.life.is_well:
            well[turn.task.id] = turn.life.seconds
    struck = {task for task, _ in failures}

    def took_s(turn: Turn) -> float | None:
        life = turn.life
        if life is None or life.task not in struck:
            return life.seconds if life is not None else None
        if life.number > 1:
            return None
        return well.get(life.task, scene.usual_of(life))

    return ideal.gain_s(scene, ideal.pieces(scene, seconds=took_s))
