"""/api/tokens: made, listed and revoked over HTTP, by admins only; secrets are told once (B7, promise 8)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.unit.web_rig import serving, token


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


async def test_a_made_token_opens_the_door_and_a_revoked_one_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    admin, secret = token("root", "admin")
    asked = {
        "name": "nightly",
        "scopes": ["read"],
        "lane": "fast",
        "priority": 3,
        "requests_per_min": 90,
        "max_queued": 7,
    }
    with caplog.at_level(logging.WARNING, "penstock.web"):
        async with serving(tmp_path, tokens=[admin], secret=secret) as web:
            made = await web.post("/api/tokens", asked, 201)
            own = made.pop("secret")
            created_at = made.pop("created_at")
            assert made == asked
            listed = await web.get("/api/tokens")
            assert [one["name"] for one in listed["tokens"]] == ["nightly", "root"]
            assert listed["tokens"][0] == {**asked, "created_at": created_at}
            assert own not in str(listed)

            await web.get("/api/hosts", headers=bearer(own))
            assert await web.call("DELETE", "/api/tokens/nightly", 200) == {"revoked": "nightly", "left": 1}
            await web.get("/api/hosts", 401, headers=bearer(own))
    lines = [record.getMessage() for record in caplog.records]
    assert "token 'nightly' was made by 'root': scopes read, lane fast" in lines
    assert "token 'nightly' was revoked by 'root'" in lines
    assert own not in "\n".join(lines)


async def test_the_first_token_shuts_out_whoever_comes_without_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as web:
        made = await web.post("/api/tokens", {"name": "first"}, 201)
        assert made["scopes"] == ["submit", "read"]
        await web.get("/api/tokens", 401)
        assert "admin" in (await web.get("/api/tokens", 403, headers=bearer(made["secret"])))["message"]


async def test_only_an_admin_may_list_make_or_revoke(tmp_path: Path) -> None:
    """B7: reading everything does not mean deciding who gets in."""
    reader, secret = token("reader", "read", "submit")
    async with serving(tmp_path, tokens=[reader], secret=secret) as web:
        await web.get("/api/tokens", 403)
        await web.post("/api/tokens", {"name": "mine", "scopes": ["admin"]}, 403)
        await web.call("DELETE", "/api/tokens/reader", 403)
        assert [one.name for one in await web.store.tokens()] == ["reader"]


WRONG: list[tuple[dict[str, Any], int, str]] = [
    ({}, 422, "name: must be letters"),
    ({"name": "<b>"}, 422, "name: must be letters"),
    ({"name": "local"}, 422, "whoever comes without a token"),
    ({"name": "root"}, 409, "there is a token 'root' already"),
    ({"name": "a", "scopes": []}, 422, "scopes: must be a list"),
    ({"name": "a", "scopes": ["read", "all"]}, 422, "scopes: must be a list"),
    ({"name": "a", "scopes": "read"}, 422, "scopes: must be a list"),
    ({"name": "a", "scopes": [["read"]]}, 422, "scopes: must be a list"),
    ({"name": "a", "lane": "fats"}, 422, "did you mean 'fast'"),
    ({"name": "a", "lane": ""}, 422, "lane: no lane ''"),
    ({"name": "a", "priority": 5}, 422, "priority: must be a whole number from 0 to 4"),
    ({"name": "a", "priority": True}, 422, "priority: must be a whole number"),
    ({"name": "a", "max_queued": 0}, 422, "max_queued: must be a whole number"),
    ({"name": "a", "requests_per_min": 0.5}, 422, "requests_per_min: must be a number"),
    ({"name": "a", "secret": "mine"}, 422, "unknown field 'secret'"),
]


async def test_a_wrong_token_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    """Promise 7: one clear error, and nothing is changed."""
    admin, secret = token("root", "admin")
    async with serving(tmp_path, tokens=[admin], secret=secret) as web:
        for body, status, told in WRONG:
            assert told in (await web.post("/api/tokens", body, status))["message"], body
            assert [one.name for one in await web.store.tokens()] == ["root"]


async def test_revoking_what_is_not_there_says_what_is(tmp_path: Path) -> None:
    admin, secret = token("root", "admin")
    async with serving(tmp_path, tokens=[admin], secret=secret) as web:
        error = await web.call("DELETE", "/api/tokens/roto", 404)
        assert error["message"] == "there is no token 'roto'"
        assert "root" in error["remedy"]
