"""D7, D9: model servers that die or hang in mid-question, as real processes: it ends in words, the next works."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.testing import ModelServer, ServerProcess
from tests.acceptance.council_rig import Asker, asking, council, hosts, models
from tests.acceptance.serve_rig import Serve, serving, until

SOON = "[server]\ndown_patience_s = 0.3\n[retry]\nbase_s = 0.01\n"
NAMES = ("a", "b", "c")
TIMEOUT_S = 3.0


def calls(server: ServerProcess) -> int:
    return int(server.counts()["in_flight"])


async def in_mid_call(server: ServerProcess, count: int) -> None:
    await asyncio.to_thread(until, lambda: calls(server) == count, lambda: str(server.counts()))


async def at_rest(serve: Serve) -> None:
    """Nothing of a question that is over runs or waits."""
    await asyncio.to_thread(
        until, lambda: serve.running() == serve.queued() == 0, lambda: f"{serve.running()}, {serve.queued()}"
    )
    live = [one for one in serve.tasks() if one["state"] in ("queued", "running")]
    assert not live, live


async def answered(asker: Asker) -> dict[str, Any]:
    end = await asker.ask()
    assert end["event"] == "done", end
    record: dict[str, Any] = end["record"]
    assert record["success_count"] == len(record["responses"]), record["responses"]
    return record


@contextmanager
def served(*names: str, port: int = 0) -> Iterator[ServerProcess]:
    """Each answer takes about a second, word by word."""
    with ModelServer.in_process(models(*names, tokens_per_s=14), port=port) as server:
        yield server


async def test_d7_a_killed_server_fails_the_question_in_words_and_the_next_works(tmp_path: Path) -> None:
    with served(*NAMES, "chair") as server:
        port = int(server.root_url.rpartition(":")[2])
        config = (
            SOON + hosts(**dict.fromkeys((*NAMES, "chair"), server.url)) + council(NAMES, timeout_s=TIMEOUT_S)
        )
        with serving(tmp_path, config) as serve:
            async with asking(serve) as asker, asyncio.TaskGroup() as group:
                question = group.create_task(asker.ask())
                await in_mid_call(server, 3)
                os.kill(server.pid, signal.SIGKILL)
                end = await question
                assert end["event"] == "failed"
                assert end["error"].startswith("nobody answered: ")
                for one in end["record"]["responses"]:
                    assert one["state"] == "failed"
                    assert one["error"]
                await at_rest(serve)
                with served(*NAMES, "chair", port=port):
                    await answered(asker)
                    await at_rest(serve)


async def test_d7_a_server_that_hangs_is_given_up_after_the_time_out_and_the_next_works(
    tmp_path: Path,
) -> None:
    """Stopped by a signal: its sockets are open, and nothing comes."""
    with served(*NAMES, "chair") as server:
        config = (
            SOON + hosts(**dict.fromkeys((*NAMES, "chair"), server.url)) + council(NAMES, timeout_s=TIMEOUT_S)
        )
        with serving(tmp_path, config) as serve:
            async with asking(serve) as asker, asyncio.TaskGroup() as group:
                question = group.create_task(asker.ask())
                await in_mid_call(server, 3)
                os.kill(server.pid, signal.SIGSTOP)
                try:
                    end = await question
                    await at_rest(serve)
                finally:
                    os.kill(server.pid, signal.SIGCONT)
                assert end["event"] == "failed", end
                for one in end["record"]["responses"]:
                    assert one["state"] == "failed"
                    assert one["error"], one
                await answered(asker)
                await at_rest(serve)


async def test_d9_servers_that_die_take_only_their_own_part_with_them(tmp_path: Path) -> None:
    """That of a member while it answers, then the chair's while it sums up: another sums up what there is."""
    with served("a") as first, served("b", "c") as second, served("chair") as third:
        urls = {"a": first.url, "b": second.url, "c": second.url, "chair": third.url}
        config = SOON + hosts(**urls) + council(NAMES, timeout_s=60)
        with serving(tmp_path, config) as serve:
            async with asking(serve) as asker, asyncio.TaskGroup() as group:
                question = group.create_task(asker.ask())
                await in_mid_call(first, 1)
                os.kill(first.pid, signal.SIGKILL)
                await in_mid_call(third, 1)
                os.kill(third.pid, signal.SIGKILL)
                end = await question
            await at_rest(serve)
    record = end["record"]
    assert end["event"] == "done", end
    assert [one["state"] for one in record["responses"]] == ["failed", "answered", "answered"]
    assert record["responses"][0]["error"]
    synthesis = record["synthesis"]
    assert (synthesis["by"], synthesis["method"]) == ("B", "synthesis")
    (passed_on,) = synthesis["passed_on"]
    assert passed_on["name"] == "CHAIR"
    assert passed_on["error"]


BROKEN = """
import sys

if "library_child" in str(sys.orig_argv):
    sys.exit("a broken install")
"""


async def test_d7_a_library_that_cannot_start_holds_no_question_up_and_is_told(tmp_path: Path) -> None:
    """The members answer without passages, and their agreement is not assumed."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(BROKEN)
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    with ModelServer.in_thread(models(*NAMES, "chair")) as server:
        retrieval = 'retrieval = { collection = "knowledge" }'
        config = SOON + hosts(**dict.fromkeys((*NAMES, "chair"), server.url)) + council(NAMES, more=retrieval)
        with serving(tmp_path, config, env={"PYTHONPATH": path}) as serve:
            async with asking(serve) as asker:
                record = await answered(asker)
            await at_rest(serve)
    assert record["synthesis"]["method"] == "synthesis"
    assert "a broken install" in record["retrieval"]["problem"]
    assert (record["agreement"]["measured"], record["agreement"]["score"]) == (False, None)
    assert record["agreement"]["why"]
