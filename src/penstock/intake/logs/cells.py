"""The cells of a log's rows by what they tell; a bad one is an error with its file, line, column and remedy."""

from __future__ import annotations

from typing import Any, NoReturn

from penstock.config.problems import kind_of, quoted
from penstock.errors import UsageError
from penstock.intake.logs.attempts import Try
from penstock.intake.logs.columns import Columns, plain_name
from penstock.intake.logs.rows import Row, Table
from penstock.intake.logs.times import DAY_S, FORMS, Base, Stamp, read_length, read_time, unit_of
from penstock.intake.logs.words import Ending, read_ending, read_priority

_NOTHING = frozenset({"", "null", "none", "nan", "nat", "n/a", "-"})
_MAX_TEXT = 500  # of an error, a name


class Cells:
    """The cells of a log's rows by what they tell; a bad one is an error with its place."""

    def __init__(self, table: Table, columns: Columns) -> None:
        self._table = table
        self._columns = columns.chosen
        self._units = {column: unit_of(plain_name(column)) for column in columns.chosen.values()}
        self.base: Base | None = None
        self.over_a_day = False  # a clock showed 24 hours or more: none of them is the time of a day

    def has(self, name: str) -> bool:
        return name in self._columns

    def raw(self, row: Row, name: str) -> Any:
        """A value, None where there is none."""
        column = self._columns.get(name)
        value = None if column is None else row.cells.get(column)
        if isinstance(value, str):
            value = value.strip()
            if len(value) < 5 and value.lower() in _NOTHING:
                return None
        return value

    def fail(self, row: Row, name: str, what: str) -> NoReturn:
        column = quoted(self._columns.get(name, name))[1:-1]
        raise UsageError(f"{self._table.name}:{row.line}: {column}: {what}")

    def text(self, row: Row, name: str) -> str | None:
        value = self.raw(row, name)
        if value is None:
            return None
        if isinstance(value, list | dict):
            self.fail(row, name, f"must be a text or a number, not {kind_of(value)}")
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # an id that came through a table of numbers
        return str(value)[:_MAX_TEXT]

    def time(self, row: Row, name: str) -> Stamp | None:
        value = self.raw(row, name)
        if value is None:
            return None
        stamp = read_time(value, self._units[self._columns[name]])
        if stamp is None:
            shown = quoted(value) if isinstance(value, str) else kind_of(value)
            self.fail(row, name, f"{shown} is no time; write {FORMS}")
        self._same_base(row, name, stamp.base)
        self.over_a_day = self.over_a_day or stamp.seconds >= DAY_S
        return stamp

    def _same_base(self, row: Row, name: str, base: Base) -> None:
        """Times that count from different beginnings cannot be compared."""
        if base is Base.RUN and self.base is Base.CLOCK:
            base = Base.CLOCK  # seconds, or over a day, among clocks: all count from the same beginning
        elif base is Base.CLOCK and self.base is Base.RUN:
            self.base = Base.CLOCK
        if self.base is None:
            self.base = base
        elif base is not self.base:
            self.fail(row, name, f"is one of {base.value} among {self.base.value}; write all times alike")

    def length(self, row: Row) -> float | None:
        value = self.raw(row, "duration")
        if value is None:
            return None
        length_s = read_length(value, self._units[self._columns["duration"]])
        if length_s is None:
            shown = quoted(value) if isinstance(value, str) else kind_of(value)
            self.fail(row, "duration", f"{shown} is no length of time; write seconds, HH:MM:SS or 26m37s")
        return length_s

    def ending(self, row: Row) -> Ending | None:
        value = self.raw(row, "state")
        if value is None:
            return None
        ending = (
            None if isinstance(value, list | dict) else read_ending(value, plain_name(self._columns["state"]))
        )
        if ending is None:
            shown = quoted(value) if isinstance(value, str) else kind_of(value)
            self.fail(
                row,
                "state",
                f"{shown} is no state; write done, failed, cancelled or running, or leave the column "
                "aside with --map state=",
            )
        return ending

    def filled(self, row: Row) -> Try:
        """All that a row tells but its times and its end."""
        name = self.text(row, "task")
        one = Try(row.line, name if name is not None else f"line-{row.line}", name is not None)
        one.kind = self.text(row, "kind") or one.kind
        one.lane = self.text(row, "lane") or one.lane
        one.host = self.text(row, "host") or ""
        one.model = self.text(row, "model")
        one.error = self.text(row, "error")
        one.after = self._names(row)
        if (value := self.raw(row, "priority")) is not None:
            priority = read_priority(value)
            if priority is None:
                self.fail(
                    row,
                    "priority",
                    f"{kind_of(value) if not isinstance(value, str) else quoted(value)} is not 0 (most urgent) to "
                    "4; leave the column aside with --map priority=",
                )
            one.priority = priority
        one.number = self._whole(row, "attempt")
        one.cost_usd = self._money(row)
        return one

    def _names(self, row: Row) -> tuple[str, ...]:
        value = self.raw(row, "after")
        if value is None:
            return ()
        parts = (
            value if isinstance(value, list) else str(value).replace(";", ",").replace("|", ",").split(",")
        )
        if any(isinstance(part, list | dict) for part in parts):
            self.fail(row, "after", "must be the ids of tasks")
        return tuple(str(part).strip() for part in parts if str(part).strip())

    def _whole(self, row: Row, name: str) -> int | None:
        value = self.raw(row, name)
        if value is None:
            return None
        text = str(value).removesuffix(".0")
        if isinstance(value, bool) or not text.isdecimal() or len(text) > 9:
            self.fail(row, name, "must be a whole number from 0; leave the column aside with --map attempt=")
        return int(text)

    def _money(self, row: Row) -> float | None:
        value = self.raw(row, "cost")
        if value is None:
            return None
        try:
            amount = (
                float(str(value).removeprefix("$")) if not isinstance(value, bool | list | dict) else -1.0
            )
        except ValueError:
            amount = -1.0
        if not 0 <= amount < 1e12:
            self.fail(
                row, "cost", "must be an amount in USD, from 0; leave the column aside with --map cost="
            )
        return amount
