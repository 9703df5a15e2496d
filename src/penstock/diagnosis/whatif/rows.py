"""Before beside after, as the rows of tables: the same words in the terminal and on the board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from penstock.diagnosis.timeline.axis import seconds
from penstock.diagnosis.whatif.figures import Figures, LaneWaits
from penstock.diagnosis.words import percent
from penstock.lifecycle import UNWELL

MOST_REASONS = 3
NOT_DONE = (*map(str, UNWELL), "left")  # figures of a replay, each shown where there are any


class Rows(NamedTuple):
    columns: tuple[str, ...]  # one that begins with ">" holds figures
    rows: Sequence[tuple[str, ...]]


def long(amount_s: float) -> str:
    return seconds(amount_s) if isfinite(amount_s) else "never"


def figure_rows(before: Figures, after: Figures, words: tuple[str, str]) -> Rows:
    rows = [
        ("makespan", *_both(before.makespan_s, after.makespan_s)),
        ("ideal", *_both(before.ideal.seconds, after.ideal.seconds)),
        ("mean wait", *_both(before.waited_s, after.waited_s)),
    ]
    if before.cost_usd or after.cost_usd:
        cost = (f"${before.cost_usd:.4g}", f"${after.cost_usd:.4g}")
        rows.append(("cost", *cost, _change(before.cost_usd, after.cost_usd)))
    for name in NOT_DONE:
        was, is_now = getattr(before, name), getattr(after, name)
        if was or is_now:
            rows.append((f"tasks {name}", str(was), str(is_now), ""))
    return Rows(("", *(f">{word}" for word in words), ">change"), rows)


def _both(before: float, after: float) -> tuple[str, str, str]:
    return long(before), long(after), _change(before, after)


def _change(before: float, after: float) -> str:
    if not isfinite(before) or not isfinite(after) or before <= 0:
        return ""
    change = round((after - before) / before * 100)
    return "=" if change == 0 else f"{change:+d} %"


def lane_rows(before: Figures, after: Figures, words: tuple[str, str]) -> Rows:
    was = {lane.lane: lane for lane in before.lanes}
    rows = []
    for lane in after.lanes:
        old = was.get(lane.lane)
        rows.append(
            (
                lane.lane,
                str(lane.tasks),
                "" if old is None else long(old.mean_s),
                long(lane.mean_s),
                "" if old is None else long(old.p95_s),
                long(lane.p95_s),
                _from_to(_reasons(old), _reasons(lane)),
            )
        )
    return Rows(("lane", ">tasks", ">mean wait", f">{words[1]}", ">95 %", f">{words[1]}", "waited for"), rows)


def _from_to(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"


def _reasons(lane: LaneWaits | None) -> str:
    return "nothing" if lane is None else _in_short(lane.reasons)


def _in_short(reasons: Mapping[str, float]) -> str:
    ordered = sorted(((s, r) for r, s in reasons.items() if s >= 0.001), reverse=True)
    if not ordered:
        return "nothing"
    total = sum(reasons.values())
    parts = [f"{reason} {percent(s / total)}" for s, reason in ordered[:MOST_REASONS]]
    return ", ".join(parts) + (", …" if len(ordered) > MOST_REASONS else "")


def host_rows(before: Figures, after: Figures, words: tuple[str, str]) -> Rows:
    was = {host.host: host for host in before.hosts}
    new = {host.host: host for host in after.hosts}
    rows = []
    for name in dict.fromkeys([*was, *new]):
        old, now = was.get(name), new.get(name)
        rows.append(
            (
                name,
                "" if old is None else str(old.slots),
                "" if now is None else str(now.slots),
                "" if old is None else percent(old.share),
                "" if now is None else percent(now.share),
                "" if old is None else str(old.attempts),
                "" if now is None else str(now.attempts),
            )
        )
    after_ = f">{words[1]}"
    return Rows(("host", ">slots", after_, ">busy", after_, ">attempts", after_), rows)
