"""The last act of the demo: a question for a real model, through a real dispatcher.

Nothing pretends here: the seconds are real ones. A machine without the model is told how to get it, and that
is no failure.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import penstock.client
from penstock.config.keys import PACKAGED_MODEL
from penstock.demo.figures import Check, Scene
from penstock.demo.stage import write_config
from penstock.hosts.gguf import find
from penstock.model import Host, Plant, Result, Task

NAME = "question"
TITLE = "A question for a real model"
ABOUT = (
    "Nothing is simulated in this one: a `local` host runs llama.cpp's own server with SmolLM2, a tiny model of "
    "135 million parameters, on one thread. It writes fluently and knows little: take no answer of it for true."
)
QUESTION = "What is a queue? Answer in one sentence."

_PATIENCE_S = 60.0
_CHECK = "a real model answered"


async def ask_model(folder: Path) -> Scene:
    """The scene of the question, or of what is missing for it."""
    _, missing = find(None)
    if missing is not None:
        return Scene(
            NAME, TITLE, 0, 0.0, facts={"missing": missing}, lines=(f"Not on this machine: {missing}",)
        )
    host = Host("small", "local", model=PACKAGED_MODEL)
    path = write_config(folder / NAME, Plant(hosts=(host,)))
    # The first task is there to start the server, so that the second is timed without it.
    first = Task("chat", {"prompt": "Hi", "max_tokens": 1}, id="hello")
    asked = Task("chat", {"prompt": QUESTION, "max_tokens": 60, "temperature": 0}, id="question")
    async with penstock.client.open(path) as client:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                started = await client.wait(await client.submit(first))
                answered = await client.wait(await client.submit(asked))
        except TimeoutError:
            attempts = await client.attempts(first.id)
            said = next((a.error for a in reversed(attempts) if a.error), None)
            return _failed(said or f"no answer within {_PATIENCE_S:g} s")
    return _scene(started, answered)


def _failed(why: str) -> Scene:
    return Scene(NAME, TITLE, 1, 0.0, checks=(Check(_CHECK, False, why),))


def _scene(started: Result, answered: Result) -> Scene:
    value: dict[str, Any] = answered.value if isinstance(answered.value, dict) else {}
    text = str(value.get("text") or "").strip()
    if not (started.ok and answered.ok and text):
        return _failed(started.error or answered.error or "its answer is empty")
    took_s = _took_s(answered)
    tokens = int(value["usage"]["completion_tokens"])
    facts = {
        "model": value["model"],
        "question": QUESTION,
        "answer": text,
        "start_s": round(_took_s(started), 2),
        "answer_s": round(took_s, 2),
        "tokens": tokens,
        "tokens_per_s": round(tokens / took_s, 1),
    }
    lines = (
        QUESTION,
        f"→ {text}",
        f"{facts['model']}: {tokens} tokens in {took_s:.1f} s, {facts['tokens_per_s']} tokens/s on one thread; "
        f"its server took {facts['start_s']:.1f} s to start",
    )
    return Scene(NAME, TITLE, 1, took_s, checks=(Check(_CHECK, True),), facts=facts, lines=lines)


def _took_s(result: Result) -> float:
    assert result.started_at is not None
    assert result.ended_at is not None
    return max(result.ended_at - result.started_at, 0.001)
