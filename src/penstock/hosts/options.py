"""Reading the options of a host for its adapter: every problem at once, each with its place and remedy.

Misspelt names are found before, where the config is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.errors import ConfigError
from penstock.model import Host


class Options:
    """The options of one host while its adapter reads them."""

    def __init__(self, host: Host) -> None:
        self._place = f"hosts.{host.name}"
        self._given: Mapping[str, Any] = host.options
        self._problems: list[str] = []

    def problem(self, name: str, text: str) -> None:
        self._problems.append(f"{self._place}.{name}: {text}")

    def done(self) -> None:
        """Raise everything that is wrong."""
        if self._problems:
            raise ConfigError(self._problems)

    def text(self, name: str) -> str | None:
        text: str | None = self._read(name, None, "a text", lambda value: isinstance(value, str))
        return text

    def flag(self, name: str, default: bool) -> bool:
        return bool(self._read(name, default, "true or false", lambda value: isinstance(value, bool)))

    def choice(self, name: str, default: str, allowed: Sequence[str]) -> str:
        return str(
            self._read(name, default, " or ".join(f'"{one}"' for one in allowed), allowed.__contains__)
        )

    def count(self, name: str, default: int) -> int:
        wanted = "a whole number above 0"
        return int(self._read(name, default, wanted, lambda value: _whole(value) and value > 0))

    def number(self, name: str, default: float, most: float | None = None) -> float:
        wanted = "a number of 0 or more" if most is None else f"a number from 0 to {most:g}"
        limit = float("inf") if most is None else most
        return float(self._read(name, default, wanted, lambda value: _real(value) and 0 <= value <= limit))

    def texts(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        return tuple(self._read(name, default, 'a list of texts, such as ["one", "two"]', _all_text))

    def wholes(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            self._read(
                name, default, "a list of whole numbers, such as [75]", lambda value: _all(value, _whole)
            )
        )

    def text_table(self, name: str) -> dict[str, str]:
        wanted = 'a table of texts, such as { name = "value" }'
        return dict(
            self._read(name, {}, wanted, lambda v: isinstance(v, Mapping) and _all_text(list(v.values())))
        )

    def anything(self, name: str, default: Any = None) -> Any:
        return self._read(name, default, "", lambda _: True)

    def _read(self, name: str, default: Any, wanted: str, fits: Callable[[Any], bool]) -> Any:
        value = self._given.get(name)
        if value is None:
            return default
        if not fits(value):
            self.problem(name, f"must be {wanted}, not {value!r}")
            return default
        return value


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _all(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, list | tuple) and all(map(fits, value))


def _all_text(value: Any) -> bool:
    return _all(value, lambda one: isinstance(one, str))
