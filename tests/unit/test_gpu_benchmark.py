"""The parts of the GPU benchmark that need no GPU: continuous batching, the workloads, the table."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from benchmarks.gpu.__main__ import table
from benchmarks.gpu.batching import Batching, Request
from benchmarks.gpu.workloads import MIX, mixed, questions


class CountingModel:
    """Instead of a transformer: each token is the number of its place. `gate` lets one step pass at a time."""

    def __init__(self, slots: int) -> None:
        self.shape = SimpleNamespace(slots=slots)
        self.tokens = Tokens([0] * slots)
        self.steps: list[int] = []
        self.gate: queue.Queue[None] = queue.Queue()

    def prefill(self, prompts: list[tuple[int, list[int]]]) -> None:
        for slot, prompt in prompts:
            self.tokens[slot] = len(prompt)

    def decode(self, slots: int, longest: int) -> None:
        self.gate.get(timeout=30)
        assert max(self.tokens[:slots]) <= longest
        self.steps.append(slots)
        for slot in range(slots):
            self.tokens[slot] += 1


class Tokens(list[int]):
    def tolist(self) -> list[int]:
        return list(self)


class Client:
    def __init__(self) -> None:
        self.pieces: queue.Queue[Sequence[int] | None] = queue.Queue()

    def request(self, prompt: int, most: int, *, streamed: bool = False) -> Request:
        return Request([7] * prompt, most, self.pieces.put, streamed=streamed)

    def whole(self) -> list[int]:
        made: list[int] = []
        while (piece := self.pieces.get(timeout=30)) is not None:
            made += piece
        return made


def test_requests_join_and_leave_between_steps() -> None:
    model: Any = CountingModel(slots=2)
    batching = Batching(model)
    batching.start()
    long, short, late = Client(), Client(), Client()
    batching.add(long.request(3, 5))
    batching.add(short.request(10, 2))
    batching.add(late.request(20, 2))
    for _ in range(4):
        model.gate.put(None)
    assert short.whole() == [10, 11]
    assert late.whole() == [20, 21]  # in the slot of the short one, beside the long one
    assert long.whole() == [3, 4, 5, 6, 7]
    assert len(model.steps) == 4
    assert model.steps[-1] == 1, "the last step has one slot: the lowest are given first"
    batching.stop()
    assert (batching.running, batching.waiting) == (0, 0)


def test_streams_are_told_in_pieces_and_those_who_leave_are_dropped() -> None:
    model: Any = CountingModel(slots=2)
    batching = Batching(model)
    batching.start()
    stream, gone = Client(), Client()
    batching.add(stream.request(1, 20, streamed=True))
    left = gone.request(1, 10_000)
    left.left = True
    batching.add(left)
    for _ in range(19):
        model.gate.put(None)
    pieces = []
    while (piece := stream.pieces.get(timeout=30)) is not None:
        pieces.append(list(piece))
    assert [len(piece) for piece in pieces] == [8, 8, 4]
    assert [token for piece in pieces for token in piece] == list(range(1, 21))
    batching.stop()
    assert batching.running == 0


def test_workloads_are_the_same_each_time() -> None:
    assert mixed(40) == mixed(40)
    assert {kind: sum(call.kind == kind for call in mixed(40)) for kind in MIX} == dict.fromkeys(MIX, 10)
    assert questions(5) == questions(5)
    assert len(set(questions(5))) == 5


def test_the_best_is_that_of_the_bare_client() -> None:
    row = {"makespan_s": 1.0, "gpu_percent": 90, "power_w": 300, "joule_per_token": 0.1}
    rows = [
        {"way": "bare client, 8 at a time", "tokens_per_s": 1000, "room": 8, **row},
        {"way": "Penstock, 8 slots", "tokens_per_s": 970, **row},
    ]
    assert "| Penstock, 8 slots | 970 | 97% | 1.0 s | 90 % | 300 W | 0.100 |" in table("some", rows)
