"""What `whatif` found, as tables for people."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from penstock.cli import render
from penstock.cli.curve import drawn
from penstock.diagnosis.whatif.figures import knee_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.diagnosis.whatif.figures import Explanation, Figures, LaneWaits, Moved, Point
    from penstock.whatif import Answer

_MOST_REASONS = 3


def show(answer: Answer) -> None:
    asked = answer.asked
    changes = "; ".join(asked.changes)
    head = (
        f"{render.one_line(answer.recording.name, 80)}: {render.counted(len(answer.recording.tasks), 'task')}"
    )
    render.say(head + (f"; {render.one_line(changes)}" if changes else ""))
    if answer.error is not None:
        took = render.seconds(answer.recording.makespan_s)
        render.say(f"the run took {took}; replay error {answer.error * 100:.1f} %")
    if asked.sweep is None or asked.changes:
        render.say()
        _print_figures(answer.before, answer.after, answer.words)
        _print_lanes(answer.before, answer.after, answer.words)
        _print_hosts(answer.before, answer.after, answer.words)
    if asked.sweep is not None:
        _print_sweep(asked.sweep[0], answer.points)
    if answer.explanation is not None:
        _print_explanation(answer.explanation)
    for words in answer.notes:
        render.note(words)


def _print_figures(before: Figures, after: Figures, words: tuple[str, str]) -> None:
    rows = [
        ("makespan", *_both(before.makespan_s, after.makespan_s)),
        ("ideal", *_both(before.ideal.seconds, after.ideal.seconds)),
        ("mean wait", *_both(before.waited_s, after.waited_s)),
    ]
    if before.cost_usd or after.cost_usd:
        cost = (f"${before.cost_usd:.4g}", f"${after.cost_usd:.4g}")
        rows.append(("cost", *cost, _change(before.cost_usd, after.cost_usd)))
    if before.failed or after.failed:
        rows.append(("failed tasks", str(before.failed), str(after.failed), ""))
    if before.left or after.left:
        rows.append(("tasks left", str(before.left), str(after.left), ""))
    render.print_table(("", *(f">{word}" for word in words), ">change"), rows)


def _both(before: float, after: float) -> tuple[str, str, str]:
    return _seconds(before), _seconds(after), _change(before, after)


def _seconds(amount: float) -> str:
    return render.seconds(amount) if isfinite(amount) else "never"


def _change(before: float, after: float) -> str:
    if not isfinite(before) or not isfinite(after) or before <= 0:
        return ""
    change = round((after - before) / before * 100)
    return "=" if change == 0 else f"{change:+d} %"


def _print_lanes(before: Figures, after: Figures, words: tuple[str, str]) -> None:
    was = {lane.lane: lane for lane in before.lanes}
    rows = []
    for lane in after.lanes:
        old = was.get(lane.lane)
        rows.append(
            (
                lane.lane,
                str(lane.tasks),
                "" if old is None else _seconds(old.mean_s),
                _seconds(lane.mean_s),
                "" if old is None else _seconds(old.p95_s),
                _seconds(lane.p95_s),
                _from_to(_reasons(old), _reasons(lane)),
            )
        )
    render.say()
    columns = ("lane", ">tasks", ">mean wait", f">{words[1]}", ">95 %", f">{words[1]}", "waited for")
    render.print_table(columns, rows, flexible="waited for", fold=True)


def _from_to(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"


def _reasons(lane: LaneWaits | None) -> str:
    return "nothing" if lane is None else _in_short(lane.reasons)


def _in_short(reasons: Mapping[str, float]) -> str:
    ordered = sorted(((s, r) for r, s in reasons.items() if s >= 0.001), reverse=True)
    if not ordered:
        return "nothing"
    total = sum(reasons.values())
    parts = [f"{reason} {render.percent(s / total)}" for s, reason in ordered[:_MOST_REASONS]]
    return ", ".join(parts) + (", …" if len(ordered) > _MOST_REASONS else "")


def _print_hosts(before: Figures, after: Figures, words: tuple[str, str]) -> None:
    was = {host.host: host for host in before.hosts}
    names = list(dict.fromkeys([*was, *(host.host for host in after.hosts)]))
    new = {host.host: host for host in after.hosts}
    rows = []
    for name in names:
        old, now = was.get(name), new.get(name)
        rows.append(
            (
                name,
                "" if old is None else str(old.slots),
                "" if now is None else str(now.slots),
                "" if old is None else render.percent(old.share),
                "" if now is None else render.percent(now.share),
                "" if old is None else str(old.attempts),
                "" if now is None else str(now.attempts),
            )
        )
    render.say()
    after_ = f">{words[1]}"
    render.print_table(("host", ">slots", after_, ">busy", after_, ">attempts", after_), rows)


# ---- sweeps


def _print_sweep(key: str, points: Sequence[Point]) -> None:
    knee = knee_of(points)
    has_cost = any(point.cost_usd for point in points)
    has_bad = any(point.failed or point.left for point in points)
    columns = [key, ">makespan", ">mean wait"]
    columns += [">cost"] * has_cost + [">failed or left"] * has_bad + [""]
    rows = []
    for point in points:
        row = [render.one_line(str(point.value), 30), _seconds(point.makespan_s), _seconds(point.waited_s)]
        row += [f"${point.cost_usd:.4g}"] * has_cost + [str(point.failed + point.left)] * has_bad
        marks = ["◀ the knee"] * (point is knee) + ["a guess"] * point.is_guess
        rows.append([*row, ", ".join(marks)])
    render.say()
    render.print_table(columns, rows)
    if len(points) > 1:
        values = [render.one_line(str(point.value), 8) for point in points]
        place = None if knee is None else list(points).index(knee)
        render.say()
        for line in drawn(values, [point.makespan_s for point in points], place):
            render.say(line)


# ---- who gains and who loses


def _print_explanation(explanation: Explanation) -> None:
    render.say()
    rows = [
        (
            group.lane,
            group.kind,
            str(group.tasks),
            str(group.sooner),
            str(group.later),
            _by(group.by_s),
        )
        for group in explanation.groups
    ]
    render.print_table(("lane", "kind", ">tasks", ">sooner", ">later", ">on average"), rows)
    for title, moved in (("gain most", explanation.gain), ("lose most", explanation.lose)):
        if moved:
            render.say()
            _print_moved(title, moved)


def _print_moved(title: str, moved: Iterable[Moved]) -> None:
    rows = [
        (one.task, one.lane, one.kind, _by(one.by_s), f"{_spent(one.before)} → {_spent(one.after)}")
        for one in moved
    ]
    render.print_table((title, "lane", "kind", ">ends", "waited for"), rows, flexible="waited for", fold=True)


def _by(seconds: float) -> str:
    if abs(seconds) < 0.001:
        return "="
    return f"{render.seconds(abs(seconds))} {'sooner' if seconds < 0 else 'later'}"


def _spent(reasons: Mapping[str, float]) -> str:
    ordered = sorted(((s, r) for r, s in reasons.items() if s >= 0.001), reverse=True)
    if not ordered:
        return "nothing"
    return ", ".join(f"{render.seconds(s)} {reason}" for s, reason in ordered[:_MOST_REASONS])
