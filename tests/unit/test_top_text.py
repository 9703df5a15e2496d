"""E7: what `top` makes of one look: the signs, cells and lines, and that no text of a user is more than text."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from penstock.cli import render, top_text

RECORD: dict[str, Any] = {
    "dispatcher": {
        "pid": 7,
        "machine": "m",
        "command": "penstock work",
        "since": 0.0,
        "stopping_since": None,
        "only_run": None,
    },
    "standbys": [],
    "queue_depth": 1234,
    "interrupted": 0,
    "paused": False,
    "hosts": {
        "fenrir": {"state": "up", "active": 1, "slots": 3, "queued": 5, "detail": "", "error": None},
        "skadi": {
            "state": "paused",
            "active": 0,
            "slots": 2,
            "queued": 0,
            "detail": "x\x1b[31m\ny",
            "error": None,
        },
    },
    "lanes": {"default": {"running": 1, "delayed": 0, "max_running": None, "queued": 1234, "paused": False}},
    "gates": {"vram": {"open": False, "detail": "used 91 %"}},
    "running": [
        {
            "task": "young",
            "priority": 1,
            "kind": "k",
            "host": "h",
            "lane": "l",
            "started_at": 90.0,
            "name": None,
        },
        {
            "task": "old",
            "priority": 1,
            "kind": "k",
            "host": "h",
            "lane": "l",
            "started_at": 10.0,
            "name": "n",
        },
    ],
    "priorities": {0: 1, 3: 1233},
    "waits_for": {"slot": 1234},
    "ended": [
        {"minute": 600, "state": "done", "tasks": 4},
        {"minute": 540, "state": "failed", "tasks": 1},
        {"minute": 600 - 60 * 60, "state": "done", "tasks": 99},
    ],
    "minute": 660,
}


def shown(parts: Any) -> str:
    out = Console(width=200, file=None, force_terminal=False)
    with out.capture() as captured:
        for part in parts or ():
            out.print(part)
    return captured.get()


@pytest.mark.parametrize(
    ("active", "slots", "signs"),
    [
        (0, 2, "▯▯ 0/2"),
        (1, 3, "▮▯▯ 1/3"),
        (3, 2, "▮▮▮ 3/2"),  # slots were taken away from under what runs
        (50, 100, "▮▮▮▮▮▮▮▮▯▯▯▯▯▯▯▯ 50/100"),
        (200, 100, "▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮ 200/100"),
    ],
)
def test_slots_are_counted_at_a_glance(active: int, slots: int, signs: str) -> None:
    assert top_text.slots(active, slots).plain == signs


def test_what_has_run_longest_stands_first() -> None:
    rows = top_text.running_rows(RECORD, 100.0)
    assert [key for key, _ in rows] == ["old", "young"]
    assert [cell.plain for cell in rows[0][1]] == ["old", "1", "k", "h", "l", "1:30", "n"]


def test_a_detail_of_anybodys_is_one_line_of_text() -> None:
    cells = top_text.host_rows(RECORD)[1][1]
    assert cells[-1].plain == "x�[31m y"


def test_who_dispatches_is_said_and_that_nobody_does() -> None:
    assert "1,234 queued, 2 running  penstock work, process 7" in top_text.who(RECORD).plain
    beside = {**RECORD, "standbys": [{"pid": 8, "machine": "n", "command": "penstock serve"}]}
    assert top_text.who(beside).plain.endswith("standing by: process 8 on n")
    assert "stopping" not in top_text.who(RECORD).plain
    stopping = {**RECORD, "dispatcher": {**RECORD["dispatcher"], "stopping_since": 9.0}}
    assert top_text.who(stopping).plain.endswith(f"  stopping since {render.moment(9.0)}")
    alone = {**RECORD, "dispatcher": None, "interrupted": 2, "paused": True}
    told = top_text.who(alone).plain
    assert "no dispatcher is running; `penstock work` or `penstock serve` starts one" in told
    led_soon = top_text.who({**alone, "standbys": beside["standbys"]}).plain
    assert "no dispatcher is running; one that stands by takes over within seconds" in led_soon
    assert "2 tasks interrupted" in told
    assert "everything is paused" in told


def test_bars_have_their_numbers_and_nothing_is_drawn_of_nothing() -> None:
    assert "0 █ 1\n" in shown(top_text.priorities(RECORD))
    assert f"3 {'█' * 20} 1,233\n" in shown(top_text.priorities(RECORD))
    assert "slot" in shown(top_text.waits(RECORD))
    assert "closed vram  used 91 %" in shown(top_text.gates(RECORD))
    empty = {**RECORD, "priorities": {}, "waits_for": {}, "gates": {}, "ended": []}
    assert [f(empty) for f in (top_text.priorities, top_text.waits, top_text.gates, top_text.ended)] == [
        None
    ] * 4


def test_the_last_hour_leaves_out_what_is_older() -> None:
    told = shown(top_text.ended(RECORD))
    assert "4 done, 1 failed; 4 in the last whole minute" in told


def test_a_spark_is_as_long_as_its_counts() -> None:
    assert top_text.spark([0, 1, 8]) == " ▁█"
    assert top_text.spark([0, 0]) == "  "


def test_a_pause_is_of_a_host_or_of_everything() -> None:
    assert not top_text.is_paused(RECORD, None)
    assert top_text.is_paused(RECORD, "skadi")
    assert not top_text.is_paused(RECORD, "fenrir")


def test_hosts_that_fail_are_named_with_the_whole_of_what_to_do() -> None:
    """E9: `down` also while one is being tried again."""
    assert top_text.outages(RECORD) is None
    hosts = {
        f"h{n}": {"state": state, "error": f"no program; install it \n{'x' * 60}"}
        for n, state in enumerate(("down", "probing", "up", "down", "down"))
    }
    hosts["h1"]["error"] = f"h1: {hosts['h1']['error']}"  # as the adapters say it: the name comes once
    told = shown(top_text.outages({**RECORD, "hosts": hosts})).splitlines()
    assert told == [
        f"h0 is down: no program; install it {'x' * 60}",
        f"h1 is down: no program; install it {'x' * 60}",
        f"h2 failed: no program; install it {'x' * 60}",
        "and 2 more hosts",
    ]
