"""Starts the server, finds its best, sends both workloads in every way, and prints a table for each."""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.gpu import contenders, ours
from benchmarks.gpu.meter import Meter
from benchmarks.gpu.workloads import mixed, questions

MODEL = "random-3b"
_READY_S = 300.0
_CONCURRENCIES = (16, 32, 48, 64)
_CONTEXT_TOKENS = 2000


@contextmanager
def _served(port: int) -> Iterator[dict[str, Any]]:
    argv = [sys.executable, "-m", "benchmarks.gpu.model_server", "--port", str(port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            if not line:
                raise SystemExit("the model server did not start; what it said is above")
            yield json.loads(line)
        finally:
            server.kill()


def _measured(way: str, work: Callable[[], int]) -> dict[str, Any]:
    time.sleep(1.0)  # the clocks and the power of what ran before settle
    with Meter() as meter:
        began = time.perf_counter()
        tokens = work()
        makespan_s = time.perf_counter() - began
    reading = meter.reading()
    found = {
        "way": way,
        "tokens": tokens,
        "makespan_s": round(makespan_s, 2),
        "tokens_per_s": round(tokens / makespan_s),
        "gpu_percent": round(reading.utilisation_percent),
        "power_w": round(reading.power_w),
        "joule_per_token": round(reading.energy_j / tokens, 3),
    }
    print(json.dumps(found), file=sys.stderr, flush=True)
    return found


def _run(work: Callable[[], Awaitable[int]]) -> int:
    async def waited() -> int:
        return await work()

    return asyncio.run(waited())


def _middle(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The middle one by makespan, with those of all."""
    ranked = sorted(rounds, key=lambda one: one["makespan_s"])
    return ranked[len(ranked) // 2] | {"rounds": [one["makespan_s"] for one in rounds]}


class Arena:
    """One server; every way of sending each workload to it."""

    def __init__(self, url: str, rounds: int, count: int, asked: int) -> None:
        self._url, self._rounds = url, rounds
        self._calls = mixed(count)
        self._queries = questions(asked)

    def mixed(self) -> list[dict[str, Any]]:
        url, calls = self._url, self._calls
        found = [_measured("one at a time", lambda: contenders.one_at_a_time(url, MODEL, calls))]
        found.append(_measured("a thread per kind", lambda: contenders.thread_per_kind(url, MODEL, calls)))
        sweep = self._sweep(lambda room: contenders.bare(url, MODEL, calls, room))
        return found + sweep + self._ours(sweep, lambda client: ours.mixed(client, calls))

    def council(self) -> list[dict[str, Any]]:
        url = self._url
        six = ours.council_of(url, MODEL, _CONTEXT_TOKENS)
        asked = [contenders.question_of(six, n, query) for n, query in enumerate(self._queries)]
        found = [
            _measured("one at a time", lambda: contenders.council_one_at_a_time(url, MODEL, six, asked)),
            _measured(
                "a thread per kind", lambda: contenders.council_thread_per_kind(url, MODEL, six, asked)
            ),
        ]
        sweep = self._sweep(lambda room: contenders.council_bare(url, MODEL, six, asked, room))
        return found + sweep + self._ours(sweep, lambda client: ours.council(client, self._queries))

    def _sweep(self, work: Callable[[int], Awaitable[int]]) -> list[dict[str, Any]]:
        """Once at each concurrency, and the best of them as often as Penstock."""
        rows = [self._bare(1, room, work) for room in _CONCURRENCIES]
        best = max(rows, key=lambda row: row["tokens_per_s"])
        rows[rows.index(best)] = self._bare(self._rounds, best["room"], work)
        return rows

    def _bare(self, rounds: int, room: int, work: Callable[[int], Awaitable[int]]) -> dict[str, Any]:
        found = [
            _measured(f"bare client, {room} at a time", lambda: _run(lambda: work(room)))
            for _ in range(rounds)
        ]
        return _middle(found) | {"room": room}

    def _ours(
        self, sweep: Sequence[dict[str, Any]], work: Callable[[Any], Awaitable[int]]
    ) -> list[dict[str, Any]]:
        room = max(sweep, key=lambda row: row["tokens_per_s"])["room"]
        most = max(_CONCURRENCIES)
        fixed = self._penstock(f"Penstock, {room} slots", str(room), work)
        auto = f"{{ auto = true, min = 1, max = {most} }}"
        tuned = self._penstock(f"Penstock, slots that tune themselves from 1 to {most}", auto, work)
        later = {"way": "the same, when it has found them"}
        return [_middle(fixed), tuned[0], *([_middle(tuned[1:]) | later] if tuned[1:] else [])]

    def _penstock(self, way: str, slots: str, work: Callable[[Any], Awaitable[int]]) -> list[dict[str, Any]]:
        """Each round. What is not measured stands before the clock runs, as the bare client's loop does."""
        with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
            text = ours.config_text(self._url, MODEL, slots, _CONTEXT_TOKENS)
            door = ours.opened(Path(folder), text)
            client = runner.run(door.__aenter__())
            try:
                return [
                    _measured(way, lambda: runner.run(_awaited(work(client)))) for _ in range(self._rounds)
                ]
            finally:
                runner.run(door.__aexit__(None, None, None))


async def _awaited(work: Awaitable[int]) -> int:
    return await work


def table(title: str, rows: Sequence[dict[str, Any]]) -> str:
    best = max(row["tokens_per_s"] for row in rows if "room" in row)
    lines = [
        f"**{title}**",
        "",
        "| way | tokens/s | of the server's best | makespan | GPU busy | power | J/token |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [_row(row, best) for row in rows]
    return "\n".join(lines)


def _row(row: dict[str, Any], best: float) -> str:
    rate, makespan_s = row["tokens_per_s"], row["makespan_s"]
    return (
        f"| {row['way']} | {rate:,} | {rate / best:.0%} | {makespan_s:.1f} s | {row['gpu_percent']} % "
        f"| {row['power_w']} W | {row['joule_per_token']:.3f} |"
    )


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    options.add_argument("--port", type=int, default=8801)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--tasks", type=int, default=200)
    options.add_argument("--questions", type=int, default=24)
    options.add_argument("--only", choices=("mixed", "council"))
    options.add_argument("--out", type=Path, help="write all figures there as JSON")
    given = options.parse_args()
    with _served(given.port) as server:
        print(json.dumps(server), file=sys.stderr, flush=True)
        arena = Arena(server["url"], given.rounds, given.tasks, given.questions)
        found: dict[str, Any] = {"server": server}
        print(
            f"{server['gpu']}, {server['parameters'] / 1e9:.2f} billion parameters, PyTorch {server['torch']}\n"
        )
        if given.only != "council":
            found["mixed"] = arena.mixed()
            print(table(f"{given.tasks} mixed tasks", found["mixed"]) + "\n", flush=True)
        if given.only != "mixed":
            found["council"] = arena.council()
            print(
                table(f"{given.questions} questions to a council of six", found["council"]) + "\n", flush=True
            )
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
