"""One run of GPT-Researcher as a process of its own, for researcher.py, which runs this file as a program.

It is run by the interpreter that has `gpt_researcher`, so it imports nothing of Penstock. The order comes as JSON
on stdin, settings come in the environment, as the package wants them. The answer is JSON on the first stdout;
whatever the package prints goes to stderr, which is the log. It dies with whoever started it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import re
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

_SET_PARENT_DEATH_SIGNAL = 1  # of prctl(2)
_NOTES = 3  # of what the package complained about, the latest
_NOTE_CHARS = 500
_CAUSES = 8
_OPTIONAL = "gpt_researcher.retrievers.mcp"  # it says at each look that MCP is not installed
_READABLE = {"pdf", "txt", "doc", "docx", "pptx", "csv", "xls", "xlsx", "md", "html", "htm"}
_EXIT_FAILED = 1


class NoContext(Exception):
    """The package went on without anything to write from."""


class Notes(logging.Handler):
    """What the package complained about: it swallows errors, and goes on without what it could not get."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.latest: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith(_OPTIONAL):
            self.note(record.getMessage())

    def forget(self) -> None:
        """What is missing at import is only amiss where it is used."""
        self.latest = []

    def note(self, text: str) -> None:
        self.latest = [*self.latest, " ".join(str(text).split())[:_NOTE_CHARS]][-_NOTES:]


def main() -> int:
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as answer:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a pipe would be told in blocks
        order = json.loads(sys.stdin.buffer.read())
        _end_with(order["parent"])
        notes = _listen()
        try:
            told = {"result": asyncio.run(_run(order, notes))}
        except Exception as error:  # noqa: BLE001 - this runs the attempt, and so its failure is told
            traceback.print_exc()
            told = {"failure": _failure(error, notes)}
        json.dump(told, answer)
    sys.stdout.flush()
    # Threads of libraries, and their clean-up, would keep a run that has told its result.
    os._exit(0 if "result" in told else _EXIT_FAILED)


def _end_with(parent: int) -> None:
    """Whatever happens to the dispatcher, its runs do not go on without it."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_EXIT_FAILED)


def _listen() -> Notes:
    notes = Notes()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger().addHandler(notes)
    # Counting tokens must not fetch a table from the internet: litellm carries those it needs.
    litellm = importlib.util.find_spec("litellm")
    if litellm is not None and litellm.origin is not None and "TIKTOKEN_CACHE_DIR" not in os.environ:
        tokenizers = Path(litellm.origin).parent / "litellm_core_utils" / "tokenizers"
        if tokenizers.is_dir():
            os.environ["TIKTOKEN_CACHE_DIR"] = str(tokenizers)
    return notes


async def _run(order: dict[str, Any], notes: Notes) -> dict[str, Any]:
    from langchain_core.callbacks import get_usage_metadata_callback

    run = {"multi_agent": _multi_agent, "detailed_report": _detailed}.get(order["report_type"], _standard)
    with get_usage_metadata_callback() as usage:
        result = await run(order, notes)
    result["report_type"] = order["report_type"]
    result["usage"] = {
        model: {"input": used["input_tokens"], "output": used["output_tokens"]}
        for model, used in usage.usage_metadata.items()
    }
    if order["report_source"] in ("local", "hybrid"):
        result["documents"] = _documents(os.environ.get("DOC_PATH", ""))
    return result


async def _standard(order: dict[str, Any], notes: Notes) -> dict[str, Any]:
    from gpt_researcher import GPTResearcher

    tone = _tone(order["tone"])
    notes.forget()
    researcher = GPTResearcher(
        query=order["query"],
        report_type=order["report_type"],
        report_source=order["report_source"],
        tone=tone,
        verbose=True,
        **order["arguments"],
    )
    await researcher.conduct_research()
    _check_context(researcher, order)
    report = await researcher.write_report(custom_prompt=order["custom_prompt"])
    return _told(report, researcher)


async def _detailed(order: dict[str, Any], notes: Notes) -> dict[str, Any]:
    from backend.report_type import DetailedReport

    tone = _tone(order["tone"])
    notes.forget()
    detailed = DetailedReport(
        query=order["query"],
        report_type=order["report_type"],
        report_source=order["report_source"],
        tone=tone,
        **order["arguments"],
    )
    report = await detailed.run()
    _check_context(detailed.gpt_researcher, order)
    if not detailed.existing_headers:
        raise NoContext("no subtopic of the query was written about")
    return _told(report, detailed.gpt_researcher)


async def _multi_agent(order: dict[str, Any], notes: Notes) -> dict[str, Any]:
    from loguru import logger
    from multi_agents.agents import ChiefEditorAgent

    tone = _tone(order["tone"])
    notes.forget()
    logger.add(lambda message: notes.note(message.record["message"]), level="WARNING")
    team = order["team"]
    task = {
        "query": order["query"],
        "source": order["report_source"],
        "model": os.environ["SMART_LLM"].partition(":")[2],
        "max_sections": team["max_sections"],
        "guidelines": team["guidelines"],
        "follow_guidelines": team["follow_guidelines"],
        "publish_formats": {"markdown": False, "pdf": False, "docx": False},  # the report is the result
        "include_human_feedback": False,  # nobody is there to give any
        "verbose": True,
    }
    state = await ChiefEditorAgent(task, tone=tone).run_research_task()
    for section in state.get("research_data") or ():
        lost = [name for name, text in section.items() if not text] if isinstance(section, dict) else []
        if lost:
            raise NoContext(f"the research of section {lost[0]!r} failed")
    sources = [str(source) for source in state.get("sources") or ()]
    return {"text": state["report"], "sources": sources, "costs": None, "sections": state.get("sections")}


def _check_context(researcher: Any, order: dict[str, Any]) -> None:
    if order["require_context"] and not researcher.context:
        raise NoContext("nothing was found to write from")


def _told(report: str, researcher: Any) -> dict[str, Any]:
    if not report:
        raise NoContext("the report is empty")
    found = [source.get("url") for source in researcher.get_research_sources() if isinstance(source, dict)]
    sources = [*researcher.get_source_urls(), *(url for url in found if url)]
    costs = researcher.get_costs()
    return {"text": report, "sources": sorted(set(map(str, sources))), "costs": round(costs, 6)}


def _tone(name: str | None) -> Any:
    from gpt_researcher.utils.enum import Tone

    if name is None:
        return Tone.Objective
    found = {tone.name.lower(): tone for tone in Tone}.get(name.lower())
    if found is None:
        known = ", ".join(sorted(tone.name.lower() for tone in Tone))
        raise ValueError(f"tone: there is no {name!r}; one of {known}")
    return found


def _documents(folder: str) -> list[str]:
    """The files that the package reads there."""
    files = (path for path in Path(folder).rglob("*") if path.is_file())
    return sorted(
        str(path.relative_to(folder)) for path in files if path.suffix.lower().lstrip(".") in _READABLE
    )


def _failure(error: BaseException, notes: Notes) -> dict[str, Any]:
    """What the parent judges the failure by: the exceptions from the outermost to their first cause."""
    chain: list[BaseException] = []
    step: BaseException | None = error
    while step is not None and step not in chain and len(chain) < _CAUSES:
        chain.append(step)
        step = step.__cause__ or step.__context__
    told = [getattr(one, "status_code", None) for one in chain]
    status = next((code for code in told if isinstance(code, int)), 0)
    if not status:  # swallowed by the package, but told
        codes = [found[1] for note in notes.latest if (found := re.search(r"Error code: (\d{3})", note))]
        status = int(codes[-1]) if codes else 0
    return {
        "types": [f"{type(one).__module__}.{type(one).__qualname__}" for one in chain],
        "texts": [" ".join(str(one).split())[:_NOTE_CHARS] for one in chain],
        "missing": error.name if isinstance(error, ModuleNotFoundError) else None,
        "status": status,
        "notes": notes.latest,
    }


if __name__ == "__main__":
    main()
