"""docs/reference/http.md has every route with its scope, and every type of refusal, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
from fastapi.routing import APIRoute
from starlette.routing import Route, WebSocketRoute

from penstock.hosts.model_errors import STOPPING
from penstock.web.app import framework
from penstock.web.door import OPEN
from penstock.web.service import Service
from tests.unit.web_rig import serving, token

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "http.md").read_text()
WEB = ROOT / "src" / "penstock" / "web"


def documented() -> dict[str, str]:
    """Route -> scope."""
    return dict(re.findall(r"^\| `((?:GET|POST|DELETE|WS) [^`]+)` \| ([^|]+) \|", PAGE, re.MULTILINE))


def routes_of(service: Service) -> set[str]:
    found: set[str] = set()
    for route in framework(service.parts).routes:
        if isinstance(route, WebSocketRoute):
            found.add(f"WS {route.path}")
        elif isinstance(route, Route | APIRoute):
            found |= {f"{method} {route.path}" for method in (route.methods or set()) - {"HEAD"}}
    return found


async def test_every_route_is_documented_with_its_scope(tmp_path: Path) -> None:
    made = {scope: token(scope, scope) for scope in ("submit", "read", "admin")}
    async with serving(tmp_path, tokens=[given for given, _ in made.values()]) as web:
        assert set(documented()) == routes_of(web.service)
        for route, said in documented().items():
            method, path = route.split(" ", 1)
            if method == "WS" or path in ("/docs", "/openapi.json", *OPEN):
                continue
            good = set(re.findall(r"`(\w+)`", said))
            for scope, (_, secret) in made.items():
                if scope in good and path in ("/api/events",):
                    continue  # it would not end
                response = await web.http.request(
                    method, re.sub(r"\{\w+\}", "x", path), headers={"X-API-Key": secret}
                )
                missing = (
                    f"has not the scope {scope!r}" not in response.text
                    and "has not the scope" in response.text
                )
                assert missing == (scope not in good), (route, scope, response.text)


async def test_nobody_comes_in_without_a_token(tmp_path: Path) -> None:
    async with serving(tmp_path, tokens=[token()[0]]) as web:
        for route in documented():
            method, path = route.split(" ", 1)
            if method != "WS" and path not in OPEN:
                response: httpx.Response = await web.http.request(method, re.sub(r"\{\w+\}", "x", path))
                assert response.status_code == 401, route


def test_every_type_of_refusal_is_documented() -> None:
    sources = "".join(path.read_text() for path in WEB.glob("*.py")).replace("STOPPING", f'"{STOPPING}"')
    raised = set(re.findall(r'Refused\(\s*(\d{3}),\s*"(\w+)"', sources))
    written = set(re.findall(r"^\| (\d{3}) \| `(\w+)` \|", PAGE, re.MULTILINE))
    assert raised - written == set()
    assert written - raised == set()
