"""Task files with outputs on the command line: what is there is skipped, told, and made again by --redo (A8)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli_rig import Cli, make_cli

FILE = """
[[tasks]]
id = "report"
kind = "summarize"
lane = "fast"
output = "reports/{dir}/{stem}.{kind}.{n}.{uid}.md"
payload = { document = "{input}", value = "{stem} {n}", duration_s = 0.0 }
matrix = { input = "inputs", repeat = 2 }

[[tasks]]
kind = "translate"
model = "big"
after = ["report"]
output = "all.md"
payload = { value = "all of them", duration_s = 0.0 }
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    made = make_cli(tmp_path, monkeypatch, capsys)
    for name in ("a.md", "energy/b.md"):
        (tmp_path / "inputs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "inputs" / name).write_text("a question")
    made.file("tasks.toml", FILE)
    return made


def outputs(cli: Cli) -> dict[str, str]:
    paths = [*(cli.folder / "reports").rglob("*.md"), *cli.folder.glob("all.md")]
    return {str(path.relative_to(cli.folder)): path.read_text() for path in paths}


def records(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_a8_running_again_makes_exactly_what_is_missing(cli: Cli) -> None:
    """A8: outputs mirror the inputs; a second run does nothing, a third what was taken away."""
    first = cli.good("run", "tasks.toml")
    assert "5 tasks, 5 done" in first.out
    made = outputs(cli)
    assert sorted(made.values()) == ["a 1\n", "a 2\n", "all of them\n", "b 1\n", "b 2\n"]
    assert sum(name.startswith("reports/energy/b.summarize.") for name in made) == 2

    again = cli.good("run", "tasks.toml")
    assert again.out == ""
    assert again.told == ["penstock: all 5 outputs are there, nothing is left to do; --redo makes them again"]
    assert len(cli.tasks()) == 5

    gone = next(name for name in made if "/b." in name)
    (cli.folder / gone).unlink()
    third = cli.good("run", "tasks.toml")
    assert third.told[0] == "penstock: 4 of 5 outputs are there; --redo makes them again"
    assert "1 task, 1 done" in third.out
    assert outputs(cli) == made
    assert len(cli.tasks()) == 6


def test_a8_redo_makes_all_again(cli: Cli) -> None:
    """A8: also where the file gives ids: they are free again."""
    cli.good("run", "tasks.toml", "--quiet")
    (cli.folder / "all.md").write_text("an old one")
    assert "5 tasks, 5 done" in cli.good("run", "tasks.toml", "--redo").out
    assert outputs(cli)["all.md"] == "all of them\n"
    tasks = cli.tasks()
    assert len(tasks) == len({task["task_id"] for task in tasks}) == 10


def test_a8_what_another_tool_made_counts(cli: Cli) -> None:
    """A8: with a uid of its own; a task that waits for it need not."""
    cli.good("run", "tasks.toml", "--quiet")
    for path in sorted((cli.folder / "reports").rglob("*.md")):
        path.rename(path.with_name(path.name[:-6] + "XYZ.md"))
    (cli.folder / "all.md").unlink()
    said = cli.good("run", "tasks.toml")
    assert said.told[0] == "penstock: 4 of 5 outputs are there; --redo makes them again"
    assert outputs(cli)["all.md"] == "all of them\n"


def test_skipped_tasks_are_told_as_json(cli: Cli) -> None:
    cli.good("run", "tasks.toml", "--quiet")
    (cli.folder / "all.md").unlink()
    said = cli.good("run", "tasks.toml", "--json", "--out", "results.jsonl")
    told = records(said.out)
    assert [one["state"] for one in told] == ["skipped"] * 4 + ["done"]
    assert {one["output"] for one in told[:4]} == outputs(cli).keys() - {"all.md"}
    assert told[4]["output"] == "all.md"
    assert {one["output"] for one in cli.tasks()} == outputs(cli).keys()
    assert told[0].keys() >= told[4].keys()
    assert records((cli.folder / "results.jsonl").read_text()) == told
    assert [one["state"] for one in records(cli.good("run", "tasks.toml", "--json").out)] == ["skipped"] * 5


def test_submit_skips_too(cli: Cli) -> None:
    cli.good("run", "tasks.toml", "--quiet")
    nothing = cli.good("submit", "--file", "tasks.toml", "--json")
    assert (nothing.json["run"], nothing.json["task_ids"], len(nothing.json["skipped"])) == (None, [], 5)
    assert cli.good("submit", "--file", "tasks.toml").out == ""
    (cli.folder / "all.md").unlink()
    some = cli.good("submit", "--file", "tasks.toml", "--json")
    assert (len(some.json["task_ids"]), len(some.json["skipped"])) == (1, 4)
    assert some.told == ["penstock: 4 of 5 outputs are there; --redo makes them again"]
    assert len(cli.good("submit", "--file", "tasks.toml", "--redo", "--json").json["task_ids"]) == 5
    waited = records(cli.good("submit", "--file", "tasks.toml", "--wait", "--json").out)
    assert [one["state"] for one in waited] == ["done"] * 5, "all are about to be made again"
    (cli.folder / "all.md").unlink()
    waited = records(cli.good("submit", "--file", "tasks.toml", "--wait", "--json").out)
    assert [one["state"] for one in waited] == [*["skipped"] * 4, "done"]


def test_a8_what_is_queued_already_is_not_queued_twice(cli: Cli) -> None:
    """A8: the tasks that are there are waited for; what ended without its output is made anew."""
    cli.good("submit", "--file", "tasks.toml")
    said = cli.good("run", "tasks.toml")
    assert said.told[-1] == "penstock: 5 of 5 tasks had been submitted before, and have ended as well"
    assert len(cli.tasks()) == len(outputs(cli)) == 5


def test_a8_what_redo_left_queued_is_gone_on_with(cli: Cli) -> None:
    """A8: an output that is there and about to be made again is waited for, and a dry run counts it."""
    cli.good("run", "tasks.toml", "--quiet")
    (cli.folder / "all.md").write_text("an old one")
    cli.good("submit", "--file", "tasks.toml", "--redo")
    dry = cli.good("run", "tasks.toml", "--dry-run")
    assert "5 tasks would run (5 of them queued or running already), 0 have their output already" in dry.out
    told = cli.good("run", "tasks.toml", "--dry-run", "--json").json
    assert (told["to_run"], told["joined"], told["skipped"]) == (5, 5, 0)
    assert told["ends"]["in_s"] > 0, "they are no longer than themselves, and not unknown"
    said = cli.good("run", "tasks.toml")
    assert said.told[0] == "penstock: 5 of its tasks are queued or running already and joined, not made twice"
    assert said.told[-1] == "penstock: 5 of 5 tasks had been submitted before, and have ended as well"
    assert outputs(cli)["all.md"] == "all of them\n"
    assert len(cli.tasks()) == 10
    assert cli.good("run", "tasks.toml").told == [
        "penstock: all 5 outputs are there, nothing is left to do; --redo makes them again"
    ]


def test_a_task_with_another_key_is_not_joined(cli: Cli) -> None:
    cli.file("t.jsonl", '{"kind": "summarize", "output": "x.md", "key": "mine"}\n')
    (cli.folder / "x.md").touch()
    cli.good("submit", "summarize", "--output", "x.md", "--key", "other")
    assert cli.good("run", "t.jsonl").told == [
        "penstock: its output is there, nothing is left to do; --redo makes it again"
    ]
    cli.good("submit", "--file", "t.jsonl", "--redo")
    assert len(cli.tasks()) == 2


def test_a_failed_task_is_tried_again_by_the_next_run(cli: Cli) -> None:
    entry = {"kind": "summarize", "id": "x", "output": "x.md", "payload": {"fail": "permanent"}}
    cli.file("t.jsonl", json.dumps(entry))
    assert cli("run", "t.jsonl", "-q").status == 1
    entry["payload"] = {"value": "good", "duration_s": 0.0}
    cli.file("t.jsonl", json.dumps(entry))
    assert cli.good("run", "t.jsonl", "-q")
    assert (cli.folder / "x.md").read_text() == "good\n"


def test_one_task_from_options_is_never_skipped(cli: Cli) -> None:
    for _ in range(2):
        cli.good("submit", "summarize", '{"duration_s": 0}', "--output", "{kind}.md", "--wait")
    assert (cli.folder / "summarize.md").exists()
    assert len(cli.tasks()) == 2
    assert cli.bad("submit", "summarize", "--redo") == ["submit: --redo goes with --file; name a task file"]
    assert cli.bad("submit", "summarize", "--output", "{knd}.md") == [
        "submit: --output: there is no '{knd}' here; did you mean 'kind'?"
    ]


def test_from_another_folder_outputs_lie_beside_the_config(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cli.folder / "inputs")
    assert "5 tasks would run" in cli.good("-c", "../penstock.toml", "run", "../tasks.toml", "--dry-run").out
    cli.good(
        "-c", "../penstock.toml", "submit", "summarize", '{"duration_s": 0}', "--output", "x.md", "--wait"
    )
    assert (cli.folder / "x.md").exists()


# ---- dry runs

MONEY = """
store = "penstock.db"

[hosts.runner]
type = "simulated"
slots = 2
duration_s = 0.0
cost_usd = 0.25
serves = ["summarize"]

[hosts.calls]
type = "openai"
url = "http://127.0.0.1:9/v1"
model = "priced"
models = ["free"]
serves = ["ask"]

[lanes.fast]

[prices.priced]
input = 10.0
output = 100.0
"""
ASK = """
[[tasks]]
kind = "ask"
model = "priced"
payload = { prompt = "a", max_tokens = 1000 }

[[tasks]]
kind = "ask"
model = "priced"
payload = { prompt = "of any length" }

[[tasks]]
kind = "ask"
model = "free"
payload = { prompt = "a", max_tokens = 1000 }

[[tasks]]
kind = "summarize"
payload = { duration_s = 0.0 }
"""


def everything_in(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a8_a_dry_run_shows_and_changes_nothing(cli: Cli) -> None:
    """A8: per lane, kind, model and hosts; not even a store is made."""
    before = everything_in(cli.folder)
    said = cli.good("run", "tasks.toml", "--dry-run")
    assert everything_in(cli.folder) == before
    assert [line.split()[:5] for line in said.lines[1:3]] == [
        ["fast", "summarize", "small,", "large", "4"],
        ["default", "translate", "big", "large", "1"],
    ]
    assert said.lines[4:] == [
        "5 tasks would run, 0 have their output already; nothing was submitted",
        "cost: unknown for 5 tasks (summarize, translate): none of that kind and model has told its cost in this "
        "store, and by [prices] only a single call with max_tokens can be reckoned",
        "time: unknown: nothing has run in this store yet",
    ]
    assert cli.good("submit", "--file", "tasks.toml", "--dry-run").out == said.out


def test_a_dry_run_shows_where_outputs_will_lie(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    root = '--set=output_root="made/here"'
    assert cli.good(root, "run", "tasks.toml", "--dry-run").lines[2].endswith(" made/here/all.md")
    monkeypatch.chdir(cli.folder / "inputs")
    last = cli.good(root, "run", "../tasks.toml", "--dry-run").lines[2]
    assert last.endswith(f" {cli.folder}/made/here/all.md")


PROMPTS = """
[hosts.prompts]
type = "file_prompt"
url = "http://127.0.0.1:9/v1"
model = "m"
root = "files"
serves = ["file_prompt"]

[hosts.other]
type = "simulated"
serves = ["summarize"]
duration_s = 0.0
"""


def test_files_that_are_not_there_are_told_before_anything_runs(cli: Cli) -> None:
    """As the host will look for them: below its root, not beside the task file. What a task makes will be there."""
    cli.file("penstock.toml", PROMPTS)
    (cli.folder / "files").mkdir()
    cli.file("files/how.md", "Review it.")
    cli.file("beside.md", "not below the root")
    files = [("how.md", "gone.md"), ("how.md", "gone.md"), ("how.md", "made.md"), ("beside.md", "how.md")]
    lines = [
        {"kind": "file_prompt", "payload": {"instructions": how, "document": what}} for how, what in files
    ]
    lines += [
        {"kind": "file_prompt", "payload": {"prompt": "p", "text": "t"}, "output": "files/made.md"},
        {"kind": "summarize", "payload": {"document": "gone.md", "duration_s": 0.0}},
    ]
    cli.file("t.jsonl", "\n".join(map(json.dumps, lines)))
    gone, beside = f"{cli.folder}/files/gone.md", f"{cli.folder}/files/beside.md"
    told = "tasks name 2 files that are not there, and fail unless that changes: "
    assert f"files: {told}{gone}, {beside}" in cli.good("run", "t.jsonl", "--dry-run").lines
    record = cli.good("run", "t.jsonl", "--dry-run", "--json").json
    assert record["missing_files"] == {gone: 2, beside: 1}
    assert cli.good("submit", "--file", "t.jsonl").told == [f"penstock: {told}{gone}, {beside}"]
    cli.file("files/gone.md", "")
    cli.file("files/beside.md", "")
    assert "files:" not in cli.good("run", "t.jsonl", "--dry-run").out


def test_a8_a_dry_run_tells_every_task_as_json(cli: Cli) -> None:
    cli.good("run", "tasks.toml", "--quiet")
    (cli.folder / "all.md").unlink()
    tasks = cli.tasks()
    told = cli.good("run", "tasks.toml", "--dry-run", "--json").json
    assert cli.tasks() == tasks
    assert (told["to_run"], told["skipped"], len(told["tasks"])) == (1, 4, 5)
    assert [one["skipped"] for one in told["tasks"]] == [True] * 4 + [False]
    (last,) = [one for one in told["tasks"] if not one["skipped"]]
    assert (last["kind"], last["model"], last["hosts"], last["output"]) == (
        "translate",
        "big",
        ["large"],
        "all.md",
    )
    assert last["after"] == []
    assert (last["usd"], last["usd_from"]) == (None, None)
    assert last["seconds"] >= 0
    assert told["ends"]["in_s"] >= 0
    assert told["usd"] == {"by_past": None, "by_prices_at_most": None, "unknown_tasks": 1}


def test_a8_a_dry_run_reckons_by_prices_and_by_the_past(cli: Cli) -> None:
    """A8: what is not known is said to be unknown, and is never 0."""
    cli.file("penstock.toml", MONEY)
    cli.file("ask.toml", ASK)
    told = cli.good("run", "ask.toml", "--dry-run", "--json").json
    priced, unbounded, free, other = told["tasks"]
    # {"prompt":"a","max_tokens":1000} are 32 bytes, so 8 tokens
    assert (priced["usd"], priced["usd_from"]) == (pytest.approx((8 * 10 + 1000 * 100) / 1e6), "prices")
    assert [one["usd"] for one in (unbounded, free, other)] == [None, None, None]
    assert told["usd"]["unknown_tasks"] == 3

    cli.good("submit", "summarize", '{"duration_s": 0}', "--wait")
    said = cli.good("run", "ask.toml", "--dry-run")
    rows = [re.split(r" {2,}", line) for line in said.lines[1:4]]
    assert [" / ".join(row[5:]) if row[2] == "priced" else " / ".join(row[-3:-1]) for row in rows] == [
        "0 / ≤ 0.10 + unknown / prices / unknown",
        "0 / unknown",
        "≈ 0.25 / past",
    ], "each line says by what it is known"
    assert "cost: about 0.25 USD for 1 task, as such tasks have cost in this store" in said.lines
    assert any(
        line.startswith("cost: at most 0.10 USD for 1 task by [prices], if 4 bytes") for line in said.lines
    )
    assert any(line.startswith("cost: unknown for 2 tasks (ask): ") for line in said.lines)
    assert said.lines[-1] == "time: unknown: no attempt of kind ask has ended in this store"


def test_a8_what_another_model_cost_says_nothing(cli: Cli) -> None:
    """A8: first the past of the same kind and model, then prices, then unknown."""
    dear = '{"kind": "k", "model": "dear", "payload": {"max_tokens": 1000}}\n'
    rare = '{"kind": "k", "model": "rare", "payload": {"max_tokens": 1000}}\n'
    cheap = '{"kind": "k", "model": "cheap"}\n'
    anyone = '{"kind": "k"}\n'
    hosts = "".join(
        f'[hosts.{name}]\ntype = "simulated"\nserves = ["k"]\nduration_s = 0\nmodel = "{name}"\ncost_usd = {usd}\n'
        for name, usd in (("cheap", 0.001), ("dear", 5), ("rare", 9))
    )
    cli.file("penstock.toml", f"{hosts}[prices.dear]\ninput = 0\noutput = 75000\n")
    cli.file("cheap.jsonl", cheap)
    cli.file("all.jsonl", dear + rare + cheap + anyone)
    cli.good("run", "cheap.jsonl", "--quiet")
    told = cli.good("run", "all.jsonl", "--dry-run", "--json").json["tasks"]
    assert [(one["usd"], one["usd_from"]) for one in told] == [
        (75.0, "prices"),
        (None, None),
        (0.001, "past"),
        (None, None),
    ]
    assert [one["seconds"] is None for one in told] == [True, True, False, True]
    cli.file("dear.jsonl", dear)
    cli.good("run", "dear.jsonl", "--quiet")
    told = cli.good("run", "all.jsonl", "--dry-run", "--json").json["tasks"]
    assert (told[0]["usd"], told[0]["usd_from"]) == (5.0, "past")


def test_a8_without_a_model_the_host_or_the_payload_tells_what_it_is_like(cli: Cli) -> None:
    hosts = "".join(
        f'[hosts.{name}]\ntype = "simulated"\nserves = ["k"]\nduration_s = 0.0\ncost_usd = {usd}\n'
        for name, usd in (("cheap", 0.001), ("dear", 5.0))
    )
    cli.file("penstock.toml", hosts)
    cli.file("cheap.jsonl", '{"kind": "k", "host": "cheap"}\n{"kind": "k", "payload": {"model": "m"}}\n')
    cli.good("run", "cheap.jsonl", "--quiet")
    cli.file(
        "all.jsonl",
        '{"kind": "k", "host": "dear"}\n{"kind": "k", "payload": {"model": "n"}}\n{"kind": "k", "host": "cheap"}\n',
    )
    told = cli.good("run", "all.jsonl", "--dry-run", "--json").json["tasks"]
    assert sorted(one["usd"] or 0.0 for one in told) == [0.0, 0.0, 0.001]


def test_a8_a_dry_run_plays_the_past_on(cli: Cli) -> None:
    """A8: two at once on two slots, each as long as such attempts were."""
    cli.file("penstock.toml", MONEY.replace("slots = 2", "slots = 1"))
    cli.good("submit", "summarize", '{"duration_s": 0.05}', "--wait")
    cli.file("t.jsonl", '{"kind": "summarize", "matrix": {"repeat": 10}}')
    told = cli.good("run", "t.jsonl", "--dry-run", "--json").json
    (each,) = {one["seconds"] for one in told["tasks"]}
    assert told["ends"]["latest_in_s"] >= told["ends"]["in_s"] >= told["ends"]["earliest_in_s"]
    assert told["ends"]["latest_in_s"] > 2 * each, "they wait for each other"
    said = cli.good("run", "t.jsonl", "--dry-run")
    assert said.lines[-1].startswith("time: about ")
    assert said.lines[-1].endswith(
        ": behind what is queued, and with attempts as long as such ones were in this store"
    )
