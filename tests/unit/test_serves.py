"""E9: what a host takes. Tasks go by `serves`, calls by model; every place that says so asks the same function."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.config import TaskChecker, as_document, parse, read_document
from penstock.config.call_tasks import CALL_KIND_OF, call_task
from penstock.config.names import Names
from penstock.config.takes import takes
from penstock.diagnosis.whatif.inferred import inferred_plant
from penstock.diagnosis.why.waiting import of_host
from penstock.errors import ConfigError, TaskError
from penstock.model import CALL_KINDS, CHAT_CALL, Host, Lane, OnCrash, Plant, State, Task, TaskRecord
from penstock.scheduling.messages import Start, Submitted
from penstock.scheduling.routes import route_key
from penstock.scheduling.scheduler import Scheduler
from penstock.store.base import Snapshot
from penstock.store.status import status_record
from tests.unit.recording_rig import Row, recording

FILE = Path("penstock.toml")
SURTR = """
[hosts.surtr]
type = "openai"
url = "http://surtr:1234/v1"
model = "qwen2.5-32b"
serves = ["translate"]
"""
FENRIR = """
[hosts.fenrir]
type = "openai"
url = "http://fenrir:1234/v1"
model = "llama-3-8b"
serves = ["chat"]
calls = false
"""
BOTH = parse(SURTR + FENRIR, FILE)


def names(plant: Plant, *asked: Any) -> list[str]:
    return [host.name for host in plant.hosts_for(*asked)]


def wrong(task: Task, text: str = SURTR) -> str:
    with pytest.raises(TaskError) as caught:
        TaskChecker(parse(text, FILE)).check(task)
    return str(caught.value)


# ---- what fits


def test_tasks_go_by_kind_and_calls_by_model() -> None:
    """E9: a submitted chat is not a call, and a call asks nobody what it serves."""
    plant = BOTH.plant
    assert names(plant, "translate") == ["surtr"]
    assert names(plant, "chat") == ["fenrir"], "surtr does not serve it, though it has a model"
    assert names(plant, CHAT_CALL, None, "qwen2.5-32b") == ["surtr"]
    assert names(plant, CHAT_CALL, None, "llama-3-8b") == [], "calls = false"
    assert names(plant, CHAT_CALL, "fenrir", "llama-3-8b") == []
    assert names(plant, "chat", "surtr") == []


@pytest.mark.parametrize("kind", CALL_KINDS)
@pytest.mark.parametrize("serves", ['["*"]', '["translate"]'])
def test_only_hosts_with_models_answer_calls(kind: str, serves: str) -> None:
    python = f'[hosts.code]\ntype = "python"\ncall = "m:f"\nserves = {serves}\n'
    assert names(parse(python, FILE).plant, kind) == []
    assert names(parse(python + SURTR, FILE).plant, kind, None, "auto") == ["surtr"]


def test_a_host_without_the_units_is_none_for_the_task_unless_all_are_such() -> None:
    """As the scheduler has it, so that `status` does not count what could never come."""
    small, large = (
        Host("small", "python", units={"vram_gb": 8}),
        Host("large", "python", units={"vram_gb": 24}),
    )
    plant = Plant((small, large), (Lane("kept", reserve={"large": {"vram_gb": 10}}),))
    assert names(plant, "k", None, None, "default", {"vram_gb": 12}) == ["large"]
    assert names(plant, "k", None, None, "default", {"vram_gb": 16}) == ["small", "large"]
    assert names(plant, "k", None, None, "kept", {"vram_gb": 16}) == ["large"]
    assert names(plant, "k", None, None, "default", {"slots": 9, "tokens": 9e9}) == ["small", "large"]
    queued = {route_key("k", "default", None, None, {"vram_gb": 12}): 3}
    told = status_record(plant, Snapshot(0.0, queued, {}, {}, {}, {}, {}, False, None))
    assert {name: host["queued"] for name, host in told["hosts"].items()} == {"small": 0, "large": 3}


# ---- how a call is told from a task


def test_a_call_is_one_for_good() -> None:
    """The kind says so: in a record, in a route, in a replay."""
    for endpoint, kind in CALL_KIND_OF.items():
        call = call_task(endpoint, "qwen2.5-32b", {"n": 1}, id="c", lane="fast", priority=1)
        assert (call.kind, call.is_call, call.model) == (kind, True, "qwen2.5-32b")
        assert (call.on_crash, call.lane, call.priority) == (OnCrash.CANCEL, "fast", 1)
        assert TaskChecker(BOTH, calls=True).problems(call) == [
            ("lane", "no lane 'fast'; add [lanes.fast] to penstock.toml")
        ]
        assert TaskChecker(BOTH, calls=True).problems(replace(call, lane="default")) == []
    assert not Task("chat").is_call


@pytest.mark.parametrize("kind", CALL_KINDS)
def test_nobody_submits_a_call(kind: str) -> None:
    told = wrong(Task(kind, model="qwen2.5-32b"))
    assert f"kind: '{kind}' is a kind of calls, which come by /v1 or `penstock ask`" in told
    assert TaskChecker().problems(Task(kind))[0][0] == "kind"
    with pytest.raises(ConfigError, match=r"serves.*: must be a name"):
        parse(SURTR.replace('"translate"', f'"{kind}"'), FILE)


def test_a_submitted_chat_waits_for_nobodys_calls() -> None:
    """The scheduler starts each where it fits, and says where it waits."""
    scheduler = Scheduler(BOTH.plant)
    call = call_task("chat/completions", "qwen2.5-32b", id="call", queued_at=0.0)
    tasks = [Task("chat", id="chat", queued_at=0.0), Task("translate", id="translate", queued_at=0.0), call]
    started = {
        (decision.task, decision.host)
        for decision in scheduler.apply(Submitted(tasks), 0.0)
        if isinstance(decision, Start)
    }
    assert started == {("chat", "fenrir"), ("translate", "surtr")}
    assert scheduler.waiting_reason("call") == "slots:surtr"


# ---- words and errors


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SURTR, "serves translate; answers calls for qwen2.5-32b"),
        (FENRIR, "serves chat; answers no calls"),
        ('[hosts.a]\ntype = "openai"\nurl = "http://a/v1"', "serves every kind; answers calls for any model"),
        (
            SURTR.replace('["translate"]', '["x", "y"]') + 'models = ["n", "o"]',
            "serves x, y; answers calls for qwen2.5-32b, n, o",
        ),
        ('[hosts.a]\ntype = "python"\ncall = "m:f"', "serves every kind"),
        (SURTR + '[hosts.a]\ntype = "file_prompt"\nmodel = "qwen2.5-32b"', "serves file_prompt"),
        (
            f'[hosts.a]\ntype = "simulated"\nserves = {[f"k{n}" for n in range(10)]}',
            "serves k0, k1, k2, k3, k4, k5, k6, k7 and 2 more",
        ),
    ],
)
def test_what_a_host_takes_in_words(text: str, told: str) -> None:
    """E9: both are shown."""
    assert takes(parse(text, FILE).plant.hosts[-1]) == told


def test_errors_show_both() -> None:
    """E9: whoever takes a task for a call sees what the host does take, and what to do."""
    assert wrong(Task("chat")) == (
        "task of kind 'chat': kind: no host serves kind 'chat' (surtr serves translate; answers calls for "
        "qwen2.5-32b); add 'chat' to hosts.surtr.serves, or name another kind"
    )
    assert wrong(Task("chat", host="surtr")) == (
        "task of kind 'chat': host: 'surtr' does not serve kind 'chat'; it serves translate; answers calls for "
        "qwen2.5-32b"
    )
    python = '[hosts.code]\ntype = "python"\ncall = "m:f"\nserves = ["chat"]\n'
    assert wrong(Task("chat", model="qwen2.5-32b"), SURTR + python) == (
        "task of kind 'chat': model: no host that serves 'chat' has model 'qwen2.5-32b' (surtr has it and serves "
        "translate; answers calls for qwen2.5-32b); add 'chat' to hosts.surtr.serves, or name another kind"
    )
    assert wrong(Task("tranlsate")).endswith("no host serves kind 'tranlsate'; did you mean 'translate'?")
    closed = TaskChecker(parse(FENRIR, FILE), calls=True)
    assert closed.problems(Task(CHAT_CALL, model="llama-3-8b")) == [
        ("model", "no host answers calls; add one of type openai or local to penstock.toml")
    ]
    assert closed.problems(Task(CHAT_CALL, model="llama-3-8b", host="fenrir")) == [
        ("host", "'fenrir' answers no calls; name another host, or none")
    ]


# ---- calls = false


def test_calls_may_be_left_to_others() -> None:
    config = parse(SURTR + FENRIR.replace("llama-3-8b", "qwen2.5-32b"), FILE)
    assert Names(config).known() == {name: ["surtr"] for name in ("qwen2.5-32b", "translate", "auto")}
    assert names(config.plant, CHAT_CALL, None, "qwen2.5-32b") == ["surtr"]
    assert names(config.plant, "chat", None, "qwen2.5-32b") == ["fenrir"]


@pytest.mark.parametrize("text", [FENRIR, SURTR + FENRIR])
def test_a_name_that_only_tasks_may_use_says_where_it_is(text: str) -> None:
    where = "is on host fenrir, which answers no calls; remove calls = false from hosts.fenrir"
    asked = Names(parse(text + '[models]\nsmall = "llama-3-8b"\n', FILE))
    assert asked.asked("llama-3-8b") is None
    assert asked.unknown("llama-3-8b") == f"the model 'llama-3-8b' {where}"
    assert asked.unknown("small") == f"the model 'small' {where}"


def test_it_comes_back_as_it_was() -> None:
    document = as_document(BOTH)
    assert document["hosts"]["fenrir"]["calls"] is False
    assert "calls" not in document["hosts"]["surtr"]
    assert read_document(document, FILE).plant == BOTH.plant
    assert BOTH.with_settings({"hosts.surtr.calls": "false"}).plant.hosts[0].takes_calls is False


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[hosts.a]\ntype = "command"\nargv = ["x"]\ncalls = false',
            "penstock.toml:4: hosts.a.calls: belongs to a host of type openai or local; remove it",
        ),
        (
            SURTR + '[hosts.a]\ntype = "file_prompt"\ncalls = true',
            "penstock.toml:9: hosts.a.calls: belongs to a host of type openai or local; remove it",
        ),
        (
            SURTR + "calls = 0",
            "penstock.toml:7: hosts.surtr.calls: must be true or false, not a number",
        ),
    ],
)
def test_it_is_for_hosts_that_have_models(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, FILE)
    assert caught.value.problems == (problem,)


def test_the_functions_of_a_python_host_are_another_key() -> None:
    config = parse('[hosts.a]\ntype = "python"\ncalls = { count = "m:f" }\nserves = ["count"]\n', FILE)
    assert config.plant.hosts[0].options["calls"] == {"count": "m:f"}
    assert read_document(as_document(config), FILE).plant == config.plant


# ---- gates, and what is replayed


def test_a_gate_holds_calls_by_their_kind() -> None:
    gate = '[gates.g]\nprobe = "psutil:cpu_percent"\nmax = 50\nholds = {{ kinds = ["{}"] }}\n'
    config = parse(SURTR + gate.format(CHAT_CALL), FILE)
    assert config.plant.gates[0].holds_kinds == (CHAT_CALL,)
    assert read_document(as_document(config), FILE).plant == config.plant
    with pytest.raises(ConfigError, match=r"kinds: no host serves this kind"):
        parse(SURTR + gate.format("chat"), FILE)
    with pytest.raises(ConfigError, match="no host serves this kind"):
        parse(FENRIR + gate.format(CHAT_CALL), FILE)


def test_a_plant_that_a_log_lets_infer_takes_the_calls_in_it() -> None:
    log = recording([Row("c", 0.0, 1.0, host="a", kind=CHAT_CALL), Row("t", 0.0, 1.0, host="b", kind="chat")])
    plant = inferred_plant(log)
    assert (names(plant, CHAT_CALL), names(plant, "chat")) == (["a"], ["b"])


# ---- counts


def test_what_is_queued_counts_for_a_host_whatever_it_waits_for() -> None:
    """E9: `why --host` counts what `status` counts; a wait for a lane or for nobody at all is no other task."""
    from penstock.diagnosis.history import History

    tasks = [
        Task("translate", id="a"),
        Task("chat", id="b"),
        Task(CHAT_CALL, id="c", model="qwen2.5-32b"),
        Task(CHAT_CALL, id="d", model="qwen2.5-32b", lane="full"),
        Task("translate", id="e", host="fenrir"),
    ]
    records = [TaskRecord(task, number, State.QUEUED) for number, task in enumerate(tasks)]
    history = History(records, [], [], {}, [], [], [], [])
    queued: dict[str, int] = {}
    for task in tasks:
        key = route_key(task.kind, task.lane, task.host, task.model, task.needs)
        queued[key] = queued.get(key, 0) + 1
    counted = status_record(BOTH.plant, Snapshot(0.0, queued, {}, {}, {}, {}, {}, False, None))["hosts"]
    assert {name: host["queued"] for name, host in counted.items()} == {"surtr": 3, "fenrir": 1}
    for name, host in counted.items():
        assert of_host(name, history, BOTH.plant, 10.0, 0.0).states[State.QUEUED] == host["queued"]
