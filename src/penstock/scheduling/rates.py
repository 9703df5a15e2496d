"""How much a host may be asked in any 60 seconds, counted exactly: a window of starts, not a refilling bucket."""

from __future__ import annotations

from collections import deque

from penstock.model import Rate

WINDOW_S = 60.0


class RateWindow:
    __slots__ = ("_rate", "_starts", "_tokens")

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._starts: deque[list[float]] = deque()  # [at, tokens]; tokens are corrected at the end
        self._tokens = 0.0

    def take(self, now: float, tokens: float) -> None:
        self._expire(now)
        self._starts.append([now, tokens])
        self._tokens += tokens

    def correct(self, estimated: float, used: float) -> None:
        """An attempt told what it really used."""
        if self._starts:
            self._starts[-1][1] += used - estimated
            self._tokens += used - estimated

    def free_at(self, now: float) -> float:
        """When another start is allowed: `now`, or the moment enough of the window has passed."""
        self._expire(now)
        at = now
        requests = self._rate.requests_per_min
        if requests is not None and len(self._starts) >= requests:
            at = self._starts[len(self._starts) - max(1, int(requests))][0] + WINDOW_S
        limit = self._rate.tokens_per_min
        if limit is not None and self._tokens >= limit:
            left = self._tokens
            for started, tokens in self._starts:
                left -= tokens
                if left < limit:
                    at = max(at, started + WINDOW_S)
                    break
        return at

    def _expire(self, now: float) -> None:
        starts = self._starts
        while starts and starts[0][0] + WINDOW_S <= now:
            self._tokens -= starts.popleft()[1]
