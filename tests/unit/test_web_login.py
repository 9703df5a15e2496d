"""Logging in and out over HTTP, and what a browser's session may do; no page of the board is needed for it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets
from websockets.exceptions import ConnectionClosed, InvalidStatus

from penstock.web.login import ATTEMPTS_PER_MIN, FORM_COOKIE
from penstock.web.sessions import COOKIE, CSRF_HEADER
from tests.unit.web_rig import PATIENCE_S, Web, serving, token

HTML = {"Accept": "text/html,*/*"}


class Browser:
    """One who keeps cookies, and says where he comes from."""

    def __init__(self, web: Web) -> None:
        self.web = web
        self.http = httpx.AsyncClient(base_url=web.url, timeout=PATIENCE_S, trust_env=False, verify=False)

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.http.get(path, headers={**HTML, **headers})

    async def post(self, path: str, fields: dict[str, str], **headers: str) -> httpx.Response:
        return await self.http.post(path, data=fields, headers={**HTML, "Origin": self.web.url, **headers})

    async def log_in(self, secret: str, wanted: str = "/board/", **headers: str) -> httpx.Response:
        form = await self.get("/board/login")
        nonce = re.search(r'name="form" value="([^"]+)"', form.text)
        assert nonce is not None
        return await self.post("/board/login", {"token": secret, "next": wanted, "form": nonce[1]}, **headers)

    @property
    def csrf(self) -> str:
        """As the board's pages know it."""
        return self.http.cookies[COOKIE].split(".")[3]


@asynccontextmanager
async def browsing(folder: Path, *scopes: str) -> AsyncIterator[tuple[Browser, str]]:
    made, secret = token("ada", *(scopes or ("read", "submit")))
    async with serving(folder, tokens=[made]) as web:
        browser = Browser(web)
        try:
            yield browser, secret
        finally:
            await browser.http.aclose()


def flags_of(response: httpx.Response, name: str) -> set[str]:
    (found,) = [one for one in response.headers.get_list("set-cookie") if one.startswith(f"{name}=")]
    return set(found.split("; ")[1:])


# ---- in


async def test_a_person_is_led_to_the_log_in_and_back(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (browser, secret):
        for path in ("/", "/board", "/board/"):
            led = await browser.get(path)
            assert (led.status_code, led.headers["location"]) == (303, "/board/login")
        led = await browser.get("/board/tasks/1?tab=why")
        assert led.headers["location"] == "/board/login?next=/board/tasks/1%3Ftab%3Dwhy"
        form = await browser.get(led.headers["location"])
        assert 'value="/board/tasks/1?tab=why"' in form.text
        done = await browser.log_in(secret, "/board/tasks/1?tab=why")
        assert (done.status_code, done.headers["location"]) == (303, "/board/tasks/1?tab=why")
        assert flags_of(done, COOKIE) == {"Path=/", "HttpOnly", "SameSite=Lax", "Max-Age=43200"}
        assert secret.split("_", 2)[2] not in str(done.headers)
        assert (await browser.get("/docs")).status_code == 200


async def test_a_program_is_told_401_as_ever(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (browser, _):
        for path in ("/", "/board/", "/board/data/now", "/api/tasks"):
            refused = await browser.http.get(path)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert (await browser.get("/api/tasks")).status_code == 401  # data is not for reading


async def test_the_form_is_plain_and_strict(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (browser, _):
        form = await browser.get("/board/login?next=/board/%22%3E%3Cscript%3E")
        assert "<script" not in form.text
        policy = form.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in policy
        assert form.headers["cache-control"] == "no-store"
        assert form.headers["x-frame-options"] == "DENY"
        assert form.headers["referrer-policy"] == "same-origin"
        assert "SameSite=Strict" in flags_of(form, FORM_COOKIE)


async def test_wrong_tokens_are_told_alike_and_limited(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (browser, secret):
        gone = token("gone")[1]
        pages = [
            await browser.log_in(wrong) for wrong in ("", "x", gone, secret[:-1] + "!", "🙂", "x" * 5000)
        ]
        assert {one.status_code for one in pages} == {401}
        assert len({one.text for one in pages}) == 1
        assert 'role="alert"' in pages[0].text
        assert COOKIE not in browser.http.cookies
        for _ in range(ATTEMPTS_PER_MIN - len(pages)):
            await browser.log_in("x")
        limited = await browser.log_in("x")
        assert limited.status_code == 429
        assert int(limited.headers["retry-after"]) <= 60
        assert COOKIE not in browser.http.cookies
        right = await browser.log_in(secret)  # somebody else behind the same proxy
        assert (right.status_code, COOKIE in browser.http.cookies) == (303, True)


async def test_a_cookie_of_another_service_keeps_nobody_out(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (browser, secret):
        form = await browser.get("/board/login")
        nonce = browser.http.cookies[FORM_COOKIE]
        assert nonce in form.text
        browser.http.cookies.clear()
        sent = {"token": secret, "next": "/board/", "form": nonce}
        done = await browser.post("/board/login", sent, Cookie=f"{FORM_COOKIE}=evil; {FORM_COOKIE}={nonce}")
        assert done.status_code == 303


async def test_a_page_learns_whether_its_log_in_still_counts(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (browser, secret):
        assert (await browser.http.get("/board/session")).status_code == 401
        await browser.log_in(secret)
        assert (await browser.http.get("/board/session")).status_code == 204
        await browser.web.store.revoke_token("ada")
        await browser.web.service._read_tokens()
        assert (await browser.http.get("/board/session")).status_code == 401


async def test_the_form_is_taken_from_our_own_page_only(tmp_path: Path) -> None:
    """No page can log somebody in as another: origin, and a cookie that the form repeats."""
    async with browsing(tmp_path) as (browser, secret):
        for headers in (
            {"Origin": "http://evil"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site", "Origin": ""},
        ):
            assert (await browser.log_in(secret, **headers)).status_code == 403
        await browser.get("/board/login")
        for form in ("", "x", "A" * 22):
            refused = await browser.post("/board/login", {"token": secret, "form": form})
            assert refused.status_code == 403
        browser.http.cookies.clear()
        assert (await browser.post("/board/login", {"token": secret, "form": ""})).status_code == 403
        assert COOKIE not in browser.http.cookies


async def test_a_log_in_leads_nowhere_else(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (browser, secret):
        for wanted in ("//evil", "https://evil", "/\\evil", "/board/\r\nX: 1", "javascript:alert(1)"):
            assert (await browser.log_in(secret, wanted)).headers["location"] == "/board/"


async def test_behind_tls_the_cookie_is_secure(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (browser, secret):
        done = await browser.log_in(secret, **{"X-Forwarded-Proto": "https"})
        assert "Secure" in flags_of(done, COOKIE)


async def test_a_form_that_is_none_is_refused(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (browser, secret):
        await browser.get("/board/login")
        ours = {"Origin": browser.web.url}
        assert (
            await browser.http.post("/board/login", json={"token": secret}, headers=ours)
        ).status_code == 403
        assert (
            await browser.http.post("/board/login", content=b"x" * 20_000, headers=ours)
        ).status_code == 413
        assert (await browser.http.put("/board/login", headers=ours)).status_code == 405
        assert (await browser.http.get("/board/logout")).status_code == 405


# ---- what a session may do


async def test_a_session_reads_but_changes_nothing_without_its_csrf_secret(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (browser, secret):
        await browser.log_in(secret)
        assert (await browser.http.get("/api/tasks")).status_code == 200
        task: dict[str, Any] = {"tasks": [{"kind": "long"}]}
        for headers in ({}, {CSRF_HEADER: "x"}, {CSRF_HEADER: browser.csrf[:-1]}):
            refused = await browser.http.post("/api/tasks", json=task, headers=headers)
            assert (refused.status_code, refused.json()["error"]["type"]) == (403, "csrf")
        assert (await browser.http.get("/api/tasks")).json()["tasks"] == []
        meant = {CSRF_HEADER: browser.csrf}
        assert (await browser.http.post("/api/tasks", json=task, headers=meant)).status_code == 201
        refused = await browser.http.post("/api/pause", json={"scope": "all"}, headers=meant)
        assert refused.status_code == 403  # rights are the token's
        assert refused.json()["error"]["type"] == "forbidden"
        elsewhere = {**meant, "Origin": "http://127.0.0.1:1"}
        assert (await browser.http.post("/api/tasks", json=task, headers=elsewhere)).status_code == 403


async def test_a_token_in_a_header_comes_before_a_cookie(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (browser, secret):
        await browser.log_in(secret)
        ours = {"Authorization": f"Bearer {secret}"}
        assert (await browser.http.post("/api/tasks", json={"tasks": []}, headers=ours)).status_code != 403
        wrong = {"Authorization": f"Bearer {token()[1]}"}
        assert (await browser.http.get("/api/tasks", headers=wrong)).status_code == 401


async def test_cors_does_not_lend_out_cookies(tmp_path: Path) -> None:
    made, secret = token("ada", "read")
    config = '[server]\ncors = ["http://friend"]\n'
    async with serving(tmp_path, config, tokens=[made]) as web:
        browser = Browser(web)
        await browser.log_in(secret)
        assert (await browser.http.get("/api/tasks", headers={"Origin": web.url})).status_code == 200
        assert (await browser.http.get("/api/tasks", headers={"Origin": "http://friend"})).status_code == 401
        await browser.http.aclose()


async def test_streams_of_a_session_end_with_it(tmp_path: Path) -> None:
    """B7: revoking the token closes what its log-ins have open; logging out closes that session's."""
    async with browsing(tmp_path) as (browser, secret), asyncio.timeout(PATIENCE_S):
        web = browser.web
        ws = web.url.replace("http", "ws") + "/api/ws"
        await browser.log_in(secret)
        cookie = {"Cookie": f"{COOKIE}={browser.http.cookies[COOKIE]}"}
        for origin in (None, "http://evil", "http://127.0.0.1:1"):
            with pytest.raises(InvalidStatus):
                await websockets.connect(ws, additional_headers=cookie, origin=origin)  # type: ignore[arg-type]
        first = await websockets.connect(ws, additional_headers=cookie, origin=web.url)  # type: ignore[arg-type]
        out = await browser.post("/board/logout", {"csrf": "x"})
        assert out.status_code == 403
        out = await browser.post("/board/logout", {"csrf": browser.csrf})
        assert (out.status_code, out.headers["location"]) == (303, "/board/login")
        assert "Max-Age=0" in flags_of(out, COOKIE)
        with pytest.raises(ConnectionClosed) as closed:
            await first.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401
        assert (await web.http.get("/api/tasks", headers=cookie)).status_code == 401  # a copy of it

        await browser.log_in(secret)
        cookie = {"Cookie": f"{COOKIE}={browser.http.cookies[COOKIE]}"}
        second = await websockets.connect(ws, additional_headers=cookie, origin=web.url)  # type: ignore[arg-type]
        await web.store.revoke_token("ada")
        await web.service._read_tokens()
        with pytest.raises(ConnectionClosed):
            await second.recv()
        assert (await web.http.get("/api/tasks", headers=cookie)).status_code == 401


# ---- without tokens


async def test_without_tokens_there_is_no_log_in_and_no_way_in_for_other_sites(tmp_path: Path) -> None:
    """Promise 8: neither a name that was made to point here, nor a page of another site, gets to the board."""
    async with serving(tmp_path) as web:
        led = await web.http.get("/board/login?next=/board/queue", headers=HTML)
        assert (led.status_code, led.headers["location"]) == (303, "/board/queue")
        for path in ("/board/", "/board/login", "/"):
            rebound = await web.http.get(path, headers={**HTML, "Host": "evil.example:8787"})
            assert (rebound.status_code, rebound.json()["error"]["type"]) == (403, "host_refused")
            for site in ({"Origin": "http://evil"}, {"Sec-Fetch-Site": "cross-site"}):
                refused = await web.http.post(path, headers=site)
                assert (refused.status_code, refused.json()["error"]["type"]) == (403, "cross_site")
        url = web.url.replace("http", "ws") + "/board/_nicegui_ws/socket.io/"
        with pytest.raises(InvalidStatus) as caught:
            await websockets.connect(url, origin="http://evil")  # type: ignore[arg-type]
        assert caught.value.response.status_code == 403
        assert web.parts.board._link is None  # nobody got so far as to begin it


async def test_turned_off_there_is_nothing(tmp_path: Path) -> None:
    made, secret = token("ada", "read")
    config = "[server]\nboard = false\n"
    async with serving(tmp_path, config, tokens=[made], secret=secret) as web:
        for path in ("/", "/board", "/board/", "/board/login"):
            assert (await web.http.get(path, headers=HTML)).status_code == 404
            plain = await web.http.get(path, headers={**HTML, "Authorization": ""})
            assert plain.status_code == 401


async def test_without_the_scope_read_a_page_says_so(tmp_path: Path) -> None:
    async with browsing(tmp_path, "submit") as (browser, secret):
        await browser.log_in(secret)
        page = await browser.get("/board/")
        assert page.status_code == 403
        assert "has not the scope" in page.text
        assert page.headers["content-type"].startswith("text/html")
        told = await browser.http.get("/board/data/now")
        assert told.json()["error"]["type"] == "forbidden"
