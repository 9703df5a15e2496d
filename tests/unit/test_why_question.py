"""D1: `why` of a question says what it waits for, or where its time went: of ended ones, and of a live one."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.why import in_short
from penstock.cli.why_question import facts
from penstock.config import load
from penstock.diagnosis.why.prediction import predict_end
from penstock.diagnosis.why.remedies import remedies
from penstock.model import Host, Plant, State
from penstock.store.base import Ahead
from penstock.store.outlook import present_of, why_run, why_task
from penstock.testing import ModelServer
from tests.unit.cli_rig import Cli, make_cli
from tests.unit.question_rig import models, staged
from tests.unit.test_council_diagnosed import MEMBERS, RECORDS, asked

CONFIG = """
[hosts.lmstudio]
type = "openai"
url = "http://127.0.0.1:9/v1"
models = ["goku", "shenron"]
slots = 6
serves = ["chat"]

[councils.shenron]
chair = { name = "SHENRON", model = "shenron" }
members = [{ name = "GOKU", model = "goku" }]
"""


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    made = make_cli(tmp_path, monkeypatch, capsys)
    (tmp_path / "penstock.toml").write_text(CONFIG, encoding="utf-8")
    return made


def question_of(name: str) -> str:
    (question,) = (record.task.id for record in asked(name).tasks if record.task.kind == "council-shenron")
    return question


def imported(cli: Cli, name: str) -> str:
    cli.good("import", str(RECORDS / f"{name}.jsonl"))
    return question_of(name)


def test_one_at_a_time_is_said_of_the_question(cli: Cli) -> None:
    """D1: the host, what it does, and the remedy."""
    said = cli.good("why", imported(cli, "one-server"))
    assert "members 4.2 s (FRIEZA last)" in said.lines[0]
    assert "host lmstudio was given up to 6 at once and works on one at a time" in said.out
    assert "[hosts.lmstudio] slots = 1" in said.out


def test_nothing_of_the_kind_where_servers_are_concurrent(cli: Cli) -> None:
    said = cli.good("why", imported(cli, "six-servers"))
    assert "one at a time" not in said.out
    assert "would help" not in said.out


def test_what_steps_waited_for_and_who_held_it(cli: Cli) -> None:
    question = imported(cli, "one-slot")
    said = cli.good("why", question)
    assert "slots:lmstudio, held by 2 tasks of lane calls (GOKU, VEGETA)" in said.out
    course = cli.good("why", question, "--json").json["course"]
    assert [stage["stage"] for stage in course["stages"]] == ["members", "agreement", "synthesis"]
    members = course["stages"][0]
    assert [step["name"] for step in members["steps"]] == list(MEMBERS)
    assert members["last"] == "FRIEZA"
    assert next(iter(course["waited_s"])) == "slots:lmstudio"
    assert "hosts.lmstudio.slots" in course["remedy"]["set"]
    step = cli.good("why", members["steps"][2]["task_id"])
    assert "slots:lmstudio" in step.lines[0], "a step is a task like any other"


def test_where_the_time_of_a_thorough_one_went(cli: Cli) -> None:
    course = cli.good("why", imported(cli, "thorough"), "--json").json["course"]
    stages = {stage["stage"]: stage for stage in course["stages"]}
    assert list(stages) == ["members", "review", "agreement", "synthesis"]
    assert stages["review"]["last"] == "FRIEZA review repair"
    assert stages["synthesis"]["begin"] >= stages["review"]["end"]


async def test_a_question_that_runs(tmp_path: Path) -> None:
    """D1: who runs, who waits for whom, what comes next; and nobody guesses how long questions take."""
    async with ModelServer(models(slots=1, first_token_s=30.0)) as server, staged(tmp_path, server) as stage:
        config = load(tmp_path / "penstock.toml")
        question = await stage.ask({"query": "Does it hold?", "mode": "thorough"})
        await server.wait_for(lambda stats: stats.in_flight + stats.queued >= 3)
        await stage.store.record([])
        record = await stage.until(question, lambda one: one.state is State.RUNNING)
        now = stage.dispatcher.now
        told = await why_task(stage.store, config.plant, record, now)
        assert told.course is not None
        assert not told.course.is_over
        (members,) = told.course.stages
        assert [step.name for step in members.of(State.RUNNING)] == ["A", "B", "C"]
        assert "members: 3 under way" in in_short(told)
        assert ("then", told.course.next) in facts(told.course)
        assert told.course.next is not None
        assert "review" in told.course.next
        assert told.predicted_end is None
        run = await why_run(stage.store, config.plant, record.task.run, now)
        assert run.predicted_end is not None
        assert "no question of kind council-sages has ended yet" in run.predicted_end.unknown
        assert run.busy_s < 3 * (now - record.task.queued_at) + 0.01, "the question itself holds nothing"
        present = await present_of(stage.store, config.plant, Ahead(config.plant.aging_s), now)
        assert predict_end(present, record.task.run).seconds is None


def test_slots_of_a_council_are_its_own() -> None:
    plant = Plant(hosts=(Host("council-sages", type="council", slots=2, serves=("council-sages",)),))
    helps = remedies("slots:council-sages", plant)[0].text
    assert helps.startswith("councils.sages.slots = 3")
    assert "hosts.council-sages" not in helps
