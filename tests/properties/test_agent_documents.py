"""Agents by the thousand: any table and any manifest gives a config or told problems; what is valid comes back."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.config import as_document, read_document
from penstock.config.agent_hosts import slots_of
from penstock.config.keys import AGENT, AGENT_LIMITS, MOUNT
from penstock.config.manifests import Manifest, ManifestError, read_manifest
from penstock.config.plants import changed_plant
from penstock.store.rows import epoch_of, plant_text
from tests.properties.test_config_documents import (
    FILE,
    anything,
    names,
    patient,
    scalars,
    seconds,
    some,
    tell_or_read,
    words,
)

# ---- of any kind

OWN = st.sampled_from((*AGENT, *AGENT_LIMITS, *MOUNT))
tables = st.dictionaries(
    OWN | words, anything | st.lists(st.dictionaries(OWN, scalars, max_size=3)), max_size=8
)


@patient
@given(
    st.dictionaries(st.sampled_from(["a", "b", "chat"]) | words, tables, max_size=3),
    st.dictionaries(
        st.sampled_from(["a", "c"]),
        st.fixed_dictionaries(
            {"type": st.sampled_from(["agent", "simulated", "openai"])},
            optional={"agent": scalars | st.sampled_from(["a", "b"]), "slots": scalars, "serves": anything},
        ),
        max_size=2,
    ),
)
def test_any_agents_are_read_or_refused(agents: Any, hosts: Any) -> None:
    """Promise 7."""
    tell_or_read(lambda: read_document({"agents": agents, "hosts": hosts}, FILE))


texts = st.sampled_from(
    ["node server.js", "a && b", "'", "$X", "A=1 b", "A", "A=b", "", "\0", "\ud800"]
) | st.text(max_size=6)
values = st.none() | texts | st.integers() | st.lists(texts | st.integers(), max_size=3)
commands = st.dictionaries(st.sampled_from(["install", "update", "run", "stop"]), values, max_size=4)
manifests = st.fixed_dictionaries(
    {},
    optional={
        "name": values,
        "image": values | st.just("localhost/a:b"),
        "commands": values | commands,
        "env": values | st.dictionaries(texts, values, max_size=2),
        "taskRunner": values | st.just("http"),
        "about": values,
    },
)


@patient
@given(manifests.map(json.dumps) | st.text(max_size=40))
def test_any_manifest_is_read_or_refused(text: str) -> None:
    """Promise 7: one that is read has only what an engine can be given."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "manifest.json").write_text(text, errors="surrogatepass")
        manifest, problems = read(folder)
    if manifest is None:
        assert problems
        assert all(len(problem.splitlines()) == 1 for problem in problems)
        return
    for argv in (manifest.run, manifest.install, manifest.update):
        assert argv is None or (argv[0] and all(isinstance(word, str) and "\0" not in word for word in argv))
    assert all(isinstance(value, str) for value in manifest.env.values())


def read(folder: str) -> tuple[Manifest | None, tuple[str, ...]]:
    try:
        return read_manifest(folder), ()
    except ManifestError as error:
        return None, error.problems


# ---- valid ones


def fitting(server: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    """Only what runs something of ours knows what to run it before."""
    known = any(server.get(key) for key in ("command", "handlers", "runner"))
    return server | {key: value for key, value in rest.items() if known or key not in ("install", "update")}


argvs = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5), max_size=3
)
some_argv = argvs.filter(bool)
counts = st.integers(1, 50)
valid_agents = st.builds(
    lambda server, rest: {"image": "localhost/a:b"} | fitting(server, rest),
    some(command=some_argv, plain=st.booleans())
    | some(
        handlers=st.dictionaries(st.sampled_from(["render", "_x", "a.b-c"]), some_argv, max_size=2),
        runner=argvs,
        python=st.just("python3.12"),
    ),
    some(
        install=argvs,
        update=argvs,
        env=st.dictionaries(st.sampled_from(["TZ", "A_B"]), st.sampled_from(["", "UTC", "a\nb"]), max_size=2),
        pass_env=st.lists(st.sampled_from(["TOKEN", "KEY"]), max_size=2),
        port=st.integers(1, 65535),
        health=st.just("/ready"),
        network=st.booleans(),
        mounts=st.lists(
            st.fixed_dictionaries({"source": st.just("data"), "target": st.just("/d")}), max_size=1
        ),
        limits=some(
            cpus=st.floats(0.1, 8), memory_mb=st.integers(4, 9999), pids=st.integers(0, 99), tmp_mb=counts
        ),
        read_only=st.booleans(),
        new_privileges=st.booleans(),
        capabilities=st.lists(st.sampled_from(["NET_RAW", "CHOWN"]), max_size=2),
        user=st.sampled_from(["image", "1000:1000", "ada"]),
        containers=counts,
        concurrency=counts,
        warm=st.integers(0, 5),
        idle_s=st.floats(0, 1e6),
        max_tasks=counts,
        max_age_s=seconds,
        start_s=seconds,
    ),
)


@patient
@given(
    st.dictionaries(
        names.filter(lambda name: name not in ("chat", "completion", "embedding")), valid_agents, max_size=2
    )
)
def test_valid_agents_come_back_as_they_were(agents: dict[str, Any]) -> None:
    """B1: what is read says everything that was written, and each has its host."""
    config = read_document({"agents": agents}, FILE.absolute())
    assert read_document(as_document(config), FILE.absolute()) == config
    assert config.with_settings({}) == config
    assert {host.name: host.slots for host in config.plant.hosts} == {
        name: slots_of(agent) for name, agent in config.agents.items()
    }
    row = (1, 1, "m", "c", 0, 0.0, 0.0, None, plant_text(config.plant), "", "")
    kept = epoch_of(row).plant
    assert kept is not None
    assert changed_plant(kept, {}) == kept, "it is replayed without its agents"
    for name in agents:
        changed = config.with_settings({f'agents."{name}".containers': 7, f'agents."{name}".concurrency': 3})
        assert [host.slots for host in changed.plant.hosts if host.name == name] == [21]
