"""Stand-ins for the packages that a researcher's child imports, so that its every step can be tested in no time.

They do what the query says. The real packages are driven by tests/acceptance/test_researcher.py.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

from penstock.hosts.researcher import ResearcherAdapter
from penstock.model import Host

_FILES = {
    "langchain_core/callbacks.py": """
        from contextlib import contextmanager
        from types import SimpleNamespace

        @contextmanager
        def get_usage_metadata_callback():
            yield SimpleNamespace(usage_metadata={"m": {"input_tokens": 3, "output_tokens": 4}})
    """,
    "loguru/__init__.py": """
        class logger:
            sinks = []

            @classmethod
            def add(cls, sink, level):
                cls.sinks.append(sink)
    """,
    "acts.py": """
        import json, logging, os, socket, sys
        from pathlib import Path

        class Refused(Exception):
            status_code = 404

        def ring(port, name):
            with socket.create_connection(("127.0.0.1", int(port))) as line:
                line.sendall(json.dumps({"name": name, "pid": os.getpid()}).encode() + b"\\n")
                return line.makefile().readline().strip()

        def act(stage, query):
            for step in query.split("; "):
                word, *rest = step.split(" ")
                if word == stage:
                    do(*rest)

        def do(what, *words):
            if what == "ring":
                ring(words[0], words[1])
            elif what == "family":
                if os.fork() == 0:
                    os.setsid()
                    ring(words[0], "grandchild")
                    os._exit(0)
                ring(words[0], "child")
            elif what == "print":
                print(" ".join(words))
                os.write(1, b"written straight\\n")
            elif what == "file":
                Path("outputs").mkdir()
                Path("outputs/half.md").write_text("half")
            elif what == "warn":
                logging.getLogger("research").error(" ".join(words))
            elif what == "form":
                "".append(1)
            elif what == "refuse":
                try:
                    raise Refused("no model x")
                except Refused as error:
                    raise RuntimeError("Failed to get response") from error
            elif what == "die":
                os._exit(3)
            elif what == "tell":
                print(os.environ.get(words[0]), os.getcwd(), os.environ.get("HOME"))

        act("import", os.environ.get("AT_IMPORT", ""))
    """,
    "gpt_researcher/__init__.py": """
        import logging
        import acts

        logging.getLogger("gpt_researcher").warning("some retriever is not installed")

        class GPTResearcher:
            def __init__(self, query, report_type, report_source, tone, verbose, **arguments):
                self.query, self.arguments, self.context = query, arguments, []

            async def conduct_research(self):
                acts.act("research", self.query)
                self.context = [] if "nothing" in self.query else ["found"]

            async def write_report(self, custom_prompt=""):
                acts.act("write", self.query)
                return "# Report"

            def get_research_sources(self):
                return [{"url": "http://b"}, "odd"]

            def get_source_urls(self):
                return ["http://a"]

            def get_costs(self):
                return 0.5
    """,
    "gpt_researcher/utils/enum.py": """
        from enum import Enum

        class Tone(Enum):
            Objective = "Objective"
            Critical = "Critical"
    """,
    "multi_agents/agents.py": """
        import acts
        from loguru import logger

        class ChiefEditorAgent:
            def __init__(self, task, tone=None):
                self.task = task

            async def run_research_task(self):
                query = self.task["query"]
                acts.act("research", query)
                if "swallow" in query:
                    from types import SimpleNamespace
                    message = SimpleNamespace(record={"message": "Error code: 404 - no model"})
                    for sink in logger.sinks:
                        sink(message)
                    None.get("title")
                lost = None if "lost" in query else "text"
                return {"report": "# Team", "sections": ["One"], "research_data": [{"One": lost}],
                        "sources": ["- a"]}
    """,
    "backend/report_type.py": """
        from gpt_researcher import GPTResearcher

        class DetailedReport:
            def __init__(self, query, report_type, report_source, tone, **arguments):
                self.gpt_researcher = GPTResearcher(query, report_type, report_source, tone, True)
                self.existing_headers = []

            async def run(self):
                await self.gpt_researcher.conduct_research()
                if "plain" not in self.gpt_researcher.query:
                    self.existing_headers.append("one")
                return "# Detailed"
    """,
}


def write_stand_ins(folder: Path) -> Path:
    for name, text in _FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        if path.parent != folder:  # a folder without one gives way to a package that is installed
            (path.parent / "__init__.py").touch()
    return folder


def stand_in_host(tmp_path: Path, **options: Any) -> Host:
    packages = write_stand_ins(tmp_path / "packages")
    env = {"PYTHONPATH": str(packages), **options.pop("env", {})}
    given = {"python": sys.executable, "url": "http://model.test/v1", "work_dir": str(tmp_path / "work")}
    return Host("reports", "researcher", 4, model="m", options={**given, "env": env, **options})


def stand_in(tmp_path: Path, **options: Any) -> ResearcherAdapter:
    return ResearcherAdapter(stand_in_host(tmp_path, **options))
