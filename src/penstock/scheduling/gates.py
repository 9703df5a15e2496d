"""Gates: named conditions on starting. A lane gate reads a running count, a probe gate what was sampled.

Where each kind has a thread of its own, that thread is a gate as well: closed while it runs a task.
"""

from __future__ import annotations

import re

from penstock.model import Gate
from penstock.scheduling.order import WorkClass

THREAD = "thread:"  # begins the name of the gate that a kind's thread is

_NUMBER = re.compile(r"\d+")


class GateState:
    __slots__ = ("detail", "fault", "gate", "limit", "name", "open", "told", "waiting")

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.name = gate.name
        self.limit = float("inf") if gate.max_running is None else float(gate.max_running)
        # Until a probe has spoken the gate is as after a failed reading: starting blindly is what it prevents.
        self.open = gate.lane is not None or gate.on_error == "open"
        self.detail = "" if gate.lane is not None else "no reading yet"
        self.fault = self.detail  # why there is no reading
        self.told = self.standing
        self.waiting: dict[WorkClass, None] = {}

    @property
    def standing(self) -> tuple[bool, str]:
        """What is worth telling when it changes: also a failure that leaves the gate as it was, and another
        failure, but not the numbers in it, or a probe that counts its failures would fill the store."""
        return self.open, _NUMBER.sub("", self.fault)

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
        self.fault = "" if value is not None else error or "no reading"
        if value is None:
            self.open = gate.on_error == "open"
            self.detail = f"{gate.probe} failed: {error}; on_error = {gate.on_error}"
        elif gate.min is not None and value < gate.min:
            self.open, self.detail = False, f"{gate.probe} = {value:g} < {gate.min:g}"
        elif gate.max is not None and value > gate.max:
            self.open, self.detail = False, f"{gate.probe} = {value:g} > {gate.max:g}"
        else:
            self.open, self.detail = True, ""


class ThreadGate(GateState):
    """The one thread that runs the tasks of a kind."""

    __slots__ = ("_taken",)

    def __init__(self, kind: str) -> None:
        super().__init__(Gate(f"{THREAD}{kind}", on_error="open", holds_kinds=(kind,)))
        self._taken = 0  # more than one only where a dispatcher without threads began them
        self.detail = self.fault = ""
        self.told = self.standing

    def occupy(self) -> None:
        (kind,) = self.gate.holds_kinds
        self._taken += 1
        self.open, self.detail = False, f"the thread of kind {kind} is busy"

    def vacate(self) -> None:
        self._taken -= 1
        if not self._taken:
            self.open, self.detail = True, ""
