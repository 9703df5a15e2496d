"""Gates: named conditions on starting. A lane gate reads a running count, a probe gate what was sampled."""

from __future__ import annotations

from penstock.model import Gate
from penstock.scheduling.order import WorkClass


class GateState:
    __slots__ = ("detail", "gate", "limit", "name", "open", "waiting", "was_open")

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.name = gate.name
        self.limit = float("inf") if gate.max_running is None else float(gate.max_running)
        # Until a probe has spoken the gate is as after a failed reading: starting blindly is what it prevents.
        self.open = gate.lane is not None or gate.on_error == "open"
        self.detail = "" if gate.lane is not None else "no reading yet"
        self.was_open = self.open
        self.waiting: dict[WorkClass, None] = {}

    def running(self, count: int) -> bool:
        """The lane it reads has this many running; whether that moved the gate."""
        is_open = count <= self.limit
        if is_open == self.open:
            return False
        self.open = is_open
        self.detail = "" if is_open else f"running({self.gate.lane}) > {self.limit:g}"
        return True

    def read(self, value: float | None, error: str) -> None:
        gate = self.gate
        if value is None:
            self.open = gate.on_error == "open"
            self.detail = f"{gate.probe} failed: {error}; on_error = {gate.on_error}"
        elif gate.min is not None and value < gate.min:
            self.open, self.detail = False, f"{gate.probe} = {value:g} < {gate.min:g}"
        elif gate.max is not None and value > gate.max:
            self.open, self.detail = False, f"{gate.probe} = {value:g} > {gate.max:g}"
        else:
            self.open, self.detail = True, ""
