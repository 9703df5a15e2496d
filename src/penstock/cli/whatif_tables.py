"""What `whatif` found, as tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import render
from penstock.cli.curve import drawn
from penstock.diagnosis.whatif.figures import knee_of
from penstock.diagnosis.whatif.rows import MOST_REASONS, NOT_DONE, figure_rows, host_rows, lane_rows, long

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.diagnosis.whatif.figures import Explanation, Moved, Point
    from penstock.whatif import Answer


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
        for make in (figure_rows, lane_rows, host_rows):
            columns, rows = make(answer.before, answer.after, answer.words)
            render.say()
            flexible = "waited for" if "waited for" in columns else None
            render.print_table(columns, rows, flexible=flexible, fold=flexible is not None)
    if asked.sweep is not None:
        _print_sweep(asked.sweep[0], answer.points)
    if answer.explanation is not None:
        _print_explanation(answer.explanation)
    for words in answer.notes:
        render.note(words)


# ---- sweeps


def _print_sweep(key: str, points: Sequence[Point]) -> None:
    knee = knee_of(points)
    has_cost = any(point.cost_usd for point in points)
    not_done = [name for name in NOT_DONE if any(getattr(point, name) for point in points)]
    columns = [key, ">makespan", ">mean wait"]
    columns += [">cost"] * has_cost + [f">{name}" for name in not_done] + [""]
    rows = []
    for point in points:
        row = [render.one_line(str(point.value), 30), long(point.makespan_s), long(point.waited_s)]
        row += [f"${point.cost_usd:.4g}"] * has_cost + [str(getattr(point, name)) for name in not_done]
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
    return ", ".join(f"{render.seconds(s)} {reason}" for s, reason in ordered[:MOST_REASONS])
