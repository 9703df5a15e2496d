"""Over HTTP, who may ask a council may search what it reads, and only an admin may change it (D3, D6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.config.councils import LIBRARY
from penstock.store.base import TaskFilter
from tests.unit.council_web_rig import council_web
from tests.unit.web_rig import token

RETRIEVAL = 'retrieval = { collection = "knowledge" }\n'
UPSERT = {"do": "upsert", "council": "shenron", "source": "p.md", "hash": "h", "passages": []}
REFUSED: list[Any] = [
    UPSERT,
    {"do": "remove", "council": "shenron", "sources": ["docs/sky.md"]},
    {"do": "manifest", "council": "shenron"},
    "search",
]
SEARCH = {"do": "search", "council": "shenron", "query": "sky"}


async def test_only_an_admin_changes_what_councils_read(tmp_path: Path) -> None:
    (asker, submit), (boss, admin) = token("asker", "submit"), token("boss", "submit", "admin")
    async with council_web(tmp_path, RETRIEVAL, tokens=[asker, boss], secret=admin) as (web, _):
        await web.post("/api/pause", {})
        as_asker = {"Authorization": f"Bearer {submit}"}
        for payload in REFUSED:
            entry = {"kind": LIBRARY, "payload": payload}
            for body in (entry, {"tasks": [{"kind": LIBRARY, "payload": SEARCH}, entry]}):
                told = await web.post("/api/tasks", body, 403, headers=as_asker)
                assert "may only search what councils read" in told["message"]
        assert await web.store.tasks(TaskFilter()) == []
        await web.post("/api/tasks", {"kind": LIBRARY, "payload": SEARCH}, 201, headers=as_asker)
        await web.post("/api/tasks", {"kind": LIBRARY, "payload": UPSERT}, 201)
