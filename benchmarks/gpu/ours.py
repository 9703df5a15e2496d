"""Penstock's way: a store on the disk, the dispatcher, one `openai` host, and for questions a council."""

from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import penstock
from benchmarks.gpu.workloads import MIX, Call
from penstock.client import Client
from penstock.config.councils import Council
from penstock.config.document import read_document
from penstock.store.base import TaskFilter

MEMBERS = 6
MEMBER_TOKENS, CHAIR_TOKENS = 128, 160


def config_text(url: str, model: str, slots: str, context_tokens: int) -> str:
    """`slots` as TOML has it: a number, or a table for slots that tune themselves."""
    kinds = ", ".join(f'"{kind}"' for kind in MIX)
    lines = [
        "[hosts.gpu]",
        'type = "openai"',
        f'url = "{url}"',
        f'model = "{model}"',
        f"slots = {slots}",
        f"serves = [{kinds}]",
        "[councils.six]",
        f'chair = {{ name = "chair", max_tokens = {CHAIR_TOKENS}, context_tokens = {context_tokens} }}',
        "slots = 64",
    ]
    for number in range(MEMBERS):
        lines += [
            "[[councils.six.members]]",
            f'name = "member{number}"',
            'role = "one of six"',
            f"max_tokens = {MEMBER_TOKENS}",
            f"context_tokens = {context_tokens}",
        ]
    return "\n".join(lines) + "\n"


def council_of(url: str, model: str, context_tokens: int) -> Council:
    """As Penstock reads it."""
    return read_document(tomllib.loads(config_text(url, model, "1", context_tokens))).councils["six"]


@asynccontextmanager
async def opened(folder: Path, text: str) -> AsyncIterator[Client]:
    """With its dispatcher at work already."""
    path = folder / "penstock.toml"
    path.write_text(text)
    async with penstock.open(path) as client:
        warm = await client.submit_many([penstock.Task("classify", _payload(Call("classify", _HELLO, 1)))])
        await warm.wait()
        yield client


async def mixed(client: Client, calls: Sequence[Call]) -> int:
    run = await client.submit_many([penstock.Task(call.kind, _payload(call)) for call in calls])
    return sum([_tokens(record.value, record.error) async for record in run.records()])


async def council(client: Client, queries: Sequence[str]) -> int:
    run = await client.submit_many([penstock.Task("council-six", {"query": query}) for query in queries])
    made = 0
    async for record in run.records():
        if not record.value or record.value["synthesis"]["method"] != "synthesis":
            raise RuntimeError(
                f"a question was not answered by all and summed up: {record.error or record.value}"
            )
    steps = await client.tasks(TaskFilter(run=run.name, kind="chat"))
    for step in steps:
        made += _tokens(step.value, step.error)
    return made


_HELLO = [{"role": "user", "content": "hello"}]


def _payload(call: Call) -> dict[str, Any]:
    return {"messages": call.messages, "max_tokens": call.max_tokens}


def _tokens(value: Any, error: str | None) -> int:
    if not isinstance(value, dict) or "usage" not in value:
        raise RuntimeError(f"a task was not done: {error}")
    return int(value["usage"]["completion_tokens"])
