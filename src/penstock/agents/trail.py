"""What was done for one call of an agent, step by step, with times: for `PENSTOCK_DEBUG=1` and for the figures.

The standard library alone: a warm `agent call` imports it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

DEBUG_VARIABLE = "PENSTOCK_DEBUG"


class Trail:
    """`figures` holds what is to be counted: hit, lock_wait_s, start_s, ready_s, pool, ok…"""

    def __init__(self, agent: str, *, shown: bool | None = None) -> None:
        self.agent = agent
        self.figures: dict[str, Any] = {}
        self._began = time.perf_counter()
        self._shown = os.environ.get(DEBUG_VARIABLE, "") not in ("", "0") if shown is None else shown

    def note(self, step: str, **figures: Any) -> None:
        """Something that happened at once."""
        self.figures |= figures
        if self._shown:
            told = "".join(f" {key}={_shown(value)}" for key, value in figures.items())
            at_ms = (time.perf_counter() - self._began) * 1000
            print(f"penstock: {at_ms:9.1f} ms  {self.agent}: {step}{told}", file=sys.stderr)

    @contextmanager
    def timed(self, step: str, figure: str | None = None) -> Iterator[None]:
        """Something that takes time; `figure` keeps how long, also when it failed."""
        began = time.perf_counter()
        how = "failed"
        try:
            yield
            how = "done"
        finally:
            took_s = time.perf_counter() - began
            if figure is not None:
                self.figures[figure] = self.figures.get(figure, 0.0) + took_s
            self.note(f"{step}: {how}, {took_s * 1000:.1f} ms")


def _shown(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
