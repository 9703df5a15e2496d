"""What is done every so often beside the dispatching: the heartbeat, forgetting what ended long ago, and, by one
that stops, looking out for those who would go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from penstock.clock import SystemClock
from penstock.diagnosis.history import Owner
from penstock.errors import DispatcherError, StoreCorrupt, StoreError
from penstock.scheduling.messages import Event, Tick
from penstock.store.base import Store
from penstock.store.standbys import standbys

log = logging.getLogger("penstock.dispatcher")

_PRUNE_EVERY_S = 6 * 3600.0
_LOOK_S = 0.25
_LOOKS = 4  # what is over sooner is no news
_PRUNE_AGAIN_S = 60.0  # after it could not be done
_HEIRS_S = 1.0


async def beat(
    store: Store, epoch: int, every_s: float, clock: SystemClock, tell: Callable[[Event], None]
) -> None:
    """Tell the store that we live, and the scheduler when the clock leapt."""
    while True:
        await asyncio.sleep(every_s)
        leapt = clock.follow()
        if leapt:
            log.warning("the clock leapt forward by %.1f s", leapt)
            tell(Tick())
        await store.heartbeat(epoch, clock.now())


async def prune(store: Store, keep_days: float | None, clock: SystemClock) -> None:
    """Forget tasks that ended more than so many days ago; none, where nothing says how many. What is no history,
    such as leases of the dead, goes in any case."""
    while True:
        before = None if keep_days is None else clock.now() - keep_days * 86400
        try:
            forgotten = await store.prune(before)
        except (DispatcherError, StoreCorrupt):
            raise
        except StoreError as error:  # it is full, locked or away: no reason to stop dispatching
            log.warning("what is old is kept a while longer: %s", error)
            await asyncio.sleep(_PRUNE_AGAIN_S)
            continue
        if forgotten:
            log.info("forgot %d tasks that ended more than %g days ago", forgotten, keep_days)
        await asyncio.sleep(_PRUNE_EVERY_S)


async def tell_stopping(store: Store, epoch: int, stopping: asyncio.Event) -> None:
    """When we are to stop, whoever asks who leads is told that, too."""
    await stopping.wait()
    await store.tell_stopping(epoch)


async def watch_heirs(store: Store, me: Owner, stopping: asyncio.Event, told: Callable[[bool], None]) -> None:
    """From when we are to stop: whether somebody else stands by. A store that is away has told its last word."""
    await stopping.wait()
    while True:
        with suppress(StoreError):
            found = await standbys(store)
            # What we showed ourselves by before we led may still be there.
            told(any((one.machine, one.pid) != (me.machine, me.pid) for one in found))
        await asyncio.sleep(_HEIRS_S)


async def watch_store(store: Store, look: Callable[[], None]) -> None:
    """Have it looked at when nothing can be recorded, so that nothing starts; and say so, and when it can again."""
    told = False
    looks = 0  # that have found it so
    while True:
        await asyncio.sleep(_LOOK_S)
        look()
        looks = looks + 1 if store.trouble is not None else 0
        if looks >= _LOOKS and not told:
            told = True
            log.warning("work pauses: %s", store.trouble)
        elif not looks and told:
            told = False
            log.warning("work goes on: the store keeps what is recorded again")
