"""E6: deploy/systemd is what `penstock systemd` prints for its config, and systemd accepts it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.unit.cli_rig import Cli, make_cli
from tests.unit.test_cli_systemd import values, verified

FILES = Path(__file__).parent.parent.parent / "deploy" / "systemd"
UNIT = FILES / "penstock-serve.service"
STORE = "postgresql://penstock@db/penstock"


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    made = make_cli(tmp_path, monkeypatch, capsys)
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    for name in ("penstock.toml", "penstock.env"):
        shutil.copy(FILES / name, tmp_path)
    return made


def test_the_unit_is_what_the_command_prints(cli: Cli) -> None:
    printed = cli.good("systemd", "--as", "penstock", "serve").out
    printed = re.sub(r"(?m)^ExecStart=.* --config", "ExecStart=/opt/penstock/bin/penstock --config", printed)
    printed = printed.replace(str(cli.folder), "/srv/penstock")
    # Below /tmp, where this test is, a service has no /tmp of its own.
    printed = printed.replace("ProtectSystem=", "PrivateTmp=yes\nProtectSystem=")
    assert UNIT.read_text() == printed


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = Path("/usr/bin/true")  # it must be there, and ours is not installed there
    unit = tmp_path / UNIT.name
    unit.write_text(
        UNIT.read_text().replace("/opt/penstock/bin/penstock", str(program)).replace("User=penstock\n", "")
    )
    assert verified(unit) == ""


def test_the_password_comes_by_a_file_that_nobody_else_reads(cli: Cli) -> None:
    unit = UNIT.read_text()
    assert values(unit, "EnvironmentFile") == ["-/srv/penstock/penstock.env"]
    names = [
        line.partition("=")[0] for line in (FILES / "penstock.env").read_text().splitlines() if line[0] != "#"
    ]
    assert names == ["PGPASSWORD"]
    assert "PGPASSWORD" in next(line for line in unit.splitlines() if line.startswith("# Put"))
    with_password = STORE.replace("penstock@", "penstock:geheim@")
    for store in (with_password, f"{STORE}?password=geheim", f"{STORE}?sslpassword=geheim"):
        (line,) = cli.bad("--set", f"store={store}", "systemd", "serve")
        assert "everybody can read a unit" in line
        assert "geheim" not in line
    cli.file("penstock.toml", f'store = "{with_password}"\n[hosts.h]\ntype = "simulated"\n')
    unit = cli.good("systemd", "serve").out
    assert "geheim" not in unit
    assert not values(unit, "EnvironmentFile"), "it is in the config, which nobody else should read"


def test_what_belongs_to_the_store_has_a_folder_that_may_be_written_to(cli: Cli) -> None:
    """A file has it beside it; for a database it would be in the home of an account that has none."""
    unit = cli.good("systemd", "serve").out
    assert values(unit, "StateDirectory") == ["penstock"]
    assert "XDG_STATE_HOME=%S" in values(unit, "Environment")
    for words in (["systemd", "--user", "serve"], ["--set", "store=queue.db", "systemd", "serve"]):
        assert not values(cli.good(*words).out, "StateDirectory")


def test_the_address_for_the_other_machine_stays_in_the_unit(cli: Cli) -> None:
    unit = cli.good("--set", "server.advertise=http://10.0.0.11:8787", "systemd", "serve").out
    (start,) = values(unit, "ExecStart")
    assert start.endswith("--set server.advertise=http://10.0.0.11:8787 serve")
