"""/health says what is wrong with the store, the dispatcher and the hosts, and says it to those who may know."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.store.now import Now
from penstock.web import health
from tests.unit.web_rig import PATIENCE_S, Web, serving, token

BREAKERS = """
[hosts.small.breaker]
failures = 1
reset_s = 1000
max_reset_s = 1000

[hosts.large.breaker]
failures = 1
reset_s = 1000
max_reset_s = 1000
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is a new one: what happened is told without a second's wait."""
    monkeypatch.setattr(health, "_FRESH_S", 0.0)


async def until(web: Web, status: str) -> Any:
    """What is told once the status is that."""
    async with asyncio.timeout(PATIENCE_S), web.parts.client.watching() as watch:
        while True:
            response = await web.http.get("/health")
            assert response.headers["cache-control"] == "no-store"
            told = response.json()
            if told["status"] == status:
                assert response.status_code == (503 if status == "failing" else 200)
                return told
            await watch()


async def break_host(web: Web, host: str, kind: str) -> None:
    await web.submit({"kind": kind, "host": host, "payload": {"fail": "host", "duration_s": 0}})


async def test_hosts_that_are_down_degrade_and_then_fail(tmp_path: Path) -> None:
    async with serving(tmp_path, BREAKERS) as web:
        await until(web, "ok")
        await break_host(web, "large", "long")
        told = await until(web, "degraded")
        assert told["hosts"] == {"state": "degraded", "detail": "down: large", "up": 1, "down": 1}
        assert told["reasons"] == []
        await break_host(web, "small", "a")
        told = await until(web, "failing")
        assert told["reasons"] == ["hosts: down: large, small"]


async def test_a_store_that_others_hold_is_told(tmp_path: Path) -> None:
    """A real lock on the real file: the heartbeat cannot be written, and all else waits behind it."""
    async with serving(tmp_path) as web:
        await web.submit({"kind": "a", "not_before": time.time() + 3600.0})
        while (await until(web, "ok"))["store"]["queued"] != 1:
            pass
        with closing(sqlite3.connect(tmp_path / "penstock.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            submitting = asyncio.gather(web.http.post("/api/tasks", json={"kind": "a"}))
            told = await until(web, "failing")
            assert told["reasons"][0].startswith("store: ")
            assert told["store"]["queued"] == 1  # as it was last known
            assert told["dispatcher"]["detail"] == "it waits for the store"
            other.execute("ROLLBACK")
        (response,) = await submitting
        assert response.status_code in (201, 503)
        await until(web, "ok")


async def test_a_dispatcher_without_a_sign_of_life_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_SILENT_BEATS", -1e6)
    async with serving(tmp_path) as web:
        told = await until(web, "failing")
        assert told["reasons"][0].startswith("dispatcher: it has shown no sign of life for ")


async def test_only_those_who_may_read_are_told_more_than_the_status(tmp_path: Path) -> None:
    """Promise 8."""
    (reader, read), (sender, submit) = token("reader", "read"), token("sender", "submit")
    async with serving(tmp_path, tokens=[reader, sender]) as web:
        for secret in (submit, "ps_wrong", read[:-1] + "!"):
            assert await web.get("/health", headers={"X-API-Key": secret}) == {"status": "ok"}
        assert "store" in await web.get("/health", headers={"X-API-Key": read})


async def test_those_who_ask_at_once_share_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path) as web:
        looks = 0
        owned_by = web.store.owned_by

        async def counted() -> Any:
            nonlocal looks
            looks += 1
            return await owned_by()

        monkeypatch.setattr(web.store, "owned_by", counted)
        monkeypatch.setattr(health, "_FRESH_S", 1000.0)
        responses = await asyncio.gather(*(web.http.get("/health") for _ in range(20)))
        assert {response.status_code for response in responses} == {200}
        assert looks <= 1


async def test_nobody_who_asks_has_the_queue_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C4: with a million tasks that takes seconds, and /health has two. Later looks are made from the first."""
    async with serving(tmp_path) as web:
        before: list[Now | None] = []
        now = web.store.now

        async def watched(at: float, seen: Now | None = None) -> Now:
            before.append(seen)
            return await now(at, seen)

        async def dear(at: float) -> Any:
            raise AssertionError("the whole queue was counted")

        monkeypatch.setattr(web.store, "now", watched)
        monkeypatch.setattr(web.store, "snapshot", dear)
        assert (await until(web, "ok"))["store"]["queued"] == 0
        assert before == []
        for path in ("/metrics", "/api/hosts", "/api/lanes", "/api/gates"):
            assert (await web.http.get(path)).status_code == 200
        assert [seen is None for seen in before] == [True, False, False, False]
