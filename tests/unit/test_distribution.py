"""What is installed: the distribution's name in every message, and constraints/ that fit pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from penstock.errors import install_line

ROOT = Path(__file__).parent.parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, GROUPS = PYPROJECT["project"], PYPROJECT["dependency-groups"]
BESIDE = ("litellm-proxy", "researcher")  # in an environment of their own each
READ = (
    *ROOT.glob("*.md"),
    *ROOT.glob("*.txt"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "src").rglob("*.py"),
)
PYTHONS = ("3.11.0", "3.11.9", "3.12.4", "3.13.1", "3.14.0")


def entries(name: str) -> list[tuple[Requirement, str]]:
    """Each package of a file of constraints, and all that the file says of it."""
    text = (ROOT / "constraints" / f"{name}.txt").read_text()
    lines = re.sub(r" \\\n +", " ", text).splitlines()
    return [(Requirement(re.sub(r" --hash.*", "", line)), line) for line in lines if not line.startswith("#")]


def wanted(name: str) -> list[Requirement]:
    if name in BESIDE:
        return [Requirement(line) for line in GROUPS[name]]
    extras = [
        line
        for extra, lines in PROJECT["optional-dependencies"].items()
        if extra not in BESIDE
        for line in lines
    ]
    groups = [line for group, lines in GROUPS.items() if group not in BESIDE for line in lines]
    built_by = PYPROJECT["build-system"]["requires"]
    return [Requirement(line) for line in (*PROJECT["dependencies"], *built_by, *extras, *groups)]


@pytest.mark.parametrize("name", ["penstock", *BESIDE])
def test_each_constraint_is_a_version_with_hashes_and_no_address(name: str) -> None:
    text = (ROOT / "constraints" / f"{name}.txt").read_text()
    assert not re.search(r"://|^-|@", text, re.MULTILINE)
    for requirement, line in entries(name):
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)), line
        assert re.search(r" --hash=sha256:[0-9a-f]{64}\b", line), line


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", ["penstock", *BESIDE])
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_each_requirement_has_one_version_that_fits(name: str, python: str, platform: str) -> None:
    """Otherwise pyproject.toml was edited, and `make upgrade` was not run."""
    environment = {
        "implementation_name": "cpython",
        "platform_machine": {"linux": "x86_64", "darwin": "arm64"}[platform],
        "platform_python_implementation": "CPython",
        "platform_system": {"linux": "Linux", "darwin": "Darwin"}[platform],
        "python_full_version": python,
        "python_version": ".".join(python.split(".")[:2]),
        "sys_platform": platform,
    }
    versions: dict[str, str] = {}
    for requirement, line in entries(name):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            package = canonicalize_name(requirement.name)
            assert package not in versions, line
            versions[package] = str(requirement.specifier).removeprefix("==")
    for requirement in wanted(name):
        version = versions.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement} has no constraint; run: make upgrade"
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement}, run: make upgrade"


def test_the_extra_and_the_environment_beside_want_the_same_researcher() -> None:
    assert GROUPS["researcher"] == PROJECT["optional-dependencies"]["researcher"]


def test_the_line_that_installs_an_extra_names_the_distribution() -> None:
    assert install_line("ui") == f"pip install '{PROJECT['name']}[ui]'"
    assert (PROJECT["name"], *PROJECT["scripts"]) == ("penstock-ai", "penstock")


def test_one_line_installs_an_extra_in_every_message_and_page() -> None:
    """E9: `penstock` on the package registry is another project; a line that names it would install that."""
    asked = set()
    for path in READ:
        text = path.read_text(encoding="utf-8")
        where = path.relative_to(ROOT)
        assert not re.search(r"penstock\[[a-z,]*\]", text), f"{where}: write penstock-ai[…]"
        assert not re.search(r"pip3? install (-\S+ )*['\"`]?(\.?\[|penstock(?!-ai)\b)", text), (
            f"{where}: name penstock-ai"
        )
        if path.suffix == ".py" and path.name != "errors.py":
            assert "penstock-ai" not in text, f"{where}: ask install_line"
        asked |= {
            extra for found in re.findall(r"penstock-ai\[([a-z,]+)\]", text) for extra in found.split(",")
        }
        asked |= set(re.findall(r"install_line\([\"'](\w+)[\"']\)", text))
    assert asked <= set(PROJECT["optional-dependencies"])
    assert {"gpu", "local", "otel", "postgres", "rag", "ray", "ui"} <= asked
