"""Whether a task could ever run under a config. Promise 7: refused at once, with the remedy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from penstock.config import Config, TaskChecker, check_task, parse, tasks
from penstock.config.tasks import find_circle
from penstock.errors import TaskError
from penstock.model import OnCrash, Task

LONG = 10_000  # calls may be a thousand deep
CONFIG = parse(
    """
[hosts.surtr]
type = "simulated"
slots = 2
units = { vram_gb = 24, cores = 4 }
serves = ["reasoning", "general"]
model = "qwen2.5-32b"

[hosts.fenrir]
type = "simulated"
slots = 3
units = { vram_gb = 16 }
serves = ["general", "chat"]
model = "llama-3-8b"

[hosts.skadi]
type = "simulated"
slots = { auto = true, min = 1, max = 6 }
serves = ["chat"]

[lanes.gptr]
reserve = { surtr = { slots = 1, vram_gb = 8 }, skadi = 1 }
[lanes.bulk]
""",
    Path("penstock.toml"),
)


def wrong(task: Task, config: Config = CONFIG) -> str:
    with pytest.raises(TaskError) as caught:
        check_task(config, task)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    "task",
    [
        Task("general"),
        Task("reasoning", lane="gptr", priority=0),
        Task("general", host="surtr"),
        Task("general", model="llama-3-8b"),
        Task("general", host="surtr", model="qwen2.5-32b"),
        Task("general", needs={"vram_gb": 24}, lane="gptr"),
        Task("chat", needs={"slots": 5}),
        Task("chat", needs={"slots": 0.5, "tokens": 1e6}),
        Task("general", needs={}),
        Task("general", deadline=1.0, not_before=2.0),
        Task("general", timeout_s=1, retries=0, key="k" * 512, id="a.b-c_1", run="r", after=("x", "y")),
        Task("general", on_crash=OnCrash.BLOCK),
    ],
)
def test_c1_c7_what_can_run_is_accepted(task: Task) -> None:
    """C1, C7."""
    check_task(CONFIG, task)


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        (Task("general", lane="gtpr"), "lane: no lane 'gtpr'; did you mean 'gptr'?"),
        (Task("genral"), "kind: no host serves kind 'genral'; did you mean 'general'?"),
        (Task("paint"), "kind: no host serves kind 'paint'; kinds: chat, general, reasoning"),
        (Task("general", host="surt"), "host: no host 'surt'; did you mean 'surtr'?"),
        (
            Task("chat", host="surtr"),
            "host: 'surtr' does not serve kind 'chat'; it serves reasoning, general",
        ),
        (
            Task("general", model="llama-3-9b"),
            "model: no host that serves 'general' has model 'llama-3-9b'; did you mean 'llama-3-8b'?",
        ),
        (
            Task("general", host="surtr", model="llama-3-8b"),
            "model: host 'surtr' does not have model 'llama-3-8b'; models: qwen2.5-32b",
        ),
        (
            Task("general", needs={"vram_gb": 48}, lane="gptr"),
            "needs.vram_gb: needs 48 vram_gb, but no host that could take it has as much: surtr 24, fenrir",
        ),
        (
            Task("general", needs={"vram_gb": 20}),
            "needs.vram_gb: needs 20 vram_gb, but no host that could take it has as much: "
            "surtr 24 (8 of them reserved by other lanes), fenrir 16",
        ),
        (
            Task("chat", needs={"disk": 1}),
            "needs.disk: needs 1 disk, but no host that could take it has as much",
        ),
        (
            Task("general", needs={"slots": 3, "cores": 1}),
            "needs: needs 3 slots, 1 cores at once, which no host that could take it has: surtr, fenrir",
        ),
        (Task("chat", needs={"slots": 6}), "needs.slots: needs 6 slots, but no host"),
    ],
)
def test_c1_c7_what_could_never_run_is_refused(task: Task, problem: str) -> None:
    """C1, C7."""
    assert wrong(task).startswith(f"task of kind '{task.kind}': {problem}")


def test_a_host_that_others_reserved_whole_is_no_room() -> None:
    text = '[hosts.a]\ntype = "simulated"\n[lanes.x]\nreserve = { a = 1 }'
    problem = wrong(Task("k"), parse(text, Path("penstock.toml")))
    assert (
        "lane: needs 1 slot, but no host that could take it has as much: a 1 (1 of them reserved" in problem
    )


def test_without_hosts_nothing_can_run() -> None:
    assert wrong(Task("k"), Config()).startswith("task of kind 'k': lane: no lane 'default'")
    assert wrong(Task("k"), parse("", Path("x.toml"))).endswith(
        "no host is configured; add one: [hosts.NAME]"
    )


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"kind": ""}, "kind: is missing; every task needs one"),
        ({"kind": None}, "kind: is missing; every task needs one"),
        ({"kind": 0}, "kind: must be text, not 0"),
        ({"kind": "a b"}, "kind: 'a b' is not a name"),
        ({"lane": None}, "lane: must be text, not nothing"),
        ({"lane": ["x"]}, "lane: must be text, not a list"),
        ({"host": ""}, "host: '' is not a name"),
        ({"model": ""}, "model: must be text, not empty text"),
        ({"model": "a\nb"}, "model: must be one line without control characters"),
        ({"model": "m" * 257}, "model: is 257 characters long; at most 256"),
        ({"needs": [1]}, "needs: must be a table like { vram_gb = 8 }, not a list"),
        ({"needs": {"vram_gb": -1}}, "needs.vram_gb: must be a number from 0"),
        ({"needs": {"vram_gb": math.nan}}, "needs.vram_gb: must be a number from 0"),
        ({"needs": {"vram_gb": "8"}}, "needs.vram_gb: must be a number from 0 to 1000000000000000, not text"),
        ({"needs": {"slots": 0}}, "needs.slots: must be a number above 0"),
        ({"needs": {"a b": 1}}, "needs: 'a b' is not the name of a unit"),
        ({"needs": {3: 1}}, "needs: '3' is not the name of a unit"),
        ({"priority": 5}, "priority: must be a whole number from 0 (most urgent) to 4, not 5"),
        ({"priority": -1}, "priority: must be a whole number from 0 (most urgent) to 4, not -1"),
        ({"priority": True}, "priority: must be a whole number from 0 (most urgent) to 4, not true"),
        ({"priority": 1.0}, "priority: must be a whole number from 0 (most urgent) to 4, not 1"),
        ({"priority": "high"}, "priority: must be a whole number from 0 (most urgent) to 4, not text"),
        ({"timeout_s": 0}, "timeout_s: must be a number above 0"),
        ({"timeout_s": -5}, "timeout_s: must be a number above 0"),
        ({"timeout_s": math.inf}, "timeout_s: must be a number above 0"),
        (
            {"deadline": 1.7e12},
            "deadline: must be a number from 0 to 100000000000, not 1700000000000; give seconds",
        ),
        ({"not_before": "soon"}, "not_before: must be a number from 0 to 100000000000, not text"),
        ({"retries": -1}, "retries: must be a whole number from 0 to 1000000, not -1"),
        ({"retries": 1.5}, "retries: must be a whole number from 0 to 1000000, not 1.5"),
        ({"key": ""}, "key: must be text, not empty text"),
        ({"key": "k" * 513}, "key: is 513 characters long; at most 512"),
        ({"key": "a\0b"}, "key: must be one line without control characters"),
        ({"key": "\ud800"}, "key: must be one line without control characters"),
        ({"id": "a b"}, "id: 'a b' cannot be used: letters, digits"),
        ({"id": "x" * 129}, "id: 'xxx"),
        ({"id": 7}, "id: must be text, not 7"),
        ({"run": "../x"}, "run: '../x' cannot be used: letters, digits"),
        ({"after": "x"}, "after: must be a list of task ids, not text"),
        ({"after": ("a b",)}, "after: 'a b' is not the id of a task"),
        ({"after": (None,)}, "after: nothing is not the id of a task"),
        ({"after": tuple(map(str, range(10_001)))}, "after: 10001 tasks to wait for are too many"),
        ({"id": "x", "after": ("x",)}, "after: task 'x' waits for itself; take its own id out"),
        ({"on_crash": "never"}, 'on_crash: must be "retry" or "block"'),
        ({"on_crash": OnCrash.CANCEL}, 'on_crash: must be "retry" or "block"'),
    ],
)
@pytest.mark.parametrize("config", [None, CONFIG], ids=["without config", "with config"])
def test_every_field_is_checked(fields: dict[str, Any], problem: str, config: Config | None) -> None:
    checker = TaskChecker(config)
    checker.check(Task("general"))  # a good shape that is remembered must not let a wrong field through
    with pytest.raises(TaskError) as caught:
        checker.check(Task(**{"kind": "general", **fields}))
    assert f": {problem}" in str(caught.value)


def test_all_problems_of_a_task_are_told_at_once() -> None:
    told = wrong(Task("genral", lane="gtpr", priority=9, retries=-1, id="t1"))
    assert told.startswith("task 't1': ")
    assert [part.split(":")[0] for part in told.removeprefix("task 't1': ").split("; ") if ":" in part] == [
        "lane",
        "kind",
        "priority",
        "retries",
    ]


def test_remembered_shapes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_MAX_SHAPES", 50)
    checker = TaskChecker(CONFIG)
    remembered = []
    for number in range(120):
        checker.check(Task("chat", needs={"slots": 1 + number / 1e6}))
        remembered.append(len(checker._good))
    assert (max(remembered), remembered[-1]) == (50, 20)


@pytest.mark.parametrize(
    ("after", "circle"),
    [
        ({}, ()),
        ({"a": "b", "b": "c"}, ()),
        ({"a": "bc", "b": "d", "c": "d", "d": ""}, ()),
        ({"a": "b", "b": "a"}, ("a", "b", "a")),
        ({"a": "b", "b": "c", "c": "b"}, ("b", "c", "b")),
        ({"a": "xb", "b": "yc", "c": "za"}, ("a", "b", "c", "a")),
    ],
)
def test_tasks_that_wait_for_each_other(after: dict[str, str], circle: tuple[str, ...]) -> None:
    given = [Task("k", id=name, after=tuple(others)) for name, others in after.items()]
    assert find_circle(given) == circle


def test_a_long_chain_is_no_circle() -> None:
    chain = [Task("k", id=f"t{number}", after=(f"t{number + 1}",)) for number in range(LONG)]
    assert find_circle(chain) == ()
    assert len(find_circle([*chain, Task("k", id=f"t{LONG}", after=("t0",))])) == LONG + 2


def test_keys_of_councils_own_tasks_are_nobody_elses() -> None:
    """D4: whoever could take such a key could answer in the place of a member."""
    forged = Task("chat", key="council/QUESTION/member/GOKU")
    assert [field for field, _ in TaskChecker().problems(forged)] == ["key"]
    assert TaskChecker().problems(Task("chat", key="councils/QUESTION")) == []
    assert TaskChecker(own_calls=True).problems(forged) == []
