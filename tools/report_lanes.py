"""A report run with GPT-Researcher itself: standard and multi-agent reports beside a flood of file+prompt calls.

    python -m tools.report_lanes                    # both ways, as on the page "Run GPT-Researcher"
    python -m tools.report_lanes --svg docs/how-to  # and writes its pictures

All of them want the same model server, which serves four calls at a time. With lanes each family's calls are in a
lane of their own; without, all calls wait in one. The models are simulated, everything else is real.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median

import penstock
from penstock.client import Client
from penstock.model import State, TaskRecord
from penstock.store.base import TaskFilter
from penstock.testing import ModelBehaviour, ModelRequest, ModelServer

ROOT = Path(__file__).parent.parent
PYTHON = ROOT / ".venv-researcher" / "bin" / "python"
WRITER, VECTORS = "writer", "vectors"
RUN = "reports"
CALLS = f"v1-{RUN}"
QUERY = "How do rivers carry sand to the sea?"

_LIBRARY = {
    "rivers.txt": "Rivers carry sand and silt to the sea. The faster the water, the larger the grains it moves. ",
    "deltas.txt": "Where a river meets the sea it slows down and drops its load, and a delta grows there. ",
    "floods.txt": "In floods a river moves more sand in a week than in all the rest of the year. ",
}
_RESEARCH = """
[hosts.{name}]
type = "researcher"
slots = 15
serves = ["gptr", "ma"]
python = "{python}"
model = "writer"
embedding_model = "vectors"
report_source = "local"
documents = "library"
retriever_url = "{retriever_url}"
env = {{ MAX_ITERATIONS = "1", COMPRESSION_THRESHOLD = "100", SIMILARITY_THRESHOLD = "-1" }}
"""
_PLANT = """
store = "penstock.db"

[hosts.model]
type = "openai"
url = "{model_url}"
model = "writer"
models = ["vectors"]
serves = ["chat", "embedding"]
slots = 4

[hosts.prompts]
type = "file_prompt"
slots = 200
serves = ["fpf"]
root = "."
model = "writer"
"""
LANES = """
[lanes.gptr]
max_running = 11

[lanes.ma]
max_running = 4

[lanes.fpf]
max_running = 10

[lanes.calls]
weight = 4

[lanes.fpf-calls]

[gates.fpf-headroom]
lane = "fpf"
max_running = 10
holds = { lanes = ["gptr"] }
"""


# ---- what the models and the search engine say


def answer(request: ModelRequest) -> str:
    """What each step of GPT-Researcher needs; else a text, and a long one for file+prompt calls."""
    prompt = request.prompt
    if "agent_role_prompt" in prompt:
        return '{"server": "🌊 Water Agent", "agent_role_prompt": "You write plainly about rivers."}'
    if "outline of sections headers" in prompt:
        return '{"title": "Sand", "date": "01/01/2026", "sections": ["How sand moves", "Where it stays"]}'
    if '"table_of_contents"' in prompt:
        return json.dumps(
            {
                "table_of_contents": "- How sand moves\n- Where it stays",
                "introduction": "Rivers carry sand.",
                "conclusion": "The sea takes it.",
                "sources": ["- Rivers, 2020 [rivers.txt](rivers.txt)"],
            }
        )
    if "Format as 'Query: <query>'" in prompt:  # deep
        return "Query: how do rivers carry sand\nGoal: the way of a grain"
    if "starting with 'Question: '" in prompt:  # deep
        return "Question: Which grains move first?"
    if "Learning [source_url]" in prompt:  # deep
        return "Learning [rivers.txt]: fast water moves large grains\nQuestion: How large?"
    if "search queries to research the following task" in prompt:
        return '["how rivers carry sand", "where sand stays"]'
    if "Construct a list of subtopics" in prompt:
        return '{"subtopics": [{"task": "How sand moves"}, {"task": "Where it stays"}]}'
    words = 130 if "Summarise" in prompt else 20
    return "# Sand and rivers\n\n" + " ".join(["Sand", "moves"] * (words // 2)) + "."


class _Search(BaseHTTPRequestHandler):
    """The one thing that GPT-Researcher looks up also when it reads local documents."""

    wbufsize = -1

    def do_GET(self) -> None:
        found = [{"url": "http://127.0.0.1/rivers", "raw_content": _LIBRARY["rivers.txt"] * 3}]
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def search_engine() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Search)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# ---- the plant and its tasks


@dataclass(frozen=True)
class Workload:
    standard: int = 7
    teams: int = 4
    prompts: int = 48


def write_plant(
    folder: Path, model_url: str, retriever_url: str, *, lanes: bool, more: str = "", python: Path = PYTHON
) -> Path:
    """A folder with a config, documents and a prompt; returns the config."""
    (folder / "library").mkdir(parents=True, exist_ok=True)
    for name, text in _LIBRARY.items():
        (folder / "library" / name).write_text(text * 20)
    (folder / "prompt.md").write_text("Summarise the document.")
    text = _PLANT.format(model_url=model_url) + ('calls_lane = "fpf-calls"\n' if lanes else "")
    text += _RESEARCH.format(name="reports", python=python, retriever_url=retriever_url) + more
    (folder / "penstock.toml").write_text(text + (LANES if lanes else ""))
    return folder / "penstock.toml"


def tasks(workload: Workload, *, lanes: bool) -> list[penstock.Task]:
    """All at once. Runs take seconds before they first ask a model: by then the flood has filled the queue."""

    def lane(name: str) -> str:
        return name if lanes else "default"

    prompt = {"instructions": "prompt.md", "document": "library/rivers.txt"}
    return [
        *(penstock.Task("gptr", QUERY, lane=lane("gptr"), id=f"gptr-{n}") for n in range(workload.standard)),
        *(
            penstock.Task("ma", {"query": QUERY, "max_sections": 2}, lane=lane("ma"), id=f"ma-{n}")
            for n in range(workload.teams)
        ),
        *(penstock.Task("fpf", prompt, lane=lane("fpf"), id=f"fpf-{n:03}") for n in range(workload.prompts)),
    ]


def behaviour() -> ModelBehaviour:
    return ModelBehaviour(
        models=(WRITER, VECTORS), slots=4, first_token_s=0.05, tokens_per_s=20, answer=answer
    )


# ---- the figures


@dataclass(frozen=True)
class Figures:
    """Of one family, in seconds from the moment all was queued."""

    kind: str
    runs: int
    done: int
    last_start_s: float
    call_wait_s: float  # of the model calls of its runs, in the middle
    longest_call_wait_s: float
    median_end_s: float
    last_end_s: float


async def play(config: Path, workload: Workload, *, lanes: bool) -> list[Figures]:
    async with penstock.open(config) as client:
        run = await client.submit_many(tasks(workload, lanes=lanes), run=RUN)
        async for result in run.results():
            if result.error:
                print(f"{result.task_id}: {result.error}")
        return await figures(client)


async def figures(client: Client) -> list[Figures]:
    runs = await client.tasks(TaskFilter(run=RUN))
    waits = call_waits(await client.tasks(TaskFilter(run=CALLS)))
    queued_at = min(record.task.queued_at for record in runs)
    found = []
    for kind in ("gptr", "ma", "fpf"):
        own = [record for record in runs if record.task.kind == kind]
        if not own:
            continue
        waited = [wait_s for record in own for wait_s in waits.get(record.task.id, ())]
        ends = [(record.ended_at or queued_at) - queued_at for record in own]
        found.append(
            Figures(
                kind=kind,
                runs=len(own),
                done=sum(record.state is State.DONE for record in own),
                last_start_s=max((record.started_at or queued_at) - queued_at for record in own),
                call_wait_s=median(waited) if waited else 0.0,
                longest_call_wait_s=max(waited, default=0.0),
                median_end_s=median(ends),
                last_end_s=max(ends),
            )
        )
    return found


def call_waits(calls: list[TaskRecord]) -> dict[str, list[float]]:
    """How long model calls waited to start, by the task that made them."""
    found: dict[str, list[float]] = {}
    for call in calls:
        if call.started_at is not None:
            found.setdefault(maker_of(call), []).append(call.started_at - call.task.queued_at)
    return found


def maker_of(call: TaskRecord) -> str:
    caller: str = call.task.payload["caller"]
    return caller.removeprefix("task ")


HEAD = ("family", "runs", "done", "last start", "calls wait", "longest", "half done", "all done")


def row(one: Figures) -> tuple[str, ...]:
    times = (
        one.last_start_s,
        one.call_wait_s,
        one.longest_call_wait_s,
        one.median_end_s,
        one.last_end_s,
    )
    return (one.kind, str(one.runs), str(one.done), *(f"{seconds:.1f} s" for seconds in times))


def print_table(title: str, found: list[Figures]) -> None:
    rows = [HEAD, *map(row, found)]
    widths = [max(len(line[column]) for line in rows) for column in range(len(HEAD))]
    print(title)
    for line in rows:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def draw(config: Path, file: Path) -> None:
    command = [sys.executable, "-m", "penstock", "--config", str(config)]
    subprocess.run([*command, "timeline", RUN, "--svg", str(file)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--svg", type=Path, metavar="FOLDER", help="write the two timelines there")
    parser.add_argument("--standard", type=int, default=Workload.standard)
    parser.add_argument("--teams", type=int, default=Workload.teams)
    parser.add_argument("--prompts", type=int, default=Workload.prompts)
    given = parser.parse_args()
    workload = Workload(given.standard, given.teams, given.prompts)
    for lanes in (True, False):
        name = "lanes" if lanes else "no-lanes"
        with (
            tempfile.TemporaryDirectory() as folder,
            ModelServer.in_process(behaviour()) as model,
            search_engine() as search_url,
        ):
            config = write_plant(Path(folder), model.url, search_url, lanes=lanes)
            print_table(f"with {name.replace('-', ' ')}", asyncio.run(play(config, workload, lanes=lanes)))
            if given.svg is not None:
                draw(config, given.svg / f"researcher-{name}.svg")


if __name__ == "__main__":
    main()
