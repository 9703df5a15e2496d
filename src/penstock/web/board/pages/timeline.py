"""What ran when, and what waiting was for: of a run, or of the last minutes, live."""

from __future__ import annotations

from urllib.parse import urlencode

from penstock.model import State
from penstock.store.base import RunCount
from penstock.web.board.frame import Visit
from penstock.web.board.tables import At, Badge, Column, Link, Row, table
from penstock.web.board.timeline_data import WINDOWS, Wanted, wanted
from penstock.web.board.timeline_picture import TimelinePicture, query_of, timeline_path
from penstock.web.board.toolkit import BASE, badge, empty, link, section, tag

_NEWEST = 20
_MOST_COUNTED = 2_000  # tasks of a run of the list, whose states are counted one by one
_WORST_FIRST = (State.RUNNING, State.QUEUED, State.FAILED, State.BLOCKED, State.CANCELLED)
_FORMS = {"html": "HTML", "svg": "SVG", "json": "JSON"}


async def build(visit: Visit) -> None:
    shown = wanted(visit.query("run"), visit.query("since"))
    counts = await visit.desk.client.states_in_run(shown.run) if shown.run else {}
    visit.title(f"{shown.run} · Timeline" if shown.run else f"Last {WINDOWS[shown.window][0]} · Timeline")
    _choices(shown)
    if shown.run:
        _about_run(shown.run, counts)
    if shown.run and not counts:
        empty(f"There is no run {shown.run}", "Choose one below, or look at the last hour above.")
    elif not shown.run and not await visit.desk.client.last_event():
        empty("Nothing has run yet", "Submit a task, and watch it here.", "penstock submit KIND PAYLOAD")
    else:
        TimelinePicture(query_of(shown), label=f"Timeline of {shown.words}")
    await _runs(visit)


def _choices(shown: Wanted) -> None:
    with tag("div", class_="cluster apart"):
        with tag("nav", class_="choices", aria_label="Time shown"):
            tag("span", "Last", class_="soft")
            for key, (words, _) in WINDOWS.items():
                current = "true" if not shown.run and key == shown.window else None
                link(
                    words,
                    f"/timeline?since={key}",
                    aria_current=current,
                    aria_label=f"Last {words}",
                    class_="button",
                )
        with tag("div", class_="cluster", role="group", aria_label="Download what is shown"):
            tag("span", "Download", class_="soft")
            for ending, words in _FORMS.items():
                tag(
                    "a",
                    words,
                    href=f"{BASE}/data/timeline.{ending}?{query_of(shown)}",
                    download=shown.file_name(ending),
                    class_="button",
                )


def _about_run(run: str, counts: dict[State, int]) -> None:
    with tag("div", class_="cluster"):
        tag("h2", run, class_="run-name")
        for state, count in counts.items():
            badge(str(state), f"{count:,} {state}")
        if counts:
            for words, page in (("Diagnose", "/diagnose"), ("What if", "/whatif"), ("Tasks", "/queue")):
                link(words, f"{page}?{urlencode({'run': run})}")


async def _runs(visit: Visit) -> None:
    prefix = visit.query("q")
    with section("Runs", note="the newest first" if not prefix else f"that begin with {prefix}"):
        with tag("form", method="get", action=f"{BASE}/timeline", class_="cluster end", role="search"):
            with tag("div", class_="field"):
                tag("label", "Name begins with", for_="run-prefix")
                tag("input", id="run-prefix", name="q", type="search", value=prefix, autocomplete="off")
            tag("button", "Find", type="submit", class_="button")
            if prefix:
                link("All runs", "/timeline")
        rows = await _found(visit, prefix)
        if rows:
            table("Runs", [Column("Run", heads=True), Column("Tasks", num=True), "States", "Begun"], rows)
        elif prefix:
            empty(f"No run begins with {prefix}", "Give less of its name.")
        else:
            empty("There are no runs yet", "Tasks submitted together are a run.", "penstock run FILE")


async def _found(visit: Visit, prefix: str) -> list[Row]:
    client = visit.desk.client
    if prefix:
        return [await _row(visit, run, None) for run in await client.runs_beginning(prefix)]
    return [await _row(visit, one.run, one) for one in await client.runs(_NEWEST)]


async def _row(visit: Visit, run: str, counted: RunCount | None) -> Row:
    begun = None if counted is None else At(counted.queued_at)
    name = Link(run, timeline_path(run))
    if counted is not None and counted.tasks > _MOST_COUNTED:
        states = Badge("running", f"{counted.live:,} live") if counted.live else Badge("stopped", "all ended")
        return Row([name, counted.tasks, states, begun])
    counts = await visit.desk.client.states_in_run(run)
    worst = next((state for state in _WORST_FIRST if counts.get(state)), State.DONE)
    words = ", ".join(f"{count:,} {state}" for state, count in counts.items())
    return Row([name, sum(counts.values()), Badge(str(worst), words), begun])
