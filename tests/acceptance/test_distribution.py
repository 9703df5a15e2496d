"""E9: wheel and sdist, as `make dist` builds them, each installed into an environment that has nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.version import __version__

ROOT = Path(__file__).parent.parent.parent
_CONSTRAINTS = str(ROOT / "constraints" / "penstock.txt")
_CONFIG = """\
[hosts.one]
type = "command"
argv = ["echo", "{name}"]
serves = ["greet"]
"""
_LIMIT_S = 600.0  # on a machine that has much else to do


def done(argv: Sequence[str], folder: Path, status: int = 0) -> str:
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))
    }
    ended = subprocess.run(
        argv, cwd=folder, env=environ, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    assert ended.returncode == status, f"{argv}: {ended.stdout}{ended.stderr}"
    return ended.stdout


def uv(*words: str, folder: Path = ROOT) -> None:
    """From uv's cache where that has all of it, or else from the package registry."""
    program = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    try:
        done([program, "--quiet", "--offline", *words], folder)
    except AssertionError:
        done([program, "--quiet", *words], folder)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    uv("build", f"--out-dir={folder}", f"--build-constraints={_CONSTRAINTS}")
    return folder


def test_the_wheel_has_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"penstock_ai-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    ours = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "penstock").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    info = {name for name in names if name.startswith(f"penstock_ai-{__version__}.dist-info/")}
    assert names - info == ours
    assert "penstock/py.typed" in names
    assert f"penstock_ai-{__version__}.dist-info/licenses/LICENSE" in info


def test_the_sdist_has_what_builds_the_wheel(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    rest = {name for name in names if not name.startswith("src/penstock/")}
    assert rest <= {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", ".gitignore"}
    assert {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml"} <= rest
    assert "src/penstock/py.typed" in names


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_each_of_them_is_a_penstock_that_works_without_extras(built: Path, tmp_path: Path, kind: str) -> None:
    """The base alone: it runs tasks, says why they waited, and names the extra that something else needs."""
    (file,) = built.glob(kind)
    done([sys.executable, "-m", "venv", "--without-pip", "env"], tmp_path)
    python, penstock = (str(tmp_path / "env/bin" / name) for name in ("python", "penstock"))
    constraints = (f"--constraints={_CONSTRAINTS}", f"--build-constraints={_CONSTRAINTS}")
    uv("pip", "install", f"--python={python}", *constraints, f"penstock-ai @ {file.as_uri()}")
    assert done([penstock, "--version"], tmp_path).split() == ["penstock", __version__]

    work = tmp_path / "work"
    work.mkdir()
    (work / "penstock.toml").write_text(_CONFIG)
    (work / "tasks.jsonl").write_text('{"id": "a", "kind": "greet", "payload": {"name": "Ada"}}\n')
    (result,) = done([penstock, "run", "tasks.jsonl", "--json"], work).splitlines()
    assert (json.loads(result)["state"], json.loads(result)["value"]) == ("done", "Ada")
    assert done([penstock, "why", "a"], work).startswith("a is done; it waited")

    (work / "penstock.toml").write_text('[hosts.small]\ntype = "local"\n')
    assert "pip install 'penstock-ai[local]'" in done([penstock, "check"], work, 1)
