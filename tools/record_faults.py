"""Really runs programs with a fault and writes down what they started and ended when: the data of examples/records.

python -m tools.record_faults thread-per-kind > thread-per-kind.csv
python -m tools.record_faults one-at-a-time-server > one-at-a-time-server.jsonl
python -m tools.record_faults blocking-handler > blocking-handler.csv
python -m tools.record_faults host-down > host-down.jsonl
"""

from __future__ import annotations

import asyncio
import csv
import json
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import aiohttp

from penstock.compare.legacy import run_legacy
from penstock.compare.workloads import SIX
from penstock.testing import ModelBehaviour, ModelServer

Row = Mapping[str, Any]


# ---- one thread per kind


def thread_per_kind() -> list[Row]:
    """Six tasks on seven slots, a thread for each kind; fifty times as fast as its seconds say."""
    kinds = {task.id: task.kind for task in SIX.tasks}
    return [
        {
            "id": span.task,
            "kind": kinds[span.task],
            "host": span.host,
            "created": "0.000",
            "started": f"{span.started:.3f}",
            "finished": f"{span.ended:.3f}",
        }
        for span in sorted(run_legacy(SIX, 0.02), key=lambda span: span.started)
    ]


# ---- a council before a server that takes one call at a time

MEMBERS = ("goku", "vegeta", "piccolo", "bulma", "gohan", "krillin")


async def one_at_a_time_server() -> list[Row]:
    """Questions to six members, each a call to the same server, and some that one member answers alone."""
    rows: list[Row] = []

    async def ask(session: aiohttp.ClientSession, url: str, question: int, member: str) -> None:
        created = started = time.time()
        body = {"model": "simulated", "messages": [{"role": "user", "content": f"{member}: {question}"}]}
        async with session.post(f"{url}/chat/completions", json=body) as reply:
            answer = await reply.json()
        rows.append(
            {
                "request_id": f"q{question}-{member}",
                "type": "answer",
                "server": "lmstudio",
                "model": body["model"],
                "created": _iso(created),
                "startedAt": _iso(started),
                "finishedAt": _iso(time.time()),
                "success": bool(answer["choices"]),
            }
        )

    behaviour = ModelBehaviour(
        style="lmstudio", slots=1, first_token_s=0.05, tokens_per_s=200, tokens=40, jitter=0.1
    )
    async with aiohttp.ClientSession() as session:
        with ModelServer.in_process(behaviour) as server:
            for question, members in enumerate(
                (MEMBERS, MEMBERS[:1], MEMBERS, MEMBERS[:3], MEMBERS[:1], MEMBERS), 1
            ):
                async with asyncio.TaskGroup() as group:
                    for member in members:
                        group.create_task(ask(session, server.url, question, member))
    return sorted(rows, key=lambda row: str(row["startedAt"]))


def _iso(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03}Z"


# ---- an async handler that blocks

SLOTS = {"surtr": 2, "fenrir": 3, "skadi": 2}
HOSTS = {"reasoning": "surtr", "coding": "fenrir", "vision": "skadi"}
ANSWER_S = {"reasoning": 0.4, "coding": 0.8, "vision": 0.3}


class Dispatcher:
    """A queue over three hosts on one event loop, with a semaphore per host.

    Two of its handlers wait for their server as they should. That for coding calls `urlopen`, which does not
    give the loop back before the answer is there.
    """

    def __init__(self, urls: Mapping[str, str], session: aiohttp.ClientSession) -> None:
        self._urls = urls
        self._session = session
        self._slots = {host: asyncio.Semaphore(slots) for host, slots in SLOTS.items()}
        self._began = time.time()
        self.rows: list[Row] = []

    def since(self) -> str:
        return f"{time.time() - self._began:.3f}"

    async def handle(self, issue: str, kind: str, created: str) -> None:
        host = HOSTS[kind]
        async with self._slots[host]:
            started = self.since()
            handler: Callable[[str], Awaitable[None]] = self._blocking if kind == "coding" else self._waiting
            await handler(host)
            self.rows.append(
                {
                    "issue": issue,
                    "queue": kind,
                    "worker": host,
                    "created": created,
                    "started": started,
                    "ended": self.since(),
                }
            )

    async def _waiting(self, host: str) -> None:
        async with self._session.post(f"{self._urls[host]}/chat/completions", json=_body(host)) as reply:
            await reply.read()

    async def _blocking(self, host: str) -> None:
        request = Request(  # noqa: S310 - ours, on loopback
            f"{self._urls[host]}/chat/completions",
            json.dumps(_body(host)).encode(),
            {"Content-Type": "application/json"},
        )
        with urlopen(request) as reply:  # noqa: ASYNC210, S310 - that it blocks is what is shown
            reply.read()


def _body(host: str) -> Row:
    return {"model": "simulated", "messages": [{"role": "user", "content": host}]}


async def blocking_handler() -> list[Row]:
    """Issues that come from outside: now and then three for coding at once, the others one by one."""
    with ExitStack() as servers:
        urls = {}
        for kind, host in HOSTS.items():
            behaviour = ModelBehaviour(slots=SLOTS[host], first_token_s=ANSWER_S[kind], jitter=0.2)
            urls[host] = servers.enter_context(ModelServer.in_process(behaviour)).url
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            dispatcher = Dispatcher(urls, session)
            await asyncio.to_thread(write_issues, dispatcher, asyncio.get_running_loop(), group)
    return sorted(dispatcher.rows, key=lambda row: float(row["started"]))


def write_issues(dispatcher: Dispatcher, loop: asyncio.AbstractEventLoop, group: asyncio.TaskGroup) -> None:
    pause = threading.Event()
    counts: Counter[str] = Counter()
    for kind in (*("coding",) * 3, *("reasoning", "vision") * 8) * 3:
        counts[kind] += 1
        issue = f"{kind}-{counts[kind]}"
        loop.call_soon_threadsafe(_take, group, dispatcher.handle(issue, kind, dispatcher.since()))
        pause.wait(0.0 if kind == "coding" else 0.25)


def _take(group: asyncio.TaskGroup, handling: Coroutine[Any, Any, None]) -> None:
    group.create_task(handling)


# ---- a gate that never opens

GATED = """
[hosts.fenrir]
type = "simulated"
slots = 2
duration_s = 0.5

[lanes.night]

[gates.idle-machine]
probe = "psutil:cpu_percent"
max = 0
every_s = 0.1
holds = { lanes = ["night"] }
"""


async def stuck_gate() -> list[Row]:
    """A run of our own whose nightly tasks wait for a machine that does nothing at all, and are given up."""
    import penstock

    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "penstock.toml"
        config.write_text(GATED)
        async with penstock.open(config) as client:
            day = [penstock.Task("summarize", id=f"day-{n}") for n in range(1, 17)]
            night = [penstock.Task("summarize", lane="night", id=f"night-{n}") for n in range(1, 5)]
            run = await client.submit_many([*night, *day], run="nightly")
            for task in day:
                await client.wait(task.id)
            await client.cancel(*(task.id for task in night))
            await run.wait()
            lines: list[Row] = [line async for line in client.export_run(run.name)]
    return _nobodys(lines)


# ---- a server that is away

AWAY_S = 6.0
AWAY = """
[hosts.fenrir]
type = "simulated"
serves = ["summarize"]
slots = 2
duration_s = 0.5

[hosts.skadi]
type = "openai"
url = "http://127.0.0.1:{port}/v1"
model = "simulated"
health_s = 0.5
"""


async def host_down() -> list[Row]:
    """A run of our own that has half of its work done before somebody starts the server of the other half."""
    import penstock

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
        config = Path(folder) / "penstock.toml"
        config.write_text(AWAY.format(port=port))
        async with penstock.open(config) as client:
            chats = [penstock.Task("chat", {"prompt": f"question {n}"}, id=f"chat-{n}") for n in range(1, 5)]
            others = [penstock.Task("summarize", id=f"summary-{n}") for n in range(1, 9)]
            run = await client.submit_many([*chats, *others], run="briefing")
            await asyncio.sleep(AWAY_S)
            behaviour = ModelBehaviour(slots=2, first_token_s=0.4, tokens=20)
            await asyncio.to_thread(servers.enter_context, ModelServer.in_process(behaviour, port=port))
            await run.wait()
            lines: list[Row] = [line async for line in client.export_run(run.name)]
    return _nobodys(lines)


def _nobodys(lines: list[Row]) -> list[Row]:
    for line in lines:
        if "epoch" in line:  # who ran it is nobody's business
            line["epoch"]["owner"] |= {"pid": 1, "machine": "lab"}
    return lines


# ---- writing


def write_csv(rows: Iterable[Row]) -> None:
    rows = list(rows)
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def write_jsonl(rows: Iterable[Row]) -> None:
    for row in rows:
        sys.stdout.write(json.dumps(row) + "\n")


def main(name: str) -> None:
    if name == "thread-per-kind":
        write_csv(thread_per_kind())
    elif name == "one-at-a-time-server":
        write_jsonl(asyncio.run(one_at_a_time_server()))
    elif name == "stuck-gate":
        write_jsonl(asyncio.run(stuck_gate()))
    elif name == "host-down":
        write_jsonl(asyncio.run(host_down()))
    elif name == "blocking-handler":
        write_csv(asyncio.run(blocking_handler()))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) == 2 else "")
