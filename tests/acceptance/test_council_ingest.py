"""`council ingest` with real Chroma and real embeddings: all forms are found, and whatever ends it, it goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli.app import main
from penstock.client import Client
from penstock.config.councils import LIBRARY
from penstock.council.library.ingested import Ingested
from penstock.model import State, Task
from tests.unit.pdf_rig import pdf

CONFIG = """
store = "penstock.db"

[hosts.small]
type = "simulated"
slots = 2
serves = ["chat"]

[councils.shenron]
members = [{ name = "GOKU" }]
retrieval = { collection = "knowledge_base" }
"""
FILES = {
    "pumps.md": "# Pumps\n\nGrease.\n\n## Bearings\n\nBearings of the pumps are greased every 2,000 hours.\n",
    "garden/tomatoes.txt": "Tomatoes want full sun and water at their roots.",
    "boiler.rst": "Boiler\n======\n\nThe boiler is emptied each winter before the first frost.\n",
    "page.html": "<html><script>var x</script><h1>Opening hours</h1><p>The museum opens at nine on Sundays.",
    "tax.py": "RATE = 0.19\n\n\ndef value_added_tax(net):\n    return net * RATE\n",
    "old.txt": "Le café ferme à dix-huit heures.",
}
QUESTIONS = {
    "how often are bearings greased": "docs/pumps.md",
    "where do tomatoes like to grow": "docs/garden/tomatoes.txt",
    "when is the boiler emptied": "docs/boiler.rst",
    "opening hours of the museum": "docs/page.html",
    "value_added_tax": "docs/tax.py",
    "café ferme": "docs/old.txt",
    "who wrote the thesis about whales": "docs/thesis.pdf",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "penstock.toml").write_text(CONFIG)
    for name, text in FILES.items():
        path = tmp_path / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("latin-1" if name == "old.txt" else "utf-8"))
    thesis = pdf(["A thesis about whales", "It was written by a student of biology."])
    (tmp_path / "docs" / "thesis.pdf").write_bytes(thesis)
    return tmp_path


async def asked(client: Client, **payload: Any) -> Any:
    result = await client.wait(await client.submit(penstock.Task(LIBRARY, {"council": "shenron", **payload})))
    assert result.ok, result.error
    return result.value


async def best(client: Client, query: str) -> str:
    found = await asked(client, do="search", query=query)
    assert found["problem"] is None
    return str(found["passages"][0]["source"])


def counts(told: Ingested) -> tuple[int, int, int, int]:
    return len(told.added), len(told.changed), len(told.removed), len(told.plan.unchanged)


async def test_d2_documents_of_every_form_are_found_and_kept_in_step(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """D2: each form is found; then changes, removals, renames and damage, and only they are acted on."""
    docs = folder / "docs"
    async with penstock.open("penstock.toml") as client:
        assert await asyncio.to_thread(main, ["council", "sources"]) == 0
        assert capsys.readouterr().err == (
            "penstock: knowledge_base: nothing is in it; `penstock council ingest DIR` fills it\n"
        )
        told = await client.ingest("docs")
        assert counts(told) == (7, 0, 0, 0), told.failed
        assert [one.reason for one in told.notes] == ["is not UTF-8 (byte 6); read as Latin-1"]
        for question, source in QUESTIONS.items():
            assert await best(client, question) == source, question

        assert counts(await client.ingest("docs")) == (0, 0, 0, 7)

        (docs / "pumps.md").write_text("# Pumps\n\nThe pumps were sold to a circus.\n")
        (docs / "boiler.rst").rename(docs / "heating.rst")
        (docs / "tax.py").unlink()
        (docs / "thesis.pdf").write_bytes(b"%PDF-1.4 damaged")
        told = await client.ingest("docs")
        assert counts(told) == (1, 1, 2, 3)
        assert [(one.source, one.reason[:22]) for one in told.failed] == [
            ("thesis.pdf", "is damaged or no PDF: ")
        ]
        assert await best(client, "sold to a circus") == "docs/pumps.md"
        assert await best(client, "when is the boiler emptied") == "docs/heating.rst"
        assert await best(client, "a thesis about whales") == "docs/thesis.pdf"
        held = await asked(client, do="manifest")
        assert set(held["sources"]) == {
            "docs/garden/tomatoes.txt",
            "docs/heating.rst",
            "docs/old.txt",
            "docs/page.html",
            "docs/pumps.md",
            "docs/thesis.pdf",
        }
        assert await asyncio.to_thread(main, ["council", "sources"]) == 0
        out, err = capsys.readouterr()
        assert out.splitlines() == sorted(held["sources"])
        assert err.startswith(
            f"penstock: knowledge_base: 6 sources, {held['passages']} passages, embedded by "
        )
        found = await asked(client, do="search", query="bearings greased hours value_added_tax", top=20)
        texts = " ".join(passage["text"] for passage in found["passages"])
        assert "greased" not in texts
        assert "value_added_tax" not in texts


@pytest.fixture
def many(folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    for number in range(_MANY):
        (folder / "docs" / f"note-{number}.txt").write_text(
            f"Note {number} is about the number {number * 7919}."
        )
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


_MANY = 2000 if os.environ.get("PENSTOCK_SOAK") else 120


def begun(started: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    """An ingest in a process of its own, when files are under way."""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "council", "ingest", "docs"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    started.append(process)
    assert process.stderr is not None
    told = []
    for line in process.stderr:
        told.append(line)
        if " files · " in line or "an earlier ingest left" in line:
            return process
    raise AssertionError("".join(told))


async def test_d2_an_ingest_that_is_stopped_or_killed_is_gone_on_with(
    folder: Path, many: list[subprocess.Popen[str]]
) -> None:
    """D2: after Ctrl-C and after kill -9 the same command goes on, and what is there at the end is exact."""
    process = begun(many)
    async with penstock.open("penstock.toml", dispatch=False) as other:
        task = await other.submit(Task("chat", {"duration_s": 2.0}))
        async with asyncio.timeout(60), other.watching() as watch:
            while (await other.get(task)).state is State.QUEUED:
                await watch()
        for _ in range(2):  # as where `timeout` passes a Ctrl-C on that reached the command itself
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        ended = await other.get(task)
    assert process.returncode == 130, out
    assert "the same command goes on" in out
    assert "finishing what runs, also of others" in err
    assert (ended.state, ended.attempts) == (State.DONE, 1), "the task of somebody else is finished"

    process = begun(many)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)

    async with penstock.open("penstock.toml") as client:
        told = await client.ingest("docs")
        assert told.failed == []
        assert told.plan.unchanged, "what was done before is not done again"
        held = await asked(client, do="manifest")
        assert len(held["sources"]) == _MANY + 7
        assert all(held["sources"].values())
        assert held["passages"] == _MANY + 7
        assert await best(client, f"the number {7919 * 77}") == "docs/note-77.txt"
        assert counts(await client.ingest("docs", dry_run=True)) == (0, 0, 0, _MANY + 7)
