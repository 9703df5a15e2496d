"""E2: any attempts, written in any form that logs have, are read back as they were; nothing else ever escapes
than an error of ours."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from penstock.diagnosis.recording import Recording
from penstock.errors import PenstockError
from penstock.intake.logs.file import LogFile, read_log

EPOCH_MS = 1_772_359_200_000
DAY_MS = 86_400_000


class Span(NamedTuple):
    """One attempt, in whole milliseconds since the run began."""

    task: str
    kind: str
    host: str
    priority: int
    queued: int
    started: int
    ended: int
    ok: bool


# ---- times as logs write them


def iso_zoned(ms: int) -> str:
    zone = timezone(timedelta(hours=(ms % 5) - 2))
    return datetime.fromtimestamp((EPOCH_MS + ms) / 1000, zone).isoformat(timespec="milliseconds")


def iso_naive(ms: int) -> str:
    moment = datetime.fromtimestamp((EPOCH_MS + ms) / 1000, UTC).replace(tzinfo=None)
    return moment.isoformat(sep=" ", timespec="milliseconds")


def clock(ms: int) -> str:
    ms = (ms + 20 * 3_600_000) % DAY_MS  # a run that begins at eight in the evening
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms % 60_000 / 1000:06.3f}"


def minutes(ms: int) -> str:
    return f"{ms // 60_000:02}:{ms % 60_000 / 1000:06.3f}"


def length(ms: int) -> str:
    hours = f"{ms // 3_600_000}h" if ms >= 3_600_000 else ""
    return f"{hours}{ms // 60_000 % 60}m{ms % 60_000 / 1000}s"


TIMES: dict[str, Callable[[int], Any]] = {
    "iso with a zone": iso_zoned,
    "iso without": iso_naive,
    "epoch seconds": lambda ms: (EPOCH_MS + ms) / 1000,
    "epoch milliseconds": lambda ms: EPOCH_MS + ms,
    "epoch microseconds": lambda ms: (EPOCH_MS + ms) * 1000,
    "epoch nanoseconds": lambda ms: (EPOCH_MS + ms) * 1_000_000,
    "clock": clock,
    "minutes": minutes,
    "length": length,
    "seconds": lambda ms: ms / 1000,
    "seconds as text": lambda ms: f"{ms / 1000:.3f}",
}


# ---- logs


def row_per_attempt(spans: list[Span], when: Callable[[int], Any], with_length: bool) -> list[dict[str, Any]]:
    rows = []
    for span in spans:
        row = {
            "task_id": span.task,
            "type": span.kind,
            "worker": span.host,
            "priority": span.priority,
            "created": when(span.queued),
            "startedAt": when(span.started),
            "success": span.ok,
        }
        end = {"took_ms": span.ended - span.started} if with_length else {"finish": when(span.ended)}
        rows.append(row | end)
    return rows


def row_per_event(spans: list[Span], when: Callable[[int], Any]) -> list[dict[str, Any]]:
    events = []
    for span in spans:
        about = {"task": span.task, "kind": span.kind, "host": span.host, "priority": span.priority}
        events += [
            (span.queued, 0, {"event": "queued", **about}),
            (span.started, 1, {"event": "task_started", **about}),
            (span.ended, 2, {"event": "succeeded" if span.ok else "failed", **about}),
        ]
    events.sort(key=lambda event: event[:2])
    return [{"timestamp": when(at), **event} for at, _, event in events]


def as_csv(rows: list[dict[str, Any]], delimiter: str, newline: str, bom: bool) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), delimiter=delimiter, lineterminator=newline)
    writer.writeheader()
    for number, row in enumerate(rows):
        writer.writerow(row)
        out.write(newline * (number % 2))  # an empty line now and then
    return out.getvalue().encode("utf-8-sig" if bom else "utf-8")


FORMATS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "comma.csv": lambda rows: as_csv(rows, ",", "\n", False),
    "semicolon.csv": lambda rows: as_csv(rows, ";", "\r\n", True),
    "tab.tsv": lambda rows: as_csv(rows, "\t", "\n", False),
    "bar.log": lambda rows: as_csv(rows, "|", "\n", False),
    "lines.jsonl": lambda rows: "\n".join(map(json.dumps, rows)).encode(),
    "lines.log": lambda rows: "\r\n\r\n".join(json.dumps(r, ensure_ascii=False) for r in rows).encode(),
    "array.json": lambda rows: json.dumps(rows, indent=1).encode(),
}


def read_bytes(name: str, data: bytes, *maps: str) -> LogFile:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        return read_log(path, maps=maps)


# ---- what is written

NOTHING = ("", "null", "none", "nan", "nat", "n/a", "-")
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12).map(
    lambda text: " ".join(text.split())
)
names = words.filter(lambda text: text.lower() not in NOTHING and text == text.strip())


@st.composite
def runs(draw: st.DrawFn) -> list[Span]:
    """Attempts in the order in which they started, no two half a day apart, none over a day long."""
    tasks = draw(st.lists(names, min_size=1, max_size=8, unique=True))
    at = DAY_MS if draw(st.booleans()) else 0  # where waits can reach back to
    spans = []
    for task in tasks:
        at += draw(st.integers(0, DAY_MS // 2 - 1))
        wait = draw(st.one_of(st.just(0), st.integers(0, min(at, DAY_MS - 1500))))
        lasts = draw(st.one_of(st.integers(0, 10_000), st.integers(0, DAY_MS - 1500)))
        kind, host = draw(names), draw(names)
        spans.append(
            Span(task, kind, host, draw(st.integers(0, 4)), at - wait, at, at + lasts, draw(st.booleans()))
        )
    return spans


def seen(recording: Recording) -> set[tuple[Any, ...]]:
    """To the millisecond, since the first task was queued."""

    def ms(at: float | None) -> int:
        assert at is not None
        return round((at - recording.begin) * 1000)

    ran = {attempt.task: attempt for attempt in recording.attempts}
    return {
        (
            r.task.id,
            r.task.kind,
            ran[r.task.id].host,
            r.task.priority,
            ms(r.task.queued_at),
            ms(r.started_at),
            ms(r.ended_at),
            r.state == "done",
        )
        for r in recording.tasks
    }


def wanted(spans: list[Span]) -> set[tuple[Any, ...]]:
    begin = min(span.queued for span in spans)
    return {
        (*span[:4], span.queued - begin, span.started - begin, span.ended - begin, span.ok) for span in spans
    }


@given(runs(), st.sampled_from(sorted(TIMES)), st.sampled_from(sorted(FORMATS)), st.booleans())
def test_e2_a_row_per_attempt_is_read_back(
    spans: list[Span], time: str, form: str, with_length: bool
) -> None:
    rows = row_per_attempt(spans, TIMES[time], with_length)
    assert seen(read_bytes(form, FORMATS[form](rows)).recording) == wanted(spans)


@given(runs(), st.sampled_from(sorted(TIMES)), st.sampled_from(sorted(FORMATS)))
def test_e2_a_row_per_event_is_read_back(spans: list[Span], time: str, form: str) -> None:
    """Clock times are left to the events of a day: a step over half a day between two rows has two meanings."""
    if time == "clock":
        at = sorted(moment for span in spans for moment in span[4:7])
        if any(b - a >= DAY_MS // 2 for a, b in pairwise(at)):
            return
    rows = row_per_event(spans, TIMES[time])
    assert seen(read_bytes(form, FORMATS[form](rows)).recording) == wanted(spans)


@given(runs(), st.sampled_from(sorted(FORMATS)))
def test_e2_columns_may_have_any_name(spans: list[Span], form: str) -> None:
    fields = ("task", "kind", "host", "priority", "queued", "started", "ended", "state")
    rows = []
    for span in spans:
        values = (*span[:4], span.queued / 1000, span.started / 1000, span.ended / 1000, span.ok)
        rows.append(dict(zip("TKHPQSEX", values, strict=True)))
    maps = [f"{field}={column}" for field, column in zip(fields, "TKHPQSEX", strict=True)]
    assert seen(read_bytes(form, FORMATS[form](rows), *maps).recording) == wanted(spans)


SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".log", "")
cells = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["", "0", "-1", "1e400", "99:99", "25:00:00", "2026-02-30", "NaN", "start", "end", "{", "[", '"']
    ),
    st.sampled_from(
        ["1772359200", "9" * 50, "00:00", "26m37s", "2026-03-01T10:00:00Z", "true", "null", "0001-01-01"]
    ),
)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), cells),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)
columns = st.sampled_from(
    [
        "started",
        "ended",
        "queued",
        "task",
        "kind",
        "host",
        "priority",
        "after",
        "state",
        "attempt",
        "cost",
        "event",
        "time",
        "duration_ms",
        "error",
        "lane",
        "model",
        "x",
    ]
)


@given(st.binary(max_size=200), st.sampled_from(SUFFIXES))
def test_garbage_is_refused_in_our_words(data: bytes, suffix: str) -> None:
    """Promise 7."""
    with suppress(PenstockError):
        read_bytes(f"log{suffix}", data)


@given(
    st.lists(columns, min_size=1, max_size=6, unique=True), st.lists(st.lists(cells, max_size=7), max_size=5),
    st.sampled_from(SUFFIXES), st.sampled_from(",;\t|"), st.booleans(),
)  # fmt: skip
def test_odd_tables_are_read_or_refused_in_our_words(
    header: list[str], rows: list[list[str]], suffix: str, delimiter: str, headed: bool
) -> None:
    """Promise 7."""
    table = [header, *rows] if headed else rows
    data = "\n".join(delimiter.join(row) for row in table).encode("utf-8", "replace")
    with suppress(PenstockError):
        read_bytes(f"log{suffix}", data)


@given(
    st.lists(st.dictionaries(columns, json_values, min_size=1, max_size=6), min_size=1, max_size=4),
    st.booleans(),
    st.integers(0, 30),
)
def test_odd_json_is_read_or_refused_in_our_words(rows: list[dict[str, Any]], lines: bool, cut: int) -> None:
    """Promise 7."""
    text = "\n".join(map(json.dumps, rows)) if lines else json.dumps(rows)
    data = text.encode("utf-8", "replace")
    with suppress(PenstockError):
        read_bytes("log.jsonl" if lines else "log.json", data[: len(data) - cut])
