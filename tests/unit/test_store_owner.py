"""What is told where a store has a dispatcher already: who it is, and when it leaves."""

from __future__ import annotations

import pytest

from penstock.store.base import Epoch, Owner
from penstock.store.ownership import already_owned


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
