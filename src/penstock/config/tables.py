"""One table of the file, read key by key: a wrong value is a problem and its default takes its place.

Reading goes on after a problem, so that one pass finds them all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.config.keys import MAX_TEXT, NAME, NAME_RULE, Bounds
from penstock.config.problems import Near, Problems, kind_alone, misfit

if TYPE_CHECKING:
    from penstock.config.places import KeyPath

D = TypeVar("D")


class Table:
    """With `any_names`, names are what they are: another system gave them."""

    def __init__(
        self, raw: Mapping[str, Any], path: KeyPath, problems: Problems, *, any_names: bool = False
    ) -> None:
        self.raw = raw
        self.path = path
        self.problems = problems
        self.any_names = any_names

    def __contains__(self, key: str) -> bool:
        return key in self.raw

    def refuse(self, message: str, *keys: str | int, near: Near | None = None) -> None:
        self.problems.add((*self.path, *keys), message, near)

    def only(self, known: Collection[str]) -> None:
        """Every other key is a problem."""
        for key in self.raw:
            if key not in known:
                self.refuse("unknown key", key, near=Near(key, known))

    # ---- values

    def number(self, key: str, default: D, bounds: Bounds) -> float | D:
        value: Any = self.raw.get(key)
        if key not in self.raw:
            return default
        if (wrong := misfit(value, bounds)) is not None:
            self.refuse(f"must be a number {bounds}, not {wrong}", key)
            return default
        return float(value)

    def whole(self, key: str, default: D, bounds: Bounds) -> int | D:
        value: Any = self.raw.get(key)
        if key not in self.raw:
            return default
        if (wrong := misfit(value, bounds, whole=True)) is not None:
            self.refuse(f"must be a whole number {bounds}, not {wrong}", key)
            return default
        number: int = value
        return number

    def text(self, key: str, default: D) -> str | D:
        value = self.raw.get(key)
        if key not in self.raw:
            return default
        if not isinstance(value, str) or not value:
            self.refuse(f"must be text in quotes, not {kind_alone(value)}", key)
        elif len(value) > MAX_TEXT or not value.isprintable():
            self.refuse(f"must be one line of at most {MAX_TEXT} characters without control characters", key)
        else:
            return value
        return default

    def name(self, key: str, default: D) -> str | D:
        value = self.text(key, None)
        if value is None:
            return default
        if not self.any_names and not NAME.fullmatch(value):
            self.refuse(f"must be a name: {NAME_RULE}", key)
            return default
        return value

    def choice(self, key: str, default: str, choices: tuple[str, ...]) -> str:
        value = self.raw.get(key, default)
        if value not in choices:
            wanted = " or ".join(f'"{choice}"' for choice in choices)
            other = "another text" if isinstance(value, str) else kind_alone(value)
            self.refuse(f"must be {wanted}, not {other}", key)
            return default
        return str(value)

    def names(
        self, key: str, default: tuple[str, ...], *, most: int, also: Collection[str] = ()
    ) -> tuple[str, ...]:
        """A list of names, each once; those in `also` may be there too."""
        if key not in self.raw:
            return default
        value = self.raw[key]
        if not isinstance(value, list | tuple):
            self.refuse(f'must be a list of names like ["a", "b"], not {kind_alone(value)}', key)
            return default
        if len(value) > most:
            self.refuse(f"{len(value)} names are too many; at most {most}", key)
            return default
        found: dict[str, None] = {}
        for number, name in enumerate(value):
            if not isinstance(name, str):
                self.refuse(f"must be a name in quotes, not {kind_alone(name)}", key, number)
            elif self.any_names or NAME.fullmatch(name) or name in also:
                found[name] = None
            else:
                self.refuse(f"must be a name: {NAME_RULE}", key, number)
        return tuple(found)

    def flag(self, key: str, default: bool) -> bool:
        value = self.raw.get(key, default)
        if not isinstance(value, bool):
            self.refuse(f"must be true or false, not {kind_alone(value)}", key)
            return default
        return value

    def texts(self, key: str, default: tuple[str, ...], *, most: int) -> tuple[str, ...]:
        """A list of texts, each once."""
        value = self.raw.get(key, default)
        if not isinstance(value, list | tuple) or len(value) > most:
            self.refuse(
                f'must be a list of at most {most} texts like ["a", "b"], not {kind_alone(value)}', key
            )
            return default
        found: dict[str, None] = {}
        for number, text in enumerate(value):
            if not isinstance(text, str) or not text or not text.isprintable() or len(text) > MAX_TEXT:
                self.refuse(f"must be text in quotes, not {kind_alone(text)}", key, number)
            else:
                found[text] = None
        return tuple(found)

    # ---- tables inside

    def table(self, key: str, like: str) -> Table | None:
        """The table at `key`; None when it is not there, or is something else."""
        if key not in self.raw:
            return None
        value = self.raw[key]
        if not isinstance(value, Mapping) or not all(isinstance(inner, str) for inner in value):
            self.refuse(f"must be a table like {like}, not {kind_alone(value)}", key)
            return None
        return Table(value, (*self.path, key), self.problems, any_names=self.any_names)

    def named_tables(self, key: str, most: int) -> Iterator[tuple[str, Table]]:
        """The tables [key.NAME], those with a proper name."""
        tables = self.table(key, f"[{key}.NAME]")
        if tables is None:
            return
        if len(tables.raw) > most:
            tables.refuse(f"{len(tables.raw)} are too many; at most {most}")
            return
        for name in tables.raw:
            if not self.any_names and not NAME.fullmatch(name):
                tables.refuse(f"is not a name: {NAME_RULE}", name)
            elif (inner := tables.table(name, f"[{key}.{name}]")) is not None:
                yield name, inner
