"""B5: how `watch` ends, and that it works beside another dispatcher: real processes, tasks that wait for a pipe."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_cli_processes import Folder, line_with, rest


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Folder]:
    made = Folder(tmp_path)
    (tmp_path / "inbox" / "requests").mkdir(parents=True)
    (tmp_path / "inbox" / "urgent").mkdir()
    yield made
    for process in made.processes:
        if process.returncode is None:
            process.kill()
            await process.wait()


def ask(folder: Folder, *names: str) -> None:
    for name in names:
        os.mkfifo(folder.path / name)
        body = {"command": "read", "params": {"pipe": str(folder.path / name)}}
        hidden = folder.path / "inbox" / "requests" / f".{name}"
        hidden.write_text(json.dumps(body))
        hidden.rename(folder.path / "inbox" / "requests" / name)


def files(folder: Folder, name: str) -> list[str]:
    return sorted(path.name for path in (folder.path / "inbox" / name).iterdir())


def read(folder: Folder, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((folder.path / "inbox" / name).read_text())
    return answer


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
async def test_b5_a_signal_finishes_what_runs_and_leaves_the_rest(
    folder: Folder, number: int, status: int
) -> None:
    ask(folder, "one", "two")
    process = await folder.start("watch", "inbox")
    pipe = await folder.started("one")
    process.send_signal(number)
    await line_with(process.stderr, "finishing what runs, taking in nothing more; Ctrl-C again puts it back")
    os.write(pipe, b"hello")
    os.close(pipe)
    code, _, err = await rest(process)
    assert code == status
    assert "stopped; 1 answered; 1 request left for the next time" in err
    assert (files(folder, "responses"), files(folder, "requests")) == (["one"], ["two"])
    assert read(folder, "responses/one")["value"] == "hello"
    # The next one goes on with it.
    process = await folder.start("watch", "inbox", "--once", "--json")
    await folder.finish("two")
    code, out, _ = await rest(process)
    assert (code, json.loads(out)["attempts"]) == (0, 1)
    assert (files(folder, "responses"), files(folder, "requests")) == (["one", "two"], [])


async def test_b5_a_second_signal_puts_back_what_runs(folder: Folder) -> None:
    ask(folder, "one")
    process = await folder.start("watch", "inbox")
    pipe = await folder.started("one")
    process.send_signal(signal.SIGTERM)
    await line_with(process.stderr, "finishing what runs")
    process.send_signal(signal.SIGTERM)
    await line_with(process.stderr, "putting back what runs")
    assert (await rest(process))[0] == 0
    os.close(pipe)
    assert (files(folder, "responses"), files(folder, "errors"), files(folder, "requests")) == (
        [],
        [],
        ["one"],
    )
    process = await folder.start("watch", "inbox", "--once")
    await folder.finish("one")
    assert (await rest(process))[0] == 0
    assert files(folder, "responses") == ["one"]


async def test_b5_another_dispatcher_does_the_work_and_urgent_stops_it_there(folder: Folder) -> None:
    working = await folder.start("work")
    await line_with(working.stderr, "ready")
    process = await folder.start("watch", "inbox", "--json")
    ask(folder, "one", "two")
    await folder.finish("one")
    assert process.stdout is not None
    assert json.loads(await process.stdout.readline())["value"] == "read"
    pipe = await folder.started("two")
    (folder.path / "inbox" / "urgent" / "two").touch()
    body = json.loads(await process.stdout.readline())
    os.close(pipe)
    assert (body["id"], body["state"], body["attempts"]) == ("two", "cancelled", 1)
    assert read(folder, "errors/two") == body
    await line_with(working.stderr, "cancelled ")
    process.send_signal(signal.SIGTERM)
    assert (await rest(process))[0] == 0
    assert working.returncode is None
    assert (files(folder, "urgent"), files(folder, "done")) == ([], ["one", "two"])


async def test_b5_killed_while_a_task_runs_it_runs_again_and_is_answered_once(folder: Folder) -> None:
    ask(folder, "one")
    process = await folder.start("watch", "inbox")
    pipe = await folder.started("one")
    await line_with(process.stderr, "1 waiting or running")
    process.kill()
    await process.wait()
    process = await folder.start("watch", "inbox", "--once", "--json")
    await line_with(process.stderr, "processes that it had left behind were killed")
    os.close(pipe)
    await folder.finish("one")
    code, out, _ = await rest(process)
    assert code == 0
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["one"]
    assert len(await folder.states()) == 1
