"""One thread per kind, which does its tasks one at a time and skips a kind that is busy.

It is Penstock with `--dispatcher threads`, over the same store and the same hosts: what differs from Penstock is
this alone.
"""

from __future__ import annotations

from penstock.compare.contenders.penstock_itself import opened_with
from penstock.compare.plan import Opened, Plan


def opened(plan: Plan) -> Opened:
    return opened_with(plan, "threads")
