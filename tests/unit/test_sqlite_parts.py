"""The parts of the store that need no file: ids, route keys, folds, and what is let in."""

from __future__ import annotations

import os
import re
import sqlite3
import time

import pytest

from penstock.errors import TaskError
from penstock.model import Task
from penstock.scheduling.messages import Revive
from penstock.scheduling.routes import route_key
from penstock.store.admission import Admission
from penstock.store.fold import STATE, Fold
from penstock.store.ids import ALPHABET, IdSource
from penstock.store.queries import named_queries
from penstock.store.sqlite_session import SQLiteSession
from tests.conformance.store_rig import T0, done, run_through, start

# ---- ids


def test_ids_grow_when_the_clock_stands_or_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1_700_000_000_000, 1_700_000_000_000, 1_600_000_000_000, 1_700_000_000_001])
    monkeypatch.setattr(time, "time_ns", lambda: next(times) * 1_000_000)
    source = IdSource()
    ids = [id for count in (3000, 1, 2, 5) for id in source.take(count)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 3008
    assert {len(id) for id in ids} == {16}
    assert set("".join(ids)) <= set(ALPHABET)


def test_a_full_millisecond_goes_on_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)
    source = IdSource()
    source.take(1)
    source._next = (1 << 35) - 2
    before = source.take(2)
    after = source.take(2)
    assert before[-1].endswith("zzzzzzz")
    assert after[0] > before[-1]


def test_a_forked_child_starts_somewhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)
    source = IdSource()
    (parent,) = source.take(1)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    (child,) = source.take(1)
    assert parent[:9] == child[:9]
    assert abs(ALPHABET.index(child[9]) * 32 + ALPHABET.index(child[10])) >= 0
    assert parent != child


# ---- route keys


def test_equal_wishes_have_equal_keys() -> None:
    assert route_key("a", "b", None, None, None) == '["a","b",null,null,null]'
    assert route_key('ä"', "b", "h", "m", {"vram_gb": 2, "slots": 1.0}) == (
        '["ä\\"","b","h","m",[["slots",1],["vram_gb",2]]]'
    )
    assert route_key("a", "b", None, None, {"slots": 1}) == route_key("a", "b", None, None, {"slots": 1.0})
    assert route_key("a", "b", None, None, {"x": 0.5, "a": 1}) == route_key(
        "a", "b", None, None, {"a": 1, "x": 0.5}
    )
    assert route_key("a", "b", "c", None, None) != route_key("a", "b", None, "c", None)


# ---- folds


def test_a_fold_writes_each_task_once() -> None:
    fold = Fold()
    fold.add(run_through(["a", "b"]))
    assert {id: row[STATE] for id, row in fold.tasks.items()} == {"a": "done", "b": "done"}
    assert len(fold.attempts) == 2
    assert fold.attempt_ends == []
    assert fold.ended == {"done": 2}


def test_a_fold_on_belief_cannot_revive() -> None:
    fold = Fold()
    fold.add([Revive("a", T0)])
    assert fold.must_know == {"a"}


def test_a_fold_that_knows_refuses_what_lost() -> None:
    fold = Fold({"a": ("done", 1, T0)})
    fold.add([start("a"), done("a"), start("b")])
    assert fold.tasks == {}
    assert fold.attempts == []
    assert fold.events[1::6] == ["refused"] * 3


# ---- queries


def test_queries_are_read_by_name() -> None:
    queries = named_queries("sqlite/queries.sql")
    assert all(queries.values())
    assert not [name for name, text in queries.items() if "--" in text or text.endswith(";")]


def test_both_databases_have_the_same_queries() -> None:
    """By name, and with as many parameters; what is left over is a database's own."""
    ours, theirs = named_queries("sqlite/queries.sql"), named_queries("postgres/queries.sql")
    assert ours.keys() - theirs.keys() == {"forget_numbers"}
    for name, text in ours.items():
        if name in theirs and "{rows}" not in text:
            numbered = [int(place) for place in re.findall(r"\?(\d+)", text)]
            count = max(numbered, default=text.count("?"))
            assert count == max(map(int, re.findall(r"\$(\d+)", theirs[name])), default=0), name


def test_columns_that_are_null_everywhere_are_not_sent() -> None:
    session = SQLiteSession(sqlite3.connect(":memory:"))
    assert session._for_many("add_batches", 2, 2, ()).endswith("VALUES (?,?),(?,?)")
    assert session._for_many("add_batches", 2, 1, (1,)).endswith("VALUES (?,NULL)")
    session.close()


# ---- admission


def test_tasks_are_let_in_by_the_slice() -> None:
    admission = Admission([Task("count", "x" * 100) for _ in range(10)], T0)
    assert admission.advance(3, 1 << 20) is True
    assert admission.advance(100, 250) is True  # three payloads are over it
    assert admission.advance(100, 1 << 20) is False
    assert len(admission.batch().rows) == 10


def test_a_long_circle_is_told_in_short() -> None:
    ring = [Task("count", id=f"t{n}", after=(f"t{(n + 1) % 50}",)) for n in range(50)]
    admission = Admission(ring, T0)
    admission.advance(50, 1 << 20)
    with pytest.raises(TaskError, match=r"t0 → t1 → .* more … → .* → t0") as refusal:
        admission.batch()
    assert len(str(refusal.value)) < 200


def test_a_deep_chain_is_no_circle() -> None:
    chain = [Task("count", id=f"t{n}", after=(f"t{n + 1}",) if n < 9999 else ()) for n in range(10_000)]
    admission = Admission(chain, T0)
    admission.advance(10_000, 1 << 30)
    assert len(admission.batch().after) == 9999
