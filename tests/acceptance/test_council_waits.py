"""D1: six members on a real server: where it takes one at a time `why` and `diagnose` say so, and only there."""

from __future__ import annotations

from pathlib import Path

import penstock
from penstock.diagnosis.finders import find
from penstock.testing import ModelBehaviour, ModelServer
from penstock.testing.calls import ModelRequest
from tests.acceptance.test_cli_processes import Folder, rest
from tests.unit.test_council_diagnosed import MEMBERS

MODELS = (*(name.lower() for name in MEMBERS), "shenron")
CONFIG = """
[hosts.lmstudio]
type = "openai"
url = "{url}"
models = {models}
slots = 6
serves = ["chat"]
health_s = 0

[councils.shenron]
chair = {{ name = "SHENRON", model = "shenron" }}
members = [{members}]
"""


def said(request: ModelRequest) -> str:
    return f"The dam holds, says {request.model}."


def behaviour(slots: int | None) -> ModelBehaviour:
    return ModelBehaviour(models=MODELS, answer=said, slots=slots, first_token_s=0.3)


def config(url: str) -> str:
    members = ", ".join(f'{{ name = "{name}", model = "{name.lower()}" }}' for name in MEMBERS)
    models = "[" + ", ".join(f'"{model}"' for model in MODELS) + "]"
    return CONFIG.format(url=url, models=models, members=members)


async def test_a_server_that_takes_one_at_a_time_is_named(tmp_path: Path) -> None:
    """D1: with the remedy, from a single question, though each member has a model of its own."""
    folder = Folder(tmp_path)
    async with ModelServer(behaviour(1)) as server:
        (tmp_path / "penstock.toml").write_text(config(server.url), encoding="utf-8")
        async with penstock.open(tmp_path / "penstock.toml") as client:
            record = await client.ask("shenron", "Does the dam hold?")
    assert (record["success_count"], server.stats.most_in_flight) == (6, 1)
    told = await folder.json("why", record["id"])
    course = told["course"]
    assert [finding["name"] for finding in course["findings"]] == ["one-at-a-time-server"]
    assert course["stages"][0]["last"] == "FRIEZA"
    status, out, err = await rest(await folder.start("diagnose", "last"))
    assert (status, err) == (0, "")
    assert "host lmstudio was given up to 6 at once and works on one at a time" in out
    assert "[hosts.lmstudio] slots = 1" in out
    assert "council-shenron" not in out


async def test_nothing_of_the_kind_of_one_that_takes_all(tmp_path: Path) -> None:
    """D1: the ideal is the slowest member and the chair, and no host is at fault."""
    async with ModelServer(behaviour(None)) as server:
        (tmp_path / "penstock.toml").write_text(config(server.url), encoding="utf-8")
        async with penstock.open(tmp_path / "penstock.toml") as client:
            record = await client.ask("shenron", "Does the dam hold?")
            (question,) = [task for task in await client.tasks() if task.task.id == record["id"]]
            run = question.task.run
            recording, summary = await client.recording(run), await client.summary(run)
            told = await client.why(record["id"])
    assert server.stats.most_in_flight > 1
    assert "one-at-a-time-server" not in [finding.name for finding in find(recording)]
    assert told.course is not None
    assert "one-at-a-time-server" not in [finding.name for finding in told.course.findings]
    ran = {a.task: a.ended_at - a.started_at for a in recording.attempts if a.ended_at is not None}
    names = {step.task_id: step.name for step in told.course.steps}
    seconds = {name: ran[task] for task, name in names.items()}
    slowest_s = max(seconds[name] for name in MEMBERS)
    last_s = max(seconds["SHENRON synthesis"], seconds["agreement"])
    assert abs(summary.ideal.seconds - slowest_s - last_s) < 1e-6
    assert "what must be done before it" in summary.ideal.because
    assert "council-shenron" not in [use.host for use in summary.hosts]
