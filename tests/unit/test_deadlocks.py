"""A9, A4: configs and tasks with which a run could wait for its own calls for ever are refused. Promise 7."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.config import Config, TaskChecker, as_document, parse, read_document
from penstock.config.deadlocks import lanes_without_runs
from penstock.config.names import Names
from penstock.config.own_calls import calls_lane, calls_through_us, own_lanes
from penstock.errors import ConfigError, TaskError
from penstock.model import CALL_KINDS, DEFAULT_LANE, Task

FILE = Path("penstock.toml")
MODELS = """
[hosts.surtr]
type = "openai"
url = "http://surtr:1234/v1"
model = "qwen"
slots = 2
serves = ["chat"]
"""
RUNS = """
[hosts.prompts]
type = "file_prompt"
slots = 8
"""
PLANT = MODELS + RUNS


def read(more: str, plant: str = PLANT) -> Config:
    return parse(plant + more, FILE)


def refusal(more: str, plant: str = PLANT) -> str:
    with pytest.raises(ConfigError) as caught:
        read(more, plant)
    assert len(caught.value.problems) == 1
    return caught.value.problems[0]


# ---- what a new user need not know


def test_the_lane_of_calls_is_there_by_itself() -> None:
    config = read("")
    assert [lane.name for lane in config.plant.lanes] == [DEFAULT_LANE, "calls"]
    assert own_lanes(config.plant) == ("calls",)
    TaskChecker(config).check(Task("file_prompt"))


def test_a_config_without_such_hosts_has_no_lane_of_calls() -> None:
    assert [lane.name for lane in parse(MODELS, FILE).plant.lanes] == [DEFAULT_LANE]


def test_a_host_with_a_url_calls_nobody_here() -> None:
    config = read('[hosts.away]\ntype = "file_prompt"\nurl = "http://x/v1"\nserves = ["away"]\n', MODELS)
    assert not any(map(calls_through_us, config.plant.hosts))
    TaskChecker(config).check(Task("away", model="anything"))


def test_such_a_config_comes_back_as_it_was() -> None:
    config = read('model = "qwen"\ncalls_lane = "own"\n[lanes.own]\nmax_running = 3\n')
    assert read_document(as_document(config), config.path) == config
    assert config.with_settings({"hosts.prompts.slots": "2"}).plant.hosts[1].slots == 2


# ---- its own host is never chosen for a call


@pytest.mark.parametrize("kind", CALL_KINDS)
def test_the_host_of_runs_takes_no_call(kind: str) -> None:
    """Whatever it serves and whatever model it names."""
    config = read('model = "qwen"\n')
    for model in (None, "qwen", "auto", "never-heard-of"):
        assert all(host.name == "surtr" for host in config.plant.hosts_for(kind, None, model))
    assert Names(config).known()["qwen"] == ["surtr"]
    assert "serves[1]: must be a name: letters" in refusal(f'serves = ["{kind}"]\n')


# ---- configs


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            'calls_lane = "cals"\n[lanes.calls]',
            "hosts.prompts.calls_lane: no such lane; did you mean 'calls'?",
        ),
        ('calls_lane = "default"', "hosts.prompts.calls_lane: 'default' is the lane of tasks that name none"),
        ('model = "qwn"', "hosts.prompts.model: the model 'qwn' does not exist; did you mean 'qwen'?"),
        (
            "[lanes.rush]\nreserve = { surtr = 2 }",
            "hosts.prompts: other lanes reserve every slot of the hosts that have it (surtr), so no call of lane "
            "'calls' could start; reserve fewer, or reserve one for 'calls'",
        ),
        (
            "[lanes.calls]\nbudget_usd_per_day = 0\n[prices.qwen]\ninput = 1",
            "the hosts that have it cost money (surtr), and there is none: budgets of 0 USD let no call",
        ),
        ("[lanes.calls]\nmax_running = 0", "lanes.calls.max_running: must be a whole number from 1"),
        (
            '[gates.g]\nprobe = "psutil:memory_percent"\nmax = 90\nholds = { lanes = ["calls"] }',
            "holds lane 'calls' of their calls, but runs that wait for their calls keep their memory",
        ),
        (
            '[gates.g]\nprobe = "psutil:memory_free_gb"\nmin = 4\nholds = { kinds = ["call/chat"] }',
            "gates.g.holds: holds calls of kind 'call/chat', but",
        ),
        (
            '[gates.g]\nprobe = "psutil:memory_free_gb"\nmin = 4\nholds = { hosts = ["surtr"] }',
            "gates.g.holds: holds host 'surtr', which answers their calls, but",
        ),
        (
            '[hosts.loop]\ntype = "file_prompt"\nserves = ["loop"]\nurl = "http://127.0.0.1:8787/v1"',
            "hosts.loop.url: is Penstock's own address; leave it out",
        ),
        (
            '[hosts.loop]\ntype = "researcher"\nserves = ["loop"]\nmodel = "m"\nurl = "http://localhost:8787/v1"',
            "hosts.loop.url: is Penstock's own address; leave it out",
        ),
    ],
)
def test_a_plant_that_could_wait_for_itself_is_refused(more: str, told: str) -> None:
    assert told in refusal(more)


@pytest.mark.parametrize(
    "name",
    [
        "127.0.0.1",
        "127.1",
        "0x7f.0.0.1",
        "2130706433",
        "127.44.5.6",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "localhost",
        "LOCALHOST.",
        "api.localhost",
        socket.gethostname(),
    ],
)
@pytest.mark.parametrize("type", ["openai", "file_prompt"])
def test_no_host_is_penstock_itself_however_it_is_written(type: str, name: str) -> None:
    """A call that makes a call is no leaf: the slots would fill with calls that wait for calls."""
    host = f'[hosts.loop]\ntype = "{type}"\nserves = ["loop"]\nmodel = "m"\nurl = "http://%s/v1"\n'
    assert "hosts.loop.url: is Penstock's own address" in refusal(host % f"{name}:8787")
    read(host % f"{name}:8788")
    read("[server]\nport = 9000\n" + host % f"{name}:8787")
    assert "own address" in refusal("[server]\nport = 80\n" + host % name)


def test_an_address_of_this_machines_network_cards_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    card = SimpleNamespace(family=socket.AF_INET, address="192.0.2.7")
    monkeypatch.setattr("psutil.net_if_addrs", lambda: {"eth0": [card]})
    url = 'type = "openai"\nserves = ["loop"]\nurl = "http://%s:8787/v1"\n'
    assert "own address" in refusal("[hosts.loop]\n" + url % "192.0.2.7")
    read("[hosts.other]\n" + url % "192.0.2.8")
    read("[hosts.other]\n" + url % "surtr")


def test_somebody_must_have_models() -> None:
    assert "hosts.prompts: calls models through Penstock itself, but no host here has any" in refusal(
        "", RUNS
    )


def test_slots_that_tune_themselves_count_as_the_fewest() -> None:
    """At its fewest the host would be reserved whole, and with no calls it would never grow."""
    plant = PLANT.replace("slots = 2", "slots = { auto = true, min = 1, max = 8 }")
    assert "reserve every slot" in refusal("[lanes.rush]\nreserve = { surtr = 1 }", plant)


def test_a_host_that_may_spend_nothing_answers_no_call() -> None:
    plant = PLANT.replace("slots = 2", "slots = 2\nfallback = { budget_usd_per_day = 0 }")
    assert "cost money (surtr), and there is none" in refusal("", plant)


@pytest.mark.parametrize(
    "more",
    [
        "[lanes.rush]\nreserve = { surtr = 1 }",
        "[lanes.rush]\nreserve = { surtr = 1 }\n[lanes.calls]\nreserve = { surtr = 1 }\nmax_running = 1",
        '[gates.g]\nprobe = "psutil:memory_percent"\nmax = 90\nholds = { lanes = ["default"] }',
        '[gates.g]\nprobe = "nvml:memory_free_gb"\nmin = 3\nholds = { hosts = ["surtr"] }',
        '[lanes.busy]\n[gates.g]\nlane = "busy"\nmax_running = 1\nholds = { lanes = ["calls"] }',
        '[hosts.other]\ntype = "file_prompt"\nserves = ["other"]\nurl = "http://127.0.0.1:8788/v1"',
        "[lanes.calls]\nbudget_usd_per_day = 1\n[prices.qwen]\ninput = 1",
    ],
)
def test_what_cannot_deadlock_is_not_refused(more: str) -> None:
    read(more)


# ---- who takes what


@pytest.mark.parametrize(
    ("model_serves", "run_serves", "told"),
    [
        ('["*"]', '["file_prompt"]', "hosts.surtr.serves: it would also take kind 'file_prompt'"),
        ('["chat", "both"]', '["both"]', "hosts.surtr.serves: it would also take kind 'both'"),
        ('["chat"]', '["*"]', 'hosts.prompts.serves: "*" would also take what is meant for surtr'),
    ],
)
def test_a_model_does_not_get_what_it_cannot_read(model_serves: str, run_serves: str, told: str) -> None:
    plant = PLANT.replace('serves = ["chat"]', f"serves = {model_serves}") + f"serves = {run_serves}\n"
    assert told in refusal("", plant)


# ---- tasks


GATED = """
[lanes.fpf]
[lanes.plain]
[gates.g]
lane = "fpf"
max_running = 1
holds = { %s }
"""


def wrong(config: Config, task: Task) -> str:
    with pytest.raises(TaskError) as caught:
        TaskChecker(config).check(task)
    return str(caught.value)


@pytest.mark.parametrize("task", [Task("file_prompt", lane="calls"), Task("chat", lane="calls")])
def test_nothing_but_calls_is_in_the_lane_of_calls(task: Task) -> None:
    config = read("")
    assert "lane: lane 'calls' is for the calls that runs make, and for nothing else" in wrong(config, task)
    TaskChecker(config, own_calls=True).check(Task("chat", lane="calls"))


def test_the_lane_of_another_hosts_calls_is_no_lane_for_runs_either() -> None:
    """Two hosts whose runs fill each other's lanes of calls would wait for each other."""
    more = '[hosts.more]\ntype = "file_prompt"\nserves = ["more"]\ncalls_lane = "own"\n[lanes.own]\n'
    config = read(more)
    assert "'own' is for the calls" in wrong(config, Task("file_prompt", lane="own"))
    assert "'calls' is for the calls" in wrong(config, Task("more", lane="calls"))


@pytest.mark.parametrize(
    ("holds", "told"),
    [
        ('lanes = ["calls"]', "holds lane 'calls' of their calls"),
        ('kinds = ["call/chat"]', "holds calls of kind 'call/chat'"),
        ('hosts = ["surtr"]', "holds host 'surtr', which answers their calls"),
    ],
)
def test_a_run_is_not_counted_by_a_gate_that_holds_calls(holds: str, told: str) -> None:
    config = read(GATED % holds)
    message = wrong(config, Task("file_prompt", lane="fpf"))
    assert told in message
    assert "gate 'g' counts lane 'fpf'" in message
    assert "submit it to another lane" in message
    assert lanes_without_runs(config).keys() == {"calls", "fpf"}
    TaskChecker(config).check(Task("file_prompt", lane="plain"))
    TaskChecker(config).check(Task("chat", lane="fpf", model="qwen"))  # ends by itself


def test_a_gate_between_families_of_runs_is_fine() -> None:
    """A5: ready while running(fpf) is small enough."""
    config = read(GATED % 'lanes = ["plain"]')
    TaskChecker(config).check(Task("file_prompt", lane="fpf"))
    TaskChecker(config).check(Task("file_prompt", lane="plain"))


def test_a_run_asks_for_a_model_that_another_host_has() -> None:
    config = read("")
    TaskChecker(config).check(Task("file_prompt", model="qwen"))
    TaskChecker(config).check(Task("file_prompt", model="auto"))
    assert "the model 'qwn' does not exist; did you mean 'qwen'?" in wrong(
        config, Task("file_prompt", model="qwn")
    )


def test_an_alias_is_a_model_to_a_run_as_well() -> None:
    config = read('[models]\n"gpt-4o" = "qwen"\n')
    TaskChecker(config).check(Task("file_prompt", model="gpt-4o"))


def test_the_model_of_a_run_needs_a_slot_that_nobody_reserves() -> None:
    other = MODELS.replace("surtr", "fenrir").replace('"qwen"', '"llama"')
    config = read(other + "[lanes.rush]\nreserve = { fenrir = 2 }\n")
    TaskChecker(config).check(Task("file_prompt", model="qwen"))
    assert "other lanes reserve every slot" in wrong(config, Task("file_prompt", model="llama"))


def test_every_host_has_its_own_lane_of_calls_if_it_names_one() -> None:
    config = read('calls_lane = "own"\n[lanes.own]\n')
    assert [calls_lane(host) for host in config.plant.hosts if calls_through_us(host)] == ["own"]
    assert [lane.name for lane in config.plant.lanes] == ["own", DEFAULT_LANE]


# ---- questions of councils

COUNCIL = """
[councils.sages]
%s
[[councils.sages.members]]
name = "A"
model = "qwen"
%s
"""


def council(top: str = "", member: str = "", more: str = "") -> str:
    return COUNCIL % (top, member) + more


def test_the_lane_of_a_councils_steps_is_there_by_itself_and_for_nothing_else() -> None:
    """D1"""
    config = read(council(), MODELS)
    assert own_lanes(config.plant) == ("calls",)
    TaskChecker(config).check(Task("council-sages", "why?"))
    assert "'calls' is for the calls" in wrong(config, Task("council-sages", "why?", lane="calls"))
    TaskChecker(config, own_calls=True).check(Task("chat", lane="calls", model="qwen"))
    TaskChecker(config, own_calls=True).check(Task("council-library", lane="calls"))


def test_embeddings_of_a_model_have_a_lane_below_that_of_the_steps() -> None:
    config = read(council('retrieval = { collection = "texts", embeddings = "qwen" }'), MODELS)
    assert own_lanes(config.plant) == ("calls", "council-embeddings")
    assert "'council-embeddings' is for the calls" in wrong(
        config, Task("council-library", lane="council-embeddings")
    )
    TaskChecker(config).check(Task("council-library"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            council('calls_lane = "default"'),
            "councils.sages.calls_lane: 'default' is the lane of tasks that name none",
        ),
        (
            council(
                'calls_lane = "council-embeddings"\nretrieval = { collection = "texts", embeddings = "qwen" }'
            ),
            "councils.sages.calls_lane: 'council-embeddings' is the lane of the library's own calls",
        ),
        (
            council(more="[lanes.rush]\nreserve = { surtr = 2 }\n"),
            "no host that could take it has as much: surtr 2 (2 of them reserved by other lanes)",
        ),
        (
            council(more="[lanes.calls]\nbudget_usd_per_day = 0\n[prices.qwen]\ninput = 1.0\n"),
            "the hosts that have it cost money (surtr), and there is none",
        ),
        (
            council('retrieval = { collection = "texts", embeddings = "qwen" }')
            + '[gates.g]\nlane = "calls"\nmax_running = 1\nholds = { hosts = ["surtr"] }\n',
            "gates.g.holds: holds host 'surtr', which makes embeddings, but the gate counts lane 'calls'",
        ),
    ],
)
def test_councils_whose_questions_could_wait_for_ever_are_refused(text: str, told: str) -> None:
    """D1, promise 7."""
    with pytest.raises(ConfigError) as caught:
        read(text, MODELS)
    assert any(told in problem for problem in caught.value.problems), caught.value.problems


def test_a_member_is_not_of_a_kind_of_runs() -> None:
    """Its step would hold a place in the lane that its own calls wait for."""
    text = council().replace('model = "qwen"\n', 'kind = "file_prompt"\n')
    assert "tasks of kind 'file_prompt' may go to host 'prompts', whose own tasks wait for calls" in refusal(
        text
    )


@pytest.mark.parametrize("holds", ['kinds = ["chat"]', 'kinds = ["council-library"]', 'hosts = ["surtr"]'])
def test_a_question_is_not_counted_by_a_gate_that_holds_its_steps(holds: str) -> None:
    config = read(council(more=GATED % holds), MODELS)
    assert "gate 'g' counts lane 'fpf'" in wrong(config, Task("council-sages", "why?", lane="fpf"))
    TaskChecker(config).check(Task("council-sages", "why?", lane="plain"))


def test_a_gate_on_memory_may_hold_what_questions_alone_ask_for() -> None:
    """They keep texts while they wait, and not the memory that would open it; runs beside them do."""
    gate = '[gates.g]\nprobe = "psutil:memory_free_gb"\nmin = 4\nholds = { hosts = ["surtr"] }\n'
    config = read(council(more=gate), MODELS)
    TaskChecker(config).check(Task("council-sages", "why?"))
    assert "keep their memory" in refusal(council(more=gate))
