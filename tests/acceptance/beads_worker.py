"""One of many processes that claim issues of one folder, one at a time, and close them; it tells what it claimed.

Run as `python -m tests.acceptance.beads_worker FOLDER`. It begins when its standard input ends.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from penstock.config.beads import Beads
from penstock.intake.beads.claims import Claims
from penstock.intake.beads.reports import report_of
from penstock.intake.beads.tracker import find_place, may_claim, open_tracker
from penstock.model import State, Task, TaskRecord


async def work(folder: Path) -> None:
    place = find_place(folder)
    tracker = open_tracker(place, Beads())
    claims = Claims(place.beads, "one.db")
    claims.open()
    left = True
    while left:
        with claims.exclusive():
            ready = [one.id for one in (await tracker.look(time.time())).ready if may_claim(one, "penstock")]
            free = [id for id in ready if id not in claims.taken()][:2]
            claims.add(free, time.time())
            won = await tracker.claim(free, time.time())
            if lost := [id for id in free if id not in won]:
                claims.drop(lost)
        left = bool(won)
        for id in won:
            print(id, flush=True)
            record = TaskRecord(Task("k", id="t"), 1, State.DONE, value=f"did {id}", ended_at=time.time())
            assert await tracker.finish({id: report_of(record)})
            claims.drop([id])
    await tracker.close()
    claims.close()


if __name__ == "__main__":
    sys.stdin.read()
    asyncio.run(work(Path(sys.argv[1])))
