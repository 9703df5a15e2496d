"""A council: what it adds to the time of its models, what a server that takes one at a time makes of it, crowds.

What a question should take is measured in the same run: a call to each server itself, made as the council makes it.
Retrieval is off; agreement is measured, beside the chair.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence

from benchmarks.council import CHAIR, MEMBERS, Asked, asking, behaviour, config, servers, straight
from benchmarks.frame import Bench, CannotRun, at_most, benchmark

MODELS = (*MEMBERS, CHAIR)
CROWD = 20


def told(what: str, times_s: Sequence[float]) -> str:
    ordered = sorted(times_s)
    high = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return f"{what}: median {statistics.median(ordered) * 1000:.1f} ms, p95 {high * 1000:.1f} ms"


def all_measured(asked: Sequence[Asked]) -> None:
    """Else it would have been cheaper than it is."""
    for one in asked:
        if not one.record["agreement"]["measured"] or one.record["success_count"] != len(MEMBERS):
            raise CannotRun(f"not all was done: {one.record['agreement']['why']}, {one.record['responses']}")


async def _ideal_s(urls: Sequence[str]) -> float:
    """The slowest member, then the chair, each asked without us."""
    took_s = [await straight(url, model) for url, model in zip(urls, MODELS, strict=True)]
    return max(took_s[:-1]) + took_s[-1]


async def _in_a_row(bench: Bench, count: int) -> tuple[float, list[Asked]]:
    with servers(*(behaviour(model) for model in MODELS)) as urls:
        ideal_s = await _ideal_s(urls)
        async with asking(bench.folder, config(dict(zip(MODELS, urls, strict=True)))) as asker:
            asked = [await asker.ask() for _ in range(count)]
    all_measured(asked)
    return ideal_s, asked


@benchmark(
    "council-time",
    what="six members and a chair on servers of their own: whole time ÷ (slowest + chair), median",
    unit="×",
    goal=at_most(1.05),
)
def whole(bench: Bench) -> float:
    ideal_s, asked = asyncio.run(_in_a_row(bench, bench.size(20, 6)))
    shares = [one.took_s / ideal_s for one in asked]
    bench.notes.append(f"slowest + chair, asked without us: {ideal_s:.3f} s")
    bench.notes.append(
        f"the first question, with a cold library: {shares[0]:.3f}×; worst: {max(shares):.3f}×"
    )
    return statistics.median(shares)


@benchmark("council-cold", what="the same, the first question of a serve", unit="×", goal=at_most(1.05))
def cold(bench: Bench) -> float:
    ideal_s, asked = asyncio.run(_in_a_row(bench, 1))
    return asked[0].took_s / ideal_s


@benchmark(
    "council-between", what="from the end of the last member to the start of the chair, median", unit="ms"
)
def between(bench: Bench) -> float:
    _, asked = asyncio.run(_in_a_row(bench, bench.size(30, 8)))
    gaps_s = [one.between_s for one in asked]
    bench.notes.append(told("from the last member to the chair", gaps_s))
    return statistics.median(gaps_s) * 1000


@benchmark(
    "council-one-server",
    what="the same council on one server that answers one at a time: whole time ÷ all seven in a row",
    unit="×",
    goal=at_most(1.05),
)
def one_server(bench: Bench) -> float:
    return asyncio.run(_one_server(bench))


async def _one_server(bench: Bench) -> float:
    with servers(behaviour(*MODELS, slots=1)) as (url,):
        each_s = [await straight(url, model) for model in MODELS]
        async with asking(bench.folder, config(dict.fromkeys(MODELS, url), slots=1)) as asker:
            asked = [await asker.ask() for _ in range(bench.size(3, 1))]
    all_measured(asked)
    took_s = statistics.median(one.took_s for one in asked)
    ideal_s = max(each_s[:-1]) + each_s[-1]
    bench.notes.append(f"{took_s:.2f} s: {took_s / ideal_s:.2f} times what servers of their own need")
    return took_s / sum(each_s)


@benchmark(
    "council-crowd",
    what=f"{CROWD} questions at once, servers with room for all: the last answer ÷ (slowest + chair)",
    unit="×",
)
def crowd(bench: Bench) -> float:
    return asyncio.run(_crowd(bench))


async def _crowd(bench: Bench) -> float:
    with servers(*(behaviour(model) for model in MODELS)) as urls:
        ideal_s = await _ideal_s(urls)
        async with asking(bench.folder, config(dict(zip(MODELS, urls, strict=True)))) as asker:
            await asker.ask()
            began = time.perf_counter()
            asked = await asker.many(CROWD)
            took_s = time.perf_counter() - began
    all_measured(asked)
    answered_s = sorted(_answered_s(one) for one in asked)
    calls = CROWD * len(MODELS)
    bench.notes.append(
        f"{CROWD} questions, {calls} streamed calls: {took_s:.2f} s, {calls / took_s:.0f} calls/s"
    )
    bench.notes.append(told("from asking to the synthesis", answered_s))
    bench.notes.append(told("from the last member to the chair", [one.between_s for one in asked]))
    bench.notes.append(told("from asking to the record, agreement included", [one.took_s for one in asked]))
    return took_s / ideal_s


def _answered_s(asked: Asked) -> float:
    """From the first that was heard of it to the end of the chair."""
    steps = [event for event in asked.events if event["event"] == "step" and event["state"] == "ended"]
    chair = max(event["at"] for event in steps if event["stage"] == "synthesis")
    return float(chair - asked.events[0]["at"])
