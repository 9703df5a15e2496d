"""Users' code that is found by its name, while others look for theirs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.engine.calls import load


class Another:
    """What Python knows of a folder; asked to forget it, a thread beside ours has just forgotten another one."""

    def __init__(self, gone: str) -> None:
        self._gone = gone

    def invalidate_caches(self) -> None:
        sys.path_importer_cache.pop(self._gone, None)

    def find_spec(self, name: str, target: object = None) -> None:
        return None


def test_threads_that_look_for_new_files_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python drops what it knows of missing folders one by one, and fails where another thread was quicker."""
    (tmp_path / "found_beside_others.py").write_text("def work(payload):\n    return payload\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "path_importer_cache", dict(sys.path_importer_cache))
    missing = str(tmp_path / "missing")
    sys.path_importer_cache[str(tmp_path / "there")] = Another(missing)
    sys.path_importer_cache[missing] = None
    try:
        assert load("found_beside_others:work", [str(tmp_path)])("it") == "it"
    finally:
        sys.modules.pop("found_beside_others", None)
