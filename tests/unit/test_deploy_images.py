"""E6: the recipes of the images name what there is: extras, files, the program; and both are kept alike."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
RECIPES = (ROOT / "deploy" / "Containerfile", ROOT / "deploy" / "kuberay" / "Containerfile")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def lines(recipe: Path) -> list[str]:
    text = recipe.read_text().replace("\\\n", " ")
    return [re.sub(r" +", " ", line) for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.parent.name)
def test_the_extras_are_those_of_the_project(recipe: Path) -> None:
    (extras,) = [
        line.partition("=")[2].split(",") for line in lines(recipe) if line.startswith("ARG EXTRAS=")
    ]
    assert {"postgres", "ui"} <= set(extras) <= set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.parent.name)
def test_it_does_not_run_as_root(recipe: Path) -> None:
    *_, last = [line.split()[1] for line in lines(recipe) if line.startswith("USER ")]
    assert re.fullmatch(r"[1-9]\d*(:\d+)?", last), "a number: Kubernetes cannot tell who a name is"


def test_both_are_run_alike() -> None:
    kept = ("HEALTHCHECK", "ENTRYPOINT", "CMD", "EXPOSE", "STOPSIGNAL", "WORKDIR")
    one, other = ([line for line in lines(recipe) if line.startswith(kept)] for recipe in RECIPES)
    assert len(one) == len(kept)
    assert one == other
    assert PROJECT["scripts"]["penstock"], "what the entry starts"


def test_what_the_build_needs_is_let_in() -> None:
    let_in = {
        line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line.startswith("!")
    }
    needed = {
        "constraints/penstock.txt",
        "pyproject.toml",
        PROJECT["readme"],
        *PROJECT["license-files"],
        "src",
    }
    assert let_in == needed
    assert all((ROOT / name).exists() for name in needed)
