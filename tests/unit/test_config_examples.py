"""What the docs and examples show is what Penstock reads."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli.app import main
from penstock.config import KEYS, Config, TaskChecker, load, parse
from penstock.intake.entries import FIELDS
from penstock.intake.taskfile import read
from penstock.model import Task
from penstock.testing import ModelBehaviour, ModelServer

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
EXAMPLES = ROOT / "examples"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (REFERENCE / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", blocks("config.md", "toml"))
def test_configs_in_the_docs_are_valid(text: str) -> None:
    parse(text, ROOT / "penstock.toml")


def test_every_key_stands_in_a_table_of_the_docs() -> None:
    """A key is found under the heading of its table, so that two tables with the same key both have it."""
    heading, found = "", set()
    for line in (REFERENCE / "config.md").read_text().splitlines():
        if line.startswith("#"):
            name = line.lstrip("# ")
            heading = (
                "hosts.NAME."
                if name.startswith("Options of")
                else f"{name}."
                if "NAME" in name or name in ("retry", "server", "telemetry", "beads", "engine")
                else ""
            )
        elif line.startswith("| `"):
            key = line.split("`")[1]
            found.add(key if f"{key}." == heading else heading + key)
    assert not set(KEYS) - found


def test_defaults_in_the_docs_are_the_defaults() -> None:
    text = blocks("config.md", "toml")
    assert parse(text[0] + text[1], ROOT / "penstock.toml") == parse("", ROOT / "penstock.toml")
    assert Config().timeout_s == 21600


def test_task_files_in_the_docs_are_valid(tmp_path: Path) -> None:
    """A8."""
    (tmp_path / "inputs/energy").mkdir(parents=True)
    (tmp_path / "inputs/energy/heat.md").write_text("a question")
    for number, (language, suffix) in enumerate([("json", "jsonl"), ("yaml", "yaml"), ("toml", "toml")]):
        for text in blocks("task-files.md", language):
            file = tmp_path / f"{number}.{suffix}"
            file.write_text(text)
            tasks = read(file)
            assert tasks
            if "id: heat" in text:
                assert [task.id for task in tasks] == [f"heat-{index}" for index in range(1, 25)]
            if "input =" in text:
                assert len(tasks) == 12


def test_every_field_is_documented() -> None:
    rows = re.findall(r"^\| (`.*?`) \|", (REFERENCE / "task-files.md").read_text(), re.MULTILINE)
    assert set(FIELDS) <= {name for row in rows for name in re.findall(r"`(\w+)`", row)}


@pytest.mark.parametrize(
    ("config", "tasks", "count"),
    [
        ("home-lab.toml", "home-lab.jsonl", 9),
        ("report-run/penstock.toml", "report-run/tasks.toml", 48),
        ("report-run/simulated.toml", "report-run/tasks.toml", 48),
    ],
)
def test_a3_a5_a8_c1_examples_run_as_they_are(config: str, tasks: str, count: int) -> None:
    """A3, A5, A8, C1: caps, a gate on another lane, a matrix, slots and kinds per host."""
    checker = TaskChecker(load(EXAMPLES / config))
    assert len(read(EXAMPLES / tasks, checker=checker)) == count


def test_b1_the_agent_example_is_read_with_its_manifest() -> None:
    """B1."""
    config = load(EXAMPLES / "agent" / "penstock.toml")
    agent = config.agents["reports"]
    assert (agent.image, agent.install) == ("python:3.12-slim", ("python3", "/agent/prepare.py"))
    assert agent.has_own_server
    assert sorted(path.name for path in (EXAMPLES / "agent" / "reports" / "handlers").iterdir()) == [
        "render.py",
        "words.sh",
    ]
    TaskChecker(config).check(Task("reports", {"command": "words", "stdin": "a b"}))


def test_the_simulated_report_run_has_the_same_lanes_and_gates() -> None:
    real, simulated = (
        load(EXAMPLES / "report-run" / f"{name}.toml").plant for name in ("penstock", "simulated")
    )
    lanes = {lane.name: lane for lane in real.lanes if lane.name != "calls"}
    assert lanes == {lane.name: lane for lane in simulated.lanes if lane.name != "calls"}
    assert real.gates == simulated.gates


def test_a3_a5_a8_the_report_run_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A3, A5, A8: lanes of 11 and 4, the gate on fpf, outputs that mirror the inputs; a second run does nothing."""
    folder = tmp_path / "report-run"
    shutil.copytree(
        EXAMPLES / "report-run", folder, ignore=shutil.ignore_patterns("*.db*", "simulated", "reports")
    )
    monkeypatch.chdir(folder)
    quick = [
        "--config",
        "simulated.toml",
        "--set",
        "hosts.surtr.duration_s=0.1",
        "--set",
        "hosts.cloud.duration_s=0.1",
    ]
    assert main([*quick, "run", "tasks.toml", "--json", "--quiet"]) == 0
    results = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert len(results) == 48
    assert most_at_once(results, "gptr") <= 11
    assert most_at_once(results, "ma") <= 4
    fpf = [(r["started_at"], r["ended_at"]) for r in results if r["lane"] == "fpf"]
    for started_at in (r["started_at"] for r in results if r["lane"] == "gptr"):
        assert sum(start < started_at < end for start, end in fpf) <= 10
    names = [
        path.relative_to(folder / "simulated/reports")
        for path in (folder / "simulated/reports").rglob("*.md")
    ]
    assert len(names) == 48
    inputs = {
        path.relative_to(folder / "inputs").with_suffix("") for path in (folder / "inputs").rglob("*.md")
    }
    assert {name.parent / name.name.split(".")[0] for name in names} == inputs
    assert main([*quick, "run", "tasks.toml"]) == 0
    assert "all 48 outputs are there" in capfd.readouterr().err


def most_at_once(results: list[dict[str, Any]], lane: str) -> int:
    """An end at the very time of a start has made room for it."""
    of_lane = [r for r in results if r["lane"] == lane]
    changes = sorted([(r["started_at"], 1) for r in of_lane] + [(r["ended_at"], -1) for r in of_lane])
    return max(accumulate(change for _, change in changes))


async def test_a8_a9_the_report_run_reads_its_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A8, A9: the real plant of the example, with simulated models: instructions + input → a call → a report."""
    folder = tmp_path / "report-run"
    shutil.copytree(
        EXAMPLES / "report-run", folder, ignore=shutil.ignore_patterns("*.db*", "simulated", "reports")
    )
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    models = ("qwen2.5-32b", "gpt-4o-mini", "text-embedding-3-small")
    async with ModelServer(ModelBehaviour(models=models, answer="a report")) as server:
        urls = {f"hosts.{name}.url": server.url for name in ("surtr", "cloud")}
        config = load(folder / "penstock.toml").with_settings(urls)
        tasks = [task for task in read("tasks.toml", checker=TaskChecker(config)) if task.kind == "fpf"]
        async with penstock.open(config) as client, asyncio.timeout(60):
            results = await (await client.submit_many(tasks, join=True)).wait()
        asked = [request.body["messages"] for request in server.requests]
    assert [result.error for result in results if not result.ok] == []
    reports = [folder / str(task.output) for task in tasks]
    assert {path.read_text() for path in reports} == {"a report\n"}
    assert len(asked) == len(tasks) == 18
    instructions = (folder / "instructions.md").read_text()
    assert all(system["content"] == instructions for system, _ in asked)
    assert {user["content"] for _, user in asked} == {
        p.read_text() for p in (folder / "inputs").rglob("*.md")
    }
