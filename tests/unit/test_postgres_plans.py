"""What PostgreSQL makes of statements that must not go through a long table for each row of another."""

from __future__ import annotations

import re

from penstock.model import Task
from penstock.store.postgres import PostgresStore
from penstock.store.postgres_session import PostgresSession
from penstock.store.postgres_statements import query
from penstock.store.session import Session
from tests.conformance.store_rig import opened
from tests.postgres_rig import fresh_url

_MANY = 3_000  # after which the server would not believe that they fit its memory


def plan(session: Session, name: str, parameters: str) -> str:
    """As the thread that writes gets it."""
    assert isinstance(session, PostgresSession)
    session.row("counters")
    link = session._link
    link.script("ANALYZE tasks")
    types, given = f"({', '.join(query(name).types)})", f"({parameters})"
    link.script(f"PREPARE asked {types if parameters else ''} AS {query(name).text}")
    return "\n".join(row[0] for row in link.fetch(f"EXPLAIN EXECUTE asked {given if parameters else ''}"))


async def test_what_may_be_forgotten_is_found_by_one_look_at_what_waits() -> None:
    store = PostgresStore(fresh_url())
    async with opened(store):
        await store.submit([Task("first", id="first")])
        await store.submit([Task("waits", after=("first",)) for _ in range(_MANY)])
        told = await store._write(lambda session: plan(session, "tasks_to_prune", "0, 1, 5000"), alone=True)
    assert re.search(r"NOT \(.*\bhashed SubPlan", told)  # servers from 17 on say by which column


async def test_imports_without_tasks_are_found_by_the_index_of_runs() -> None:
    store = PostgresStore(fresh_url())
    async with opened(store):
        await store.submit([Task("work") for _ in range(_MANY)])
        told = await store._write(lambda session: plan(session, "drop_imports", ""), alone=True)
    assert "tasks_run" in told
    assert "SubPlan" not in told
