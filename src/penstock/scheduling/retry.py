"""After a failure: how long a task waits before it is tried again, and when a host counts as down."""

from __future__ import annotations

from penstock.model import BreakerRule, RetryRule


def backoff_s(rule: RetryRule, failures: int, chance: float, retry_after_s: float | None) -> float:
    """Doubling from `base_s` to `max_s`, half of it by chance so that a crowd does not return as one."""
    delay: float = min(rule.max_s, rule.base_s * 2 ** min(failures - 1, 60))
    delay *= 0.5 + chance / 2
    return max(delay, retry_after_s or 0.0)


class Breaker:
    """Closed while a host works; open after some faults in a row; half-open when one task may try it."""

    __slots__ = ("_rule", "failures", "half_open", "open_until", "opened")

    def __init__(self, rule: BreakerRule) -> None:
        self._rule = rule
        self.failures = 0
        self.opened = 0  # how often in a row, for a longer pause each time
        self.open_until: float | None = None
        self.half_open = False

    @property
    def closed(self) -> bool:
        return self.open_until is None and not self.half_open

    def fault(self, now: float, *, needs_fix: bool = False) -> None:
        """One more. It opens at once where more of them would tell nothing new."""
        self.failures += 1
        if self.half_open or needs_fix or self.failures >= self._rule.failures:
            pause = min(self._rule.max_reset_s, self._rule.reset_s * 2 ** min(self.opened, 60))
            self.opened += 1
            self.open_until = now + pause
            self.half_open = False

    def success(self) -> None:
        self.failures = 0
        self.opened = 0
        self.open_until = None
        self.half_open = False

    def tick(self, now: float) -> None:
        if self.open_until is not None and now >= self.open_until:
            self.open_until = None
            self.half_open = True
