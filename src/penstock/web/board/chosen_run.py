"""The run that a page is about: the one its address names, or the newest, with the others to choose from."""

from __future__ import annotations

from urllib.parse import quote

from nicegui import ui

from penstock.store.base import RunCount
from penstock.web.board.frame import Visit
from penstock.web.board.toolkit import BASE, empty, field, link, select, tag
from penstock.web.board.words import counted

_MOST = 50


async def choose_run(visit: Visit, path: str, purpose: str) -> str:
    """Empty when there is none yet, which the page then says."""
    runs = await visit.desk.client.runs(_MOST)
    if not runs:
        empty("There is no run yet", f"Run some tasks {purpose}:", "penstock run tasks.jsonl")
        return ""
    run = await visit.desk.client.run_named(visit.query("run") or runs[0].run)

    def go(name: str) -> None:
        if name and name != run:
            ui.navigate.to(f"{BASE}{path}?run={_quoted(name)}")

    with tag("div", class_="cluster end"):
        offered = {one.run: _told(one) for one in runs}
        select("Run", {run: run, **offered} if run not in offered else offered, run, on_change=go)
        field("or by its name", on_change=go, placeholder="the name, or how it begins")
        for text, other in (("Timeline", "/timeline"), ("Diagnose", "/diagnose"), ("What if", "/whatif")):
            if other != path:
                link(text, f"{other}?run={_quoted(run)}", class_="button")
    return run


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _told(one: RunCount) -> str:
    return f"{one.run} · {counted(one.tasks, 'task')}" + (f", {one.live:,} not ended" if one.live else "")
