"""C9: `systemd` prints a unit that systemd accepts, whose words are this program, this config and this folder."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.setup.unit import Service, quoted, unit_text
from tests.unit.cli_rig import Cli, make_cli


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    folder = tmp_path / "a 100% home"
    folder.mkdir()
    return make_cli(folder, monkeypatch, capsys)


def values(unit: str, key: str) -> list[str]:
    """Of a key, in order, as systemd reads specifiers."""
    lines = (line.partition("=") for line in unit.splitlines() if not line.startswith("#"))
    return [value.replace("%%", "%") for name, _, value in lines if name == key]


def sections(unit: str) -> list[str]:
    return [line for line in unit.splitlines() if line.startswith("[")]


def verified(path: Path, *options: str) -> str:
    """What systemd has to say against a unit, where there is a systemd."""
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("no systemd-analyze on this machine")
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(path.parent), "SYSTEMD_LOG_LEVEL": "warning"}
    done = subprocess.run(
        [tool, *options, "verify", str(path)], capture_output=True, text=True, env=environment, timeout=60
    )
    told = [line for line in done.stderr.splitlines() if path.name in line]
    return "\n".join(told) or ("" if done.returncode == 0 else done.stderr)


def test_the_unit_names_program_config_and_folders_in_full(cli: Cli) -> None:
    unit = cli.good("--set", "aging_s=5", "systemd", "work", "--on-stop", "block").out
    (start,) = values(unit, "ExecStart")
    program, *words = shlex.split(start)
    assert os.path.isabs(program)
    assert os.access(program, os.X_OK)
    config = str(cli.folder / "penstock.toml")
    assert words[-7:] == ["--config", config, "--set", "aging_s=5", "work", "--on-stop", "block"]
    assert values(unit, "WorkingDirectory") == [str(cli.folder)]
    assert [shlex.split(value) for value in values(unit, "ReadWritePaths")] == [[str(cli.folder)]]
    assert sections(unit) == ["[Unit]", "[Service]", "[Install]"]
    assert values(unit, "Restart") == ["on-failure"]
    assert values(unit, "RestartPreventExitStatus") == ["2"], "a wrong config stays wrong"


def test_stopping_gives_time_and_then_signals_again(cli: Cli) -> None:
    unit = cli.good("systemd", "--finish", "600", "work").out
    first, wait = values(unit, "ExecStop")
    assert first.endswith("kill -s TERM $MAINPID")
    assert "timeout 600 " in wait
    assert wait.endswith("--pid=${MAINPID} -f /dev/null")
    assert values(unit, "KillSignal") == ["SIGTERM"]
    assert values(unit, "KillMode") == ["mixed"], "attempts' programs are ended by the dispatcher"
    (most,) = values(unit, "TimeoutStopSec")
    assert int(most) > 600


def test_a_system_unit_is_walled_in_and_a_users_needs_no_root(cli: Cli) -> None:
    system, users = cli.good("systemd").out, cli.good("systemd", "--user").out
    for unit in (system, users):
        assert values(unit, "NoNewPrivileges") == ["yes"]
    assert values(system, "ProtectSystem") == ["strict"]
    assert values(system, "User")
    assert values(system, "WantedBy") == ["multi-user.target"]
    assert values(users, "WantedBy") == ["default.target"]
    for key in ("User", "ProtectSystem", "ReadWritePaths", "After"):
        assert not values(users, key), f"{key} takes privileges, or what only the machine's manager knows"
    assert values(cli.good("systemd", "--as", "penstock").out, "User") == ["penstock"]


def test_systemd_accepts_it(cli: Cli) -> None:
    for name, options in (("system", ()), ("user", ("--user",))):
        path = cli.folder.parent / f"penstock-{name}.service"
        path.write_text(cli.good("systemd", *options, "work").out)
        assert verified(path, *options) == ""
    wrong = cli.folder.parent / "penstock-wrong.service"
    wrong.write_text(path.read_text().replace("ExecStart=/", "ExecStart=no/"))
    assert verified(wrong, "--user") != "", "it finds what is wrong"


def test_folders_that_it_writes_to_are_open_to_it(cli: Cli) -> None:
    for name in ("queue", "results", "project/.beads"):
        (cli.folder / name).mkdir(parents=True)
    cli.file(
        "penstock.toml",
        'store = "queue/penstock.db"\noutput_root = "results"\n[hosts.h]\ntype = "simulated"\n',
    )
    unit = cli.good("systemd", "--write", "../", "loop", "--beads", "project").out
    folders = [shlex.split(value) for value in values(unit, "ReadWritePaths")]
    wanted = [cli.folder.parent, *(cli.folder / name for name in ("project", "queue", "results"))]
    assert folders == [[str(folder)] for folder in wanted]


def test_secrets_are_named_and_never_written(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUD_KEY", "sk-very-secret")
    cli.file(
        "penstock.toml",
        '[hosts.h]\ntype = "openai"\nurl = "http://127.0.0.1:9/v1"\nmodel = "m"\nkey_env = "CLOUD_KEY"\n',
    )
    unit = cli.good("systemd").out
    assert "sk-very-secret" not in unit
    assert "# Put CLOUD_KEY there" in unit
    assert values(unit, "EnvironmentFile") == [f"-{cli.folder / 'penstock.env'}"]


def test_a_researcher_has_its_folder_and_its_secrets(cli: Cli) -> None:
    """Without its `work_dir` every run would fail, and without `pass_env` every search."""
    cli.file(
        "penstock.toml",
        '[hosts.r]\ntype = "researcher"\nurl = "http://127.0.0.1:9/v1"\nmodel = "m"\nserves = ["gptr"]\n'
        'work_dir = "../runs"\nkey_env = "CLOUD_KEY"\npass_env = ["TAVILY_API_KEY"]\n',
    )
    (cli.folder.parent / "runs").mkdir()
    unit = cli.good("systemd").out
    assert "# Put CLOUD_KEY, TAVILY_API_KEY there" in unit
    folders = [shlex.split(value) for value in values(unit, "ReadWritePaths")]
    assert [str(cli.folder.parent / "runs")] in folders


def test_a_council_may_write_to_its_collection(cli: Cli) -> None:
    (cli.folder.parent / "shelf").mkdir()
    members = 'members = [{ name = "GOKU" }]'
    cli.file(
        "penstock.toml",
        '[hosts.h]\ntype = "simulated"\n'
        f'[councils.a]\n{members}\nretrieval = {{ collection = "notes", path = "../shelf" }}\n'
        f'[councils.b]\n{members}\nretrieval = {{ collection = "notes" }}\n'
        f'[councils.c]\n{members}\nretrieval = {{ collection = "notes", url = "http://h:1" }}\n',
    )
    folders = [shlex.split(value) for value in values(cli.good("systemd").out, "ReadWritePaths")]
    assert folders == [[str(cli.folder)], [str(cli.folder.parent / "shelf")]]


def test_an_agent_has_its_queue_and_its_secrets(cli: Cli) -> None:
    (cli.folder.parent / "made").mkdir()
    cli.file(
        "penstock.toml",
        '[agents.a]\nimage = "x"\nqueue = "../made"\npass_env = ["A_TOKEN"]\n'
        '[agents.b]\nimage = "x"\nqueue = "../yet"\npass_env = ["A_TOKEN", "B_TOKEN"]\n',
    )
    unit = cli.good("systemd").out
    assert "# Put A_TOKEN, B_TOKEN there" in unit
    folders = [shlex.split(value) for value in values(unit, "ReadWritePaths")]
    assert [str(cli.folder.parent / "made")] in folders
    assert [str(cli.folder.parent)] in folders, "where the other is made"


def test_as_json_it_comes_with_its_place(cli: Cli) -> None:
    record = cli.good("systemd", "--json", "--user", "--name", "night.service", "work").json
    assert record["name"] == "night.service"
    assert record["file"] == "~/.config/systemd/user/night.service"
    assert record["install"][1] == "systemctl --user enable --now night"
    assert record["unit"].startswith(f"# {record['file']}\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("systemd", "run"), "systemd: there is no 'run'"),
        (("systemd", "work", "--on-stop"), "--on-stop"),
        (("systemd", "work", "--jsn"), "work: there is no option --jsn"),
        (("systemd", "loop"), "loop: --beads DIR is missing"),
        (("systemd", "--finish", "soon"), "--finish: 'soon' must be a whole number"),
        (("systemd", "--finish", "0"), "--finish: '0' must be a whole number, at least 1"),
        (("systemd", "--name", "../x"), "--name: '../x' must be"),
        (("systemd", "--user", "--as", "root"), "leave out --as"),
        (("systemd", "--write", "nowhere"), "--write: there is no folder 'nowhere'"),
        (("systemd", "serve", "--host", "a\nb"), "has a control character"),
        (("systemd", "work", "--dispatcher", "thread"), "--dispatcher: there is no 'thread'"),
        (("systemd", "work", "--on-stop", "blok"), "--on-stop: there is no 'blok'"),
        (("systemd", "work", "--log-format", "xml"), "--log-format: there is no 'xml'"),
        (("systemd", "loop", "--beads", ".", "--interval", "x"), "--interval: 'x' must be a number"),
        (("systemd", "loop", "--beads", "nowhere"), "nowhere: there is no such folder"),
        (("systemd", "loop", "--beads", "."), "has no .beads folder"),
        (("systemd", "serve", "--port", "99999"), "--port: must be a whole number from 0 to 65535"),
        (("systemd", "serve", "--port", "x"), "--port: 'x' must be a whole number"),
        (("systemd", "watch", "nowhere"), "nowhere: there is no such folder"),
        (("systemd", "watch", ".", "--interval", "0"), "--interval: '0' must be a number"),
        (("systemd", "watch", ".", "--lane", "none"), "--lane: there is no lane 'none'"),
        (("systemd", "watch", ".", "--kind", "report"), "--kind: 'report' must be COMMAND=KIND"),
    ],
)
def test_promise_7_what_no_service_can_be_is_refused(cli: Cli, words: tuple[str, ...], told: str) -> None:
    (line,) = cli.bad(*words)
    assert told in line


@pytest.mark.parametrize(
    "words",
    [
        ("serve", "--port", "9000", "--host", "127.0.0.1"),
        ("work", "--dispatcher", "threads"),
        ("loop", "--beads", "project", "--interval", "5"),
        ("watch", "project", "--kind", "*=agent"),
    ],
)
def test_options_that_the_command_takes_stand_once_in_the_unit(cli: Cli, words: tuple[str, ...]) -> None:
    (cli.folder / "project" / ".beads").mkdir(parents=True)
    (start,) = values(cli.good("systemd", *words).out, "ExecStart")
    assert shlex.split(start)[-len(words) - 2 :] == ["--config", str(cli.folder / "penstock.toml"), *words]


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("a b", '"a b"'),
        ("100%", "100%%"),
        ("$HOME", "$$HOME"),
        ('a"b', '"a\\"b"'),
        ("a\\b", '"a\\\\b"'),
        (";", '";"'),
        ("it's", '"it\'s"'),
    ],
)
def test_words_mean_nothing_but_themselves(word: str, shown: str) -> None:
    assert quoted(word) == shown


def test_outside_temporary_folders_the_service_has_its_own() -> None:
    service = Service("penstock-work", ["/usr/bin/penstock"], ["work"], Path("/srv/lab"), [Path("/srv/lab")])
    assert values(unit_text(service), "PrivateTmp") == ["yes"]
    assert values(unit_text(service), "ReadWritePaths") == ["-/srv/lab"], "it need not be there yet"
    for own in (replace(service, folder=Path("/tmp/lab")), replace(service, writes=[Path("/var/tmp")])):
        assert not values(unit_text(own), "PrivateTmp"), "its folder would be hidden from it"


def test_a_ray_node_of_this_machine_is_not_hidden_from_the_service(cli: Cli, tmp_path: Path) -> None:
    """What it has below /tmp is read and written to by the driver; of other clusters nothing is there."""
    service = Service("penstock-work", ["/usr/bin/penstock"], ["work"], Path("/srv/lab"), joins_node=True)
    unit = unit_text(service)
    assert not values(unit, "PrivateTmp")
    assert any(line.startswith("# No PrivateTmp: the Ray node") for line in unit.splitlines())
    assert values(unit, "ReadWritePaths") == ["/tmp"], "all else is read-only"
    program = tmp_path / "penstock-work.service"
    program.write_text(unit.replace("/usr/bin/penstock", "/usr/bin/true"))
    for address, is_here in (("auto", True), ("10.0.0.1:6379", True), ("ray://head:10001", False)):
        host = '[hosts.h]\ntype = "python"\ncall = "m:f"\n'
        engine = f'[engine]\ntype = "ray"\naddress = "{address}"\npass_env = ["HF_TOKEN"]\n'
        cli.file("penstock.toml", host + engine)
        unit = cli.good("systemd", "work").out
        assert ("/tmp" in values(unit, "ReadWritePaths")) is is_here
        assert "# Put HF_TOKEN there" in unit, "what nodes are given comes from its environment"
    assert verified(program) == ""
