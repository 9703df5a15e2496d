"""E9: tasks and calls side by side in a server: where each goes, and that all who count get the same counts."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from penstock.cli.top_text import told as top_told
from penstock.model import CHAT_CALL, State
from penstock.web.board.picture import Places, picture_of
from tests.unit.model_rig import Call, chat, http, wire
from tests.unit.web_rig import PATIENCE_S, Web, serving

BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
CLOSE = (("Connection", "close"),)
HOSTS = """
[hosts.surtr]
type = "openai"
url = "{surtr}"
model = "qwen"
health_s = 0
serves = ["translate"]

[hosts.fenrir]
type = "openai"
url = "{fenrir}"
model = "qwen"
health_s = 0
serves = ["chat"]
calls = false
"""


class Held:
    """A model server that answers when it may."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def __call__(self, call: Call) -> None:
        await self.go_on.wait()
        await call.send(http(200, chat("hi"), CLOSE))
        call.hang_up()


async def counts(web: Web) -> dict[str, dict[str, tuple[int, int]]]:
    """Of each host, how many are queued and running, by everybody who says so."""
    client = web.parts.client
    config = client.config
    now = await client.now()
    picture = picture_of(config, now, Places(), None)["hosts"]
    status = (await web.get("/api/status"))["hosts"]
    found = {
        "status": {name: (host["queued"], host["active"]) for name, host in status.items()},
        "board": {name: (host["queued"], host["active"]) for name, host in picture.items()},
        "top": {
            name: (host["queued"], host["active"])
            for name, host in top_told(config.plant, now)["hosts"].items()
        },
        "why": {},
        "waited": {},
    }
    for name in status:
        why = await client.why_host(name)
        assert why.host is not None
        assert why.host["takes"] == status[name]["takes"] == picture[name]["takes"]
        found["why"][name] = why.host["queued"], why.host["active"]
        found["waited"][name] = why.states[State.QUEUED], status[name]["active"]
    return found


async def until_queued(web: Web, depth: int) -> None:
    async with asyncio.timeout(PATIENCE_S), web.parts.client.watching() as watch:
        while (await web.get("/api/status"))["queue_depth"] != depth:
            await watch()


async def test_e9_tasks_go_by_serves_and_calls_by_model(tmp_path: Path) -> None:
    """E9: `status`, `why --host`, `top` and the board count alike, and nothing runs where it should not."""
    async with AsyncExitStack() as stack:
        acts = Held(), Held()
        surtr, fenrir = [await stack.enter_async_context(wire(act)) for act in acts]
        config = HOSTS.format(surtr=surtr.url, fenrir=fenrir.url)
        web = await stack.enter_async_context(serving(tmp_path, config))
        await web.post("/api/pause", {"scope": "host", "name": "small"})  # it serves every kind
        submitted = await web.submit(
            *({"kind": "translate", "payload": "a", "host": "surtr"} for _ in range(2)),
            *({"kind": "chat", "payload": "b"} for _ in range(3)),
            run="r",
        )
        await surtr.until(lambda: len(surtr.calls) == 1)
        await fenrir.until(lambda: len(fenrir.calls) == 1)
        calls = [
            asyncio.ensure_future(web.http.post("/v1/chat/completions", json={**BODY, "model": model}))
            for model in ("qwen", "auto", "translate")
        ]
        await until_queued(web, 1 + 2 + 3)
        found = await counts(web)
        expected = {"small": (2, 0), "large": (0, 0), "surtr": (1 + 3, 1), "fenrir": (2, 1)}
        assert found == dict.fromkeys(found, expected)
        takes = {name: host["takes"] for name, host in (await web.get("/api/status"))["hosts"].items()}
        assert takes["surtr"] == "serves translate; answers calls for qwen"
        assert takes["fenrir"] == "serves chat; answers no calls"
        for act in acts:
            act.go_on.set()
        answers = await asyncio.gather(*calls)
        assert {answer.headers["x-penstock-host"] for answer in answers} == {"surtr"}
        ended = [await web.ended(id) for id in submitted]
        assert [one["host"] for one in ended] == ["surtr"] * 2 + ["fenrir"] * 3
        called = [await web.ended(answer.headers["x-penstock-task"]) for answer in answers]
        assert {(one["kind"], one["state"]) for one in called} == {(CHAT_CALL, "done")}
        await _replays(web, called[0]["run"])


async def _replays(web: Web, run: str) -> None:
    """What was recorded says for good what was a call."""
    from penstock.diagnosis.whatif.inferred import playable
    from penstock.diagnosis.whatif.replay import Replay

    recording, plant = playable(await web.parts.client.recording(run), None)
    played = Replay(recording, plant).under(plant).recording()
    assert {attempt.host for attempt in played.attempts} == {"surtr"}
    assert [record.task.kind for record in played.tasks] == [CHAT_CALL] * 3


async def test_e9_a_call_is_no_task_and_a_task_no_call(tmp_path: Path) -> None:
    act = Held()
    act.go_on.set()
    async with wire(act) as server:
        config = HOSTS.format(surtr=server.url, fenrir=server.url).replace('"qwen"', '"other"', 1)
        async with serving(tmp_path, config) as web:
            refused = await web.post("/api/tasks", {"kind": CHAT_CALL, "model": "other"}, 422)
            assert "is a kind of calls" in refused["message"]
            answer = await web.http.post("/v1/chat/completions", json={**BODY, "model": "qwen"})
            assert answer.status_code == 404
            assert "remove calls = false from hosts.fenrir" in answer.json()["error"]["message"]
            assert [one["id"] for one in (await web.http.get("/v1/models")).json()["data"]] == [
                "other",
                "translate",
                "auto",
            ]
            pinned = await web.post("/api/tasks", {"kind": "chat", "host": "surtr"}, 422)
            assert "it serves translate; answers calls for other" in pinned["message"]
