"""cold-starts: the first attempts on a host, or after an idle time or another model, take far longer than others.

They are compared with others of their kind and model on the same host, and with those right after them: a
trend is no cold start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import median, stdev

from penstock.diagnosis.attempts import Lived, Sort
from penstock.diagnosis.finders import ideal
from penstock.diagnosis.finders.report import called, finding, host_table, seconds
from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.finders.stalled_loop import seen_late
from penstock.diagnosis.finders.turns import Turn
from penstock.diagnosis.findings import Finding
from penstock.diagnosis.steps import joined

NAME = "cold-starts"
_LONGER = 3.0  # times as long as the others
_SURE = 5.0  # standard errors, of a mean or of one attempt
_SURE_OF_ONE = 6.0
_LEAST_SPREAD = 0.05
_MOST = 0.6  # of the suspects are longer by half as much, on a logarithmic scale
_OTHERS = 5  # warm ones to compare with
_NEXT = 5
_LOST = 0.02  # of the run
_WORTH_S = 0.1  # less is what it takes to import a module, and nobody's model
_PROGRAMS = ("python", "command")
_IDLE = (1.0, 3.0, 10.0)  # usual durations without work: after the shortest pause that shows it


@dataclass(frozen=True, slots=True)
class _Cold:
    why: str
    attempts: tuple[tuple[Lived, float], ...]  # with the seconds beyond a warm one

    @property
    def lost_s(self) -> float:
        return sum(s for _, s in self.attempts)


def find(scene: Scene, found: Sequence[Finding]) -> Iterator[Finding]:
    hosts = sorted(set(scene.by_host) - seen_late(found))
    colds = [cold for host in hosts if (cold := _of_host(scene, host)) is not None]
    if not colds or sum(c.lost_s for c in colds) < _LOST * scene.makespan_s:
        return
    hosts = sorted({a.host for cold in colds for a, _ in cold.attempts})
    lost = [(s, a.task) for cold in colds for a, s in cold.attempts]
    worst = max(colds, key=lambda c: c.lost_s)
    first = worst.attempts[0][0]
    usual = first.seconds - worst.attempts[0][1]
    # Attempts that warm up a host side by side hold up the run only once.
    spans = [(a.end - s, a.end) for cold in colds for a, s in cold.attempts]
    gain_s = max(
        sum(b - a for a, b in joined(spans_of_host))
        for host in hosts
        if (spans_of_host := [(a.end - s, a.end) for c in colds for a, s in c.attempts if a.host == host])
    )
    yield finding(
        scene,
        NAME,
        f"{len(lost)} attempt{'s' * (len(lost) > 1)} {worst.why} took far longer than the others of their kind: "
        f"task {first.task} on {called(first.host)} {seconds(first.seconds)} instead of about {seconds(usual)}",
        remedy=_remedy(scene, worst.why, first.host),
        lost=lost,
        gain_s=min(gain_s, sum(b - a for a, b in joined(spans)), _gain_s(scene, colds)),
        spans=spans,
        hosts=hosts,
        facts=[f"{called(a.host)}: {c.why}" for c in colds for a, _ in c.attempts[:1]],
    )


def _gain_s(scene: Scene, colds: Sequence[_Cold]) -> float:
    """Had all been warm."""
    beyond = {(a.task, a.number): s for cold in colds for a, s in cold.attempts}

    def took_s(turn: Turn) -> float | None:
        life = turn.life
        return life.seconds - beyond.get((life.task, life.number), 0.0) if life is not None else None

    return ideal.gain_s(scene, ideal.pieces(scene, seconds=took_s))


def _remedy(scene: Scene, why: str, host: str) -> str:
    if scene.host_type(host) in _PROGRAMS:
        return (
            f"send a small task to {called(host)} before the run: its first ones start processes and import what "
            "they use"
        )
    if "model" in why:
        return (
            f'{host_table(host)} models = ["ONE"]  # one model per host, so that none has to be loaded again'
        )
    return (
        f"keep the model of {called(host)} loaded (keep_alive of Ollama, no idle unload), and warm it up "
        "with a small call before the run"
    )


def _of_host(scene: Scene, host: str) -> _Cold | None:
    """The sort of cold start that explains the most here."""
    lives = [a for a in scene.by_host[host] if a.is_well and a.seconds > 0]
    found = []
    for why, cold in _suspects(scene, host):
        measured = _measure(scene, [a for a in lives if a.is_own], cold)
        if measured:
            found.append(_Cold(why, tuple(measured)))
    return max(found, key=lambda c: c.lost_s, default=None)


def _suspects(scene: Scene, host: str) -> Iterator[tuple[str, set[tuple[str, int]]]]:
    lives = scene.by_host[host]
    first_end = min((a.end for a in lives if a.is_well), default=scene.end)
    first = {(a.task, a.number) for a in lives if a.start < first_end}
    yield "at the beginning", first
    for times in _IDLE:
        after = _after_idle(scene, host, times * scene.usual_s)
        if after - first:
            yield "after an idle time", after | first
            yield "after an idle time", after - first
    if scene.knows("model"):
        switched = _after_switch(lives)
        if switched - first:
            yield "after another model", switched | first
            yield "after another model", switched - first


def _after_idle(scene: Scene, host: str, pause_s: float) -> set[tuple[str, int]]:
    """Those that began when the host had done nothing for so long, and beside them until one of them ended."""
    cold: set[tuple[str, int]] = set()
    busy_until, warm_at = float("-inf"), float("inf")
    for a in scene.by_host[host]:
        if a.start - busy_until >= pause_s and busy_until > float("-inf"):
            warm_at = a.end
            cold.add((a.task, a.number))
        elif a.start < warm_at < float("inf") and cold:
            cold.add((a.task, a.number))
            warm_at = min(warm_at, a.end)
        busy_until = max(busy_until, a.end)
    return cold


def _after_switch(lives: Iterable[Lived]) -> set[tuple[str, int]]:
    switched: set[tuple[str, int]] = set()
    last: str | None = None
    for a in lives:
        model = a.sort[1]
        if model is not None:
            if last is not None and model != last:
                switched.add((a.task, a.number))
            last = model
    return switched


def _measure(scene: Scene, lives: Sequence[Lived], cold: set[tuple[str, int]]) -> list[tuple[Lived, float]]:
    """The cold ones with their excess, if they are longer beyond doubt."""
    slows = bool(lives) and scene.curves[lives[0].host].slows
    sorts: dict[Sort, list[Lived]] = defaultdict(list)
    for a in lives:
        sorts[a.sort].append(a)
    excess: list[tuple[Lived, float, float, float]] = []  # attempt, log ratio, spread, seconds
    warm_count = 0
    for members in sorts.values():
        work = {
            (a.task, a.number): (scene.alone_s[a.task, a.number] if slows else a.seconds) for a in members
        }
        warm = [
            log(s) for a in members if (a.task, a.number) not in cold and (s := work[a.task, a.number]) > 0
        ]
        if len(warm) < _OTHERS:
            continue
        warm_count += len(warm)
        centre = median(warm)
        # With few to compare with, one that is far off is no reason to call the others alike.
        spread = max(1.4826 * median(abs(y - centre) for y in warm), 0.8 * stdev(warm), _LEAST_SPREAD)
        ordered = sorted(members, key=lambda a: a.start)
        for i, a in enumerate(ordered):
            seconds_ = work[a.task, a.number]
            if (a.task, a.number) not in cold or seconds_ <= 0:
                continue
            after = [
                log(work[b.task, b.number])
                for b in ordered[i + 1 : i + 1 + 3 * _NEXT]
                if (b.task, b.number) not in cold and work[b.task, b.number] > 0
            ][:_NEXT]
            level = max(centre, median(after)) if after else centre
            excess.append((a, log(seconds_) - level, spread, a.seconds * (1 - exp(level) / seconds_)))
    if not excess or not _is_sure([(ratio, spread) for _, ratio, spread, _ in excess], warm_count):
        return []
    shown = [(a, s) for a, ratio, _, s in excess if ratio > log(_LONGER) / 2 and s >= _WORTH_S]
    if len(shown) < _MOST * len(excess):
        return []  # whatever had to be loaded, all that came meanwhile would have waited for it
    return sorted(shown, key=lambda item: (-item[1], item[0].task))


def _is_sure(ratios: Sequence[tuple[float, float]], warm: int) -> bool:
    middle = median(r for r, _ in ratios)
    if middle < log(_LONGER):
        return False
    spread = max(s for _, s in ratios)
    error = spread * sqrt(1 / len(ratios) + 1 / warm)
    return middle >= (_SURE_OF_ONE if len(ratios) == 1 else _SURE) * error
