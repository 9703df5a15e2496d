"""A pool of threads for each host."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from penstock.compare.contenders.pools import opened_pools
from penstock.compare.plan import Opened, Place, Plan


def opened(plan: Plan) -> Opened:
    return opened_pools(plan, _pool)


def _pool(place: Place) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(place.slots, thread_name_prefix=place.name)
