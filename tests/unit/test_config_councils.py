"""[councils.NAME]: what is accepted, the hosts it implies, and how each mistake is told. Promise 7, D1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.config import Config, as_document, parse, read_document
from penstock.config.called import hosts_of
from penstock.config.councils import Council, Member, Mode, ModeLimits, Quick, Retrieval
from penstock.config.own_files import OwnFiles
from penstock.config.plants import changed_plant
from penstock.errors import ConfigError
from penstock.model import Host

FILE = Path("penstock.toml")
HOSTS = """
[hosts.surtr]
type = "openai"
url = "http://surtr:1234/v1"
model = "qwen2.5-32b"
serves = ["reasoning", "general"]

[hosts.tools]
type = "simulated"
serves = ["*"]
"""
# As the design shows it.
SHENRON = """
[councils.shenron]
chair = "shenron"
retrieval = { collection = "knowledge_base", top = 3 }
[[councils.shenron.members]]
name = "GOKU"
emoji = "🥋"
role = "the direct thinker"
kind = "reasoning"
model = "qwen2.5-32b"
temperature = 0.7
max_tokens = 2048
"""
PLAIN = '[councils.c]\nmembers = [{ name = "GOKU" }, { name = "Piccolo Jr." }]\n'


def council(text: str, hosts: str = HOSTS) -> Council:
    return next(iter(parse(hosts + text, FILE).councils.values()))


def told(text: str, hosts: str = HOSTS) -> list[str]:
    """The problems, without the file's name."""
    with pytest.raises(ConfigError) as caught:
        parse(hosts + text, FILE)
    assert all("\n" not in problem for problem in caught.value.problems)
    return [problem.removeprefix("penstock.toml:").partition(": ")[2] for problem in caught.value.problems]


def only(text: str, hosts: str = HOSTS) -> str:
    problems = told(text, hosts)
    assert len(problems) == 1, problems
    return problems[0]


# ---- what is accepted


def test_d1_the_designs_example_loads_as_it_stands(tmp_path: Path) -> None:
    """D1."""
    config = parse(HOSTS + SHENRON, tmp_path / "penstock.toml")
    goku = Member(
        "GOKU",
        "🥋",
        "the direct thinker",
        model="qwen2.5-32b",
        kind="reasoning",
        temperature=0.7,
        max_tokens=2048,
    )
    assert config.councils == {
        "shenron": Council(
            "shenron",
            (goku,),
            Member("shenron", model="qwen2.5-32b", kind="reasoning", max_tokens=2048),
            retrieval=Retrieval("knowledge_base", 3, str(tmp_path / "penstock.db.library")),
        )
    }
    assert config.plant.hosts[2:] == (
        Host(
            "council-shenron",
            "council",
            slots=32,
            serves=("council-shenron",),
            options={"council": "shenron", "calls_lane": "calls"},
        ),
        Host("council-library", "library", slots=1, serves=("council-library",)),
    )
    assert [host.name for host in hosts_of(goku, config)] == ["surtr"]


def test_every_key_of_a_council_is_read() -> None:
    text = """
    [lanes.asked]
    [councils.c]
    chair = { name = "SHENRON", model = "qwen2.5-32b", kind = "reasoning", persona = "One voice.\\nNo more." }
    min_answers = 2
    patience_s = 5
    mode = "thorough"
    rubric = ["accuracy", "tone"]
    calls_lane = "asked"
    slots = 3
    members = [
      { name = "GOKU", host = "tools", timeout_s = 9, weight = 2, context_tokens = 4096 },
      { name = "vegeta" },
    ]
    [councils.c.retrieval]
    collection = "notes"
    top = 5
    url = "https://chroma.local:8000/"
    key_env = "CHROMA_KEY"
    tenant = "team"
    database = "wiki"
    embeddings = "qwen2.5-32b"
    chunk_words = 200
    overlap_words = 20
    [councils.c.quick]
    members = ["VEGETA", "goku"]
    unsure_below = 70
    agree_at_least = 0.6
    risk_words = ["dose", "delete"]
    [councils.c.limits]
    quick = { cost_usd = 0.05, time_s = 60 }
    thorough = { time_s = 900 }
    """
    found = council(text)
    assert found == Council(
        "c",
        (Member("GOKU", host="tools", timeout_s=9.0, weight=2.0, context_tokens=4096), Member("vegeta")),
        Member("SHENRON", model="qwen2.5-32b", kind="reasoning", persona="One voice.\nNo more."),
        min_answers=2,
        patience_s=5.0,
        mode=Mode.THOROUGH,
        retrieval=Retrieval(
            "notes", 5, "", "https://chroma.local:8000", "qwen2.5-32b", 200, 20, "CHROMA_KEY", "team", "wiki"
        ),
        quick=Quick(("vegeta", "GOKU"), 70.0, 0.6, ("dose", "delete")),
        rubric=("accuracy", "tone"),
        limits={Mode.QUICK: ModeLimits(0.05, 60.0), Mode.THOROUGH: ModeLimits(None, 900.0)},
        calls_lane="asked",
        slots=3,
    )


def test_a_chair_is_a_member_whatever_its_letters() -> None:
    found = council(PLAIN + 'chair = "goku"')
    assert found.chair is found.members[0]
    assert council(PLAIN).chair.name == "GOKU", "the first, where none is named"


def test_short_passages_overlap_less() -> None:
    found = council(PLAIN + 'retrieval = { collection = "notes", chunk_words = 50 }').retrieval
    assert found is not None
    assert (found.chunk_words, found.overlap_words) == (50, 10)


def test_an_emoji_may_be_joined_from_several() -> None:
    text = '[councils.c]\nmembers = [{ name = "ADA", emoji = "👩\u200d🔬" }]'
    assert council(text).members[0].emoji == "👩\u200d🔬"


def test_every_other_host_leaves_what_is_for_councils() -> None:
    config = parse(HOSTS + PLAIN, FILE)
    for kind in ("council-c", "council-library"):
        assert [host.name for host in config.plant.hosts_for(kind)] == [kind]
    assert config.plant.hosts[1].leaves == ("council-c", "council-library")


def test_without_councils_nothing_is_implied() -> None:
    assert [host.name for host in parse(HOSTS, FILE).plant.hosts] == ["surtr", "tools"]


# ---- and back


def test_a_config_comes_back_from_its_document(tmp_path: Path) -> None:
    config = parse(HOSTS + SHENRON, tmp_path / "penstock.toml")
    assert read_document(as_document(config), config.path) == config


def test_settings_reach_into_a_council(tmp_path: Path) -> None:
    config = parse(HOSTS + SHENRON + PLAIN, tmp_path / "penstock.toml")
    changed = config.with_settings(
        {
            "councils.shenron.slots": "2",
            "councils.c.min_answers": "2",
            "councils.c.quick.risk_words": '["dose"]',
            "store": "other.db",
        }
    )
    assert (changed.plant.hosts[2].slots, changed.councils["c"].min_answers) == (2, 2)
    assert changed.councils["c"].quick.risk_words == ("dose",)
    retrieval = changed.councils["shenron"].retrieval
    assert retrieval is not None
    assert retrieval.path == str(tmp_path / "other.db.library"), "it goes where the store goes"


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("councils.shenrom.slots", "councils.shenrom.slots: no council 'shenrom'; did you mean 'shenron'?"),
        (
            "hosts.council-shenron.slots",
            "that host has no table of its own; what can be set is councils.shenron.slots",
        ),
    ],
)
def test_a_setting_of_nothing_is_refused(key: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace("?", r"\?")):
        parse(HOSTS + SHENRON, FILE).with_settings({key: "4"})


def test_e3_a_recorded_plant_with_councils_can_be_replayed_under_changes() -> None:
    """E3: what is replayed knows no councils, only their hosts."""
    plant = parse(HOSTS + SHENRON, FILE).plant
    changed = changed_plant(plant, {"hosts.council-shenron.slots": "4"})
    assert changed.hosts[2].slots == 4
    assert changed.hosts[1].leaves == plant.hosts[1].leaves
    assert changed.hosts_for("council-shenron") == [changed.hosts[2]]


def test_collections_are_among_penstocks_own_files(tmp_path: Path) -> None:
    text = HOSTS + PLAIN + f'retrieval = {{ collection = "notes", path = "{tmp_path}/shelf" }}'
    own = OwnFiles(parse(text, tmp_path / "penstock.toml"))
    assert own.has(str(tmp_path), "shelf")
    assert own.reached_by(str(tmp_path / "shelf" / "chroma.sqlite3")) is not None
    assert not own.has(str(tmp_path), "shelves")


# ---- what is refused


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        ('chiar = "x"', "councils.c.chiar: unknown key; did you mean 'chair'?"),
        ("chair = 3", "councils.c.chair: must be a name in quotes, or a table like"),
        ('chair = "a/b"', "councils.c.chair: must be the name of a member: 1 to 64 characters"),
        ('chair = { role = "sums up" }', "councils.c.chair: has no name; add one, like { name ="),
        (
            'chair = { name = "goku" }',
            'councils.c.chair.name: a member has this name; write chair = "GOKU", or choose another',
        ),
        (
            'chair = { name = "S", model = "qwen2.5-32" }',
            "councils.c.chair.model: no host that serves 'chat' has this model; did you mean 'qwen",
        ),
        ("min_answers = 3", "councils.c.min_answers: is 3, but there are 2 members; ask for fewer"),
        ("min_answers = 0", "councils.c.min_answers: must be a whole number from 1"),
        ("patience_s = -1", "councils.c.patience_s: must be a number from 0"),
        ('mode = "fast"', 'councils.c.mode: must be "quick" or "council" or "thorough", not another text'),
        ("slots = 0", "councils.c.slots: must be a whole number from 1 to 10000, not a smaller one"),
        ('calls_lane = "cals"', "councils.c.calls_lane: no such lane"),
        ("rubric = []", "councils.c.rubric: is empty; name what answers are scored by, or remove it"),
        ('rubric = ["tone", "Tone"]', "councils.c.rubric[2]: is there already; remove one"),
        (
            "limits = { quik = { time_s = 3 } }",
            "councils.c.limits.quik: no such mode; write it like { quick = { cost_usd = 0.05, time_s = 60 } }; "
            "did you mean 'quick'?",
        ),
        (
            "limits = { quick = { times = 3 } }",
            "councils.c.limits.quick.times: unknown key; did you mean 'time_s'?",
        ),
        (
            "limits = { quick = { cost_usd = 0 } }",
            "councils.c.limits.quick.cost_usd: must be a number above 0",
        ),
        ('quick = { members = ["GOUK"] }', "councils.c.quick.members[1]: no such member; did you mean"),
        ("quick = { unsure_below = 101 }", "councils.c.quick.unsure_below: must be a number from 0 to 100"),
        ("quick = { agree_at_least = 2 }", "councils.c.quick.agree_at_least: must be a number from 0 to 1"),
        ("retrieval = { top = 3 }", "councils.c.retrieval: has no collection; name one: collection ="),
        ('retrieval = { collection = "kb" }', "must be a name that Chroma takes: 3 to 63 letters"),
        ('retrieval = { collection = "a..b" }', "must be a name that Chroma takes"),
        ('retrieval = { collection = "notes-" }', "must be a name that Chroma takes"),
        ('retrieval = { collection = "1.2.3.4" }', "must be a name that Chroma takes"),
        (
            'retrieval = { collection = "notes", top = 21 }',
            "retrieval.top: must be a whole number from 1 to 20",
        ),
        (
            'retrieval = { collection = "notes", chunk_words = 50, overlap_words = 50 }',
            "councils.c.retrieval.overlap_words: must be less than chunk_words (50), not 50",
        ),
        (
            'retrieval = { collection = "notes", path = "x", url = "http://h" }',
            "councils.c.retrieval.path: is for Chroma inside Penstock, `url` for a Chroma server; give one",
        ),
        (
            'retrieval = { collection = "notes", url = "http://h:8000/prefix" }',
            "url: holds a path, where Chroma's own client asks none; end it with the port",
        ),
        (
            'retrieval = { collection = "notes", key_env = "CHROMA_KEY" }',
            "councils.c.retrieval.key_env: is of a Chroma server; give its `url`, or remove it",
        ),
        (
            'retrieval = { collection = "notes", tenant = "team" }',
            "councils.c.retrieval.tenant: is of a Chroma server; give its `url`, or remove it",
        ),
        (
            'retrieval = { collection = "notes", url = "http://h", key_env = "sk-12 34" }',
            "key_env: must be the name of an environment variable, such as CHROMA_KEY, not the key",
        ),
        (
            'retrieval = { collection = "notes", url = "h:8000" }',
            "url: must be the address of a Chroma server",
        ),
        (
            'retrieval = { collection = "notes", url = "http://ada:pw@h" }',
            "url: holds a name or a password, which do not belong in this file",
        ),
        (
            'retrieval = { collection = "notes", embeddings = "nomic" }',
            "councils.c.retrieval.embeddings: no host that answers calls has this model",
        ),
    ],
)
def test_each_mistake_of_a_council_is_told_with_its_place(rest: str, problem: str) -> None:
    assert problem in only(PLAIN + rest)


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ("[]", "councils.c.members: has no members; add some: [[councils.c.members]] with a name"),
        ('"GOKU"', "councils.c.members: must be a list of at most 32 tables like"),
        ('["GOKU"]', "councils.c.members[1]: must be a table like"),
        ('[{ role = "x" }]', "councils.c.members[1]: has no name; add one"),
        ('[{ name = "" }]', "councils.c.members[1].name: must be the name of a member"),
        ('[{ name = "a,b" }]', "councils.c.members[1].name: must be the name of a member"),
        ('[{ name = " a" }]', "councils.c.members[1].name: must be the name of a member"),
        ('[{ name = "a\\nb" }]', "councils.c.members[1].name: must be the name of a member"),
        (f'[{{ name = "{"x" * 65}" }}]', "must be the name of a member: 1 to 64 characters"),
        (
            '[{ name = "GOKU" }, { name = "Goku" }]',
            "councils.c.members[2].name: another member has this name; choose another",
        ),
        ('[{ name = "a", rolle = "x" }]', "councils.c.members[1].rolle: unknown key; did you mean 'role'?"),
        ('[{ name = "a", emoji = "12345678901234567" }]', "emoji: must be one line of at most 16 characters"),
        ('[{ name = "a", role = "x\\ny" }]', "role: must be one line of at most 256 characters"),
        ('[{ name = "a", persona = "\\u0007" }]', "persona: must be text of at most 20000 characters"),
        ('[{ name = "a", temperature = 3 }]', "temperature: must be a number from 0 to 2, not a larger one"),
        ('[{ name = "a", weight = 0 }]', "weight: must be a number above 0"),
        (
            '[{ name = "a", max_tokens = 9000 }]',
            "councils.c.members[1].max_tokens: an answer of 9000 tokens leaves no room for the question in 8192",
        ),
        ('[{ name = "a", kind = "x y" }]', "councils.c.members[1].kind: must be a name"),
        (
            '[{ name = "a", host = "surt" }]',
            "councils.c.members[1].host: no such host; did you mean 'surtr'?",
        ),
        (
            '[{ name = "a", host = "surtr", kind = "sums" }]',
            "councils.c.members[1].host: 'surtr' does not serve this kind; it serves reasoning, general; answers",
        ),
        (
            '[{ name = "a", model = "qwen2.5-32" }]',
            "councils.c.members[1].model: no host that serves 'chat' has this model; did you mean",
        ),
        (
            '[{ name = "a", model = "qwen2.5-32b" }]',
            "councils.c.members[1].model: no host that serves 'chat' has this model (surtr has it and "
            "serves reasoning, general; answers calls for qwen2.5-32b); add 'chat' to hosts.surtr.serves, or name "
            "another kind",
        ),
        (
            '[{ name = "a", kind = "council-c" }]',
            "councils.c.members[1].kind: is that of a council, which asks no other; name another",
        ),
    ],
)
def test_each_mistake_of_a_member_is_told_with_its_place(members: str, problem: str) -> None:
    assert problem in only(f"[councils.c]\nmembers = {members}")


def test_a_kind_that_nobody_serves_is_told_with_the_near_one() -> None:
    text = '[councils.c]\nmembers = [{ name = "a", kind = "reasonin" }]'
    hosts = HOSTS.replace('"*"', '"other"')
    problem = "councils.c.members[1].kind: no host serves this kind; did you mean 'reasoning'?"
    assert only(text, hosts) == problem


def test_a_council_needs_members() -> None:
    problem = "councils.c: has no members; add some: [[councils.c.members]] with a name"
    assert only('[councils.c]\nmode = "quick"') == problem


def test_there_are_at_most_so_many() -> None:
    many = ", ".join(f'{{ name = "m{number}" }}' for number in range(33))
    assert "at most 32 tables" in only(f"[councils.c]\nmembers = [{many}]")
    councils = "".join(f'[councils.c{number}]\nmembers = [{{ name = "a" }}]\n' for number in range(33))
    assert only(councils) == "councils: 33 are too many; at most 32"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("library", "councils.library: host 'council-library' is what all councils look things up with"),
        ("x" * 57, "the name of a council has at most 56 characters, not 57"),
        ("'a b'", "is not a name: letters, digits"),
    ],
)
def test_a_name_that_no_council_can_have(name: str, problem: str) -> None:
    assert problem in only(PLAIN.replace("councils.c", f"councils.{name}"))


@pytest.mark.parametrize(
    ("hosts", "problem"),
    [
        (
            '[hosts.council-c]\ntype = "simulated"\n',
            "hosts.council-c: is the name of the host that council 'c' has for its questions; choose another",
        ),
        (
            '[hosts.council-library]\ntype = "simulated"\n',
            "hosts.council-library: is the name of the host that councils look things up with; choose another",
        ),
        (
            '[agents.council-c]\nimage = "x"\n',
            "agents.council-c: is the name of the host that council 'c' has for its questions; choose another",
        ),
        (
            '[hosts.d]\ntype = "simulated"\nserves = ["council-c"]\n',
            "hosts.d.serves: kind 'council-c' is that of a council; name another",
        ),
        (
            '[hosts.d]\ntype = "council"\n',
            "hosts.d.type: hosts of this type are there by themselves, with a table [councils.NAME]; remove",
        ),
        (
            '[hosts.d]\ntype = "library"\n',
            "hosts.d.type: hosts of this type are there by themselves, with a table [councils.NAME]; remove",
        ),
    ],
)
def test_names_of_hosts_that_are_councils_own(hosts: str, problem: str) -> None:
    assert problem in only(PLAIN, HOSTS + hosts)


def test_a_collection_has_vectors_of_one_model() -> None:
    text = """
    [councils.a]
    members = [{ name = "x" }]
    retrieval = { collection = "notes" }
    [councils.b]
    members = [{ name = "x" }]
    retrieval = { collection = "notes", embeddings = "qwen2.5-32b" }
    """
    problem = (
        "councils.b.retrieval.embeddings: council 'a' has other embeddings for the same collection; name the same, "
        "or another collection"
    )
    assert only(text) == problem
    apart = text.replace('"notes", embeddings', '"other", embeddings')
    assert len(parse(HOSTS + apart, FILE).councils) == 2


def test_all_problems_are_told_at_once() -> None:
    text = '[councils.c]\nchair = 3\nslots = 0\nmembers = [{ name = "a", weight = 0 }, { name = "A" }]'
    assert len(told(text)) == 4


@pytest.mark.parametrize("value", [None, 3, "x", [], [3], {"c": 3}, {"c": {"members": {"a": 1}}}, {3: {}}])
def test_any_shape_is_refused_in_words(value: Any) -> None:
    with pytest.raises(ConfigError, match="councils"):
        read_document({"councils": value})


def test_a_council_is_a_value() -> None:
    assert Config().councils == {}
    found = council(PLAIN)
    assert found.kind == "council-c"
    assert found.member("GOKU") is found.members[0]
    assert found.member("goku") is None


def test_an_alias_of_models_may_be_a_members_model() -> None:
    """What it stands for is asked for, priced and told: the hosts know no aliases."""
    text = """
[models]
best = "better"
better = "qwen2.5-32b"
[councils.c]
chair = { name = "CHAIR", model = "better" }
retrieval = { collection = "texts", embeddings = "best" }
[[councils.c.members]]
name = "GOKU"
model = "best"
[[councils.c.members]]
name = "VEGETA"
kind = "reasoning"
model = "best"
"""
    hosts = HOSTS.replace('["reasoning", "general"]', '["reasoning", "chat", "embedding"]')
    config = parse(hosts + text, FILE)
    of = config.councils["c"]
    assert [one.model for one in (*of.members, of.chair)] == ["qwen2.5-32b"] * 3
    assert of.retrieval is not None
    assert of.retrieval.embeddings == "qwen2.5-32b"
    assert [host.name for host in hosts_of(of.members[0], config)] == ["surtr"]
    assert read_document(as_document(config)).councils == config.councils


def test_an_alias_that_leads_nowhere_is_told_with_the_member() -> None:
    text = '[models]\nbest = "gone"\n[councils.c]\nmembers = [{ name = "GOKU", model = "best" }]\n'
    hosts = HOSTS.replace('["reasoning", "general"]', '["chat"]')
    assert any("councils.c.members[1].model: " in problem for problem in told(text, hosts))
