"""Configs by the thousand: anything gives a config or told problems; what is valid comes back as it was."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config import Config, TaskChecker, as_document, parse, read_document
from penstock.config.keys import AGENT_TYPE, AVAILABLE, KEYS, MODEL_TYPES, RUN_TYPES
from penstock.config.places import KeyPath, place, toml_lines
from penstock.config.plants import changed_plant
from penstock.errors import ConfigError, TaskError
from penstock.model import OnCrash, Task
from penstock.store.rows import epoch_of, plant_text

FILE = Path("penstock.toml")

patient = settings(deadline=None)  # how long an example takes says nothing here

# ---- documents of any kind: our own words in all the wrong places

WORDS = sorted({part for key in KEYS for part in key.split(".")} | {"a", "b", "default", "*", "python:a:b"})
words = st.sampled_from(WORDS) | st.text(max_size=5)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(0, 5)
    | st.floats()
    | words
    | st.sampled_from(["simulated", "command", "psutil:load1", "open", "forever", "postgresql://x"])
    | st.just(10**400)
    | st.just(datetime.date(2026, 1, 31))
    | st.just(datetime.time(3))
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=5),
    max_leaves=20,
)
documents = st.dictionaries(words, anything, max_size=6)


def tell_or_read(read: Callable[[], Config]) -> Config | None:
    """Promise 7: a config, or problems of one line each; never another exception."""
    try:
        return read()
    except ConfigError as error:
        problems = error.problems
    assert problems
    assert all(problem and len(problem.splitlines()) == 1 for problem in problems)
    return None


@patient
@given(documents)
def test_any_document_is_read_or_refused(document: dict[str, Any]) -> None:
    """Promise 7."""
    tell_or_read(lambda: read_document(document, FILE))


@patient
@given(
    st.dictionaries(words, st.dictionaries(words, anything, max_size=8), max_size=3),
    st.dictionaries(words, st.dictionaries(words, anything, max_size=8), max_size=3),
    st.dictionaries(words, st.dictionaries(words, anything, max_size=8), max_size=3),
)
def test_any_tables_are_read_or_refused(hosts: Any, lanes: Any, gates: Any) -> None:
    """Promise 7, where the values stand in tables of the right depth."""
    tell_or_read(lambda: read_document({"hosts": hosts, "lanes": lanes, "gates": gates}, FILE))


toml_pieces = st.sampled_from([*"[]{}=,.\"'#\\ \n1é", "[[", "]]", '"""', "nan", *WORDS])


@patient
@given(st.lists(toml_pieces, max_size=40).map("".join) | st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Promise 7."""
    tell_or_read(lambda: parse(text, FILE))


@patient
@given(st.dictionaries(st.sampled_from(KEYS) | words, st.text(max_size=8) | anything, max_size=4))
def test_any_settings_are_taken_or_refused(settings: dict[str, Any]) -> None:
    """Promise 7."""
    config = parse(render(base()), FILE)
    tell_or_read(lambda: config.with_settings(settings))


# ---- valid configs

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,8}", fullmatch=True)
seconds = st.floats(0.001, 1e6)
counts = st.integers(1, 1000)
texts = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=8)


SPEAKER = "council-member"  # a host and its kind, by a name that no other has


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A table with any of these keys."""
    return st.fixed_dictionaries({}, optional=fields)


# Of each type of host what it cannot be without, and some of what it may have.
OPTIONS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "command": st.builds(lambda words: {"argv": ["prog", *words]}, st.lists(names, max_size=2)),
    "local": some(context=st.integers(64, 4096)),
    "openai": st.builds(
        lambda more: {"url": "http://surtr:1234/v1", **more}, some(health_s=st.integers(0, 60))
    ),
    "python": st.builds(lambda more: {"call": "a.b:c", **more}, some(path=st.lists(texts, max_size=2))),
    "simulated": some(duration_s=seconds, seed=texts),
}


@st.composite
def valid_hosts(draw: st.DrawFn) -> dict[str, Any]:
    # Hosts that call models must fit the others: test_deadlocks.py has those. Agents imply theirs.
    type_ = draw(st.sampled_from(sorted(set(AVAILABLE) - {*RUN_TYPES, AGENT_TYPE})))
    host = draw(
        some(
            slots=counts
            | st.tuples(counts, counts).map(lambda ends: {"auto": True, "min": min(ends), "max": max(ends)}),
            units=st.dictionaries(
                names.filter(lambda name: name not in ("slots", "tokens")), seconds, max_size=2
            ),
            serves=st.lists(names | st.just("*"), min_size=1, max_size=3),
            model=texts,
            rate=st.fixed_dictionaries({"requests_per_min": counts}, optional={"tokens_per_min": counts}),
            fallback=some(after_s=seconds, budget_usd_per_day=seconds),
            breaker=st.tuples(counts, seconds, seconds).map(
                lambda rule: {"failures": rule[0], "reset_s": min(rule[1:]), "max_reset_s": max(rule[1:])}
            ),
        )
    )
    if type_ in MODEL_TYPES:
        named = texts | st.sampled_from(["*", "auto", host.get("model", "m"), *host.get("serves", ())])
        host |= draw(some(models=st.lists(named, max_size=3)))
    if type_ == "local":
        host.pop("slots", None)  # llama.cpp's server has fewer than others may have
    return {"type": type_} | host | draw(OPTIONS[type_])


member_names = texts.filter(lambda name: not {"/", ","} & set(name))


@st.composite
def valid_councils(draw: st.DrawFn) -> dict[str, Any]:
    member = some(
        emoji=st.sampled_from(["🥋", "👩\u200d🔬", ""]),
        role=texts,
        persona=texts.map(lambda text: f"{text}\n{text}"),
        model=st.just("m"),
        host=st.just(SPEAKER),
        temperature=st.floats(0, 2),
        max_tokens=st.integers(1, 8191),
        timeout_s=seconds,
        weight=st.floats(0.01, 1000),
        context_tokens=st.integers(8192, 10**6),
    )
    asked = draw(st.lists(member_names, min_size=1, max_size=4, unique_by=str.casefold))
    members = [{"name": name, "kind": SPEAKER} | draw(member) for name in asked]
    other = member_names.filter(lambda name: name.casefold() not in {one.casefold() for one in asked})
    chairs = (
        st.sampled_from([*asked, *(name.swapcase() for name in asked if name.swapcase().swapcase() == name)])
        | other
        | st.builds(lambda name, rest: {"name": name, "kind": SPEAKER} | rest, other, member)
    )
    words = st.integers(20, 600)
    retrieval = st.builds(
        lambda rest, place, size: {"collection": "notes"} | rest | place | size,
        some(top=st.integers(1, 20)),
        st.sampled_from([{}, {"path": "lib"}, {"url": "http://127.0.0.1:8000/"}]),
        words.flatmap(
            lambda most: some(chunk_words=st.just(most), overlap_words=st.integers(0, min(most, 500) - 1))
        ),
    )
    limits = st.dictionaries(
        st.sampled_from(["quick", "council", "thorough"]), some(cost_usd=seconds, time_s=seconds)
    )
    return {"members": members} | draw(
        some(
            chair=chairs,
            min_answers=st.integers(1, len(asked)),
            patience_s=st.floats(0, 100),
            mode=st.sampled_from(["quick", "council", "thorough"]),
            retrieval=retrieval,
            quick=some(
                members=st.lists(st.sampled_from(asked), max_size=2),
                unsure_below=st.floats(0, 100),
                agree_at_least=st.floats(0, 1),
                risk_words=st.lists(texts, max_size=3),
            ),
            rubric=st.lists(texts, min_size=1, max_size=3, unique_by=str.casefold),
            limits=limits,
            slots=counts,
        )
    )


@st.composite
def valid_documents(draw: st.DrawFn) -> dict[str, Any]:
    hosts = draw(st.dictionaries(names, valid_hosts(), max_size=3))
    lanes = draw(st.dictionaries(names, some(max_running=counts, weight=seconds), max_size=3))
    if hosts and lanes:  # one lane keeps some of one host: that always fits
        host, lane = draw(st.sampled_from(sorted(hosts))), draw(st.sampled_from(sorted(lanes)))
        units = hosts[host].get("units", {})
        lanes[lane]["reserve"] = {host: draw(st.sampled_from([1, {"slots": 1}, {"slots": 1} | units]))}
    held = [{"lanes": [lane]} for lane in ("default", *lanes)] + [{"hosts": [host]} for host in hosts]
    conditions = st.sampled_from(["default", *lanes]).flatmap(
        lambda lane: st.fixed_dictionaries({"lane": st.just(lane), "max_running": st.integers(0, 9)})
    ) | st.fixed_dictionaries(
        {
            "probe": st.sampled_from(
                ["psutil:load1", "python:a.b:c.d", "nvml:power_w#0", "prometheus:http://h/m#a"]
            ),
            "min": seconds,
        },
        optional={"every_s": st.floats(0.05, 100), "on_error": st.sampled_from(["open", "closed"])},
    )
    gates = draw(
        st.dictionaries(
            names,
            st.builds(lambda what, holds: what | {"holds": holds}, conditions, st.sampled_from(held)),
            max_size=2,
        )
    )
    top = draw(
        some(
            store=st.sampled_from(["a.db", "/data/b.db", "postgresql://u@h/d"]),
            aging_s=seconds,
            timeout_s=seconds,
            keep_days=st.just("forever") | seconds,
            heartbeat_s=st.floats(0.05, 10),
            on_crash=st.sampled_from(["retry", "block"]),
            payload_limit_bytes=counts,
            retry=st.fixed_dictionaries({"retries": st.integers(0, 9), "host_faults": counts}),
            prices=st.dictionaries(
                texts, st.fixed_dictionaries({"input": seconds, "output": seconds}), max_size=2
            ),
        )
    )
    if councils := draw(st.dictionaries(names.filter("library".__ne__), valid_councils(), max_size=2)):
        top["councils"] = councils
        hosts[SPEAKER] = {"type": "simulated", "serves": [SPEAKER, "chat"], "slots": 4, "model": "m"}
    if draw(st.booleans()):
        top["engine"] = {"type": draw(st.sampled_from(["local", "ray"])), "pip": ["numpy"], "start_s": 3.0}
        for table in hosts.values():
            table["ray"] = {
                "labels": {"zone": "a"},
                "resources": {"x": 2.0},
                "num_cpus": draw(st.integers(0, 9)),
            }
    return top | {"hosts": hosts, "lanes": lanes, "gates": gates}


@patient
@given(valid_documents())
def test_a_valid_config_comes_back_as_it_was(document: dict[str, Any]) -> None:
    """C1, C7, A3, A5: what is read says everything that was written."""
    config = read_document(document, FILE.absolute())
    assert read_document(as_document(config), FILE.absolute()) == config
    assert config.with_settings({}) == config


@patient
@given(valid_documents(), counts)
def test_a_plant_that_was_kept_is_played_as_it_was(document: dict[str, Any], slots: int) -> None:
    """E3: what the store keeps of a plant can be changed, and unchanged is the plant that ran."""
    plant = read_document(document, FILE.absolute()).plant
    row = (1, 1, "m", "c", 0, 0.0, 0.0, None, plant_text(plant), "", "")
    kept = epoch_of(row).plant
    assert kept is not None
    assert kept == replace(plant, hosts=tuple(replace(host, options={}) for host in plant.hosts))
    assert changed_plant(kept, {}) == kept
    for host in kept.hosts:
        assert changed_plant(kept, {f'hosts."{host.name}".slots': str(slots)})


@patient
@given(valid_documents())
def test_text_and_document_say_the_same(document: dict[str, Any]) -> None:
    assert parse(render(document), FILE) == read_document(document, FILE.absolute())


@patient
@given(valid_documents(), counts)
def test_a_setting_is_an_edit(document: dict[str, Any], slots: int) -> None:
    config = read_document(document, FILE.absolute())
    for name, host in document["hosts"].items():
        if host["type"] == "local":  # it has fewer slots than others may have
            continue
        edited = document | {"hosts": document["hosts"] | {name: document["hosts"][name] | {"slots": slots}}}
        assert config.with_settings({f'hosts."{name}".slots': str(slots)}) == read_document(
            edited, FILE.absolute()
        )


# ---- every mistake is told


def base() -> dict[str, Any]:
    """A config with a place for each of the mistakes below."""
    return {
        "aging_s": 60,
        "retry": {"retries": 2},
        "hosts": {
            "surtr": {"type": "simulated", "slots": 2, "units": {"vram_gb": 24}, "serves": ["chat"]},
            "fenrir": {"type": "command", "argv": ["x"], "rate": {"requests_per_min": 60}},
        },
        "lanes": {"gptr": {"max_running": 11, "reserve": {"surtr": 1}}, "fpf": {"weight": 2}},
        "gates": {
            "headroom": {"lane": "fpf", "max_running": 10, "holds": {"lanes": ["gptr"]}},
            "cpu": {"probe": "psutil:cpu_percent", "max": 90, "holds": {"hosts": ["surtr"]}},
        },
        "councils": {"shenron": {"members": [{"name": "GOKU", "kind": "chat", "host": "surtr"}]}},
    }


MISTAKES: dict[KeyPath, Any] = {
    ("aging_s",): -1,
    ("agin_s",): 1,
    ("engine", "type"): "dask",
    ("retry", "retries"): True,
    ("retry", "retrys"): 1,
    ("hosts", "surtr", "slots"): 2.5,
    ("hosts", "surtr", "slotz"): 2,
    ("hosts", "surtr", "api_key"): "sk",
    ("hosts", "surtr", "units", "vram_gb"): math.nan,
    ("hosts", "surtr", "serves"): [],
    ("hosts", "fenrir", "type"): "agnt",
    ("hosts", "fenrir", "model"): 3,
    ("hosts", "fenrir", "rate", "requests_per_min"): 0,
    ("hosts", "fenrir", "breaker"): {"reset_s": 9, "max_reset_s": 1},
    ("hosts", "x y"): {"type": "simulated"},
    ("lanes", "gptr", "max_running"): 0,
    ("lanes", "gptr", "reserve", "skadi"): 1,
    ("lanes", "fpf", "weight"): 0,
    ("gates", "headroom", "lane"): "nolane",
    ("gates", "headroom", "min"): 1,
    ("gates", "headroom", "holds", "lanes"): ["gtpr"],
    ("gates", "cpu", "probe"): "psutl:cpu",
    ("gates", "cpu", "on_error"): "shut",
    ("gates", "cpu", "holds", "host"): ["surtr"],
    ("gates", "empty"): {},
    ("councils", "shenron", "chair"): 3,
    ("councils", "shenron", "slots"): 0,
    ("councils", "shenron", "quorum"): 1,
    ("councils", "shenron", "limits", "fast"): {},
    ("councils", "shenron", "retrieval", "collection"): "kb",
    ("councils", "shenron", "quick", "unsure_below"): 101,
    ("councils", "library"): {},
}


@patient
@given(st.sets(st.sampled_from(sorted(MISTAKES, key=str))))
def test_every_mistake_is_told_once_with_its_line(chosen: set[KeyPath]) -> None:
    """Promise 7: all problems at once, each in its place."""
    document = base()
    for path in chosen:
        table = document
        for part in path[:-1]:
            table = table.setdefault(str(part), {})
        table[str(path[-1])] = MISTAKES[path]
    text = render(document)
    if not chosen:
        parse(text, FILE)
        return
    with pytest.raises(ConfigError) as caught:
        parse(text, FILE)
    problems = list(caught.value.problems)
    lines = text.splitlines()
    for path in chosen:
        mine = [problem for problem in problems if f": {shown(path)}" in problem]
        expected = 2 if path == ("gates", "empty") else 1  # no condition, and holds nothing
        assert len(mine) == expected, (path, problems)
        for problem in mine:
            problems.remove(problem)
            number = int(problem.split(":")[1])
            assert str(path[-1]) in lines[number - 1], (problem, lines[number - 1])
    assert not problems


def shown(path: KeyPath) -> str:
    return ".".join(repr(part) if " " in str(part) else str(part) for part in path)


# ---- lines


def render(document: dict[str, Any], notes: dict[KeyPath, int] | None = None) -> str:
    """A document as TOML; `notes` is told on which line each key was written."""
    lines: list[str] = []

    def write_table(table: dict[str, Any], path: KeyPath) -> None:
        inner = {key: value for key, value in table.items() if isinstance(value, dict) and len(path) < 2}
        for key, value in table.items():
            if key not in inner:
                lines.append(f"{quoted(key)} = {value_text(value)}")
                if notes is not None:
                    notes[*path, key] = len(lines)
        for key, value in inner.items():
            lines.append(f"[{'.'.join(map(quoted, map(str, (*path, key))))}]")
            if notes is not None:
                notes[*path, key] = len(lines)
            write_table(value, (*path, key))

    write_table(document, ())
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def value_text(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{quoted(key)} = {value_text(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[\n  " + ",\n  ".join(map(value_text, value)) + "\n]" if value else "[]"
    if isinstance(value, str):
        return quoted(value)
    return json.dumps(value) if not isinstance(value, float) else repr(value)


plain = st.recursive(
    st.booleans() | st.integers(-9, 9) | texts | st.sampled_from(["]", "}", "#", "a = 1", "[x]", "'", '"']),
    lambda inner: st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)


@patient
@given(st.dictionaries(texts, plain, max_size=5))
def test_lines_are_where_they_were_written(document: dict[str, Any]) -> None:
    notes: dict[KeyPath, int] = {}
    text = render(document, notes)
    lines = toml_lines(text)
    assert {path: place(lines, path) for path in notes} == notes


# ---- tasks

CHECKED = parse(render(base()), FILE)
fields = scalars | st.lists(scalars, max_size=2) | st.dictionaries(words, scalars, max_size=2)
# The shapes repeat, so that the remembered ones are met again with other fields.
tasks = st.builds(
    Task,
    kind=st.sampled_from(["chat", "k", "a b"]) | fields,
    payload=st.none(),
    priority=st.integers(-1, 5) | fields,
    lane=st.sampled_from(["default", "gptr", "nolane"]) | fields,
    run=st.sampled_from(["", "r", "r 2"]) | fields,
    after=st.sampled_from([(), ("a",), ("a", "b c")]) | fields,
    needs=st.none() | st.sampled_from([{"slots": 1}, {"vram_gb": 30}, {"slots": math.nan}]) | fields,
    host=st.none() | st.sampled_from(["surtr", "nohost"]) | fields,
    model=st.none() | fields,
    timeout_s=st.none() | st.sampled_from([1, 1.0, 0, math.inf]) | fields,
    deadline=st.none() | fields,
    retries=st.none() | st.integers(-1, 2) | fields,
    key=st.none() | fields,
    on_crash=st.sampled_from(OnCrash) | fields,
    id=st.sampled_from(["", "a", "b c"]) | fields,
)


@patient
@given(st.lists(tasks, max_size=8))
def test_any_task_is_taken_or_refused_whatever_came_before(given_tasks: list[Task]) -> None:
    """Promise 7: what the checker remembers never changes its answer."""
    bulk = TaskChecker(CHECKED)
    for task in given_tasks:
        assert verdict(bulk, task) == verdict(TaskChecker(CHECKED), task)


def verdict(checker: TaskChecker, task: Task) -> str:
    try:
        checker.check(task)
    except TaskError as error:
        told = str(error)
    else:
        return ""
    assert len(told.splitlines()) == 1
    return told
