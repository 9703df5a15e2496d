"""What is told where a store has a dispatcher already: who it is, and when it leaves."""

from __future__ import annotations

import pytest

from penstock.errors import AlreadyOwned
from penstock.store.base import Epoch, Owner
from penstock.store.ownership import already_owned
from penstock.store.sqlite import SQLiteStore
from penstock.store.standbys import PREFIX


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        ("penstock council ask", "it ends with its question: wait for that, or stop it"),
        ("penstock council ingest", "it ends with its documents: wait for that, or stop it"),
        ("penstock serve", "stop that one first"),
    ],
)
def test_when_it_leaves_by_itself_that_is_said(command: str, remedy: str) -> None:
    """D7: nobody has to cancel a question to start a server."""
    holder = Epoch(1, Owner(pid=77, machine="here", command=command), 0.0, 0.0, None)
    told = str(already_owned("penstock.db", holder))
    assert f"already dispatched by process 77 on here ({command}) since " in told
    assert told.endswith(f"; {remedy}")


async def test_those_that_stand_by_must_be_stopped_as_well() -> None:
    """Who stopped the leader alone would be told the same of the next."""
    store = SQLiteStore(":memory:")
    await store.open()
    try:
        await store.acquire(Owner(pid=77, machine="here", command="penstock serve"), 0.0)
        takes = Owner(pid=78, machine="here", command="penstock work --drain")
        for name, told in (
            ("one", "and the one that stands by, which would take over: `penstock status` names it"),
            ("two", "and the 2 that stand by, which would take over: `penstock status` names them"),
        ):
            assert await store.lease(PREFIX + name, name, ttl_s=600)
            with pytest.raises(AlreadyOwned) as refusal:
                await store.acquire(takes, 1.0)
            assert str(refusal.value).endswith(f"; stop that one first, {told}")
    finally:
        await store.close()
