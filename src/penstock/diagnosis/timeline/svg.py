"""A timeline as a picture for reports: one SVG file that needs nothing else and reads on paper.

Up to `MOST_ROWS` tasks have a row each. Of more, several in order of arrival share a row, which shows what most
of them did at each moment, paler where only some of them were there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from xml.sax.saxutils import escape, quoteattr

from penstock.diagnosis.timeline.axis import seconds, ticks
from penstock.diagnosis.timeline.bars import FAILED, Bar, HostUse, Sort, Steps, Timeline
from penstock.diagnosis.timeline.folding import Cell, fold
from penstock.diagnosis.timeline.outliers import RULE
from penstock.diagnosis.timeline.palette import host_looks, wait_looks

GENERATOR = "<!-- penstock timeline -->"  # by which a picture of ours is known
MOST_ROWS = 100
_COLUMNS = 240  # of a row that several tasks share
_WIDTH = 1000
_LEFT, _RIGHT = 150, 16
_PLOT = _WIDTH - _LEFT - _RIGHT
_ROW, _CHART, _GAP = 11, 34, 12
_THIN = 3  # of a question, which only waits for its steps
_LEGEND_LINE = 16
_NAME = 22  # signs of a name
_SHADES = 8
_MOST_HOSTS = 16
_MOST_REASONS = 24

# Lines of a tile of 6 × 6, drawn over a paler ground of the same colour.
_STROKES = {
    "rising": '<path d="M0 6L6 0" stroke-width="2"/>',
    "rising-thin": '<path d="M0 6L6 0" stroke-width="1"/>',
    "falling": '<path d="M0 0L6 6" stroke-width="2"/>',
    "falling-thin": '<path d="M0 0L6 6" stroke-width="1"/>',
    "crossed": '<path d="M0 0L6 6M0 6L6 0" stroke-width="1.2"/>',
    "level": '<path d="M0 1.5H6M0 4.5H6" stroke-width="1.3"/>',
    "upright": '<path d="M1.5 0V6M4.5 0V6" stroke-width="1.3"/>',
    "plus": '<path d="M3 1V5M1 3H5" stroke-width="1.2"/>',
    "dots": '<path d="M1 1.5H3M4 4.5H6" stroke-width="2"/>',
    "checked": '<path d="M0 1.5H3M3 4.5H6" stroke-width="3"/>',
}
_STYLE = (
    "text{font:10px system-ui,sans-serif;fill:#222}.h{font-size:15px;font-weight:600}"
    ".s{fill:#555}.e{text-anchor:end}.g{stroke:#ccc;stroke-width:.5}.o{fill:#b2182b}"
    ".f{stroke:#b2182b;stroke-width:1.6}.a{fill:none;stroke:#222;stroke-dasharray:3 2}"
)


def picture(timeline: Timeline) -> str:
    """The whole file."""
    return _Picture(timeline).drawn()


class _Picture:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._looks = host_looks(timeline.host_names)
        self._waits = wait_looks(timeline.reasons)
        self._patterned = {reason: f"w{place}" for place, reason in enumerate(self._waits)}
        self._out: list[str] = []
        self._y = 0.0

    def drawn(self) -> str:
        timeline = self._timeline
        many = len(timeline.bars) > MOST_ROWS
        title = f"run {timeline.run}: {_count(len(timeline.bars), 'task')} in {seconds(timeline.seconds)}"
        self._y = 24
        self._text(_LEFT, self._y, title, "h")
        told = self._subtitle(many)
        self._y += 15
        self._text(_LEFT, self._y, told, "s")
        self._y += 14
        top = self._y
        (self._shared_rows if many else self._own_rows)()
        self._y += _GAP
        for use in timeline.hosts[:_MOST_HOSTS]:
            self._host(use)
        if len(timeline.hosts) > _MOST_HOSTS:
            self._text(_LEFT - 6, self._y + 8, f"and {len(timeline.hosts) - _MOST_HOSTS} more hosts", "e s")
            self._y += 14
        self._queue()
        axis = self._axis(top)
        self._legend()
        head = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {self._y:g}" '
            f'width="{_WIDTH}" height="{self._y:g}" role="img" aria-labelledby="title desc">',
            GENERATOR,
            f'<title id="title">{_safe(title)}</title>',
            f'<desc id="desc">{_safe(self._description(told))}</desc>',
            f"<style>{_STYLE}</style>",
            f"<defs>{''.join(self._patterns())}</defs>",
            f'<rect width="{_WIDTH}" height="{self._y:g}" fill="#fff"/>',
            *axis,
        ]
        return "\n".join([*head, *self._out, "</svg>", ""])

    # ---- words

    def _subtitle(self, many: bool) -> str:
        parts = []
        if many:
            share = -(-len(self._timeline.bars) // MOST_ROWS)
            parts.append(f"{share} tasks share a row, which shows what most of them did")
        if self._timeline.outliers:
            parts.append(f"{_count(len(self._timeline.outliers), 'outlier')} marked !")
        return "; ".join(parts) or "one row for each task, in order of arrival"

    def _description(self, told: str) -> str:
        waits = ", ".join(
            f"{reason or 'no reason told'} {seconds(spent)}"
            for reason, spent in self._timeline.reasons.items()
        )
        hosts = ", ".join(f"{use.host} at most {_slots(use.peak)}" for use in self._timeline.hosts)
        rule = f" {RULE}." if self._timeline.outliers else ""
        return f"{told}. Waited, by all tasks together: {waits or 'not at all'}. In use: {hosts}.{rule}"

    # ---- rows

    def _own_rows(self) -> None:
        for bar in self._timeline.bars:
            self._name(bar.name, bool(bar.outliers))
            self._out.append(f"<g><title>{_safe(_story(bar))}</title>")
            for piece in bar.pieces:
                if piece.sort is not Sort.RESTING:
                    x, end = self._x(piece.start), self._x(piece.end)
                    thin = bar.is_question and piece.sort is Sort.RUNNING
                    fill = self._fill(piece.sort, piece.what)
                    self._rect(x, max(0.6, end - x), fill, height=_THIN if thin else _ROW - 2)
                if piece.verdict in FAILED:
                    x, y = self._x(piece.end), self._y
                    self._out.append(
                        f'<path class="f" d="M{x - 5:.1f} {y + 2:g}l5 6m0 -6l-5 6"/>'  # a cross at its end
                    )
            self._out.append("</g>")
            self._y += _ROW

    def _shared_rows(self) -> None:
        bars = self._timeline.bars
        share = -(-len(bars) // MOST_ROWS)
        width = _PLOT / _COLUMNS
        for first in range(0, len(bars), share):
            row = bars[first : first + share]
            self._name(row[0].name, any(bar.outliers for bar in row))
            cells = fold(row, self._timeline.begin, self._timeline.end, _COLUMNS)
            for look, group in groupby(enumerate(cells), key=lambda item: _shade(item[1])):
                places = [place for place, _ in group]
                if look is not None:
                    fill = self._fill(look[0], look[1])
                    x = _LEFT + places[0] * width
                    self._rect(x, len(places) * width, fill, look[2] / _SHADES)
            self._y += _ROW

    def _name(self, name: str, marked: bool) -> None:
        self._text(
            _LEFT - 6, self._y + 8, f"! {_cut(name)}" if marked else _cut(name), "e o" if marked else "e"
        )

    def _rect(
        self, x: float, width: float, fill: str, opacity: float = 1.0, height: float = _ROW - 2
    ) -> None:
        pale = "" if opacity == 1.0 else f' opacity="{opacity:g}"'
        self._out.append(
            f'<rect x="{x:.1f}" y="{self._y + (_ROW - 2 - height) / 2:g}" width="{width:.1f}" '
            f'height="{height:g}" fill="{fill}"{pale}/>'
        )

    # ---- underneath

    def _host(self, use: HostUse) -> None:
        most = max([1.0, use.peak, *(value for _, value in use.available)])
        self._text(_LEFT - 6, self._y + 13, _cut(use.host), "e")
        slots = f"{use.peak:g} of {_slots(most)}" if use.available else f"at most {_slots(use.peak)}"
        self._text(_LEFT - 6, self._y + 26, slots, "e s")
        both = _added(use.used, use.others)
        if use.others and any(value for _, value in use.others):
            self._area(both, most, "#bbb")
        self._area(use.used, most, self._fill(Sort.RUNNING, use.host))
        if use.available:
            self._out.append(f'<path class="a" d="{self._path(use.available, most)}"/>')
        self._y += _CHART + 6

    def _queue(self) -> None:
        deepest = max([1.0, *(value for _, value in self._timeline.queue)])
        self._text(_LEFT - 6, self._y + 13, "waiting", "e")
        self._text(_LEFT - 6, self._y + 26, f"at most {deepest:g}", "e s")
        self._area(self._timeline.queue, deepest, "#888")
        self._y += _CHART + 6

    def _area(self, steps: Steps, most: float, fill: str) -> None:
        floor = self._y + _CHART
        path = self._path(steps, most)
        if path:
            closed = f"{path}V{floor:g}H{self._x(steps[0][0]):.1f}Z"
            self._out.append(f'<path d="{closed}" fill="{fill}"/>')

    def _path(self, steps: Steps, most: float) -> str:
        """Steps as a line. Those of one pixel are one: the highest, or thousands would make the file huge."""
        drawn: list[tuple[float, float]] = []
        for at, value in steps:
            x = round(self._x(at), 1)
            if drawn and drawn[-1][0] == x:
                drawn[-1] = (x, max(drawn[-1][1], value)) if at != self._timeline.end else drawn[-1]
            else:
                drawn.append((x, value))
        places = [(x, self._y + _CHART - value / most * _CHART) for x, value in drawn]
        if not places:
            return ""
        lines = "".join(f"H{x:.1f}V{y:.1f}" for x, y in places[1:])
        return f"M{places[0][0]:.1f} {places[0][1]:.1f}{lines}H{_LEFT + _PLOT}"

    def _axis(self, top: float) -> list[str]:
        bottom = self._y
        lines = []
        for at, words in ticks(self._timeline.seconds, 10):
            x = self._x(self._timeline.begin + at)
            lines.append(f'<path class="g" d="M{x:.1f} {top:g}V{bottom:g}"/>')
            lines.append(f'<text x="{x:.1f}" y="{bottom + 11:g}" text-anchor="middle">{_safe(words)}</text>')
        self._y += 24
        return lines

    # ---- legend

    def _legend(self) -> None:
        waits = [
            (f"{reason or 'waiting, no reason told'} {seconds(spent)}", self._fill(Sort.WAITING, reason))
            for reason, spent in list(self._timeline.reasons.items())[:_MOST_REASONS]
        ]
        hosts = [(f"on {host}", self._fill(Sort.RUNNING, host)) for host in list(self._looks)[:_MOST_HOSTS]]
        if (more := len(self._timeline.reasons) - _MOST_REASONS) > 0:
            waits.append((f"and {_count(more, 'more reason')}", "none"))
        x = float(_LEFT)
        for words, fill in [*waits, *hosts]:
            width = 24 + 5.6 * len(_cut(words, 40))
            if x + width > _WIDTH - _RIGHT and x > _LEFT:
                x = _LEFT
                self._y += _LEGEND_LINE
            self._rect(x, 14, fill)
            self._text(x + 18, self._y + 8, _cut(words, 40))
            x += width + 8
        self._y += _LEGEND_LINE + 4

    def _patterns(self) -> Iterator[str]:
        for reason, look in self._waits.items():
            ground = f'<rect width="6" height="6" fill="{look.colour}" fill-opacity=".25"/>'
            strokes = f'<g stroke="{look.colour}" fill="none">{_STROKES[look.pattern]}</g>'
            yield (
                f'<pattern id="{self._patterned[reason]}" width="{look.tile}" height="{look.tile}" '
                f'viewBox="0 0 6 6" patternUnits="userSpaceOnUse">{ground}{strokes}</pattern>'
            )

    def _fill(self, sort: Sort, what: str) -> str:
        return self._looks[what].colour if sort is Sort.RUNNING else f"url(#{self._patterned[what]})"

    def _x(self, at: float) -> float:
        span = self._timeline.seconds
        return _LEFT + ((at - self._timeline.begin) / span * _PLOT if span > 0 else 0.0)

    def _text(self, x: float, y: float, words: str, style: str = "") -> None:
        kind = f" class={quoteattr(style)}" if style else ""
        self._out.append(f'<text x="{x:.1f}" y="{y:g}"{kind}>{_safe(words)}</text>')


def _shade(cell: Cell | None) -> tuple[Sort, str, int] | None:
    return None if cell is None else (cell.sort, cell.what, max(1, round(cell.share * _SHADES)))


def _added(one: Steps, other: Steps) -> Steps:
    times = sorted({at for at, _ in (*one, *other)})
    return tuple((at, _at(one, at) + _at(other, at)) for at in times)


def _at(steps: Sequence[tuple[float, float]], time: float) -> float:
    place = bisect_right(steps, time, key=lambda step: step[0]) - 1
    return steps[place][1] if place >= 0 else 0.0


def _story(bar: Bar) -> str:
    record = bar.record
    name = record.task.id if bar.name == record.task.id else f"{bar.name}, {record.task.id}"
    lines = [f"{name} ({record.task.kind}, lane {record.task.lane}): {record.state}"]
    for piece in bar.pieces:
        if piece.sort is Sort.WAITING:
            lines.append(f"waited {seconds(piece.seconds)}: {piece.what or 'no reason told'}")
        elif piece.sort is Sort.RUNNING:
            lines.append(f"ran {seconds(piece.seconds)} on {piece.what}: {piece.verdict}")
    return "\n".join([*lines, *bar.outliers])


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _slots(number: float) -> str:
    return "1 slot" if number == 1 else f"{number:g} slots"


def _cut(text: str, most: int = _NAME) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _safe(text: str) -> str:
    """Fit for XML, which knows no way to write some signs at all."""
    return escape("".join(sign if _allowed(sign) else "\N{REPLACEMENT CHARACTER}" for sign in text))


def _allowed(sign: str) -> bool:
    number = ord(sign)
    return sign in "\t\n" or 0x20 <= number < 0xD800 or 0xE000 <= number < 0xFFFE or number > 0xFFFF
