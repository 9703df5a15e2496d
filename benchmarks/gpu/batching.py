"""Continuous batching: requests join and leave between two steps of the model, which never waits for the slowest.

One thread owns the model. It takes in what waits while slots are free, makes a step for all, and hands each
request its tokens. Slots are given lowest first: a step costs as much as its highest slot.
"""

from __future__ import annotations

import heapq
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.gpu.transformer import Transformer

_TOGETHER = 8  # prompts that are taken in by one pass
_TOGETHER_TOKENS = 4096  # of such a pass, padding included
_PER_PIECE = 8  # tokens that a stream is told of at a time


@dataclass(slots=True)
class Request:
    """`tell` is called on the batching thread: with token ids as they come, and with None at the end."""

    prompt: list[int]
    most: int
    tell: Callable[[Sequence[int] | None], None]
    streamed: bool = False
    left: bool = False  # its client has gone
    slot: int = -1
    made: list[int] = field(default_factory=list)
    told: int = 0

    @property
    def place(self) -> int:
        return len(self.prompt) + len(self.made)


class Batching:
    def __init__(self, model: Transformer) -> None:
        self._model = model
        self._waiting: queue.Queue[Request | None] = queue.Queue()
        self._free = list(range(model.shape.slots))
        self._running: dict[int, Request] = {}
        self._thread = threading.Thread(target=self._work, name="batching", daemon=True)
        self.steps = 0
        self.tokens = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._waiting.put(None)
        self._thread.join(timeout=30)

    def add(self, request: Request) -> None:
        self._waiting.put(request)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return self._waiting.qsize()

    def _work(self) -> None:
        while (taken := self._taken_in()) is not None:
            if taken:
                self._prefill(taken)
            if self._running:
                self._step()

    def _taken_in(self) -> list[Request] | None:
        """What starts now; None when we are to stop. Waits only when nothing runs."""
        taken: list[Request] = []
        longest = 0
        while self._free and len(taken) < _TOGETHER:
            try:
                request = self._waiting.get(block=not self._running and not taken)
            except queue.Empty:
                break
            if request is None:
                return None
            if request.left:
                continue
            request.slot = heapq.heappop(self._free)
            taken.append(request)
            longest = max(longest, len(request.prompt))
            if longest * (len(taken) + 1) > _TOGETHER_TOKENS:
                break
        return taken

    def _prefill(self, taken: list[Request]) -> None:
        self._model.prefill([(request.slot, request.prompt) for request in taken])
        for request in taken:
            self._running[request.slot] = request
        self._deliver(taken)

    def _step(self) -> None:
        running = list(self._running.values())
        self._model.decode(max(self._running) + 1, max(request.place for request in running))
        self.steps += 1
        self._deliver(running)

    def _deliver(self, requests: list[Request]) -> None:
        chosen = self._model.tokens.tolist()
        self.tokens += len(requests)
        for request in requests:
            request.made.append(chosen[request.slot])
            over = request.left or len(request.made) >= request.most
            if request.streamed and (over or len(request.made) - request.told >= _PER_PIECE):
                request.tell(request.made[request.told :])
                request.told = len(request.made)
            if over:
                if not request.streamed:
                    request.tell(request.made)
                request.tell(None)
                del self._running[request.slot]
                heapq.heappush(self._free, request.slot)


class Steady:
    """How long a step takes with so many slots in use: what the model alone could give."""

    def __init__(self, model: Transformer, prompt: int = 200, steps: int = 64) -> None:
        self._model, self._prompt, self._steps = model, prompt, steps

    def tokens_per_s(self, slots: int) -> float:
        import torch

        words = [7] * self._prompt
        for first in range(0, slots, _TOGETHER):
            self._model.prefill([(slot, words) for slot in range(first, min(slots, first + _TOGETHER))])
        torch.cuda.synchronize()
        began = time.perf_counter()
        for step in range(self._steps):
            self._model.decode(slots, self._prompt + step)
            self._model.tokens.tolist()
        return slots * self._steps / (time.perf_counter() - began)
