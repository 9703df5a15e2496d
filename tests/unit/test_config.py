"""penstock.toml: what is accepted, and how each mistake is told. Promise 7."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.config import AVAILABLE, Config, find, load, parse
from penstock.config.agents import Agent
from penstock.config.councils import Council, Member
from penstock.config.keys import KEYS
from penstock.errors import ConfigError
from penstock.model import AutoSlots, BreakerRule, Fallback, Gate, Host, Lane, OnCrash, Plant, Rate, RetryRule

FILE = Path("penstock.toml")

FULL = """
store = "data/tasks.db"
aging_s = 60
timeout_s = 900
keep_days = "forever"
heartbeat_s = 0.5
on_crash = "block"
payload_limit_bytes = 1000

[retry]
retries = 5
base_s = 0.5
max_s = 10
host_faults = 3

[hosts.surtr]
type = "simulated"
slots = 2
units = { vram_gb = 24 }
serves = ["reasoning", "general"]
model = "qwen2.5-32b"
rate = { requests_per_min = 60, tokens_per_min = 90000 }
breaker = { failures = 2, reset_s = 1, max_reset_s = 8 }
duration_s = 0.5

[hosts.cloud]
type = "command"
argv = ["ask", "{question}"]
fallback = { after_s = 30, budget_usd_per_day = 5.0 }
slots = { auto = true, min = 1, max = 8 }

[lanes.gptr]
max_running = 11
reserve = { surtr = { slots = 1, vram_gb = 8 }, cloud = 1 }
weight = 2

[lanes.fpf]

[gates.fpf-headroom]
lane = "fpf"
max_running = 10
holds = { lanes = ["gptr"] }

[gates.cpu]
probe = "psutil:cpu_percent"
max = 90
every_s = 5
on_error = "open"
holds = { hosts = ["surtr"], kinds = ["reasoning"] }

[councils.shenron]
chair = "shenron"
[[councils.shenron.members]]
name = "GOKU"
kind = "reasoning"

[agents.reports]
image = "localhost/reports:latest"
"""


def told(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        parse(text, FILE)
    assert all("\n" not in problem for problem in caught.value.problems)
    return caught.value.problems


def only(text: str) -> str:
    problems = told(text)
    assert len(problems) == 1, problems
    return problems[0]


HOST = '[hosts.a]\ntype = "simulated"\n'


# ---- what is accepted


def test_c1_c7_every_key_is_read(tmp_path: Path) -> None:
    """C1, C7, A3, A5: slots and units per host, kinds, caps and reserves of lanes, gates on another lane."""
    file = tmp_path / "penstock.toml"
    file.write_text(FULL)
    assert load(file) == Config(
        plant=Plant(
            hosts=(
                Host(
                    "surtr",
                    "simulated",
                    slots=2,
                    units={"vram_gb": 24.0},
                    serves=("reasoning", "general"),
                    model="qwen2.5-32b",
                    rate=Rate(60.0, 90000.0),
                    breaker=BreakerRule(2, 1.0, 8.0),
                    options={"duration_s": 0.5},
                ),
                Host(
                    "cloud",
                    "command",
                    slots=1,
                    auto=AutoSlots(1, 8),
                    fallback=Fallback(30.0, 5.0),
                    options={"argv": ["ask", "{question}"]},
                    leaves=("reports", "council-shenron", "council-library"),
                ),
                Host(
                    "reports",
                    "agent",
                    slots=8,
                    serves=("reports",),
                    options={"agent": "reports"},
                ),
                Host(
                    "council-shenron",
                    "council",
                    slots=32,
                    serves=("council-shenron",),
                    options={"council": "shenron", "calls_lane": "calls"},
                ),
                Host("council-library", "library", serves=("council-library",)),
            ),
            lanes=(
                Lane("gptr", 11, {"surtr": {"slots": 1, "vram_gb": 8.0}, "cloud": {"slots": 1}}, 2.0),
                Lane("fpf"),
                Lane("default"),
                Lane("calls"),
            ),
            gates=(
                Gate("fpf-headroom", lane="fpf", max_running=10, holds_lanes=("gptr",)),
                Gate(
                    "cpu",
                    probe="psutil:cpu_percent",
                    max=90.0,
                    every_s=5.0,
                    on_error="open",
                    holds_kinds=("reasoning",),
                    holds_hosts=("surtr",),
                ),
            ),
            aging_s=60.0,
            retry=RetryRule(5, 0.5, 10.0, 3),
        ),
        store=str(tmp_path / "data" / "tasks.db"),
        timeout_s=900.0,
        keep_days=None,
        heartbeat_s=0.5,
        on_crash=OnCrash.BLOCK,
        payload_limit_bytes=1000,
        path=file,
        councils={
            "shenron": Council(
                "shenron", (Member("GOKU", kind="reasoning"),), Member("shenron", kind="reasoning")
            )
        },
        agents={"reports": Agent("reports", "localhost/reports:latest")},
    )


def test_an_empty_file_has_all_defaults(tmp_path: Path) -> None:
    found = parse("", tmp_path / "penstock.toml")
    assert found == Config(
        plant=Plant(lanes=(Lane("default"),)),
        store=str(tmp_path / "penstock.db"),
        timeout_s=21600.0,
        keep_days=30.0,
        path=tmp_path / "penstock.toml",
    )


def test_the_default_lane_may_be_shaped() -> None:
    assert parse("[lanes.default]\nmax_running = 3", FILE).plant.lanes == (Lane("default", 3),)


@pytest.mark.parametrize("url", ["postgresql://ada:pw@db/queue", "postgres://db"])
def test_a_database_is_kept_as_it_is(url: str) -> None:
    assert parse(f'store = "{url}"', FILE).store == url


def test_a_path_with_dots_is_where_it_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs and inputs are told to be inside of its folder by their paths."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "penstock.toml").touch()
    monkeypatch.chdir(tmp_path / "docs")
    found = load(Path("../penstock.toml"))
    assert (found.path, found.outputs) == (tmp_path / "penstock.toml", str(tmp_path))
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "docs" / "link").symlink_to(tmp_path / "deep" / "er")
    (tmp_path / "deep" / "penstock.toml").touch()
    assert load(Path("link/../penstock.toml")).outputs == str(tmp_path / "deep"), "as the system reads it"


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    text = '[hosts.a]\ntype = "python"\ncall = "m:f"\npath = ["lib", "/opt/lib"]\n'
    text += '[hosts.b]\ntype = "command"\nargv = ["x"]\ncwd = "../work"\n'
    first, second = parse(text, tmp_path / "sub" / "penstock.toml").plant.hosts
    assert first.options["path"] == [str(tmp_path / "sub" / "lib"), "/opt/lib"]
    assert second.options["cwd"] == str(tmp_path / "work")


def test_fallback_after_has_two_names() -> None:
    host = parse(HOST + "fallback = { overflow_after_s = 7 }", FILE).plant.hosts[0]
    assert host.fallback == Fallback(7.0)


def test_a_plug_in_adds_its_type() -> None:
    text = '[hosts.a]\ntype = "mine"\nknob = 3\n'
    found = parse(text, FILE, types={"mine": ("knob",)})
    assert found.plant.hosts[0].options == {"knob": 3}
    assert parse(text, FILE, types={"mine": None}) == found
    with pytest.raises(ConfigError, match="nob: unknown key; did you mean 'knob'"):
        parse(text.replace("knob", "nob"), FILE, types={"mine": ("knob",)})


def test_every_key_is_named_once_and_known() -> None:
    """A key of the full example that `KEYS` lacks would be undocumented, and the other way round."""
    assert len(set(KEYS)) == len(KEYS)
    assert {"store", "retry.retries", "hosts.NAME.slots.auto", "hosts.NAME.argv", "lanes.NAME.reserve"} < set(
        KEYS
    )
    assert {"gates.NAME.holds.kinds", "agents.NAME.image", "hosts.NAME.fallback.overflow_after_s"} < set(KEYS)
    assert {"hosts.NAME.url", "hosts.NAME.key_env", "server.port", "models.NAME", "prices.NAME.input"} < set(
        KEYS
    )


# ---- what is refused: place, what is wrong, remedy


def test_a_misspelt_key_is_told_with_its_line_and_the_right_one() -> None:
    assert only(f"{HOST}\nslotz = 2") == "penstock.toml:4: hosts.a.slotz: unknown key; did you mean 'slots'?"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("stor = 1", "1: stor: unknown key; did you mean 'store'?"),
        ("zzz = 1", "1: zzz: unknown key; known here: agents, aging_s"),
        ("[engine]\ntype = 1", '2: engine.type: must be "local" or "ray", not a number'),
        ("agents = 3", "1: agents: must be a table like [agents.NAME], not a number"),
        ('store = ""', "1: store: must be text in quotes, not empty text"),
        ('store = "a\\u0000b"', "1: store: must be one line of at most 4096 characters"),
        (
            'store = "postgresql:/u:secret@h/d"',
            "1: store: is not a URL; did you mean postgresql://…?",
        ),
        (
            'store = "postgresql//u:secret@h/d"',
            "1: store: is not a URL; did you mean postgresql://…?",
        ),
        ('store = "postgres;//h/d?schmea=x"', "1: store: is not a URL; did you mean postgresql://…?"),
        ('store = "mysql://u:secret@h/d"', "1: store: must be the path of a file, or a URL that starts with"),
        ('store = ":memory:"', "1: store: must be a file: what is only in memory is lost"),
        ('store = "data/"', "1: store: must be a file, not a folder; add a name: penstock.db"),
        ("aging_s = 0", "1: aging_s: must be a number above 0 and at most 1000000000, not a smaller one"),
        (
            "timeout_s = inf",
            "1: timeout_s: must be a number above 0 and at most 1000000000, not a larger one",
        ),
        ("timeout_s = nan", "1: timeout_s: must be a number above 0 and at most 1000000000, not NaN"),
        ("timeout_s = true", "1: timeout_s: must be a number above 0 and at most 1000000000, not true"),
        ('keep_days = "long"', '1: keep_days: must be a number of days or "forever", not text'),
        ("keep_days = -1", "1: keep_days: must be a number above 0"),
        ('on_crash = "ignore"', '1: on_crash: must be "retry" or "block", not another text'),
        ("payload_limit_bytes = 1.5", "1: payload_limit_bytes: must be a whole number from 1 to"),
        ("[retry]\nretries = true", "2: retry.retries: must be a whole number from 0 to 1000000, not true"),
        ("[retry]\nbase_s = 5\nmax_s = 1", "3: retry.max_s: is less than base_s"),
        ("retry = 3", "1: retry: must be a table like { retries = 2 }, not a number"),
        ("hosts = 3", "1: hosts: must be a table like [hosts.NAME], not a number"),
        ("[hosts]\na = 3", "2: hosts.a: must be a table like [hosts.a], not a number"),
        ('[hosts."a b"]\ntype = "python"', "1: hosts.'a b': is not a name: letters, digits"),
    ],
)
def test_top_level_problems(text: str, problem: str) -> None:
    assert only(text).startswith(f"penstock.toml:{problem}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("slots = 0", "3: hosts.a.slots: must be a whole number from 1 to 1000000, not a smaller one"),
        ("slots = 1.0", "3: hosts.a.slots: must be a whole number from 1 to 1000000, not a fraction"),
        ("slots = true", "3: hosts.a.slots: must be a whole number from 1 to 1000000, not true"),
        ('slots = "2"', "3: hosts.a.slots: must be a whole number from 1 to 1000000, not text"),
        ("slots = { min = 1, max = 2 }", "3: hosts.a.slots: must say auto = true; for a fixed number"),
        ("slots = { auto = true }", "3: hosts.a.slots: has no max; say how many slots it may grow to"),
        ("slots = { auto = true, min = 3, max = 2 }", "3: hosts.a.slots.min: is more than max"),
        ("slots = { auto = true, max = 2, mx = 1 }", "3: hosts.a.slots.mx: unknown key; did you mean 'max'?"),
        ("units = 24", "3: hosts.a.units: must be a table like { vram_gb = 24 }, not a number"),
        ("units = { vram_gb = 0 }", "3: hosts.a.units.vram_gb: must be a number above 0"),
        ("units = { slots = 2 }", "3: hosts.a.units.slots: slots are no unit here; write slots = …"),
        ("units = { tokens = 2 }", "3: hosts.a.units.tokens: tokens are no unit of a host; write rate"),
        ("serves = []", '3: hosts.a.serves: is empty, so the host would never work; name kinds, or "*"'),
        ('serves = "x"', '3: hosts.a.serves: must be a list of names like ["a", "b"], not text'),
        ("serves = [1]", "3: hosts.a.serves[1]: must be a name in quotes, not a number"),
        ('serves = ["a", "b c"]', "3: hosts.a.serves[2]: must be a name"),
        ("model = 3", "3: hosts.a.model: must be text in quotes, not a number"),
        ("rate = {}", "3: hosts.a.rate: is empty; give requests_per_min or tokens_per_min, or remove it"),
        ("rate = { requests_per_min = 0 }", "3: hosts.a.rate.requests_per_min: must be a number from 1 to"),
        ("rate = { request_per_min = 9 }", "3: hosts.a.rate.request_per_min: unknown key; did you mean"),
        ("fallback = true", "3: hosts.a.fallback: must be a table like { after_s = 30 }, not true"),
        ("fallback = { after_s = -1 }", "3: hosts.a.fallback.after_s: must be a number from 0 to 1000000000"),
        (
            "fallback = { after_s = 1, overflow_after_s = 1 }",
            "3: hosts.a.fallback.overflow_after_s: is another word for after_s; give only one of them",
        ),
        ("breaker = { failures = 0 }", "3: hosts.a.breaker.failures: must be a whole number from 1"),
        (
            "breaker = { reset_s = 9, max_reset_s = 3 }",
            "3: hosts.a.breaker.max_reset_s: is less than reset_s",
        ),
        ("argv = []", "3: hosts.a.argv: unknown key; a simulated host has: breaker, cost_usd, duration_s"),
        ("duratoin_s = 1", "3: hosts.a.duratoin_s: unknown key; did you mean 'duration_s'?"),
    ],
)
def test_host_problems(text: str, problem: str) -> None:
    assert only(HOST + text).startswith(f"penstock.toml:{problem}")


@pytest.mark.parametrize("key", ["key", "api_key", "API_KEY", "token", "password"])
@pytest.mark.parametrize("type_", ["simulated", "mine"])
def test_a_secret_is_refused_and_not_repeated(key: str, type_: str) -> None:
    """Promise 8: a literal key would end up in a repository or a bug report."""
    with pytest.raises(ConfigError) as caught:
        parse(f'[hosts.a]\ntype = "{type_}"\n{key} = "sk-12345"', FILE, types={"simulated": (), "mine": None})
    (problem,) = caught.value.problems
    assert problem.startswith(f"penstock.toml:3: hosts.a.{key}: a secret does not belong in this file")
    assert "key_env" in problem
    assert "12345" not in problem


def test_values_that_may_be_secret_are_not_repeated() -> None:
    """Promise 8."""
    text = 'store = "mysql://ada:hunter2@db"\ntimeout_s = "hunter2"\n'
    text += '[hosts.a]\ntype = "command"\nenvv = "hunter2"'
    assert "hunter2" not in "".join(told(text))


def test_a_type_of_a_later_version_is_named_as_such() -> None:
    with pytest.raises(ConfigError) as caught:
        parse('[hosts.a]\ntype = "agent"\nagent = "b"', FILE, types={"python": ()})
    assert caught.value.problems[0] == (
        "penstock.toml:2: hosts.a.type: this host type is not available in this version; available: python"
    )


def test_an_unknown_type_and_a_missing_one() -> None:
    assert only('[hosts.a]\ntype = "pyhton"').endswith("unknown host type; did you mean 'python'?")
    assert only("[hosts.a]\nslots = 2") == (
        'penstock.toml:1: hosts.a: has no type; add type = "…", one of: ' + ", ".join(sorted(AVAILABLE))
    )


LANES = '[hosts.a]\ntype = "simulated"\nslots = 2\nunits = { gb = 8 }\n[lanes.x]\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "max_running = 0",
            "6: lanes.x.max_running: must be a whole number from 1 to 1000000, not a smaller one",
        ),
        ("weight = 0", "6: lanes.x.weight: must be a number above 0"),
        ("weight = nan", "6: lanes.x.weight: must be a number above 0"),
        ("wieght = 1", "6: lanes.x.wieght: unknown key; did you mean 'weight'?"),
        ("reserve = 1", "6: lanes.x.reserve: must be a table like { HOST = 1 }, not a number"),
        ("reserve = { a = 0 }", "6: lanes.x.reserve.a: must be a whole number from 1"),
        ("reserve = { a = {} }", "6: lanes.x.reserve.a: reserves nothing; say how many slots or units"),
        ("reserve = { b = 1 }", "6: lanes.x.reserve.b: no such host; hosts: a"),
        ("reserve = { a = 3 }", "6: lanes.x.reserve.a.slots: reserves 3 slots, but host 'a' has 2"),
        ("reserve = { a = { gb = 9 } }", "6: lanes.x.reserve.a.gb: reserves 9 gb, but host 'a' has 8"),
        (
            "reserve = { a = { gbs = 1 } }",
            "6: lanes.x.reserve.a.gbs: host 'a' has no unit 'gbs'; did you mean",
        ),
        (
            "max_running = 1\nreserve = { a = 2 }",
            "6: lanes.x.max_running: is less than the slots that the lane reserves; raise it or reserve fewer",
        ),
        (
            "reserve = { a = 1 }\n[lanes.y]\nreserve = { a = 2 }",
            "8: lanes.y.reserve.a.slots: lanes x, y together reserve 3 slots, but host 'a' has 2",
        ),
    ],
)
def test_a3_lane_problems(text: str, problem: str) -> None:
    """A3, and reserves that cannot be kept."""
    assert only(LANES + text).startswith(f"penstock.toml:{problem}")


def test_a_reserve_must_fit_the_fewest_slots() -> None:
    """C7: slots that tune themselves may shrink to their least; a reserve is always there."""
    text = HOST + "slots = { auto = true, min = 1, max = 8 }\n[lanes.x]\nreserve = { a = 2 }"
    assert only(text).endswith("reserves 2 slots, but host 'a' has 1 at its fewest")


def test_reserves_that_add_up_exactly_are_fine() -> None:
    text = '[hosts.a]\ntype = "simulated"\nunits = { gb = 0.3 }\n'
    text += "[lanes.x]\nreserve = { a = { gb = 0.1 } }\n[lanes.y]\nreserve = { a = { gb = 0.2 } }"
    assert len(parse(text, FILE).plant.lanes) == 3


GATE = '[hosts.a]\ntype = "simulated"\nserves = ["chat"]\n[lanes.x]\n[gates.g]\n'
HOLDS = '\nholds = { lanes = ["x"] }'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", '5: gates.g: has no condition; give lane = "…" with max_running, or probe'),
        ('lane = "x"\nmax_running = 1\nprobe = "psutil:load1"\nmax = 1', "5: gates.g: has two conditions"),
        ('lane = "x"', "5: gates.g: has no max_running; say up to how many"),
        ('lane = "y"\nmax_running = 1', "6: gates.g.lane: no such lane; lanes: default, x"),
        ('lane = "x"\nmax_running = -1', "7: gates.g.max_running: must be a whole number from 0"),
        ('lane = "x"\nmax_running = 1\nevery_s = 1', "8: gates.g.every_s: belongs to a gate with a probe"),
        ('probe = "psutil:load1"', "5: gates.g: has neither min nor max; give the readings"),
        (
            'probe = "psutil:load1"\nmin = 2\nmax = 1',
            "7: gates.g.min: is more than max, so it never opens",
        ),
        ('probe = "psutil:load1"\nmin = nan', "7: gates.g.min: must be a number"),
        (
            'probe = "psutil:load1"\nmax = 1\nmax_running = 3',
            "8: gates.g.max_running: belongs to a gate with a lane",
        ),
        (
            'probe = "psutil:cpu"\nmax = 1',
            "6: gates.g.probe: unknown psutil probe; did you mean 'cpu_percent'?",
        ),
        ('probe = "psutil:load1#/x"\nmax = 1', "6: gates.g.probe: only psutil:disk_free_gb takes a #FOLDER"),
        (
            'probe = "nvml:memory_free"\nmin = 1',
            "6: gates.g.probe: unknown nvml probe; did you mean 'memory_free_gb'?",
        ),
        ('probe = "nvml:power_w#"\nmax = 1', "6: gates.g.probe: names no GPU after #; give its number"),
        (
            'probe = "prometheus:ftp://h/metrics#m"\nmin = 1',
            '6: gates.g.probe: must be like "prometheus:http://HOST:8000/metrics#METRIC"',
        ),
        ('probe = "prometheus:http://h:x/metrics#m"\nmin = 1', "6: gates.g.probe: must be like"),
        ('probe = "prometheus:http:///metrics#m"\nmin = 1', "6: gates.g.probe: must be like"),
        (
            'probe = "prometheus:http://h/metrics"\nmin = 1',
            "6: gates.g.probe: has no metric; write it behind",
        ),
        (
            'probe = "prometheus:http://me:hunter2@h/metrics#m"\nmin = 1',
            "6: gates.g.probe: has a user or password in its URL, where everybody reads it; remove it",
        ),
        (
            'probe = "prometheus:http://h/metrics?token=hunter2#m"\nmin = 1',
            "6: gates.g.probe: has a secret in its URL, where everybody reads it; remove it",
        ),
        (
            'probe = "prometheus:http://h/metrics#9m"\nmin = 1',
            "6: gates.g.probe: has no metric behind the #; write METRIC",
        ),
        (
            'probe = "prometheus:http://h/metrics#max(m"\nmin = 1',
            "6: gates.g.probe: has no metric behind the #",
        ),
        (
            'probe = "prometheus:http://h/metrics#maxx(m)"\nmin = 1',
            "6: gates.g.probe: unknown function; did you mean 'max'?",
        ),
        (
            "probe = 'prometheus:http://h/metrics#m{a=b}'\nmin = 1",
            "6: gates.g.probe: has no list of labels in its braces; write label=",
        ),
        (
            'probe = "pyhton:a:b"\nmin = 1',
            "6: gates.g.probe: unknown probe scheme; did you mean 'python'?",
        ),
        (
            'probe = "load"\nmin = 1',
            "6: gates.g.probe: unknown probe scheme; available: nvml, prometheus, psutil, python",
        ),
        ('probe = "python:a.b"\nmin = 1', '6: gates.g.probe: must be like "python:package.module:function"'),
        ('probe = "psutil:load1"\nmax = 1\nevery_s = 0', "8: gates.g.every_s: must be a number from 0.05"),
        (
            'probe = "psutil:load1"\nmax = 1\non_error = "shut"',
            '8: gates.g.on_error: must be "closed" or "open"',
        ),
    ],
)
def test_a5_gate_conditions(text: str, problem: str) -> None:
    """A5: a gate has exactly one condition, and it can be met."""
    assert only(GATE + text + HOLDS).startswith(f"penstock.toml:{problem}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "5: gates.g: holds nothing; say what it acts on"),
        ("holds = {}", "8: gates.g.holds: is empty, so the gate holds nothing"),
        ("holds = { lanes = [] }", "8: gates.g.holds: is empty, so the gate holds nothing"),
        ('holds = ["x"]', '8: gates.g.holds: must be a table like { lanes = ["…"] }, not a list'),
        ('holds = { lanes = ["z"] }', "8: gates.g.holds.lanes: no such lane; lanes: default, x"),
        ('holds = { hosts = ["aa"] }', "8: gates.g.holds.hosts: no such host; did you mean 'a'?"),
        (
            'holds = { kinds = ["caht"] }',
            "8: gates.g.holds.kinds: no host serves this kind; did you mean 'chat'?",
        ),
        (
            'holds = { lane = ["x"], hosts = ["a"] }',
            "8: gates.g.holds.lane: unknown key; did you mean 'lanes'?",
        ),
    ],
)
def test_a5_what_gates_hold(text: str, problem: str) -> None:
    """A5."""
    assert only(f'{GATE}lane = "x"\nmax_running = 1\n{text}').startswith(f"penstock.toml:{problem}")


def test_any_kind_may_be_held_where_a_host_serves_all() -> None:
    text = HOST + '[gates.g]\nprobe = "psutil:load1"\nmax = 4\nholds = { kinds = ["anything"] }'
    assert parse(text, FILE).plant.gates[0].holds_kinds == ("anything",)


def test_a_broken_host_is_not_also_missing() -> None:
    """One mistake is told once, not again wherever the host is named."""
    text = "[hosts]\na = 3\n[lanes.x]\nreserve = { a = 1 }\n"
    text += '[gates.g]\nlane = "x"\nmax_running = 1\nholds = { hosts = ["a"], kinds = ["k"] }'
    assert only(text).startswith("penstock.toml:2: hosts.a: must be a table")


def test_problems_come_in_the_order_of_the_file() -> None:
    problems = told("[lanes.x]\nmax_running = 0\n[hosts.a]\ntype = 3\nslots = 0\n[gates.g]\n")
    assert [problem.split(":")[1] for problem in problems] == ["2", "4", "5", "6", "6"]


def test_thousands_of_problems_are_counted() -> None:
    problems = told("\n".join(f"x{number} = 1" for number in range(1000)))
    assert len(problems) == 201
    assert problems[-1] == "penstock.toml: and 800 more problems"


def test_there_are_limits() -> None:
    lanes = [f"[lanes.l{number}]" for number in range(10_001)]
    problem = only("\n".join(lanes))
    assert problem.startswith("penstock.toml:1: lanes: 10001 are too many; at most 10000")
    most = parse("\n".join(lanes[1:]), FILE)
    assert most.with_settings({"aging_s": "9"}).plant.lanes == most.plant.lanes


# ---- files


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("a = 1\nb = = 2", "penstock.toml:2:5: is not TOML: "),
        ("a = 1\nb = [1,\n", "penstock.toml:2:8: is not TOML: "),
        ("a = 1\na = 2", "penstock.toml:2:6: is not TOML: "),
        ("a = " + "[" * 10_000, "penstock.toml: is nested too deeply; flatten it"),
        ("a = " + "9" * 5_000, "penstock.toml: has a number with thousands of digits"),
    ],
)
def test_syntax_errors_have_line_and_column(text: str, start: str) -> None:
    assert only(text).startswith(start)


def test_unreadable_files_say_so(tmp_path: Path) -> None:
    def problem(path: Path) -> str:
        with pytest.raises(ConfigError) as caught:
            load(path)
        (only_one,) = caught.value.problems
        return only_one

    assert problem(tmp_path / "none.toml").endswith("there is no such file; `penstock init` writes one")
    assert problem(tmp_path).endswith("cannot be read: Is a directory")
    (tmp_path / "latin.toml").write_bytes(b'a = 1\nstore = "\xe9"')
    assert problem(tmp_path / "latin.toml").endswith(
        "latin.toml:2: is not UTF-8 text; save the file as UTF-8"
    )
    (tmp_path / "big.toml").write_bytes(b"#" * (16 * 1024 * 1024 + 1))
    assert problem(tmp_path / "big.toml").endswith("is over 16 MiB; that is no config")
    (tmp_path / "bom.toml").write_bytes(b"\xef\xbb\xbfaging_s = 7")
    assert load(tmp_path / "bom.toml").plant.aging_s == 7


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with no config around it."""
    monkeypatch.delenv("PENSTOCK_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    folder = tmp_path / "project" / "deep"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def test_the_nearest_config_is_found(nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find(nowhere) is None
    own = tmp_path / "xdg" / "penstock" / "penstock.toml"
    own.parent.mkdir(parents=True)
    own.write_text("aging_s = 1")
    assert find(nowhere) == own
    named = tmp_path / "named.toml"
    named.write_text("aging_s = 2")
    monkeypatch.setenv("PENSTOCK_CONFIG", str(named))
    assert find(nowhere) == named
    above = tmp_path / "penstock.toml"
    above.write_text("aging_s = 3")
    assert find(nowhere) == above
    here = nowhere / "penstock.toml"
    here.write_text("aging_s = 4")
    assert find(nowhere) == here
    assert load().plant.aging_s == 4


def test_without_a_config_the_error_says_what_to_do(nowhere: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"no penstock\.toml in this folder or its parents.*`penstock init` writes one"
    ):
        load()


def test_a_config_named_by_the_variable_must_exist(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CONFIG", str(nowhere / "gone.toml"))
    with pytest.raises(ConfigError, match=r"gone\.toml: there is no such file"):
        load()


def test_a_file_below_the_folder_has_a_short_name(nowhere: Path) -> None:
    (nowhere / "penstock.toml").write_text("x = 1")
    with pytest.raises(ConfigError) as caught:
        load()
    assert caught.value.problems[0].startswith("penstock.toml:1: x:")


def test_importing_costs_no_parser() -> None:
    """The config is imported by every command: parsers and spell-checkers come only when they are used."""
    code = "import sys, penstock.config; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"tomllib", "difflib", "yaml", "msgspec", "asyncio", "psutil", "json"} & set(loaded)


# ---- settings


@pytest.fixture
def full(tmp_path: Path) -> Config:
    return parse(FULL, tmp_path / "penstock.toml")


def test_settings_change_single_keys(full: Config) -> None:
    changed = full.with_settings(
        {
            "hosts.surtr.slots": "4",
            "hosts.surtr.serves": '["*"]',
            "hosts.surtr.model": "llama-3",
            "lanes.gptr.max_running": "3",
            "gates.cpu.max": "50.5",
            "retry.retries": "0",
            "keep_days": "7",
            "hosts.cloud.fallback.overflow_after_s": "1",
            "councils.shenron.chair": "goku",
        }
    )
    surtr, cloud, *_ = changed.plant.hosts
    assert (surtr.slots, surtr.serves, surtr.model) == (4, ("*",), "llama-3")
    assert cloud.fallback == Fallback(1.0, 5.0)
    assert changed.plant.lanes[0].max_running == 3
    assert changed.plant.gates[1].max == 50.5
    assert changed.plant.retry.retries == 0
    assert changed.keep_days == 7
    council = changed.councils["shenron"]
    assert council.chair is council.members[0]
    assert full == parse(FULL, full.path), "the config itself stays as it was"


def test_no_settings_change_nothing(full: Config) -> None:
    assert full.with_settings({}) == full


def test_names_with_dots_can_be_set() -> None:
    found = parse('[hosts."b.c"]\ntype = "simulated"', FILE)
    assert found.with_settings({"hosts.b.c.slots": "3"}).plant.hosts[0].slots == 3
    assert found.with_settings({'hosts."b.c".slots': 3}).plant.hosts[0].slots == 3


def test_a_new_host_can_be_tried(full: Config) -> None:
    changed = full.with_settings({"hosts.extra.slots": "2", "hosts.extra.type": "simulated"})
    leaves = ("reports", "council-shenron", "council-library")
    assert changed.plant.hosts[3] == Host("extra", "simulated", slots=2, leaves=leaves)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (
            "hosts.surtr.slots",
            "0",
            "--set: hosts.surtr.slots: must be a whole number from 1 to 1000000, not a smaller one",
        ),
        ("hosts.surtr.slotz", "1", "--set: hosts.surtr.slotz: unknown key; did you mean 'slots'?"),
        ("hosts.surtur.slots", "1", "--set: hosts.surtur.slots: no host 'surtur'; did you mean 'surtr'?"),
        ("lanes.gtpr.weight", "1", "--set: lanes.gtpr.weight: no lane 'gtpr'; did you mean 'gptr'?"),
        ("aging_s.x", "1", "--set: aging_s.x: is not a table, so nothing in it can be set"),
        ("not a key", "1", "--set: 'not a key': is not a key like hosts.NAME.slots"),
        (
            "aging_s",
            "1\nstore = 2",
            "--set: aging_s: must be a number above 0 and at most 1000000000, not text",
        ),
        ("hosts.surtr.model", "2024-01-01T00:00:00", ""),
    ],
)
def test_settings_are_checked_like_a_file(full: Config, key: str, value: str, problem: str) -> None:
    if not problem:
        assert full.with_settings({key: value}).plant.hosts[0].model == value
        return
    with pytest.raises(ConfigError) as caught:
        full.with_settings({key: value})
    assert caught.value.problems == (problem,)


def test_a_setting_that_breaks_another_table_names_that_table(full: Config) -> None:
    with pytest.raises(ConfigError) as caught:
        full.with_settings({"hosts.surtr.units.vram_gb": "4"})
    (problem,) = caught.value.problems
    assert problem.endswith("lanes.gptr.reserve.surtr.vram_gb: reserves 8 vram_gb, but host 'surtr' has 4")
