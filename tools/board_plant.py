"""A plant at work, made up for pictures of the board: hosts that pretend, a run that is over, work that goes on.

Nothing here is measured: hosts are simulated, and models say what they are asked to. The run has a fault to be
found: one of its lanes may run one at a time beside free slots. The agent's container is real, where Podman is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from penstock.testing import ModelBehaviour, ModelServer
from tests.acceptance.containers import PYTHON_IMAGE, CannotRun, own_engine

PATIENCE_S = 90.0
RUN = "nightly-reports"
AGENT = "inspections"
QUESTION = "Should the reservoir be lowered before the spring melt?"
MEMBERS = {
    "GULLFAXI": "the direct thinker",
    "SVADILFARI": "the critic",
    "HEIMDALL": "keeps to what is measured",
    "RATATOSK": "looks for what others overlooked",
    "SKULD": "thinks of what comes after",
    "MIMIR": "remembers what was tried",
}
TITLES = (
    "Gauge readings of the upper basin",
    "Turbine inspection, unit 3",
    "Snow depth against inflow",
    "Complaints by letter, sorted",
    "Sediment in the forebay",
    "Tariffs of the neighbouring grid",
    "Fish ladder counts",
    "Maintenance notes, penstock B",
)

CONFIG = """
[hosts.surtr]
type = "simulated"
serves = ["reasoning"]
slots = 4
duration_s = 300
jitter = 0.6

[hosts.fenrir]
type = "simulated"
serves = ["summarize", "extract"]
slots = 4
duration_s = 1.2
jitter = 0.8
fail = {{ permanent = 0.05, temporary = 0.05 }}
seed = 3

[hosts.skadi]
type = "simulated"
serves = ["summarize"]
slots = 3
duration_s = 2.2
jitter = 0.7
seed = 5

[hosts.ymir]
type = "simulated"
serves = ["finetune", "embed"]
slots = 2
duration_s = 0.4
jitter = 0.5

[hosts.idun]
type = "simulated"
serves = ["scan"]
slots = 4
duration_s = 0.9
jitter = 0.3
seed = 7

[hosts.loki]
type = "simulated"
serves = ["convert"]
slots = 1
duration_s = 0.6
fail = "permanent"

[hosts.hel]
type = "openai"
url = "http://127.0.0.1:9/v1"
model = "vision-7b"
serves = ["vision"]
slots = 2
health_s = 5

[hosts.asgard]
type = "openai"
url = "{models_url}"
model = "sage-8b"
serves = ["chat"]
slots = 8

[lanes.chat]
reserve = {{ surtr = 1 }}

[lanes.reports]
max_running = 7

[lanes.bulk]
weight = 0.5

[lanes.archive]
max_running = 1

[gates.vram]
probe = "python:plant:free_gb"
min = 8
every_s = 2
holds = {{ kinds = ["finetune"] }}

[gates.reports-first]
lane = "reports"
max_running = 3
holds = {{ lanes = ["bulk"] }}

[retry]
retries = 1
base_s = 0.2

[councils.sages]
chair = {{ name = "NORN", model = "sage-8b" }}
{members}
"""
AGENT_CONFIG = """
[agents.{agent}]
image = "{image}"
path = "{agent}"
limits = {{ pids = 0 }}
"""
HANDLER = """
echo "reading the record of $1" >&2
printf '{"unit": "%s", "wear_mm": 0.4, "next": "in 9 months"}' "$1"
"""
PLANT = "def free_gb():\n    return 5.5\n"


@dataclass(frozen=True)
class Plant:
    url: str
    http: httpx.Client
    over: threading.Event
    question: str = ""  # a council has answered it

    def post(self, path: str, body: Any) -> Any:
        reply = self.http.post(path, json=body)
        if reply.is_error:
            raise SystemExit(f"{path}: {reply.status_code} {reply.text}")
        return reply.json()

    def tasks(self, **query: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.http.get("/api/tasks", params=query).json()["tasks"]
        return found

    def submit(self, run: str, *tasks: dict[str, Any]) -> list[str]:
        ids: list[str] = self.post("/api/tasks", {"run": run, "tasks": list(tasks)})["task_ids"]
        return ids

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end:
                raise SystemExit(f"{what} did not happen within {PATIENCE_S:g} seconds")
            self.over.wait(0.1)


def task(kind: str, place: int, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "payload": {"title": TITLES[place % len(TITLES)], "part": place}, **more}


def _ended_run(plant: Plant) -> None:
    first = plant.submit(RUN, *(task("embed", n, id=f"embed-{n}") for n in range(6)))
    plant.submit(
        RUN,
        *(task("summarize", n, lane="reports", priority=n % 4, after=first[n % 6]) for n in range(12)),
        *(task("extract", n, lane="bulk", priority=3) for n in range(8)),
        *(task("convert", n, retries=0) for n in range(2)),
        *(task("scan", n, lane="archive", id=f"scan-{n:02}") for n in range(14)),
    )
    plant.wait(lambda: not plant.tasks(run=RUN, state=["queued", "running"]), "the end of the run")


def _ask(plant: Plant) -> str:
    """The question's id, once it is answered."""
    asked = plant.post("/api/councils/sages/ask", {"query": QUESTION})
    ended = ("done", "failed", "cancelled")
    path = asked["links"]["self"]
    plant.wait(lambda: plant.http.get(path).json().get("state") in ended, "the council's answer")
    return str(asked["id"])


def _go_on(plant: Plant) -> None:
    """Until it is over there is always something that waits."""
    place = 0
    with httpx.Client(base_url=plant.url, timeout=PATIENCE_S) as http:
        mine = Plant(plant.url, http, plant.over)
        while not plant.over.wait(0.5):
            if len(mine.tasks(state="queued", kind="summarize")) < 30:
                work = [task("summarize", n, lane="reports", priority=n % 5) for n in range(place, place + 8)]
                work += [task("extract", n, lane="bulk", priority=3) for n in range(place, place + 2)]
                work += [task("embed", n) for n in range(place, place + 6)]
                work += [task("scan", place, lane="archive")]
                mine.submit("inbox", *work)
                place += 8


@contextmanager
def _agent(folder: Path, is_wanted: bool) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Its part of the config, and where its engine is; nothing of both where there is none."""
    with ExitStack() as stack:
        try:
            engine = stack.enter_context(own_engine(folder / "engine.users")) if is_wanted else None
        except CannotRun as reason:
            print(f"without an agent: {reason}", file=sys.stderr)
            engine = None
        if engine is None:
            yield "", {}
            return
        handlers = folder / AGENT / "handlers"
        handlers.mkdir(parents=True)
        (handlers / "inspect.sh").write_text(HANDLER)
        yield AGENT_CONFIG.format(agent=AGENT, image=PYTHON_IMAGE), engine.environ


def _call(plant: Plant) -> None:
    plant.post(f"/api/agents/{AGENT}/start", {})
    for unit in ("turbine 1", "turbine 2", "turbine 3"):
        plant.post(f"/api/agents/{AGENT}/call", {"command": "inspect", "params": [unit]})


@contextmanager
def at_work(folder: Path, *, has_agent: bool = False) -> Iterator[Plant]:
    behaviour = ModelBehaviour(models=("sage-8b",), talks=True, tokens=90, tokens_per_s=400)
    members = "".join(
        f'[[councils.sages.members]]\nname = "{name}"\nrole = "{role}"\nmodel = "sage-8b"\n'
        for name, role in MEMBERS.items()
    )
    (folder / "plant.py").write_text(PLANT)
    with ExitStack() as stack:
        models = stack.enter_context(ModelServer.in_thread(behaviour))
        agent, environ = stack.enter_context(_agent(folder, has_agent))
        config = CONFIG.format(models_url=models.url, members=members) + agent
        (folder / "penstock.toml").write_text(config)
        url = stack.enter_context(_serving(folder, environ))
        http = stack.enter_context(httpx.Client(base_url=url, timeout=PATIENCE_S))
        plant = Plant(url, http, threading.Event())
        if agent:
            _call(plant)
            stack.callback(lambda: plant.http.post(f"/api/agents/{AGENT}/stop", json={"now": True}))
        _ended_run(plant)
        plant = replace(plant, question=_ask(plant))
        plant.submit("research", *(task("reasoning", n, lane="chat", priority=1 + n % 3) for n in range(7)))
        plant.submit("research", *(task("finetune", n, priority=2) for n in range(2)))
        plant.submit("scans", *(task("vision", n, priority=3, lane="bulk") for n in range(3)))
        going = threading.Thread(target=_go_on, args=(plant,), name="made-up work")
        going.start()
        try:
            yield plant
        finally:
            plant.over.set()
            going.join()


@contextmanager
def _serving(folder: Path, environ: Mapping[str, str]) -> Iterator[str]:
    log = folder / "serve.log"
    with log.open("w") as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "serve", "--port", "0"],
            cwd=folder,
            stderr=told,
            env={**os.environ, **environ},
        )
        try:
            yield _url(process, log)
        finally:
            process.kill()  # what runs pretends to for minutes; nothing here is kept
            process.wait()


def _url(process: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        for line in log.read_text().splitlines():
            if found := re.search(r" ready .* at (http://\S+)", line):
                return found[1]
        time.sleep(0.05)
    raise SystemExit(f"the server did not start:\n{log.read_text()}")
