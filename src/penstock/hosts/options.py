"""Reading the options of a host: every problem at once, each with its place and remedy, and no value repeated.

The readers are asked when the config is read, which knows the line of each key, and again by the adapter, which
takes what they return. They look at nothing outside: what needs the world (a file, a program, a key) is found out
by `check` and by the adapter. Misspelt names are found before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from penstock.config.keys import Bounds
from penstock.config.problems import Problem, WrongOptions, kind_alone, misfit
from penstock.model import Host

T = TypeVar("T")

_MOST = 1e15


class Options:
    """The options of one host while they are read."""

    def __init__(self, host: Host) -> None:
        self._path = ("hosts", host.name)
        self._given: Mapping[str, Any] = host.options
        self._problems: list[Problem] = []

    def problem(self, name: str, text: str, *inside: str | int) -> None:
        """`inside` leads from the option to the part of it that is wrong."""
        self._problems.append(Problem((*self._path, name, *inside), text))

    def including(self, read: Callable[[Host], T], host: Host) -> T | None:
        """What another reader makes of a host; None, and its problems are among these, where there are some."""
        try:
            return read(host)
        except WrongOptions as wrong:
            self._problems += wrong.found
            return None

    def done(self) -> None:
        """Raise everything that is wrong."""
        if self._problems:
            raise WrongOptions(self._problems)

    def text(self, name: str) -> str | None:
        text: str | None = self._read(name, None, "text in quotes", _is_text)
        return text

    def flag(self, name: str, default: bool) -> bool:
        return bool(self._read(name, default, "true or false", lambda value: isinstance(value, bool)))

    def choice(self, name: str, default: str, allowed: Sequence[str]) -> str:
        chosen = self.anything(name, default)
        if _is_text(chosen) and chosen in allowed:
            return str(chosen)
        wanted = " or ".join(f'"{one}"' for one in allowed)
        other = "another text" if _is_text(chosen) else kind_alone(chosen)
        self.problem(name, f"must be {wanted}, not {other}")
        return default

    def count(self, name: str, default: int) -> int:
        return int(self._number(name, default, "a whole number above 0", Bounds(1, _MOST), whole=True))

    def number(self, name: str, default: float, most: float | None = None) -> float:
        wanted = "a number of 0 or more" if most is None else f"a number from 0 to {most:g}"
        return float(self._number(name, default, wanted, Bounds(0, _MOST if most is None else most)))

    def texts(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        return tuple(
            self._list(name, default, 'a list of texts, such as ["one", "two"]', "text in quotes", _is_text)
        )

    def wholes(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            self._list(name, default, "a list of whole numbers, such as [75]", "a whole number", _is_whole)
        )

    def text_table(self, name: str) -> dict[str, str]:
        given = self.table(name, '{ name = "value" }')
        for key, value in given.items():
            if not _is_text(value):
                self.problem(name, f"must be text in quotes, not {kind_alone(value)}", key)
        return {key: value for key, value in given.items() if _is_text(value)}

    def table(self, name: str, like: str) -> Mapping[str, Any]:
        """A table of anything."""
        found: Mapping[str, Any] = self._read(
            name, {}, f"a table, such as {like}", lambda value: isinstance(value, Mapping)
        )
        return found

    def anything(self, name: str, default: Any = None) -> Any:
        value = self._given.get(name)
        return default if value is None else value

    def _number(self, name: str, default: float, wanted: str, bounds: Bounds, *, whole: bool = False) -> Any:
        value = self.anything(name, default)
        wrong = misfit(value, bounds, whole=whole)
        if wrong is None:
            return value
        self.problem(name, f"must be {wanted}, not {wrong}")
        return default

    def _list(
        self, name: str, default: Sequence[Any], wanted: str, each: str, fits: Callable[[Any], bool]
    ) -> Sequence[Any]:
        given = self._read(name, default, wanted, lambda value: isinstance(value, list | tuple))
        for number, one in enumerate(given):
            if not fits(one):
                self.problem(name, f"must be {each}, not {kind_alone(one)}", number)
        return [one for one in given if fits(one)]

    def _read(self, name: str, default: Any, wanted: str, fits: Callable[[Any], bool]) -> Any:
        value = self._given.get(name)
        if value is None:
            return default
        if not fits(value):
            self.problem(name, f"must be {wanted}, not {kind_alone(value)}")
            return default
        return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
