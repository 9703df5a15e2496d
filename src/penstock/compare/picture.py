"""A contender's slots over time as a small picture: a row for each slot, a bar for each call.

Colours come from the page's style, so that one picture serves a light and a dark ground.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from penstock.compare.judge import Figures, Span
from penstock.compare.stories import Story
from penstock.diagnosis.timeline.axis import seconds, ticks
from penstock.model import Host, Task

_WIDTH, _LEFT, _RIGHT = 260.0, 46.0, 6.0
_PLOT = _WIDTH - _LEFT - _RIGHT
_ROW, _BAR, _GAP, _TOP = 10.0, 8.0, 7.0, 4.0
_NAME = 9  # signs of a host's name that fit beside its rows
_NUMBER_FROM = 7.0  # the width from which a bar can hold its priority
_MARKS = 4
_SERVED = "served"


def picture(story: Story, figures: Figures, span_s: float, kinds: Mapping[str, int]) -> str:
    """`span_s` is the same for all contenders of a story, so that their lengths can be compared."""
    return _Picture(story, figures, span_s, kinds).drawn()


class _Picture:
    def __init__(self, story: Story, figures: Figures, span_s: float, kinds: Mapping[str, int]) -> None:
        self._story = story
        self._figures = figures
        self._span_s = span_s
        self._kinds = kinds
        self._tasks = {task.id: task for task in story.workload.tasks}
        self._prioritised = len({task.priority for task in story.workload.tasks}) > 1
        self._out: list[str] = []
        self._y = _TOP

    def drawn(self) -> str:
        for host in self._story.workload.plant.hosts:
            self._host(host)
        bottom = self._y - _GAP + 3
        axis = "".join(self._axis(bottom))
        height = bottom + 14
        told = self._described()
        return (
            f'<svg viewBox="0 0 {_WIDTH:g} {height:g}" role="img" aria-label="{escape(told)}">'
            f"{axis}{''.join(self._out)}{self._ideal(bottom)}</svg>"
        )

    def _host(self, host: Host) -> None:
        spans = [span for span in self._figures.spans if span.host == host.name]
        placed = list(in_rows(spans))
        rows = max([host.slots, *(row + 1 for row, _ in placed)])
        name = host.name if len(host.name) <= _NAME else host.name[: _NAME - 1] + "…"
        middle = self._y + rows * _ROW / 2 + 3
        self._out.append(f'<text x="{_LEFT - 5:g}" y="{middle:g}" class="end">{escape(name)}</text>')
        for row in range(rows):
            kind = "row" if row < host.slots else "over"
            self._rect(0.0, self._span_s, self._y + row * _ROW, kind)
        self._down(host, rows)
        for row, span in placed:
            self._bar(span, self._y + row * _ROW)
        self._y += rows * _ROW + _GAP

    def _down(self, host: Host, rows: int) -> None:
        """While it was dead: to the end of the picture, if it was not back in time."""
        death = self._story.death
        if death is None or death.host != host.name or not self._figures.down:
            return
        start, end = (*self._figures.down, self._figures.makespan_s)[:2]
        x = self._x(start)
        self._out.append(
            f'<rect class="down" x="{x:.1f}" y="{self._y - 1:g}" '
            f'width="{max(0.0, self._x(min(end, self._span_s)) - x):.1f}" height="{rows * _ROW:g}"/>'
        )

    def _bar(self, span: Span, y: float) -> None:
        task = self._tasks[span.task]
        began = span.ended if span.began is None else span.began
        self._out.append(f"<g><title>{escape(_story_of(task, span))}</title>")
        if self._x(began) - self._x(span.arrived) > 1:
            self._rect(span.arrived, began, y, "inside")
        if span.began is not None:
            fate = "" if span.fate == _SERVED else " cut"
            self._rect(began, span.ended, y, f"k{self._kinds[task.kind]}{fate}")
        if span.fate != _SERVED:
            x = self._x(span.ended)
            self._out.append(f'<path class="broken" d="M{x - 5:.1f} {y + 1:g}l6 6m0 -6l-6 6"/>')
        width = self._x(span.ended) - self._x(began)
        if self._prioritised and width >= _NUMBER_FROM:
            x = self._x(began) + width / 2
            self._out.append(f'<text class="in" x="{x:.1f}" y="{y + 6.8:g}">{task.priority}</text>')
        self._out.append("</g>")

    def _rect(self, start: float, end: float, y: float, kind: str) -> None:
        x = self._x(start)
        width = max(0.8, self._x(end) - x - (0.4 if kind.startswith("k") else 0))
        self._out.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{_BAR:g}"/>'
        )

    def _axis(self, bottom: float) -> Iterator[str]:
        for at_s, words in ticks(self._span_s, _MARKS):
            x = self._x(at_s)
            yield f'<path class="grid" d="M{x:.1f} {_TOP:g}V{bottom:g}"/>'
            side = "middle" if x < _WIDTH - 16 else "end"
            yield f'<text class="{side}" x="{x:.1f}" y="{bottom + 10:g}">{escape(words)}</text>'

    def _ideal(self, bottom: float) -> str:
        return f'<path class="ideal" d="M{self._x(self._story.ideal_s):.1f} {_TOP - 3:g}V{bottom:g}"/>'

    def _described(self) -> str:
        busy = self._figures.slot_use * 100
        return f"Slots over {seconds(self._figures.makespan_s)}, {busy:.0f} % of their time in use"

    def _x(self, at_s: float) -> float:
        return _LEFT + at_s / self._span_s * _PLOT


def _story_of(task: Task, span: Span) -> str:
    began = span.ended if span.began is None else span.began
    waited = f", {seconds(began - span.arrived)} inside the server" if began - span.arrived > 0.5 else ""
    ended = "" if span.fate == _SERVED else f", {span.fate}"
    return f"{task.id} ({task.kind}, priority {task.priority}): {began:.1f} s to {span.ended:.1f} s{waited}{ended}"


def in_rows(spans: Sequence[Span]) -> Iterator[tuple[int, Span]]:
    """Each call in the first row that is free when it comes."""
    ends: list[float] = []
    for span in sorted(spans, key=lambda one: one.arrived):
        free = next((row for row, end in enumerate(ends) if end <= span.arrived), len(ends))
        ends[free : free + 1] = [span.ended]
        yield free, span
