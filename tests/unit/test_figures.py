"""What tests measure is told at the end of a run, also by processes of its own and where a test fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = """
def test_that_passes(tell):
    tell("12 ms")
    tell("34 ms")

def test_that_fails(tell):
    tell("seed 7")
    assert False

def test_that_measures_nothing():
    pass
"""


def run(folder: Path, *words: str) -> list[str]:
    (folder / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(folder)]
    command += ["-p", "no:cacheprovider", "-p", "tests.figures", *words]
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ran = subprocess.run(command, cwd=folder, env=kept | alone, capture_output=True, text=True)
    return ran.stdout.splitlines()


def test_what_passed_and_what_failed_is_told_by_whatever_process_ran_it(tmp_path: Path) -> None:
    lines = run(tmp_path, "-p", "xdist", "-n", "1")
    (begins,) = [number for number, line in enumerate(lines) if line.strip("= ") == "figures"]
    told = lines[begins + 1 : begins + 6]
    passed = told.index("test_some.py::test_that_passes")
    assert told[passed + 1 : passed + 3] == ["  12 ms", "  34 ms"]
    failed = told.index("test_some.py::test_that_fails")
    assert told[failed + 1] == "  seed 7"


def test_where_nothing_was_measured_nothing_is_said(tmp_path: Path) -> None:
    lines = run(tmp_path, "test_some.py::test_that_measures_nothing")
    assert lines[-1].startswith("1 passed")
    assert not [line for line in lines if "figures" in line]
