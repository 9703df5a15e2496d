"""No message repeats what stands at a key of the config: it may be a secret that was put at the wrong place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.config import parse, read_document
from penstock.config.keys import AVAILABLE, KEYS
from penstock.errors import ConfigError
from penstock.wiring import make_adapters
from tests.properties.test_config_documents import render
from tests.unit.cli_rig import Cli, make_cli

MARKER = "s3cret-marker"
NUMBER = 8675309424242424242
TRACES = (MARKER, MARKER.upper().replace("-", "_"), str(NUMBER), "8.675", "8675309")

# What people paste: words of every form that some key takes, and things of another kind than the key wants.
WRONG: tuple[Any, ...] = (
    MARKER,
    MARKER.upper().replace("-", "_"),
    f"{MARKER} {MARKER}",
    f"Bearer {MARKER}\n",
    f"{{{MARKER}.}}",
    f"{MARKER}:{MARKER}",
    f"http://{MARKER}:{MARKER}@{MARKER}/{MARKER}?{MARKER}#{MARKER}",
    f"http://{MARKER}:{MARKER}/",
    f"prometheus:http://h/m#{MARKER}({MARKER}",
    f"prometheus:http://h/m#{MARKER}{{{MARKER}}}",
    f"psutil:{MARKER}",
    f"{MARKER}://{MARKER}",
    f"postgres//{MARKER}",
    f"postgresql://u:{MARKER}@{MARKER}..{MARKER}/{MARKER}?{MARKER}={MARKER}",
    f"postgresql://u@h:{MARKER}/d",
    f"postgresql://h/d?sslmode={MARKER}",
    f"postgresql://h/d?schema={MARKER}!",
    f"postgresql://h/d?connect_timeout={MARKER}",
    NUMBER,
    -NUMBER,
    float(NUMBER),
    True,
    [MARKER],
    [NUMBER],
    [[MARKER]],
    [MARKER, MARKER, f"{MARKER}!"],
    [{"name": MARKER, "x": MARKER}],
    [{"match": f"({MARKER}", "kind": MARKER}],
    [{"source": MARKER, "target": MARKER}, {"source": MARKER, "target": f"/{MARKER}"}],
    {"x": MARKER},
    {"x": f"{MARKER}\n"},
    {"x": NUMBER},
    {"x": {"y": MARKER}},
    {"X-Org": MARKER, "n": 1},
    {"auto": MARKER, "min": NUMBER, "max": MARKER},
    {"chat": {"slots": MARKER, "x": NUMBER}},
    {"time_s": MARKER, "quick": {"cost_usd": MARKER, "time_s": NUMBER}},
)


def base() -> dict[str, Any]:
    """A config in which each key can stand where it belongs."""
    return {
        "hosts": {
            "box": {"type": "openai", "url": "http://127.0.0.1:9/v1", "model": "m", "serves": ["chat"]},
            "tool": {"type": "simulated", "serves": ["x"]},
        },
        "lanes": {"chat": {}},
        "gates": {"g": {"probe": "psutil:load1", "max": 1, "holds": {"hosts": ["tool"]}}},
        "agents": {"reports": {"image": "localhost/reports:latest"}},
        "councils": {"c": {"members": [{"name": "GOKU"}], "retrieval": {"collection": "notes"}}},
    }


# Of each type of host what it cannot be without.
TYPES: dict[str, dict[str, Any]] = {
    "agent": {"agent": "reports"},
    "command": {"argv": ["prog"]},
    "file_prompt": {"url": "http://127.0.0.1:9/v1", "model": "m"},
    "local": {},
    "openai": {"url": "http://127.0.0.1:9/v1"},
    "python": {"call": "a:b"},
    "researcher": {"url": "http://127.0.0.1:9/v1", "model": "m"},
    "simulated": {},
}


def put(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The document with this at a key of `KEYS`, whose names stand for the first of each section."""
    names = {"hosts": "tool", "lanes": "chat", "gates": "g", "agents": "reports", "councils": "c"}
    parts = path.split(".")
    table: Any = document
    for number, part in enumerate(parts[:-1]):
        key = names.get(parts[number - 1], "m") if part == "NAME" else "quick" if part == "MODE" else part
        if part in ("members", "mounts"):
            table[part] = [{"name": "GOKU"} if part == "members" else {"source": "/x", "target": "/x"}]
            table = table[part][0]
        else:
            table = table.setdefault(key, {})
    table["x" if parts[-1] == "NAME" else parts[-1]] = value
    return document


def hostile() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in KEYS:
        for value in WRONG:
            yield path, put(base(), path, deepcopy(value))
            if path == "engine.type":
                continue
            if path.startswith("engine."):
                document = put(base(), path, deepcopy(value))
                document["engine"]["type"] = "ray"
                yield path, document
    for type_, needed in TYPES.items():
        for option in AVAILABLE[type_] or ():
            for value in WRONG:
                document = base()
                document["hosts"]["tool"] = {
                    "type": type_,
                    "serves": ["x"],
                    **needed,
                    option: deepcopy(value),
                }
                yield f"hosts.NAME.{option}", document


def test_no_message_repeats_what_stands_at_a_key(tmp_path: Path) -> None:
    """Promise 8: every key, of the core and of each feature, with values of every kind."""
    refused: set[str] = set()
    leaks: list[str] = []
    for path, document in hostile():
        try:
            config = read_document(document, tmp_path / "penstock.toml")
            make_adapters(config, ManualClock())
        except ConfigError as error:
            refused.add(path)
            leaks += [f"{path}: {told}" for told in error.problems if any(trace in told for trace in TRACES)]
    assert leaks == []
    # A key that takes whatever it is given has not been tried.
    assert set(KEYS) - refused <= {"hosts.NAME.defaults"}


def test_a_wrong_option_has_its_line(tmp_path: Path) -> None:
    """Promise 7, of what an adapter reads: where it is, what it must be, and not what it is."""
    text = '[hosts.h]\ntype = "openai"\n\n[hosts.h.headers]\nX-Org = "s3cret"\nn = 1\n'
    with pytest.raises(ConfigError) as caught:
        parse(text, tmp_path / "penstock.toml")
    assert [told.partition("penstock.toml")[2] for told in caught.value.problems] == [
        ':1: hosts.h.url: is missing; give the server\'s address, such as "http://localhost:1234/v1"',
        ":6: hosts.h.headers.n: must be text in quotes, not a number",
    ]


COMMANDS = (("status",), ("check", "--json"), ("submit", "x"), ("serve", "--port", "0"), ("tasks", "--json"))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_no_command_repeats_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
) -> None:
    """Promise 8, as it is printed, on stderr and as JSON."""
    cli: Cli = make_cli(tmp_path, monkeypatch, capsys)
    document = base()
    for path in (
        "hosts.NAME.slots",
        "hosts.NAME.seed",
        "lanes.NAME.weight",
        "gates.NAME.probe",
        "server.cors",
    ):
        put(document, path, MARKER if path != "hosts.NAME.seed" else [MARKER])
    document["hosts"]["box"]["headers"] = {"X-Org": MARKER, "n": 1}
    cli.file("penstock.toml", render(document))
    said = cli(*command)
    assert said.status == 2
    assert len(said.told) == 6, said.err
    assert not any(trace in said.out + said.err for trace in TRACES)
    if "--json" in command and said.out:
        assert len(json.loads(said.out)["problems"]) == 6
