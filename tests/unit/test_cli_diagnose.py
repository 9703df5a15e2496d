"""`penstock diagnose`: runs, exports, logs; for people and as data; what is wrong is told in a line (E2)."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.diagnosis.finders import FINDERS
from tests.unit.cli_rig import Cli, make_cli

# A thread for the three tasks of a host with three slots, which it has been seen to fill.
SERIAL = "id,worker,created,start,end,ok\n" + "".join(
    f"{task},gpu,{queued},{start},{end},true\n"
    for task, queued, start, end in [
        ("f", 0, 0, 10), ("g", 0, 0, 11), ("h", 0, 0, 12),
        ("a", 12, 12, 22), ("b", 12, 22, 32), ("c", 12, 32, 42), ("d", 12, 42, 52), ("e", 12, 52, 72),
    ]
)  # fmt: skip


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return make_cli(tmp_path, monkeypatch, capsys)


@pytest.fixture
def ran(cli: Cli) -> Cli:
    cli.file("tasks.jsonl", "\n".join(f'{{"kind": "summarize", "id": "t{n}"}}' for n in range(6)))
    cli.good("run", "tasks.jsonl", "--run", "nightly", "--quiet")
    return cli


def test_e2_a_log_is_diagnosed_for_people(cli: Cli) -> None:
    said = cli.good("diagnose", cli.file("log.csv", SERIAL))
    assert said.lines[0] == "log: 8 tasks, 72 s"
    heading = next(line for line in said.lines if line.startswith("serial-starts ("))
    assert "the run would end about" in heading
    words = [line.split()[0] for line in said.lines[said.lines.index(heading) + 1 :][:3]]
    assert words == ["cause", "evidence", "remedy"]
    assert "tasks: " in said.out
    assert said.told == [
        "penstock: the log does not tell how many tasks its hosts may run at once, so that they could have run "
        "more is hardly seen; tell it with --slots HOST=N, or a config that has its hosts"
    ]


def test_e2_a_log_is_diagnosed_as_data(cli: Cli) -> None:
    record = cli.good("diagnose", cli.file("log.csv", SERIAL), "--json").json
    assert (record["run"], record["tasks"], record["makespan_s"]) == ("log", 8, 72.0)
    finding = next(f for f in record["findings"] if f["name"] == "serial-starts")
    assert set(finding) == {"name", "severity", "cause", "evidence", "remedy", "gain_s", "endless", "change"}
    assert finding["severity"] in ("high", "medium", "low")
    assert set(finding["evidence"]) == {"tasks", "lost_s", "hosts", "lanes", "gates", "facts", "spans"}
    spans = finding["evidence"]["spans"]
    assert spans
    assert all(record["begin"] <= start < end for start, end in spans)
    assert spans[-1][1] <= record["begin"] + record["makespan_s"]
    gains = [f["gain_s"] for f in record["findings"]]
    assert gains == sorted(gains, reverse=True), "the greatest gain first"
    assert record["looked_for"] == list(FINDERS)
    assert record["untold"] == ["slots"]


def test_slots_make_the_difference(cli: Cli) -> None:
    """Nothing in a log shows that a host would take more than it ever had; somebody must say so."""
    rows = "\n".join(
        line.replace(",gpu,", ",tpu,") for line in [SERIAL.splitlines()[0], *SERIAL.splitlines()[4:]]
    )
    log = cli.file("log.csv", rows)
    assert cli.good("diagnose", log, "--json").json["findings"] == []
    told = cli.good("diagnose", log, "--slots", "tpu=3", "--json").json
    assert [f["name"] for f in told["findings"]] == ["serial-starts"]
    assert told["untold"] == []
    cli.file("penstock.toml", '[hosts.tpu]\ntype = "simulated"\nslots = 3\n')
    assert [f["name"] for f in cli.good("diagnose", log, "--json").json["findings"]] == ["serial-starts"]


def test_a_run_that_is_well_is_told_to_be(ran: Cli) -> None:
    said = ran.good("diagnose", "nightly")
    assert said.lines[0].startswith("nightly: 6 tasks, ")
    assert said.lines[1].startswith("its tasks waited for ")
    assert said.lines[1].endswith("; `penstock why --run nightly` says more")
    assert said.lines[2] == "found nothing wrong with how it was run; looked for:"
    assert [line.split()[0] for line in said.lines[5:]] == list(FINDERS)
    assert said.err == ""
    assert ran.good("diagnose", "last", "--json").json["findings"] == []


def test_that_tasks_failed_is_said_first(cli: Cli) -> None:
    rows = [
        "task,started,ended,state",
        *(f"t{n},{n * 10},{n * 10 + 5},failed" for n in range(3)),
        "t3,40,45,ok",
        "t4,50,55,cancelled",
        "t5,50,55,cancelled",
    ]
    log = cli.file("log.csv", "\n".join(rows))
    assert cli.good("diagnose", log).lines[1] == "of 6 tasks: 3 failed, 2 cancelled"
    told = cli.good("diagnose", log, "--json").json
    assert (told["failed"], told["cancelled"], told["blocked"]) == (3, 2, 0)


def test_an_export_is_diagnosed_as_its_run(ran: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    ran.good("export", "nightly", "--out", "nightly.jsonl")
    direct = ran.good("diagnose", "nightly", "--json").json
    exported = ran.good("diagnose", "nightly.jsonl", "--json").json
    assert exported == direct
    (ran.folder / "penstock.toml").unlink()
    assert ran.good("diagnose", "nightly.jsonl", "--json").json == direct, "its own plant is in it"
    data = (ran.folder / "nightly.jsonl").read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    assert ran.good("diagnose", "-", "--json").json == direct


def test_a_run_in_which_nothing_ran(cli: Cli) -> None:
    cli.good("submit", "summarize", "--run", "waiting")
    assert cli.good("diagnose", "waiting").lines[1] == "nothing has run yet, so there is nothing to be said"


def test_a_log_needs_no_config(cli: Cli) -> None:
    (cli.folder / "penstock.toml").unlink()
    assert cli.good("diagnose", cli.file("log.csv", SERIAL)).lines[0] == "log: 8 tasks, 72 s"


def test_what_a_log_does_not_tell_is_said(cli: Cli) -> None:
    said = cli.good("diagnose", cli.file("log.csv", "start,end,colour\n0,10,red\n5,20,red\n"))
    assert said.told == [
        "penstock: columns left aside: colour",
        "penstock: the log does not tell when tasks were queued, so waits are hardly seen; name the column with "
        "--map queued=COLUMN",
        "penstock: the log does not tell on which host tasks ran, so hosts are not told apart; name the column "
        "with --map host=COLUMN",
        "penstock: the log does not tell how tasks ended, so failures are not seen; name the column with "
        "--map state=COLUMN",
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["gone.csv"], "there is no file gone.csv; nor a run of that name"),
        (["logs/gone"], "there is no file logs/gone; nor a run of that name"),
        (["gone"], "there is no run 'gone'; `penstock tasks` lists tasks with their runs"),
        (
            ["nightly", "--map", "started=a"],
            "there is no file 'nightly'; --map and --slots are for files that hold a log",
        ),
        (["log.csv", "--slots", "gpu"], "--slots: 'gpu' must be HOST=N, such as --slots gpu1=4"),
        (["log.csv", "--slots", "gpu=many"], "--slots gpu: 'many' must be a whole number, at least 1"),
        (["log.csv", "--slots", "cpu=2"], "--slots: the log has no host 'cpu'; did you mean 'gpu'?"),
        (
            ["log.csv", "--map", "started=nix"],
            "--map started: log.csv has no column 'nix'; columns: created, end, id, ok, start, worker",
        ),
        (
            ["bad.csv"],
            "bad.csv:2: start: 'soon' is no time; write ISO 8601, seconds or an epoch, HH:MM:SS, MM:SS, or a "
            "length like 26m37s",
        ),
    ],
)
def test_wrong_use_is_told_in_a_line(cli: Cli, arguments: list[str], told: str) -> None:
    """Promise 7."""
    cli.good("resume")  # now there is a store
    cli.file("log.csv", SERIAL)
    cli.file("bad.csv", "start,end\nsoon,3\n")
    assert cli.bad("diagnose", *arguments) == [told]


def test_a_file_that_is_not_there_needs_no_config(cli: Cli) -> None:
    (cli.folder / "penstock.toml").unlink()
    assert "there is no file gone.csv" in cli.bad("diagnose", "gone.csv")[0]


def test_a_misspelt_run_is_answered_with_the_near_one(cli: Cli) -> None:
    cli.good("submit", "summarize", "--run", "nightly")
    assert "there is no run 'nigthly'; did you mean 'nightly'?" in cli.bad("diagnose", "nigthly")[0]


# small has two slots in the config that lies there, large one
OURS = "id,start,end,worker\na,0,10,small\nb,5,20,small\nc,0,9,large\n"
STRANGER = OURS + "d,0,9,cloud\n"
PAINT = "id,start,end,worker,kind\na,0,10,large,paint\nb,1,10,small,summarize\n"
BUSY = OURS + "d,6,9,small\n"


@pytest.mark.parametrize("command", ["diagnose", "timeline", "whatif"])
def test_a_config_that_was_merely_found_is_named_or_left_aside(cli: Cli, command: str) -> None:
    said = cli.good(command, cli.file("ours.csv", OURS), "--json")
    assert "penstock: slots of large, small from penstock.toml" in said.told
    assert said.json["slots_from"] == "penstock.toml"
    for name, log, why in (
        ("stranger.csv", STRANGER, "it has no host 'cloud' of the log"),
        ("paint.csv", PAINT, "'large' does not serve kind 'paint' there"),
        ("busy.csv", BUSY, "'small' of the log ran 3 at once, which has 2 slots there"),
    ):
        said = cli.good(command, cli.file(name, log), "--json")
        told = f"penstock: penstock.toml is left aside: {why}; use it with --config penstock.toml"
        assert told in said.told
        assert said.json["slots_from"] is None
        said = cli.good("diagnose", name, "--config", "penstock.toml", "--json")
        assert said.json["slots_from"] == "penstock.toml"
        assert "penstock: slots of large, small from penstock.toml" in said.told


def test_a_config_without_any_host_of_the_log_is_no_matter(cli: Cli) -> None:
    said = cli.good("diagnose", cli.file("log.csv", SERIAL))
    assert not any("penstock.toml" in line for line in said.told)


@pytest.mark.parametrize("command", ["diagnose", "timeline", "whatif"])
def test_help_tells_of_the_options_of_every_command(cli: Cli, command: str) -> None:
    help_ = cli.good(command, "--help").out
    assert "--config FILE" in help_
    assert "--set KEY=VALUE" in help_
