"""What /health says of councils (D6): who cannot be asked, what cannot be read, and whether a quorum is there."""

from __future__ import annotations

import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock.config import Config, parse
from penstock.config.councils import LIBRARY
from penstock.web import council_health
from penstock.web.council_health import is_ours, look_at_councils, unread

CONFIG = """
[hosts.surtr]
type = "openai"
url = "http://surtr:1234/v1"
model = "qwen"
[hosts.fenrir]
type = "openai"
url = "http://fenrir:1234/v1"
model = "phi"
[hosts.skadi]
type = "openai"
url = "http://skadi:1234/v1"
model = "minilm"

[councils.shenron]
chair = "KAMI"
min_answers = 2
retrieval = { collection = "knowledge_base", embeddings = "minilm" }
[[councils.shenron.members]]
name = "GOKU"
model = "qwen"
[[councils.shenron.members]]
name = "VEGETA"
model = "phi"
[[councils.shenron.members]]
name = "KAMI"
model = "qwen"

[councils.small]
members = [{ name = "BULMA", model = "phi" }]
"""


@pytest.fixture(scope="module")
def config() -> Config:
    return parse(CONFIG, Path("penstock.toml"))


@pytest.mark.parametrize(
    ("down", "detail", "unable"),
    [
        ((), "", 0),
        (
            ("surtr",),
            "shenron: GOKU needs surtr; KAMI needs surtr; 1 of 3 members can be asked, 2 must be",
            1,
        ),
        (
            ("fenrir",),
            "shenron: VEGETA needs fenrir · small: BULMA needs fenrir; 0 of 1 members can be asked, 1 must be",
            1,
        ),
        (("skadi",), "shenron: its embeddings need skadi", 0),
        ((LIBRARY,), f"shenron: what it reads needs {LIBRARY}", 0),
    ],
    ids=["all up", "quorum lost", "one member", "embeddings", "library"],
)
def test_d6_what_a_council_lacks_is_told(
    config: Config, down: tuple[str, ...], detail: str, unable: int
) -> None:
    found = look_at_councils(config, down)
    assert found == {
        "state": "degraded" if detail else "ok",
        "detail": detail,
        "up": 2 - unable,
        "down": unable,
    }


def test_hosts_of_councils_are_no_hosts_that_answer(config: Config) -> None:
    ours = {host.name for host in config.plant.hosts if is_ours(host)}
    assert ours == {"council-shenron", "council-small", LIBRARY}


def test_d6_what_a_council_should_read_and_cannot_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without saying where it would lie."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{listening.getsockname()[1]}"
    text = CONFIG.replace('embeddings = "minilm" }', f'path = "{tmp_path}/library" }}')
    text = text.replace(
        "[councils.small]", f'[councils.small]\nretrieval = {{ collection = "far", url = "{dead}" }}'
    )
    found = parse(text, tmp_path / "penstock.toml")
    monkeypatch.setattr(council_health, "missing", lambda: None)
    told = unread(found)
    assert told["shenron"] == "collection 'knowledge_base' does not exist"
    assert told["small"].startswith("collection 'far': its server cannot be reached (")
    whole = look_at_councils(found, (), told)
    assert (whole["state"], whole["down"]) == ("degraded", 0)
    assert "shenron: collection 'knowledge_base' does not exist" in whole["detail"]
    assert str(tmp_path) not in whole["detail"]
    (tmp_path / "library").mkdir()
    with closing(sqlite3.connect(tmp_path / "library" / "chroma.sqlite3")) as file:
        file.execute("CREATE TABLE collections (name TEXT)")
        file.execute("INSERT INTO collections VALUES ('knowledge_base')")
        file.commit()
    assert "shenron" not in unread(found)
    monkeypatch.setattr(council_health, "missing", lambda: "chromadb is not installed")
    assert unread(found)["shenron"] == "chromadb is not installed"
