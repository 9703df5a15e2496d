"""The ways that are compared, each in a file of its own: `opened(plan)` makes it ready, what it gives runs it.

thread_per_kind.py    one thread per kind, one task at a time: Penstock with `--dispatcher threads`
thread_pool.py        a pool of threads for each host, as large as the host has slots
process_pool.py       the same with processes
asyncio_limits.py     a coroutine for each task, a semaphore for each host
penstock_itself.py    Penstock with its store, its dispatcher and its hosts

calls.py computing.py     what all of them do: one call of a model server, one piece of computing
pools.py                  what both pools share
process.py                the process in which one of them runs
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from penstock.compare.plan import Opened, Plan

# In the order in which they run and are shown: module, and what people read.
CONTENDERS: Mapping[str, str] = {
    "thread_per_kind": "thread per kind",
    "thread_pool": "thread pool",
    "process_pool": "process pool",
    "asyncio_limits": "asyncio + semaphores",
    "penstock_itself": "Penstock",
}
LEGACY = "thread_per_kind"
OURS = "penstock_itself"


def opened(name: str, plan: Plan) -> Opened:
    made: Opened = import_module(f"penstock.compare.contenders.{name}").opened(plan)
    return made
