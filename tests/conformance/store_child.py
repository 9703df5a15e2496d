"""A process of its own on a store: `python store_child.py VERB ADDRESS …`. Says a line at each step."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Awaitable, Callable

from penstock.agents.starts import start_lock
from penstock.agents.starts.store_lock import StoreStartLock
from penstock.errors import AgentBusy, StoreFull
from penstock.model import Outcome, State, Task, Verdict
from penstock.scheduling.messages import Decision, End, Start
from penstock.store.base import Owner, Request, Store
from penstock.store.postgres import PostgresStore
from penstock.store.sqlite import SQLiteStore


def say(words: object) -> None:
    print(words if isinstance(words, str) else json.dumps(words), flush=True)


async def heard() -> str:
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.strip()


async def own(store: Store) -> None:
    """Dispatch until told to stop; every other word is a task to run through, or after `begin` only to start."""
    epoch, _ = await store.acquire(Owner(os.getpid(), "elsewhere", "child work"), time.time())
    say("owned")
    while (word := await heard()) != "stop":
        now = time.time()
        outcome = Outcome(Verdict.DONE, "by a child")
        task = word.removeprefix("begin ")
        decisions: list[Decision] = [Start(task, 1, "far", "default", 1, now)]
        if task == word:
            decisions.append(End(task, 1, State.DONE, "finish", now, outcome, None))
        await store.record(decisions)
        say("recorded")
    await store.release(epoch.number, time.time())
    say("released")


async def submit(store: Store, *keys: str) -> None:
    """One submit per key, all at once."""
    await store.get("none")
    say("ready")
    await heard()
    ids = await asyncio.gather(*(store.submit([Task("count", key=key)]) for key in keys))
    say([id for (id,) in ids])


async def ask(store: Store, verb: str) -> None:
    """Leave a request and wait at a bell until it is answered."""
    bell = store.bell()
    number = await store.ask(Request(verb, {"task": "x"}))
    say("asked")
    while (answer := await store.answer_to(number)) is None:
        await bell.wait()
    say([answer.ok, answer.detail, dict(answer.data)])


async def listen(store: Store) -> None:
    """Hang up a bell and never answer it."""
    store.bell()
    say("listening")
    await heard()


async def bulk(store: Store, size: str) -> None:
    """Submit one run after the other, each told once it is acknowledged."""
    number = 0
    while True:
        run = f"run-{number}"
        await store.submit([Task("count", {"n": n}, run=run) for n in range(int(size))])
        say(run)
        number += 1


async def fill(store: Store, ballast: str) -> None:
    """Submit until the disk is full, record what it cannot take, then make room; tell how it went."""
    acknowledged: list[str] = []
    refusal = ""
    while not refusal:
        try:
            acknowledged += await store.submit([Task("count", {"text": "x" * 400}) for _ in range(20)])
        except StoreFull as full:
            refusal = str(full)
    now = time.time()
    outcome = Outcome(Verdict.DONE, "y" * 200)
    written = store.record(
        [
            decision
            for id in acknowledged
            for decision in (
                Start(id, 1, "surtr", "default", 1, now),
                End(id, 1, State.DONE, "finish", now, outcome, None),
            )
        ]
    )
    while store.trouble is None and not written.done():  # noqa: ASYNC110 - it is told nowhere else
        await asyncio.sleep(0)
    trouble = store.trouble
    os.unlink(ballast)
    await written
    ended = (await store.snapshot(now)).ended
    say(
        {
            "acknowledged": acknowledged,
            "refusal": refusal,
            "trouble": trouble,
            "after": store.trouble,
            "done": ended.get(State.DONE, 0),
        }
    )


async def lock(store: Store, name: str, ttl_s: str, machine: str) -> None:
    """Hold the lock that the start of an agent's container takes, as if on another machine where one is named."""
    if machine:
        start_lock._place = platform.node = lambda: machine
    held = StoreStartLock(store, name, float(ttl_s))
    say("held" if await held.take() else "refused")
    while (word := await heard()) == "step":
        try:
            await held.tell("the next step")
        except AgentBusy:
            say("lost")
        else:
            say("ours")
    if word == "free":
        await held.free()
        say("freed")


VERBS: dict[str, Callable[..., Awaitable[None]]] = {
    "own": own,
    "submit": submit,
    "ask": ask,
    "listen": listen,
    "lock": lock,
    "bulk": bulk,
    "fill": fill,
}


async def main(verb: str, address: str, *rest: str) -> None:
    store: Store = PostgresStore(address) if "://" in address else SQLiteStore(address)
    await store.open()
    try:
        await VERBS[verb](store, *rest)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
