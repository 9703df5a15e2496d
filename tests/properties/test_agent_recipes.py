"""Whatever an agent is called and given: no secret is outside its environment, and engines take its name. B1."""

from __future__ import annotations

import json
import re
from asyncio import IncompleteReadError
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.agents.engine import recipe, sightings
from penstock.agents.engine.engine_faults import Asked, hidden, translated
from penstock.agents.engine.log_lines import lines
from penstock.agents.engine.recipe import Identity, Place
from penstock.config.agents import Agent, Limits, Privileges

PLACE = Place(server="/lib/agent_server.py", socket_folder="/state/socket")
secrets = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=8).map(
    lambda text: f"§{text}§"
)
variables = st.from_regex(r"[A-Z][A-Z_]{0,9}", fullmatch=True)
agents = st.builds(
    Agent,
    name=st.text(min_size=1, max_size=100),
    image=st.just("image"),
    command=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    runner=st.sampled_from([(), ("run",)]),
    install=st.sampled_from([(), ("make", "ready")]),
    network=st.booleans(),
    plain=st.booleans(),
    limits=st.builds(Limits, memory_mb=st.none() | st.floats(1, 1e6), cpus=st.none() | st.floats(0.01, 64)),
    privileges=st.builds(Privileges, user=st.sampled_from([None, "65534:65534", "1:1"])),
)


@given(agents, st.dictionaries(variables, secrets, min_size=1, max_size=3), secrets, secrets)
def test_secrets_are_in_the_environment_and_nowhere_else(
    agent: Agent, passed: dict[str, str], key: str, proof: str
) -> None:
    """Promise 8."""
    agent = replace(agent, pass_env=tuple(passed))
    identity = Identity("a1", key, proof, "home")
    document = recipe.document(agent, identity, passed, recipe.fingerprint(agent, b""), PLACE)
    environment = document.pop("Env")
    assert all(f"{name}={value}" in environment for name, value in passed.items())
    rest = json.dumps(document, ensure_ascii=False) + recipe.container_name(agent.name, identity.instance)
    written = {json.dumps(value, ensure_ascii=False)[1:-1] for value in (*passed.values(), key, proof)}
    assert not [value for value in written if value in rest]


@given(agents)
def test_engines_take_its_name(agent: Agent) -> None:
    name = recipe.container_name(agent.name, "a1b2")
    assert re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", name)
    assert len(name) <= 128
    assert name.endswith("-a1b2")


@given(agents)
def test_it_is_found_again_by_its_labels(agent: Agent) -> None:
    identity = Identity("a1b2", "k", "p", "h")
    document = recipe.document(agent, identity, {}, "mark", PLACE)
    seen = sightings.inspected({"Id": "1", "Config": document, "State": {"Running": True}})
    assert (seen.agent, seen.instance, seen.home, seen.fingerprint) == (agent.name, "a1b2", "h", "mark")
    assert (seen.address is None) == agent.network


@given(st.text(), st.lists(secrets, max_size=3), st.text())
def test_no_error_tells_a_secret(before: str, values: list[str], after: str) -> None:
    message = before + "".join(values) + after
    told = str(translated(500, message, Asked("unix:///e", "x", secrets=tuple(values))))
    assert not [value for value in values if value in told]
    assert "\n" not in told
    assert not [value for value in values if value in hidden(message, values)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = [
    "Id",
    "State",
    "Config",
    "Labels",
    "Names",
    "Ports",
    "Created",
    "NetworkSettings",
    "Image",
    "Actor",
    "Type",
]


@given(st.dictionaries(st.sampled_from(FIELDS), json_values))
def test_an_engine_may_say_anything(told: dict[str, Any]) -> None:
    for read in (sightings.inspected, sightings.summarized, sightings.measured, sightings.happened):
        read(told)


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def readexactly(self, n: int) -> bytes:
        if len(self._data) < n:
            raise IncompleteReadError(self._data, n)
        found, self._data = self._data[:n], self._data[n:]
        return found


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r")), st.data())
async def test_lines_do_not_depend_on_how_they_are_framed(text: str, data: st.DataObject) -> None:
    whole = text.encode()
    frames = b""
    while whole:
        size = data.draw(st.integers(1, len(whole)))
        frames += b"\x01\0\0\0" + size.to_bytes(4, "big") + whole[:size]
        whole = whole[size:]
    found = [line async for line in lines(_Bytes(frames))]
    expected = text.split("\n")
    assert found == (expected if expected[-1] else expected[:-1])
