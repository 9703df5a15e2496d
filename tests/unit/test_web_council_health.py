"""What /health says of councils (D6): who cannot be asked, what cannot be read, and whether a quorum is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import Config, parse
from penstock.config.councils import LIBRARY
from penstock.web.council_health import is_ours, look_at_councils

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
