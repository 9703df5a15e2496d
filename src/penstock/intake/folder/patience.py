"""How long something unfinished is waited for: while it changes, and a moment longer; never for ever."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class _Seen:
    sign: Hashable
    first: float
    since: float  # it has looked like this


class Patience:
    """Times are a monotonic clock's: a file's own could say anything."""

    def __init__(self, quiet_s: float, most_s: float) -> None:
        self._quiet_s = quiet_s
        self._most_s = most_s
        self._seen: dict[str, _Seen] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def is_over(self, name: str, sign: Hashable, now: float, quiet_s: float | None = None) -> bool:
        """Whether it has stayed like this for too long; asked again, it begins anew."""
        seen = self._seen.setdefault(name, _Seen(sign, now, now))
        if seen.sign != sign:
            seen.sign, seen.since = sign, now
        quiet_s = self._quiet_s if quiet_s is None else quiet_s
        if now - seen.since < quiet_s and now - seen.first < self._most_s:
            return False
        del self._seen[name]
        return True

    def __contains__(self, name: str) -> bool:
        return name in self._seen

    def names(self) -> list[str]:
        return list(self._seen)

    def forget(self, name: str) -> None:
        self._seen.pop(name, None)

    def keep(self, names: Collection[str]) -> None:
        """Those that are not among them have gone."""
        for gone in self._seen.keys() - set(names):
            del self._seen[gone]
