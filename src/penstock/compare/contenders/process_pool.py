"""A pool of processes for each host, started before the first task comes."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ProcessPoolExecutor, wait
from importlib import import_module
from multiprocessing import get_context

from penstock.compare.contenders.pools import opened_pools
from penstock.compare.plan import Opened, Place, Plan


def opened(plan: Plan) -> Opened:
    return opened_pools(plan, _pool)


def _pool(place: Place) -> ProcessPoolExecutor:
    # A fork would copy the locks of threads that do not live on in the child; a spawned one begins anew.
    pool = ProcessPoolExecutor(place.slots, get_context("spawn"), initializer=_begin)
    wait([pool.submit(os.getpid) for _ in range(place.slots)])
    return pool


def _begin() -> None:
    """Ctrl-C is for the parent to hear. What a task needs is loaded now, not in its time."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import_module("penstock.compare.contenders.pools")
