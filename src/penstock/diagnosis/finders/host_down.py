"""host-down: tasks waited for hosts that were down, or attempts were lost because their host failed.

Of waits only our own record tells. That a host is to blame for an attempt, a log may tell as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from penstock.diagnosis.attempts import Lived
from penstock.diagnosis.finders import ideal
from penstock.diagnosis.finders.report import called, finding, host_table, seconds
from penstock.diagnosis.finders.scene import Scene
from penstock.diagnosis.finders.turns import Turn
from penstock.diagnosis.findings import Finding
from penstock.diagnosis.questions import is_step
from penstock.diagnosis.steps import Span, Steps, joined
from penstock.model import HOST_DOWN, State, Task, Verdict
from penstock.scheduling.messages import HostChange

NAME = "host-down"
REASON = "host-down"
_OF_RUN = 0.1  # in which somebody waited for such a host: less is a blip
_OF_ATTEMPTS = 0.1  # of their seconds, lost on one host
_SOME = 3  # attempts lost there
_QUICK = 0.5  # of what an attempt takes that ends well
_GAIN = 0.05  # of the run, where nobody waited
_DOWN = frozenset({"down", "probing"})  # states of a host in which it is given nothing
# What comes between two waits for such a host.
_BETWEEN = frozenset({"scheduled", "paused", "dispatcher-down"})
_ERROR_CHARS = 160


class _Wait(NamedTuple):
    task: Task
    span: Span
    hosts: tuple[str, ...]  # that were down, of those that serve it
    detail: str


def find(scene: Scene, found: Sequence[Finding]) -> Iterator[Finding]:
    """One for all hosts: a run that lost several has as a rule lost them together."""
    waits = _waits(scene)
    is_endless = _wait_still(scene, waits)
    if not is_endless and _length(_stretches(scene, waits)) < _OF_RUN * scene.makespan_s:
        waits = []
    faults = _faults(scene)
    failing = {host for host, lost in faults.items() if _is_much(scene, lost)}
    hosts = failing | {host for wait in waits for host in wait.hosts}
    if not waits and not hosts:
        return
    lost = [life for host in sorted(hosts) for life in faults.get(host, ())]
    if is_endless:
        gain_s = _length(_stretches(scene, waits))
    else:
        gain_s = _gain_s(scene, waits, hosts, {(life.task, life.number) for life in lost})
    if not waits and gain_s < _GAIN * scene.makespan_s:
        return
    yield finding(
        scene,
        NAME,
        _cause(scene, waits, hosts, lost),
        remedy=_remedy(scene, waits, hosts, lost),
        lost=[(b - a, w.task.id) for w in waits for a, b in [w.span]] + [(a.seconds, a.task) for a in lost],
        gain_s=gain_s,
        is_endless=is_endless,
        spans=[w.span for w in waits] + [(a.start, a.end) for a in lost],
        hosts=hosts,
        facts=_facts(scene, waits, hosts, lost),
    )


def found_down(found: Sequence[Finding]) -> set[str]:
    """Hosts that were found to be down: that attempts fail there again is what a breaker's trials are."""
    return {host for f in found if f.name == NAME for host in f.evidence.hosts}


# ---- what was lost


def _waits(scene: Scene) -> list[_Wait]:
    spans = _down_spans(scene)
    tasks = {record.task.id: record.task for record in scene.recording.tasks}
    return [
        _Wait(tasks[name], (w.start, w.end), _to_blame(scene, tasks[name], (w.start, w.end), spans), w.detail)
        for name, waits in sorted(scene.recording.waits.items())
        for w in waits
        if w.reason == REASON and w.end > w.start and name in tasks
    ]


def _wait_still(scene: Scene, waits: Sequence[_Wait]) -> bool:
    """Whether tasks wait for such hosts where the record breaks off, if only for the next try there."""
    last = {wait.task.id: wait for wait in waits}
    fine = {c.host for c in _last_changes(scene) if c.state not in HOST_DOWN and c.fault is None}
    for record in scene.recording.tasks:
        wait = last.get(record.task.id)
        if wait is None or record.state is not State.QUEUED or record.ended_at is not None:
            continue
        since = [w.reason for w in scene.recording.waits[record.task.id] if w.start >= wait.span[1]]
        if all(reason in _BETWEEN for reason in since) and fine.isdisjoint(wait.hosts):
            return True
    return False


def _last_changes(scene: Scene) -> Collection[HostChange]:
    changes = (c for c in scene.recording.changes if isinstance(c, HostChange) and c.at <= scene.end)
    return {change.host: change for change in sorted(changes, key=lambda c: c.at)}.values()


def _down_spans(scene: Scene) -> Mapping[str, Sequence[Span]]:
    spans: dict[str, list[Span]] = defaultdict(list)
    since: dict[str, float] = {}
    for change in sorted(
        (c for c in scene.recording.changes if isinstance(c, HostChange)), key=lambda c: c.at
    ):
        if change.state in _DOWN:
            since.setdefault(change.host, change.at)
        elif change.host in since:
            spans[change.host].append((since.pop(change.host), change.at))
    for host, at in since.items():
        spans[host].append((at, max(at, scene.end)))
    return spans


def _to_blame(scene: Scene, task: Task, wait: Span, spans: Mapping[str, Sequence[Span]]) -> tuple[str, ...]:
    """Those of its hosts that are known to have been down meanwhile; where nothing is known, all of them."""
    plant = scene.recording.plant
    serving = [h.name for h in plant.fitting(task)] if plant else []
    down = [h for h in serving if any(a < wait[1] and b > wait[0] for a, b in spans.get(h, ()))]
    if down or serving:
        return tuple(down or serving)
    return (task.host,) if task.host else ()


def _faults(scene: Scene) -> Mapping[str, Sequence[Lived]]:
    """Attempts of this run that their host is to blame for."""
    lost: dict[str, list[Lived]] = defaultdict(list)
    for life in scene.lives:
        if life.has_ended and life.verdict is Verdict.HOST:
            lost[life.host].append(life)
    return lost


def _is_much(scene: Scene, lost: Sequence[Lived]) -> bool:
    """Quick failures cost little: where they are many, they are a storm of repeats."""
    if len(lost) < _SOME or median(a.seconds for a in lost) <= _QUICK * scene.usual_s:
        return False
    return sum(a.seconds for a in lost) >= _OF_ATTEMPTS * sum(a.seconds for a in scene.lives)


def _stretches(scene: Scene, waits: Sequence[_Wait]) -> list[Span]:
    return joined((wait.span for wait in waits), scene.near_s)


def _length(spans: Sequence[Span]) -> float:
    return sum(b - a for a, b in spans)


# ---- what it cost


def _gain_s(scene: Scene, waits: Sequence[_Wait], hosts: set[str], lost: set[tuple[str, int]]) -> float:
    """Had these hosts been up: nobody waits for them, and whatever was lost there is done the first time."""
    since = _first(scene, waits, lost)
    kept = ideal.pieces(
        scene,
        seconds=lambda t: None if t.life is None or (t.life.task, t.life.number) in lost else t.life.seconds,
        since=lambda t: since.get((t.task.id, t.number), t.since),
    )
    waited = Steps(_stretches(scene, waits))
    steps = {record.task.id for record in scene.recording.tasks if is_step(record.task)}
    work = [_sooner(piece, waited) if piece.after and piece.task in steps else piece for piece in kept]
    slots = {
        h: scene.slots(h) or (scene.plant_hosts[h].slots if h in scene.plant_hosts else 1) for h in hosts
    }
    return ideal.gain_s(scene, [*work, *_never_done(scene, waits, lost, {p.task for p in kept})], slots=slots)


def _first(
    scene: Scene, waits: Sequence[_Wait], lost: set[tuple[str, int]]
) -> Mapping[tuple[str, int], float]:
    """By attempt: from when on it could have been made, had its host been up."""
    held: dict[str, list[float]] = defaultdict(list)
    for wait in waits:
        held[wait.task.id].append(wait.span[0])
    by_task: dict[str, list[Turn]] = defaultdict(list)
    for turn in scene.turns:
        by_task[turn.task.id].append(turn)
        if (turn.task.id, turn.number) in lost:
            held[turn.task.id].append(turn.since)
    first: dict[tuple[str, int], float] = {}
    for task, begins in held.items():
        done = float("-inf")
        for turn in sorted(by_task[task], key=lambda t: t.number):
            if (task, turn.number) not in lost:
                first[task, turn.number] = min(
                    [turn.since, *(at for at in begins if done <= at < turn.start)]
                )
                done = turn.life.end if turn.life is not None else turn.start
    return first


def _sooner(piece: ideal.Piece, waited: Steps) -> ideal.Piece:
    """A step of a question comes when the question has waited long enough for those before it."""
    return piece._replace(lag_s=max(0.0, piece.lag_s - waited.area(piece.since - piece.lag_s, piece.since)))


def _never_done(
    scene: Scene, waits: Sequence[_Wait], lost: set[tuple[str, int]], done: set[str]
) -> Iterator[ideal.Piece]:
    """What was given up, or still waits, would have taken as long as others of its kind."""
    ran = {life.task: life.host for life in scene.lives if (life.task, life.number) in lost}
    told = {name for name, _ in lost} | {w.task.id for w in waits}
    held = {wait.task.id: wait for wait in reversed(waits)}
    for record in scene.recording.tasks:
        task = record.task
        if task.id in done or task.id not in told:
            continue
        hosts = held[task.id].hosts if task.id in held else (ran[task.id],)
        since = held[task.id].span[0] if task.id in held else task.queued_at
        if hosts:
            took_s = scene.usual_of_kind(task.kind)
            yield ideal.Piece(since, took_s, hosts[0], hosts, task.lane, (task.kind, task.model), task.id)


# ---- how it is told


def _cause(scene: Scene, waits: Sequence[_Wait], hosts: set[str], lost: Sequence[Lived]) -> str:
    error = _error(scene, waits, hosts)
    why = f": {error}" if error else ""
    if not waits:
        tasks = len({a.task for a in lost})
        return (
            f"{len(lost)} attempts of {tasks} task{'s' * (tasks != 1)} were lost on {_named(hosts)}, "
            f"{seconds(sum(a.seconds for a in lost))} of work{why}"
        )
    tasks = len({wait.task.id for wait in waits})
    waited_s = _length(_stretches(scene, waits))
    which = (
        f"{_named(hosts)}, which {'was' if len(hosts) == 1 else 'were'} down"
        if hosts
        else "a host that is not there"
    )
    return (
        f"{tasks} task{'s' * (tasks != 1)} waited for {which}, for {seconds(waited_s)} of the run's "
        f"{seconds(scene.makespan_s)}{why}"
    )


def _named(hosts: set[str]) -> str:
    if len(hosts) == 1:
        return called(next(iter(hosts)))
    *most, last = sorted(hosts)
    return f"hosts {', '.join(most)} and {last}"


def _error(scene: Scene, waits: Sequence[_Wait], hosts: set[str]) -> str:
    """The last that is known of what was wrong."""
    told = [
        (c.at, c.detail)
        for c in scene.recording.changes
        if isinstance(c, HostChange) and c.host in hosts and c.state == "down" and c.at <= scene.end
    ]
    told += [
        (a.ended_at, a.error or "")
        for a in scene.recording.attempts
        if a.host in hosts and a.verdict is Verdict.HOST and a.ended_at is not None
    ]
    noted = [(w.span[0], w.detail) for w in waits if w.detail not in hosts]
    said = max((one for one in told if one[1].strip()), default=max(noted, default=(0.0, "")))[1].strip()
    line = said.splitlines()[0] if said else ""
    for host in hosts if len(hosts) == 1 else ():  # who it is of is said before
        line = line.removeprefix(f"{host}: ")
    return line if len(line) <= _ERROR_CHARS else line[: _ERROR_CHARS - 1] + "…"


def _facts(scene: Scene, waits: Sequence[_Wait], hosts: set[str], lost: Sequence[Lived]) -> Iterator[str]:
    if waits:
        yield f"{_length(_stretches(scene, waits)) / scene.makespan_s:.0%} of the run"
    each = {h: seconds(_length(_stretches(scene, [w for w in waits if h in w.hosts]))) for h in sorted(hosts)}
    if len(set(each.values())) > 1:
        yield from (f"{host}: {waited}" for host, waited in each.items())
    if lost:
        yield f"{len(lost)} attempt{'s' * (len(lost) != 1)} lost there, {seconds(sum(a.seconds for a in lost))}"


def _remedy(scene: Scene, waits: Sequence[_Wait], hosts: set[str], lost: Sequence[Lived]) -> str:
    kinds = sorted({wait.task.kind for wait in waits} | {life.sort[0] for life in lost} - {""})
    them = "it" if len(hosts) == 1 else "them"
    first = f"bring {them} back: penstock check tries every host" if hosts else "add a host that serves it"
    parts = [first, f"a second host, or one with fallback, that serves {', '.join(kinds[:3])}"]
    worst = max(sorted(hosts), key=lambda h: sum(a.seconds for a in lost if a.host == h), default="")
    lost_s = sum(a.seconds for a in lost)
    if lost_s > _length(_stretches(scene, waits)):
        parts.append(
            f"{host_table(worst)} breaker = {{ failures = 1 }} and a smaller timeout_s: "
            f"an attempt was given up after {seconds(median(a.seconds for a in lost))}"
        )
    elif pause_s := _pause_s(scene, waits, hosts, lost):
        parts.append(f"{host_table(worst)} breaker = {{ reset_s = {max(0.1, pause_s / 4):.2g} }}")
    return "; or ".join(parts)


def _pause_s(scene: Scene, waits: Sequence[_Wait], hosts: set[str], lost: Sequence[Lived]) -> float | None:
    """The breaker's pause, where the first attempt after it went well: then the pause itself was the cost."""
    if not waits or len(hosts) != 1:
        return None
    (host,) = hosts
    begin = min(wait.span[0] for wait in waits)
    end = max(wait.span[1] for wait in waits)
    known = scene.plant_hosts.get(host)
    tripped = any(a.end <= begin + scene.near_s for a in lost)
    again = [a for a in scene.by_host.get(host, ()) if a.is_own and a.start >= begin]
    if known is None or not tripped or not again or not again[0].is_well:
        return None
    return known.breaker.reset_s if end - begin <= 2 * known.breaker.reset_s else None
