"""Which hosts a task or a call fits, beside the rule written out once more; all who ask get that answer (E9)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.config import Config, TaskChecker
from penstock.model import CALL_KINDS, Fallback, Host, Lane, Plant, Task
from penstock.scheduling.routes import route_key
from penstock.scheduling.world import World
from penstock.store.base import Snapshot
from penstock.store.status import status_record

KINDS = ("chat", "translate", "count")
MODELS = ("m", "n", "auto")
LANES = ("default", "kept")

units = st.dictionaries(st.sampled_from(["vram_gb", "cores"]), st.integers(1, 4).map(float), max_size=2)


@st.composite
def hosts(draw: st.DrawFn, name: str) -> Host:
    models = draw(st.lists(st.sampled_from([*MODELS, "*", "chat"]), unique=True, max_size=3))
    return Host(
        name,
        draw(st.sampled_from(["openai", "python"])),
        slots=2,
        units=draw(units),
        serves=tuple(draw(st.lists(st.sampled_from([*KINDS, "*"]), unique=True, min_size=1, max_size=2))),
        model=models[0] if models and models[0] in MODELS[:2] and draw(st.booleans()) else None,
        models=tuple(models),
        takes_calls=draw(st.booleans()),
        leaves=draw(st.sampled_from([(), ("translate",)])),
        fallback=draw(st.sampled_from([None, None, Fallback()])),
    )


@st.composite
def plants(draw: st.DrawFn) -> Plant:
    made = tuple(draw(hosts(name)) for name in "abc"[: draw(st.integers(1, 3))])
    kept = {host.name: dict.fromkeys(host.units, 1.0) for host in made if draw(st.booleans())}
    return Plant(made, (Lane("default"), Lane("kept", reserve=kept)))


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    return Task(
        draw(st.sampled_from([*KINDS, *CALL_KINDS])),
        lane=draw(st.sampled_from(LANES)),
        host=draw(st.sampled_from([None, None, "a", "b"])),
        model=draw(st.sampled_from([None, *MODELS, "chat", "other"])),
        needs=draw(st.none() | units),
        id="t",
        queued_at=1.0,
    )


def fitting(task: Task, plant: Plant) -> set[str]:
    """The rule, a host at a time, as the docs tell it."""
    able = {}
    for host in plant.hosts:
        if task.host not in (None, host.name):
            continue
        if task.kind in CALL_KINDS:
            serves = host.takes_calls and len(host.models) > 0
        else:
            serves = task.kind in host.serves or ("*" in host.serves and task.kind not in host.leaves)
        if serves:
            able[host.name] = host
    if task.model is not None:
        named = {name: h for name, h in able.items() if task.model in (h.model, *h.models)}
        able = named or {name: h for name, h in able.items() if "*" in h.models}
    kept = plant.lanes[1].reserve if task.lane != "kept" else {}
    holding = {
        name
        for name, host in able.items()
        if all(
            host.units.get(unit, 0.0) - kept.get(name, {}).get(unit, 0.0) >= amount
            for unit, amount in (task.needs or {}).items()
        )
    }
    return holding or set(able)


@given(plants(), tasks())
def test_one_rule_for_all_who_ask(plant: Plant, task: Task) -> None:
    """E9: the scheduler's choice, what a submit is checked by, and what `status` and the board count."""
    expected = fitting(task, plant)
    assert {host.name for host in plant.fitting(task)} == expected
    reach = World(plant, 0).reach(task)
    assert {state.name for state in (*reach.own, *reach.spare)} == expected
    key = route_key(task.kind, task.lane, task.host, task.model, task.needs)
    told = status_record(plant, Snapshot(0.0, {key: 1}, {}, {}, {}, {}, {}, False, None))
    assert {name for name, host in told["hosts"].items() if host["queued"]} == expected
    fields = {field for field, _ in TaskChecker(Config(plant=plant), calls=True).problems(task)}
    assert bool(fields & {"kind", "host", "model"}) is not bool(expected), fields
