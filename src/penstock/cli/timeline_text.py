"""A timeline on a terminal: a bar per task on one axis of time, slots and queue underneath, a legend.

A wait begins with the letter of its reason, an attempt with that of its host; colours come on top, where there
are any. What cannot be shown is said: how many tasks are folded, how many hosts left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from penstock.cli.render import counted, one_line, percent, seconds
from penstock.diagnosis.timeline.axis import ticks
from penstock.diagnosis.timeline.bars import FAILED, Bar, HostUse, Sort, Timeline
from penstock.diagnosis.timeline.folding import Cell, Fold, chosen, fold, means
from penstock.diagnosis.timeline.outliers import RULE
from penstock.diagnosis.timeline.palette import Look, host_looks, wait_looks

_MOST_HOSTS = 16
_MOST_FOLDS = 12
_MOST_OUTLIERS = 5
_MOST_REASONS = 16
_WIDEST_NAME = 24
_WIDEST_KIND = 16
_LEAST_BAR = 20


class Signs(NamedTuple):
    waiting: str
    running: str
    asking: str  # a question, which waits for its steps
    failed: str
    outlier: str
    levels: str  # of a little chart, from nothing to all
    tick: str
    times: str
    between: str


UNICODE = Signs("░", "█", "─", "✗", "◆", " ▁▂▃▄▅▆▇█", "│", "×", "·")
ASCII = Signs(".", "#", "-", "!", "*", " 123456789", "|", "x", "-")


class Row(NamedTuple):
    name: str
    kind: str
    cells: Text
    end: str


def print_timeline(out: Console, timeline: Timeline, limit: int, signs: Signs) -> None:
    bars, folds = chosen(timeline, limit)
    drawing = _Drawing(out, timeline, signs, folds)
    drawing.head()
    drawing.rows([drawing.bar(bar) for bar in bars])
    if folds:
        left = sum(len(one.bars) for one in folds)
        out.print(Text(f"{counted(left, 'more task')}, folded by lane and kind; --limit shows more", "dim"))
        drawing.rows([drawing.folded(one) for one in folds[:_MOST_FOLDS]], axis=False)
        if len(folds) > _MOST_FOLDS:
            out.print(Text(f"and {len(folds) - _MOST_FOLDS} more lanes and kinds", "dim"))
    drawing.underneath()
    drawing.legend()
    drawing.outliers()


class _Drawing:
    def __init__(self, out: Console, timeline: Timeline, signs: Signs, folds: Sequence[Fold]) -> None:
        self._out = out
        self._timeline = timeline
        self._signs = signs
        self._looks = host_looks(timeline.host_names)
        self._waits = wait_looks(timeline.reasons)
        mark = 2 if timeline.outliers else 0
        ids = [" " * mark + bar.name for bar in timeline.bars]
        names = [
            *ids,
            *(use.host for use in timeline.hosts),
            *map(_fold_name, folds[:_MOST_FOLDS]),
            "waiting",
        ]
        kinds = [bar.record.task.kind for bar in timeline.bars]
        room = max(30, out.width - 16)
        self._name_width = min(_WIDEST_NAME, room // 4, max(map(cell_len, names)))
        self._kind_width = min(_WIDEST_KIND, room // 5, max(map(cell_len, (*kinds, "slots"))))
        self._width = max(_LEAST_BAR, out.width - self._name_width - self._kind_width - 18)

    # ---- parts

    def head(self) -> None:
        timeline = self._timeline
        so_far = " so far" if timeline.is_live else ""
        marked = f", {counted(len(timeline.outliers), 'outlier')}" if timeline.outliers else ""
        name = one_line(timeline.run)
        self._out.print(
            f"run {name}: {counted(len(timeline.bars), 'task')} in {seconds(timeline.seconds)}{so_far}{marked}"
        )

    def rows(self, rows: Iterable[Row], *, axis: bool = True) -> None:
        if axis:
            self._print(Row("task", "kind", Text(self._axis()), "time"), style="bold")
        for row in rows:
            self._print(row)

    def underneath(self) -> None:
        timeline = self._timeline
        self._out.print()
        self._print(Row("host", "slots", Text(self._axis()), "used"), style="bold")
        for use in timeline.hosts[:_MOST_HOSTS]:
            self._print(self._use(use))
        if len(timeline.hosts) > _MOST_HOSTS:
            self._out.print(Text(f"and {counted(len(timeline.hosts) - _MOST_HOSTS, 'more host')}", "dim"))
        deepest = max((depth for _, depth in timeline.queue), default=0.0)
        depths = means(timeline.queue, timeline.begin, timeline.end, self._width)
        self._print(Row("waiting", "", Text(self._levels(depths, deepest)), f"<= {deepest:g}"))

    def legend(self) -> None:
        self._out.print()
        total = sum(self._timeline.reasons.values())
        items = [
            (self._waits[reason], f"{one_line(reason) or 'no reason told'} {percent(spent / total)}")
            for reason, spent in list(self._timeline.reasons.items())[:_MOST_REASONS]
            if total
        ]
        if items:
            self._out.print(self._legend("waiting", items, self._signs.waiting))
        if (more := len(self._timeline.reasons) - _MOST_REASONS) > 0:
            self._out.print(Text(f"{'':<8} and {counted(more, 'more reason')}", "dim"))
        hosts = [(look, one_line(host)) for host, look in list(self._looks.items())[:_MOST_HOSTS]]
        if hosts:
            self._out.print(self._legend("running", hosts, self._signs.running))
        pieces = (piece for bar in self._timeline.bars for piece in bar.pieces)
        if any(piece.verdict in FAILED for piece in pieces):
            self._out.print(f"{self._signs.failed} an attempt that failed or was interrupted")

    def outliers(self) -> None:
        marked = self._timeline.outliers
        for bar in marked[:_MOST_OUTLIERS]:
            words = "; ".join(bar.outliers)
            self._out.print(Text(f"{self._signs.outlier} {one_line(bar.name)}: {words}"))
        if len(marked) > _MOST_OUTLIERS:
            self._out.print(f"and {counted(len(marked) - _MOST_OUTLIERS, 'more outlier')}")
        if marked:
            self._out.print(Text(RULE.replace("×", self._signs.times), "dim"))

    # ---- rows

    def bar(self, bar: Bar) -> Row:
        cells = _Cells(self._width)
        for piece in sorted(bar.pieces, key=lambda piece: piece.sort is Sort.RUNNING):
            if piece.sort is Sort.RESTING:
                continue
            first, last = self._place(piece.start), self._place(piece.end)
            look = self._look(piece.sort, piece.what)
            running = self._signs.asking if bar.is_question else self._signs.running
            fill = running if piece.sort is Sort.RUNNING else self._signs.waiting
            cells.draw(first, last, fill, look, begin="reverse bold" if piece.attempt else "bold")
            if piece.verdict in FAILED:
                cells.mark(max(first, last - 1), self._signs.failed)
        record = bar.record
        mark = "" if not self._timeline.outliers else f"{self._signs.outlier if bar.outliers else ' '} "
        state = "" if record.state == "done" else f" {record.state}"
        time = seconds(bar.end - bar.start)
        return Row(mark + one_line(bar.name), record.task.kind, cells.text(), time + state)

    def folded(self, one: Fold) -> Row:
        cells = _Cells(self._width)
        row = fold(one.bars, self._timeline.begin, self._timeline.end, self._width)
        begun = 0
        for column in range(1, len(row) + 1):
            before = row[begun]
            if column < len(row) and _same(row[column], before):
                continue
            if before is not None:
                fill = self._signs.running if before.sort is Sort.RUNNING else self._signs.waiting
                style = "reverse bold" if before.sort is Sort.RUNNING else "bold"
                cells.draw(begun, column, fill, self._look(before.sort, before.what), begin=style)
            begun = column
        first = min(bar.start for bar in one.bars)
        last = max(bar.end for bar in one.bars)
        return Row(_fold_name(one), one.kind, cells.text(), seconds(last - first))

    def _use(self, use: HostUse) -> Row:
        timeline = self._timeline
        both = [
            own + other
            for own, other in zip(
                means(use.used, timeline.begin, timeline.end, self._width),
                means(use.others, timeline.begin, timeline.end, self._width),
                strict=True,
            )
        ]
        most = max([use.peak, *(value for _, value in use.available)])
        room = means(use.available, timeline.begin, timeline.end, 1)[0] if use.available else use.peak
        share = percent(min(1.0, sum(both) / len(both) / room)) if room else ""
        slots = f"{most:g}" if use.available else f">= {use.peak:g}"
        return Row(
            one_line(use.host), slots, Text(self._levels(both, most), self._looks[use.host].terminal), share
        )

    # ---- little things

    def _place(self, at: float) -> int:
        timeline = self._timeline
        span = timeline.seconds
        return round((at - timeline.begin) / span * self._width) if span > 0 else 0

    def _look(self, sort: Sort, what: str) -> Look:
        return self._looks[what] if sort is Sort.RUNNING else self._waits[what]

    def _levels(self, amounts: Sequence[float], most: float) -> str:
        levels = self._signs.levels
        top = len(levels) - 1
        return "".join(
            levels[0 if amount <= 0 or most <= 0 else max(1, min(top, round(amount / most * top)))]
            for amount in amounts
        )

    def _axis(self) -> str:
        line = [" "] * self._width
        for at, label in ticks(self._timeline.seconds, self._width // 12):
            place = min(self._width - 1, round(at / max(self._timeline.seconds, 1e-9) * self._width))
            words = f"{self._signs.tick}{label}"
            if place + len(words) <= self._width and not "".join(line[place:]).strip():
                line[place : place + len(words)] = words
        return "".join(line)

    def _print(self, row: Row, style: str = "") -> None:
        name = set_cell_size(_cut(row.name, self._name_width), self._name_width)
        kind = set_cell_size(_cut(one_line(row.kind), self._kind_width), self._kind_width)
        line = Text(f"{name} {kind} ", style, no_wrap=True, overflow="crop")
        line.append_text(row.cells)
        line.append(f" {row.end:>7}" if len(row.end) < 8 else f" {row.end}")
        line.rstrip()
        self._out.print(line)

    def _legend(self, title: str, items: Iterable[tuple[Look, str]], fill: str) -> Text:
        """Items side by side, none of them broken."""
        lines = Text(no_wrap=True)
        lines.append(f"{title:<8}", "bold")
        used = 8
        for look, words in items:
            width = 2 + len(look.letter) + cell_len(words) + 2
            if used + width > self._out.width and used > 8:
                lines.append("\n" + " " * 8)
                used = 8
            lines.append(f" {look.letter}{fill}", look.terminal)
            lines.append(f" {words} ")
            used += width
        lines.rstrip()
        return lines


class _Cells:
    """One line of signs, each with its colour."""

    def __init__(self, width: int) -> None:
        self._signs = [" "] * width
        self._styles = [""] * width

    def draw(self, first: int, last: int, fill: str, look: Look, *, begin: str) -> None:
        first = min(first, len(self._signs) - 1)
        for column in range(first, max(first + 1, min(last, len(self._signs)))):
            self._signs[column] = fill
            self._styles[column] = look.terminal
        for column, sign in zip(
            range(first, max(first + 1, min(last, len(self._signs)))), look.letter, strict=False
        ):
            self._signs[column] = sign
            self._styles[column] = f"{begin} {look.terminal}"

    def mark(self, column: int, sign: str) -> None:
        column = min(column, len(self._signs) - 1)
        self._signs[column] = sign
        self._styles[column] = "bold red"

    def text(self) -> Text:
        line = Text()
        for sign, style in self._joined():
            line.append(sign, style)
        return line

    def _joined(self) -> Iterator[tuple[str, str]]:
        begun = 0
        for column in range(1, len(self._signs) + 1):
            if column == len(self._signs) or self._styles[column] != self._styles[begun]:
                yield "".join(self._signs[begun:column]), self._styles[begun]
                begun = column


def _fold_name(one: Fold) -> str:
    return f"{len(one.bars)} of {one_line(one.lane)}"


def _same(one: Cell | None, other: Cell | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.sort is other.sort and one.what == other.what


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"
