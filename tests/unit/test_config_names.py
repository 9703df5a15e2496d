"""Which names a client of the front door may use, and what they come to (E4)."""

from __future__ import annotations

from pathlib import Path

from penstock.config import parse
from penstock.config.councils import Mode
from penstock.config.names import Names

HOSTS = """
[hosts.surtr]
type = "openai"
url = "http://surtr:1234/v1"
model = "qwen"
models = ["phi"]
serves = ["reasoning", "general"]
[hosts.skadi]
type = "openai"
url = "http://skadi:1234/v1"
model = "qwen"
[hosts.code]
type = "simulated"
serves = ["build"]
"""
ANY = """
[hosts.cloud]
type = "openai"
url = "https://cloud.example/v1"
"""
ALIASES = """
[models]
"gpt-4o" = "fast"
"fast" = "qwen"
"thinker" = "reasoning"
"nowhere" = "no-such-model"
"""
COUNCIL = """
[councils.shenron]
members = [{ name = "GOKU", model = "qwen" }]
"""


def names(text: str) -> Names:
    return Names(parse(text, Path("penstock.toml")))


def test_models_kinds_and_auto_are_names() -> None:
    known = names(HOSTS)
    for name in ("qwen", "phi", "reasoning", "general", "auto"):
        assert known.asked(name) == name
    assert known.asked(None) == known.asked("") == "auto"
    assert known.asked("build") is None, "a host without models answers no calls"
    assert known.asked("gpt-4o") is None


def test_aliases_are_followed() -> None:
    known = names(ALIASES + HOSTS)
    assert known.asked("gpt-4o") == "qwen"
    assert known.asked("thinker") == "reasoning"
    assert known.asked("nowhere") is None
    assert known.known() == {
        "qwen": ["surtr", "skadi"],
        "phi": ["surtr"],
        "reasoning": ["surtr"],
        "general": ["surtr"],
        "auto": ["surtr", "skadi"],
        "gpt-4o": ["surtr", "skadi"],
        "fast": ["surtr", "skadi"],
        "thinker": ["surtr"],
    }


def test_a_host_that_takes_any_model_gets_what_nobody_has_by_name() -> None:
    known = names(ALIASES + HOSTS + ANY)
    assert known.asked("claude") == "claude"
    assert known.asked("qwen") == "qwen"
    assert known.asked("nowhere") == "no-such-model"


def test_an_alias_for_every_name() -> None:
    known = names('[models]\n"*" = "small"\nsmall = "phi"\n' + HOSTS + ANY)
    assert known.asked("claude") == "phi"
    assert known.asked("qwen") == "qwen"
    assert "*" not in known.known()


def test_what_is_said_to_an_unknown_name() -> None:
    assert "auto" not in names(HOSTS).unknown("entirely-other"), "what is listed are models"
    assert "chat" not in names(HOSTS).unknown("entirely-other")
    assert "qwen" in names(HOSTS).unknown("entirely-other")
    assert names(HOSTS).unknown("qwenn") == "the model 'qwenn' does not exist; did you mean 'qwen'?"
    assert "add one of type openai or local" in names("").unknown("x")


def test_an_alias_that_leads_nowhere_is_named_with_what_it_stands_for() -> None:
    known = names(ALIASES + HOSTS)
    said = "the model 'nowhere' stands for 'no-such-model', which no host has"
    assert known.unknown("nowhere") == said
    assert known.astray() == {"nowhere": said}
    assert names(ALIASES + HOSTS + ANY).astray() == {}


def test_councils_are_names_and_each_of_their_modes() -> None:
    """An unknown one is not handed to a host that takes any model."""
    text = ALIASES + '"oracle" = "council:shenron"\n' + HOSTS + ANY + COUNCIL
    config = parse(text, Path("penstock.toml"))
    known = Names(config, config.councils.values())
    for name, mode in (("council:shenron", None), ("council:shenron:quick", Mode.QUICK)):
        assert known.asked(name) == name
        assert known.councils[name].mode == mode
        assert known.councils[name].council is config.councils["shenron"]
        assert known.known()[name] == ["council-shenron"]
    assert known.asked("oracle") == "council:shenron"
    assert known.asked("council:shenrom") is None
    assert "did you mean 'council:shenron'" in known.unknown("council:shenrom")
    assert known.asked("whatever") == "whatever"
    assert known.astray() == {}
    assert Names(config).asked("council:shenron") is None, "attempts ask none"


def test_a_council_may_be_all_there_is_to_call() -> None:
    text = '[hosts.code]\ntype = "simulated"\n[councils.c]\nmembers = [{ name = "GOKU", kind = "build" }]\n'
    config = parse(text, Path("penstock.toml"))
    known = Names(config, config.councils.values())
    assert known.has_hosts
    assert known.asked("council:c") == "council:c"
    assert known.asked("auto") is None
