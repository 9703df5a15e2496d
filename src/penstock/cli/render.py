"""How things look outside: JSON for programs, lines and tables for people. Rich is loaded only for tables."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.diagnosis.timeline.axis import seconds as seconds
from penstock.diagnosis.words import counted as counted
from penstock.diagnosis.words import percent as percent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


_WIDE = 10_000  # a file or a pipe has no width; nothing is cut for it
_LEAST_WRAPPED = 20  # columns of text, however narrow the terminal
_GAP = 2  # blanks between the columns of a table


# ---- JSON


def emit(value: Any) -> None:
    """One JSON document on stdout: on a terminal for reading, else on one line."""
    import msgspec

    data = msgspec.json.encode(value)
    write(msgspec.json.format(data, indent=2) if sys.stdout.isatty() else data)


def emit_line(value: Any) -> None:
    """One record of several: always on one line, and seen at once."""
    import msgspec

    write(msgspec.json.encode(value))
    sys.stdout.flush()


def write(data: bytes) -> None:
    """JSON is UTF-8, whatever the terminal is."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data + b"\n")


# ---- lines


def say(text: str = "") -> None:
    sys.stdout.write(text + "\n")


def say_wrapped(begin: str, text: str) -> None:
    """A line that may be long: on a terminal it breaks between words and goes on under its first word."""
    if not sys.stdout.isatty():
        say(begin + text)
        return
    import shutil
    import textwrap

    width = max(shutil.get_terminal_size().columns, len(begin) + _LEAST_WRAPPED)
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_long_words=False,  # an id that is cut is of no use
        break_on_hyphens=False,
    )
    say("\n".join(lines) or begin)


def note(text: str) -> None:
    """A line for people beside the data."""
    sys.stderr.write(f"penstock: {text}\n")
    sys.stderr.flush()


def one_line(text: str, most: int | None = None) -> str:
    """A text of anybody's, fit for a line of ours: nothing in it moves the cursor or changes colours."""
    text = " ".join(text.split())
    if not text.isprintable():
        text = "".join(c if c.isprintable() else "�" for c in text)
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


def moment(at: float | None) -> str:
    """A time of day; with its date unless that is today's."""
    if at is None:
        return ""
    then = time.localtime(at)
    day = "" if then[:3] == time.localtime()[:3] else time.strftime("%Y-%m-%d ", then)
    return f"{day}{time.strftime('%H:%M:%S', then)}.{int(at % 1 * 1000):03}"


def text_of(value: Any) -> str:
    """A payload or a value: text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    import msgspec

    return msgspec.json.encode(value).decode()


def answer(value: Any) -> None:
    """A task's value for a person: its text, else its data. Nothing in it steers a terminal."""
    from penstock.answers import answer_in

    text = answer_in(value)
    if text is None:
        emit(value)
    else:
        say(shown(text))


def shown(text: str) -> str:
    """Lines of anybody's: as they are for a program, fit to be shown on a terminal."""
    if not sys.stdout.isatty():
        return text
    from penstock.council.shown import clean

    return clean(text)


# ---- tables


def console(*, stderr: bool = False) -> Console:
    """Knows the terminal's width and colours (NO_COLOR); takes no text of ours or others for markup."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream,
        width=None if stream.isatty() else _WIDE,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=False,
    )


def table(
    columns: Iterable[str], rows: Iterable[Sequence[str]], *, flexible: str | None = None, fold: bool = False
) -> Table:
    """A table without a frame. Columns that begin with ">" are numbers; where room is short only the flexible
    one gives way, cut or folded: an id that is cut is of no use."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    columns = list(columns)
    cells = [[one_line(cell) for cell in row] for row in rows]
    made = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    names = [column.lstrip(">") for column in columns]
    for place, (column, name) in enumerate(zip(columns, names, strict=True)):
        widest = max(cell_len(text) for text in (name, *(row[place] for row in cells)))
        if place == len(columns) - 1:  # rich counts the gap behind it, which is not printed
            widest = max(widest - _GAP, 0)
        made.add_column(
            name,
            justify="right" if column.startswith(">") else "left",
            no_wrap=name != flexible,  # a column that may not wrap is not made narrower
            overflow="ellipsis",
            min_width=widest if name != flexible else min(widest, _LEAST_WRAPPED) if fold else None,
        )
    for row in cells:
        made.add_row(
            *(
                Text(text, overflow="fold")
                if fold and name == flexible
                else Text(text, no_wrap=True, overflow="ellipsis")
                for name, text in zip(names, row, strict=True)
            )
        )
    return made


def print_table(
    columns: Iterable[str], rows: Iterable[Sequence[str]], *, flexible: str | None = None, fold: bool = False
) -> None:
    show(console(), table(columns, rows, flexible=flexible, fold=fold))


def print_in_parts(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table that is too wide for the terminal as several, one below the other, each with the first column."""
    from rich.cells import cell_len

    widths = [
        max(cell_len(text) for text in (name.lstrip(">"), *(row[place] for row in rows))) + _GAP
        for place, name in enumerate(columns)
    ]
    parts: list[list[int]] = [[0]]
    for place in range(1, len(columns)):
        if len(parts[-1]) > 1 and sum(widths[p] for p in parts[-1]) + widths[place] - _GAP > console().width:
            parts.append([0])
        parts[-1].append(place)
    for number, part in enumerate(parts):
        if number:
            say()
        print_table([columns[place] for place in part], [[row[place] for place in part] for row in rows])


def show(out: Console, made: Table) -> None:
    """Print a table, without blanks at the ends of its lines where that is possible."""
    if out.is_terminal:
        out.print(made)
        return
    with out.capture() as captured:
        out.print(made)
    out.file.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))
