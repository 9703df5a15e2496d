"""The suite passes however it is started, and says what it skipped (E9): in the background, without a terminal,
with the variables of somebody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Each of these failed under one of the starts below, or asks for what they take away.
SAMPLE = (
    "tests/acceptance/test_cli_processes.py::test_ctrl_c_ends_the_reading_of_stdin",
    "tests/acceptance/test_cli_processes.py::test_what_ignores_ctrl_c_goes_on_ignoring_it",
    "tests/unit/test_cli_attempt_log.py::test_lines_are_told_while_the_run_goes_on",
    "tests/unit/test_cli_parts.py",
    "tests/unit/test_cli_app.py",
)
ELSEWHERE = {
    "CI": "true",
    "COLUMNS": "31",
    "FORCE_COLOR": "1",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "LANG": "C",
    "LC_ALL": "C",
    "NO_COLOR": "1",
    "PENSTOCK_CONFIG": "/nowhere/penstock.toml",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONWARNINGS": "error",
    "TZ": "Asia/Kolkata",
    "XDG_CONFIG_HOME": "/nowhere",
    "http_proxy": "http://127.0.0.1:9",
}
MISSING = ("HOME", "PYTHONUNBUFFERED", "TERM")


def in_the_background() -> None:
    """As a shell without job control starts `make test &`, under nohup."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    os.umask(0o077)
    os.close(0)


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["alone", "shared out"])
def test_tests_pass_however_they_are_started(tmp_path: Path, processes: tuple[str, ...]) -> None:
    folder = tmp_path / (
        "a folder for what is temporary, with a name that leaves no room for sockets" + "." * 40
    )
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in MISSING}
    kept = {name: value for name, value in kept.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *processes, *SAMPLE]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env=kept | ELSEWHERE | {"TMPDIR": str(folder)},
        start_new_session=True,
        preexec_fn=in_the_background,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout


SKIPPED = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_of_three(number):
    pytest.skip("no bd here")

@pytest.mark.skipif(True, reason="runs in an image")
def test_by_a_mark():
    pass

def test_that_runs():
    pass
"""
LEFT_OUT = 'import pytest\npytest.skip("no bd here", allow_module_level=True)\n'


def run(folder: Path, *words: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(folder)]
    command += ["-p", "no:cacheprovider", "-p", "tests.figures", *words]
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ran = subprocess.run(command, cwd=folder, env=kept | alone, capture_output=True, text=True, check=False)
    return ran.stdout.splitlines()


@pytest.mark.parametrize("processes", [(), ("-p", "xdist", "-n", "2")], ids=["alone", "shared out"])
def test_what_was_skipped_is_said_with_the_reasons(tmp_path: Path, processes: tuple[str, ...]) -> None:
    (tmp_path / "test_some.py").write_text(SKIPPED)
    (tmp_path / "test_none.py").write_text(LEFT_OUT)
    lines = run(tmp_path, *processes)
    (begins,) = [number for number, line in enumerate(lines) if line.strip("= ") == "skipped"]
    assert lines[begins + 1 : begins + 3] == ["   4  no bd here", "   1  runs in an image"]


def test_where_nothing_was_skipped_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(SKIPPED)
    lines = run(tmp_path, "test_some.py::test_that_runs")
    assert lines[-1].startswith("1 passed")
    assert not [line for line in lines if line.strip("= ") == "skipped"]
