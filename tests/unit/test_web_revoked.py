"""Calls of a token that is revoked: those that wait and those that run end at once (B7, promise 8)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.unit.model_rig import Call, delta, event, stream_head, wire
from tests.unit.web_rig import PATIENCE_S, serving, token

HOST = (
    '[hosts.raw]\ntype = "openai"\nurl = "{url}"\nmodel = "m"\nslots = 2\nhealth_s = 0\nserves = ["chat"]\n'
)


def asked(*, stream: bool = False) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream}


async def test_b7_calls_of_a_revoked_token_end_at_once_and_start_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six calls on two slots: those that run are stopped, those that wait never start, another token's goes on."""

    async def hang(call: Call) -> None:
        if b'"stream":true' in call.body:
            await call.send(stream_head())
            await call.chunks(event(delta("he")))
        await call.gone.wait()

    (gone, secret), (stays, other) = token("gone"), token("stays")
    async with wire(hang) as upstream:
        config = HOST.format(url=upstream.url)
        async with serving(tmp_path, config, tokens=[gone, stays], secret=secret) as web:
            url = "/v1/chat/completions"
            all_wait = asyncio.Event()
            count = web.parts.front_door._waits

            def waits(more: int) -> None:
                count(more)
                if len(upstream.calls) == 2 and web.parts.front_door._waiting == 5:
                    all_wait.set()

            monkeypatch.setattr(web.parts.front_door, "_waits", waits)
            async with asyncio.TaskGroup() as group, asyncio.timeout(PATIENCE_S):
                streamed = group.create_task(web.http.post(url, json=asked(stream=True)))
                calls = [group.create_task(web.http.post(url, json=asked())) for _ in range(5)]
                await upstream.until(lambda: len(upstream.calls) == 2)
                theirs = group.create_task(
                    web.http.post(url, json=asked(), headers={"Authorization": f"Bearer {other}"})
                )
                await all_wait.wait()
                await web.store.revoke_token("gone")
                await web.service._read_tokens()
                for call in calls:
                    refused(await call)
                told = await streamed
                assert told.status_code == 200
                assert "the token was revoked" in told.text
                await upstream.until(lambda: len(upstream.calls) == 3)
                assert not theirs.done()
                await web.store.revoke_token("stays")
                await web.service._read_tokens()
                refused(await theirs)
            assert len(upstream.calls) == 3
            assert not any(one.told for those in web.parts.tokens._opened.values() for one in those.values())
            refused(await web.http.post(url, json=asked()))


def refused(told: httpx.Response) -> None:
    assert told.status_code == 401, told.text
    assert told.json()["error"]["code"] == "unauthorized"
