"""A timeline as one HTML page that needs nothing else: no server, no network, only a browser.

All that the page shows travels in it as columns of numbers and tables of texts, so that 50,000 tasks stay a few
megabytes. No text of a user is ever markup: it stands in a block of JSON, with every `<` written as an escape,
and the scripts put it in as text. The page's own policy lets nothing run but these scripts, and nothing be
fetched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html import escape
from typing import Any

from penstock.diagnosis.timeline.bars import FAILED, Excerpt, HostUse, Sort, Steps, Timeline
from penstock.diagnosis.timeline.outliers import RULE
from penstock.diagnosis.timeline.palette import WAITS, Look, host_looks, wait_looks
from penstock.diagnosis.timeline.policy import fit_for_text, ground, part, policy

GENERATOR = '<meta name="generator" content="penstock timeline">'  # by which a page of ours is known
# Whoever shows a picture loads these, in any order; `picture.js` says how to put one into a page.
PICTURE = (
    *("data.js", "draw.js", "under.js", "marks.js", "story.js", "frame.js", "aside.js", "hands.js"),
    "picture.js",
)
_SORTS = {Sort.WAITING: 0, Sort.RUNNING: 1, Sort.RESTING: 2}
_FINE_S, _COARSE_S = 1e-6, 1e-3  # what one tick lasts, in short runs and in long ones
_LONG_S = 10_000.0


def page(timeline: Timeline) -> str:
    """The whole file."""
    script = picture_script() + part("page.js")
    style = ground() + part("timeline.css") + part("page.css")
    values = {
        "POLICY": escape(policy(style, script)),
        "TITLE": escape(fit_for_text(f"Timeline: {timeline.run}")),
        "STYLE": style,
        "SCRIPT": script,
        "DATA": _embedded(page_data(timeline)),
    }
    # In one pass over the template: what is put in is never looked at again.
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda found: values[found[1]], part("timeline.html"))


def picture_script() -> str:
    """What draws a picture, as one text: it declares `Picture` and does nothing by itself."""
    return "".join(part(name) for name in PICTURE)


def _embedded(data: Any) -> str:
    """JSON that cannot end its element; in ASCII, so that half a pair of surrogates does not break the file."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")


class _Table:
    """Each text once; its place stands for it."""

    def __init__(self, first: Iterable[Any] = ()) -> None:
        self.places: dict[Any, int] = {}
        for one in first:
            self.place(one)

    def place(self, one: Any) -> int:
        return self.places.setdefault(one, len(self.places))

    def all(self) -> list[Any]:
        return list(self.places)


def page_data(timeline: Timeline) -> dict[str, Any]:
    """What the scripts read: times are whole ticks from the begin, texts are places in tables."""
    unit = _FINE_S if timeline.seconds < _LONG_S else _COARSE_S
    columns = _Columns(timeline, unit)
    data = columns.data()  # it fills the tables that the rest points into
    return {
        "run": timeline.run,
        "begin": timeline.begin,
        "unit": unit,
        "span": columns.ticks(timeline.end),
        "live": timeline.is_live,
        "open": [place for place, bar in enumerate(timeline.bars) if bar.record.ended_at is None],
        "excerpt": _excerpt(timeline.excerpt),
        "rule": RULE,
        **data,
        "hosts": [_host(use, timeline.begin, columns.whats) for use in timeline.hosts],
        "outliers": [[place, bar.outliers] for place, bar in enumerate(timeline.bars) if bar.outliers],
        "reasons": [
            [columns.whats.place((Sort.WAITING, reason)), round(spent, 6)]
            for reason, spent in timeline.reasons.items()
        ],
        "stalls": [
            {
                "host": stall.host,
                "task": stall.task,
                "from": stall.at - stall.seconds - timeline.begin,
                "to": stall.at - timeline.begin,
            }
            for stall in timeline.stalls
        ],
    }


def _excerpt(excerpt: Excerpt | None) -> dict[str, Any] | None:
    if excerpt is None:
        return None
    window = None if excerpt.begin is None else [excerpt.begin, excerpt.end]
    return {"total": excerpt.total, "more": excerpt.more, "window": window}


class _Columns:
    def __init__(self, timeline: Timeline, unit: float) -> None:
        self._timeline = timeline
        self._unit = unit
        self._looks = host_looks(timeline.host_names)
        self._waits = wait_looks(timeline.reasons)
        # Reasons by what they cost, hosts by the plant: the order of the legend and of the filters.
        self.whats = _Table([(Sort.WAITING, reason) for reason in timeline.reasons])
        self._texts = _Table([""])
        self._verdicts = _Table([""])
        self._names = {name: _Table() for name in ("kind", "lane", "state")}

    def ticks(self, at: float) -> int:
        return round((at - self._timeline.begin) / self._unit)

    def data(self) -> dict[str, Any]:
        names = ("id", "name", "kind", "lane", "state", "priority", "queued", "pieces", "error", "cost")
        tasks: dict[str, list[Any]] = {name: [] for name in names}
        pieces: dict[str, list[int]] = {
            name: [] for name in ("what", "length", "detail", "attempt", "verdict")
        }
        for bar in self._timeline.bars:
            record = bar.record
            tasks["id"].append(record.task.id)
            tasks["name"].append("" if bar.name == record.task.id else bar.name)
            for name, value in (
                ("kind", record.task.kind),
                ("lane", record.task.lane),
                ("state", str(record.state)),
            ):
                tasks[name].append(self._names[name].place(value))
            tasks["priority"].append(record.task.priority)
            tasks["queued"].append(self.ticks(bar.start))
            tasks["pieces"].append(len(bar.pieces))
            tasks["error"].append(self._texts.place(record.error or ""))
            tasks["cost"].append(0 if bar.cost_usd is None else round(bar.cost_usd, 6))
            for piece in bar.pieces:
                pieces["what"].append(self.whats.place((piece.sort, piece.what)))
                pieces["length"].append(self.ticks(piece.end) - self.ticks(piece.start))
                pieces["detail"].append(self._texts.place(piece.detail))
                pieces["attempt"].append(piece.attempt)
                pieces["verdict"].append(self._verdicts.place(piece.verdict))
        if not any(tasks["name"]):
            tasks["name"] = []
        return {
            "tasks": tasks,
            "thin": [place for place, bar in enumerate(self._timeline.bars) if bar.is_question],
            "pieces": pieces,
            "whats": [self._what(*one) for one in self.whats.all()],
            "texts": self._texts.all(),
            "verdicts": self._verdicts.all(),
            "failed": [int(verdict in FAILED) for verdict in self._verdicts.all()],
            "kinds": self._names["kind"].all(),
            "lanes": self._names["lane"].all(),
            "states": self._names["state"].all(),
            "colours": self._colours(),
        }

    def _colours(self) -> dict[str, Any]:
        """What the colours of attempts tell: the host; where there is but one, the lane, or else the kind."""
        hosts = {name for sort, name in self.whats.all() if sort is Sort.RUNNING}
        by = next((name for name in ("lane", "kind") if len(self._names[name].all()) > 1), "host")
        if len(hosts) != 1 or by == "host":
            return {"by": "host", "looks": []}
        looks = host_looks(self._names[by].all())
        return {"by": by, "looks": [{"light": one.colour, "dark": one.dark} for one in looks.values()]}

    def _what(self, sort: Sort, name: str) -> dict[str, Any]:
        look: Look = self._looks[name] if sort is Sort.RUNNING else self._waits.get(name, WAITS[""])
        return {
            "sort": _SORTS[sort],
            "name": name,
            "light": look.colour,
            "dark": look.dark,
            "pattern": look.pattern,
            "tile": look.tile,
        }


def _host(use: HostUse, begin: float, whats: _Table) -> dict[str, Any]:
    return {
        "host": use.host,
        "what": whats.places.get((Sort.RUNNING, use.host), -1),
        "peak": use.peak,
        "used": _apart(use.used, begin),
        "others": _apart(use.others, begin),
        "available": _apart(use.available, begin),
    }


def _apart(steps: Steps, begin: float) -> dict[str, list[float]]:
    return {"times": [round(at - begin, 6) for at, _ in steps], "values": [value for _, value in steps]}
