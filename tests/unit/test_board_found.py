"""Model servers that the config does not have, with the table that adds each (E7)."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence

import pytest

from penstock.config import parse
from penstock.setup.discovery import LM_STUDIO, OLLAMA, Found, Place
from penstock.web.board import setup_found

CONFIG = """
[server]
port = 8080
[hosts.ollama]
type = "openai"
url = "http://elsewhere:11434/v1"
model = "a"
[hosts.mine]
type = "openai"
url = "http://localhost:1234/v1"
model = "b"
"""


async def test_only_those_that_no_host_has_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    here = [
        Found(LM_STUDIO, Place("127.0.0.1", 1234), ("b",)),
        Found(OLLAMA, Place("127.0.0.1", 11434), ("qwen",), slots=3),
        Found(OLLAMA, Place("127.0.0.1", 8080), ("ourselves",)),
    ]

    async def find(places: Sequence[Place]) -> list[Found]:
        return here

    monkeypatch.setattr(setup_found, "find", find)
    found = await setup_found.unused_servers(parse(CONFIG))
    assert [one.place.port for one, _ in found] == [11434]
    table = found[0][1]
    hosts = tomllib.loads(table)["hosts"]
    assert list(hosts) == ["ollama-2"], "a host of that name is there already"
    parse(CONFIG + table)
