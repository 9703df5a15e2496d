"""The process of a researcher's run (A9), with stand-ins for the packages: its answer, its log, its end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.model import Outcome, Verdict
from tests.conformance.engine_rig import Rig, command_host
from tests.conformance.host_phone import Phone
from tests.unit.researcher_rig import stand_in, write_stand_ins

PATIENCE_S = 60.0


def rigged(tmp_path: Path, clock: ManualClock | None = None, **options: Any) -> Rig:
    rig = Rig(command_host("unused"), clock=clock)
    rig.adapters["reports"] = stand_in(tmp_path, **options)
    return rig


async def ran(tmp_path: Path, query: str, kind: str = "gptr", **options: Any) -> Outcome:
    async with rigged(tmp_path, **options) as rig:
        return await rig.outcome_of("reports", query, kind=kind, task="t")


def folders(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "work" / "reports").iterdir() if path.is_dir()]


def log(tmp_path: Path, attempt: int = 1) -> str:
    return (tmp_path / "work" / "reports" / f"t.{attempt}.log").read_text()


# ---- what it says


async def test_a_report_and_what_it_was_made_of(tmp_path: Path) -> None:
    library = tmp_path / "library"
    (library / "deep").mkdir(parents=True)
    for name in ("a.txt", "deep/b.PDF", "c.bin"):
        (library / name).write_text("x")
    done = await ran(tmp_path, "Why?", report_source="local", documents=str(library))
    assert done.verdict is Verdict.DONE
    assert done.value == {
        "query": "Why?",
        "report_source": "local",
        "tokens": 7,
        "text": "# Report",
        "sources": ["http://a", "http://b"],
        "costs": 0.5,
        "report_type": "research_report",
        "documents": ["a.txt", "deep/b.PDF"],
    }
    assert folders(tmp_path) == []


async def test_what_is_printed_is_log_and_not_answer(tmp_path: Path) -> None:
    done = await ran(tmp_path, "research print one two")
    assert done.verdict is Verdict.DONE
    assert log(tmp_path).splitlines()[-2:] == ["one two", "written straight"]
    assert (done.logs or "").endswith("one two\nwritten straight\n")


async def test_the_log_is_there_while_it_runs(tmp_path: Path) -> None:
    async with Phone() as phone, rigged(tmp_path) as rig:
        rig.start("reports", f"research print hello; write ring {phone.port} me")
        caller = await phone.caller("me")
        async with asyncio.timeout(PATIENCE_S):
            while "hello\n" not in log(tmp_path):  # noqa: ASYNC110 - it is on its way to the file
                await asyncio.sleep(0)
        caller.say("go on")
        assert (await rig.outcome()).verdict is Verdict.DONE


async def test_secrets_are_not_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 8."""
    monkeypatch.setenv("MODEL_KEY", "sk-12345")
    monkeypatch.setenv("SEARCH_KEY", "tvly-12345")
    told = "research tell OPENAI_API_KEY; write tell SEARCH_KEY"
    done = await ran(tmp_path, told, key_env="MODEL_KEY", pass_env=["SEARCH_KEY"])
    assert "12345" not in log(tmp_path) + (done.logs or "")
    folder = tmp_path / "work" / "reports" / "t.1"
    assert log(tmp_path).count(f"[key] {folder} {folder}") == 2


@pytest.mark.parametrize(
    ("kind", "text"), [("ma", "# Team"), ("detailed_report", "# Detailed"), ("deep", "# Report")]
)
async def test_each_type_has_its_way(tmp_path: Path, kind: str, text: str) -> None:
    done = await ran(tmp_path, "Why?", kind)
    assert done.value["text"] == text


@pytest.mark.parametrize(
    ("query", "kind", "verdict", "words"),
    [
        ("research form", "gptr", Verdict.TEMPORARY, "AttributeError: 'str' object has no attribute"),
        ("research refuse", "gptr", Verdict.PERMANENT, "because of Refused: no model x"),
        ("swallow", "ma", Verdict.PERMANENT, "after it said: Error code: 404 - no model"),
        ("lost", "ma", Verdict.TEMPORARY, "the research of section 'One' failed"),
        ("plain", "detailed_report", Verdict.TEMPORARY, "no subtopic of the query was written about"),
        (
            "research warn embeddings are gone; nothing",
            "gptr",
            Verdict.TEMPORARY,
            "nothing was found to write from, after it said: embeddings are gone",
        ),
        ("nothing", "gptr", Verdict.TEMPORARY, "NoContext: nothing was found to write from"),
        ("research die", "gptr", Verdict.TEMPORARY, "ended without a result, exit status 3"),
    ],
)
async def test_a_failure_is_told_with_its_cause(
    tmp_path: Path, query: str, kind: str, verdict: Verdict, words: str
) -> None:
    ended = await ran(tmp_path, query, kind)
    assert ended.verdict is verdict
    assert words in (ended.error or "")
    assert "after it said: some retriever" not in (ended.error or "")
    assert folders(tmp_path) == []


async def test_a_report_from_memory_where_that_is_wanted(tmp_path: Path) -> None:
    assert (await ran(tmp_path, "nothing", require_context=False)).verdict is Verdict.DONE


async def test_an_unknown_tone_fails_for_good(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        ended = await rig.outcome_of("reports", {"query": "Why?", "tone": "loud"})
        assert ended.verdict is Verdict.PERMANENT
        assert "one of critical, objective" in (ended.error or "")


async def test_a_missing_package_is_the_hosts_fault(tmp_path: Path) -> None:
    adapter = stand_in(tmp_path)
    (tmp_path / "packages" / "gpt_researcher" / "__init__.py").write_text(
        "raise ModuleNotFoundError('no', name='gpt_researcher')"
    )
    rig = Rig(command_host("unused"))
    rig.adapters["reports"] = adapter
    async with rig:
        ended = await rig.outcome_of("reports", "Why?")
    assert ended.verdict is Verdict.HOST
    assert "has no gpt-researcher; install it there" in (ended.error or "")


# ---- ended at any point

STAGES = ["import", "research", "write"]


def at(stage: str, port: int) -> tuple[str, dict[str, str]]:
    """A query and an environment that make a run stop at that stage and call."""
    ring = f"{stage} ring {port} me"
    return f"research file; {ring}", {"AT_IMPORT": ring} if stage == "import" else {}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("how", ["kill", "cancel", "time-out", "close"])
async def test_a_run_that_is_ended_leaves_nothing(tmp_path: Path, stage: str, how: str) -> None:
    """A9: no process, no partial output, no working folder, wherever it is and however it is ended."""
    clock = ManualClock()
    async with Phone() as phone:
        query, env = at(stage, phone.port)
        async with rigged(tmp_path, clock, env=env) as rig:
            rig.start("reports", query, timeout_s=60.0)
            caller = await phone.caller("me")
            assert folders(tmp_path) == ["t.1"]
            if how == "kill":
                os.kill(caller.pid, signal.SIGKILL)
            elif how == "cancel":
                rig.engine.stop("t", 1)
            elif how == "time-out":
                await rig.settle()
                clock.advance(61.0)
            else:
                await rig.engine.close()
            ended = await rig.outcome()
            await caller.hung_up()
            assert not rig.processes()
        assert ended.value is None
        expected = {"kill": Verdict.TEMPORARY, "time-out": Verdict.TEMPORARY}
        assert ended.verdict is expected.get(how, Verdict.CANCELLED)
        assert folders(tmp_path) == []


async def test_all_that_a_run_started_ends_with_it(tmp_path: Path) -> None:
    """A9: a browser that a scraper started, in a session of its own."""
    async with Phone() as phone, rigged(tmp_path) as rig:
        rig.start("reports", f"research family {phone.port}")
        child, grandchild = await phone.caller("child"), await phone.caller("grandchild")
        os.kill(child.pid, signal.SIGKILL)
        assert (await rig.outcome()).verdict is Verdict.TEMPORARY
        await grandchild.hung_up()
        assert not rig.processes()
        assert folders(tmp_path) == []


CONFIG = """
    store = "queue.db"
    heartbeat_s = 0.2

    [hosts.reports]
    type = "researcher"
    python = "{python}"
    model = "m"
    url = "http://model.test/v1"
    env = {{ PYTHONPATH = "{packages}" }}
"""
DISPATCH = """
    import asyncio, sys
    import penstock

    async def main():
        async with penstock.open("penstock.toml") as p:
            if len(sys.argv) > 1:
                await p.submit(penstock.Task("gptr", sys.argv[1], id="t"))
            print((await p.wait("t")).value["text"])

    asyncio.run(main())
"""


async def test_a_run_whose_dispatcher_is_killed_ends_and_is_run_again(tmp_path: Path) -> None:
    """A9: kill -9 of the dispatcher; the next one finds no process, clears the folder and resumes."""
    packages = write_stand_ins(tmp_path / "packages")
    (tmp_path / "penstock.toml").write_text(
        textwrap.dedent(CONFIG).format(python=sys.executable, packages=packages)
    )
    (tmp_path / "dispatch.py").write_text(textwrap.dedent(DISPATCH))
    work = tmp_path / "queue.db.work" / "reports"

    def dispatch(*words: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "dispatch.py", *words]
        return subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, text=True)

    async with Phone() as phone:
        first = dispatch(f"research file; write ring {phone.port} me")
        run = await phone.caller("me")
        first.kill()
        first.communicate()
        await run.hung_up()  # nobody has looked for it: it dies with its dispatcher
        assert (work / "t.1" / "outputs" / "half.md").exists()
        second = dispatch()
        again = (await phone.callers(2))[1]
        assert [path.name for path in work.iterdir() if path.is_dir()] == ["t.2"]
        again.say("go on")
        assert second.communicate()[0] == "# Report\n"
    assert [path.name for path in work.iterdir() if path.is_dir()] == []
