"""What runs where, what waits, and why: live."""

from __future__ import annotations

from penstock.web.board.components import Moment
from penstock.web.board.elements import tag
from penstock.web.board.frame import Visit


async def build(visit: Visit) -> None:
    snapshot = await visit.desk.client.snapshot()
    with tag("p", "As of "):
        Moment(snapshot.at)
