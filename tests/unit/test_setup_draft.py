"""The config that `init` writes: it can always be read, whatever servers and models are called."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.clock import ManualClock
from penstock.config import parse
from penstock.config.budgets import blind_budgets
from penstock.model import AutoSlots
from penstock.setup.discovery import KINDS, LM_STUDIO, OLLAMA, OTHER, VLLM, Found, Place
from penstock.setup.draft import compose, host_names, quoted
from penstock.wiring import make_adapters

HERE = Place("127.0.0.1", 1234)


def test_the_file_says_what_was_found() -> None:
    found = [
        Found(LM_STUDIO, HERE, ("qwen", "phi"), ("nomic-embed",), slots=4),
        Found(VLLM, Place("surtr", 8000), ("big",), waiting_metric="vllm:num_requests_waiting"),
        Found(OTHER, Place("surtr", 9000), wants_key=True),
        Found(OLLAMA, Place("127.0.0.1", 11434), (), ("bge-m3",), unusable=2, slots=2),
    ]
    text = compose(found)
    plant = parse(text).plant
    hosts = {host.name: host for host in plant.hosts}
    assert list(hosts) == ["lmstudio", "surtr-vllm", "surtr-server", "ollama"]
    assert (hosts["lmstudio"].slots, hosts["lmstudio"].model) == (4, "qwen")
    assert {"phi", "nomic-embed"} <= set(hosts["lmstudio"].models)
    assert hosts["lmstudio"].options["url"] == "http://127.0.0.1:1234/v1"
    assert hosts["surtr-vllm"].auto == AutoSlots(1, 64)
    assert hosts["surtr-server"].has_model("*"), "a server that names no model takes any"
    assert (hosts["ollama"].model, hosts["ollama"].serves) == ("bge-m3", ("embedding",))
    assert '# key_env = "SURTR_SERVER_KEY"' in text
    assert "# 2 models have names that cannot be used." in text
    assert '"nomic-embed",  # embeddings' in text


def test_what_is_commented_out_works_too() -> None:
    """A beginner only removes the signs in front."""
    text = compose([Found(VLLM, HERE, ("big",), waiting_metric="vllm:num_requests_waiting")])
    uncommented = [
        line.removeprefix("# ") if line.startswith(("# [", "# ")) and ("=" in line or "[" in line) else line
        for line in text.splitlines()
    ]
    # Sentences that hold no setting stay what they are.
    kept = [line for line in uncommented if not line.startswith(("Programs", "Every", "It ", "Hold"))]
    config = parse("\n".join(kept))
    assert [gate.name for gate in config.plant.gates] == ["vllm-backlog"]
    hosts = ["vllm", "cloud", "council-advice", "council-library"]
    assert [host.name for host in config.plant.hosts] == hosts
    assert "batch" in [lane.name for lane in config.plant.lanes]
    assert config.models == {"gpt-4o": "big"}
    assert not list(blind_budgets(config.plant)), "the budget of the cloud host counts"


def test_without_a_server_there_is_a_model_of_our_own() -> None:
    text = compose([])
    (host,) = parse(text).plant.hosts
    assert host.type == "local"
    assert "penstock init --force" in text


def test_a_huge_list_of_models_stays_readable() -> None:
    text = compose([Found(OLLAMA, HERE, tuple(f"m{n}" for n in range(5000)))])
    assert len(text.splitlines()) < 200
    assert "# 4899 more models are not listed" in text
    assert parse(text).plant.hosts[0].has_model("m99")


@pytest.mark.parametrize(
    "name",
    ['say "hi"', "back\\slash", "tab\tbell\x07", "two\nlines", "日本語 🥋", "\x7f", "]\n[hosts.x]", "'''"],
)
def test_texts_are_quoted_as_toml_wants(name: str) -> None:
    assert tomllib.loads(f"x = {quoted(name)}") == {"x": name}


def test_names_of_hosts_are_proper_and_each_once() -> None:
    places = [HERE, HERE, Place("surtr.lan", 1), Place("::1", 5), Place("fe80::1", 7), Place("x" * 300, 8)]
    names = host_names([Found(OLLAMA, place) for place in places])
    assert len(set(names)) == len(names)
    assert names[:3] == ["ollama", "ollama-2", "surtr.lan-ollama"]


printable = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=40)
servers = st.builds(
    Found,
    kind=st.sampled_from([*KINDS, OTHER]),
    place=st.builds(
        Place,
        st.sampled_from(["127.0.0.1", "surtr", "a.b.c", "::1", "fe80::1", "-x-", "9"])
        | st.from_regex(r"[a-z0-9.-]{1,80}", fullmatch=True),
        st.integers(1, 65_535),
    ),
    models=st.lists(printable, unique=True, max_size=8).map(tuple),
    embeddings=st.lists(printable, unique=True, max_size=4).map(tuple),
    unusable=st.integers(0, 3),
    slots=st.none() | st.integers(1, 256),
    wants_key=st.booleans(),
    waiting_metric=st.none() | st.just("vllm:num_requests_waiting"),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(servers, max_size=4))
def test_promise_7_every_file_that_is_written_can_be_read(found: list[Found]) -> None:
    """Promise 7: nothing that a server says can break the file."""
    config = parse(compose(found))
    assert len(config.plant.hosts) == max(1, len(found))
    make_adapters(config, ManualClock())
    for host, server in zip(config.plant.hosts, found, strict=False):
        assert all(host.has_model(model) for model in server.models[:50])
