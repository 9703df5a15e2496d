"""C3 on real processes: twenty claim from one issues.jsonl, while others write to it who know of no lock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.intake.beads.lines import members

ROOT = Path(__file__).parent.parent.parent
WORKERS = 20
ISSUES = 60
OTHERS = 60
OURS = {"status", "assignee", "updated_at", "notes", "metadata", "closed_at", "close_reason"}


def line(number: int) -> str:
    """An issue with fields that nobody knows, written as nobody would."""
    odd = f'"x_number":{number}.50e+0, "x_text":"\\u00e9\\/{number}","x_big":{10**30 + number}'
    after = f'"dependencies":[{{"depends_on_id":"bd-{number - 1}","type":"blocks"}}],' if number == 4 else ""
    return (
        f'{{ {odd},{after}"id":"bd-{number}","title":"t{number}" ,"status":"open","priority":{number % 5} }}'
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".beads").mkdir()
    text = "\r\n".join([*map(line, range(1, ISSUES + 1)), "<<<<<<< not an issue", '{"id":5}', ""])
    (tmp_path / ".beads" / "issues.jsonl").write_bytes(text.encode())
    return tmp_path


def others(path: Path) -> set[str]:
    """Somebody who adds closed issues with `>>` while all the others work; the names."""
    names = set()
    for number in range(OTHERS):
        name = f"other-{number}"
        with path.open("ab", buffering=0) as file:
            file.write(json.dumps({"id": name, "status": "closed", "who": "else"}).encode() + b"\n")
        names.add(name)
    return names


def test_c3_twenty_processes_claim_from_one_file(folder: Path) -> None:
    """C3: no double claim, no lost update, unknown fields byte-identical, others' lines kept."""
    path = folder / ".beads" / "issues.jsonl"
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.beads_worker", str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(WORKERS)
    ]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.close()
        worker.stdin = None
    names = others(path)
    told = [worker.communicate(timeout=120) for worker in workers]
    assert [err for _, err in told if err] == []
    claimed = [id for out, _ in told for id in out.split()]
    assert sorted(claimed) == sorted(f"bd-{n}" for n in range(1, ISSUES + 1))
    assert sum(bool(out) for out, _ in told) > 1

    text = path.read_bytes().decode()
    lines = {}
    for raw in text.split("\n"):
        if raw.strip() and not raw.startswith("<") and '"id":5' not in raw:
            lines[json.loads(raw)["id"]] = raw
    assert set(lines) == {*names, *claimed}
    assert "<<<<<<< not an issue\r\n" in text
    for number in range(1, ISSUES + 1):
        raw, was = lines[f"bd-{number}"], line(number)
        issue = json.loads(raw)
        assert (issue["status"], issue["assignee"]) == ("closed", "penstock")
        assert f"did bd-{number}" in issue["notes"]
        kept = [raw[m.start : m.end] for m in members(raw) if m.name not in OURS]
        assert kept == [was[m.start : m.end] for m in members(was) if m.name not in OURS]
    assert list((folder / ".beads").glob(".*.part")) == []
