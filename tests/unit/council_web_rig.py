"""A council of two and a chair, on one scripted model server, behind a real server: for tests of its ways in."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from penstock.testing import Fault, ModelBehaviour, ModelRequest, ModelServer
from tests.unit.web_rig import Web, serving

MODELS = ("saiyan", "prince", "dragon")
ANSWERS = {"saiyan": "Light scatters in the air.", "prince": "Blue light scatters the most."}
SUMMED_UP = "Blue light scatters most, so the sky is blue."
DISSENT = "\n\n[VEGETA dissents: It is not the air.]"
ASK = "/api/councils/shenron/ask"
QUERY = "Why is the sky blue?"
_MARK = re.compile(r"END-OF-ANSWER-\w+")


def config(url: str, more: str = "") -> str:
    return f"""
[retry]
retries = 0
host_faults = 1
base_s = 0.01

[hosts.surtr]
type = "openai"
url = "{url}"
models = ["saiyan", "prince", "dragon"]
serves = ["reasoning", "chat"]
slots = 16
breaker = {{ failures = 1000 }}

[councils.shenron]
chair = {{ name = "SHENRON", emoji = "🐉", model = "dragon" }}
{more}
[[councils.shenron.members]]
name = "GOKU"
emoji = "🥋"
role = "the direct thinker"
model = "saiyan"
[[councils.shenron.members]]
name = "VEGETA"
emoji = "👑"
role = "the critic"
model = "prince"
"""


def answer(request: ModelRequest) -> str:
    """A member's words, or the chair's with the trailer that its prompt asks for."""
    if request.model != "dragon":
        return ANSWERS[request.model]
    marks = _MARK.findall(request.prompt)
    trailer = {"disputes": [], "dissent": [{"name": "VEGETA", "claim": "It is not the air."}]}
    return f"{SUMMED_UP}\n\n{marks[-1]}\n{json.dumps(trailer)}"


class Talk:
    """The model server; `hangs` are models that say nothing until they are let go."""

    def __init__(self) -> None:
        self.hangs: set[str] = set()
        self.fails: dict[str, Fault] = {}
        self._lock = threading.Lock()
        self.behaviour = ModelBehaviour(models=MODELS, answer=answer, faults=self._fault_of, tokens_per_s=500)
        self.server = ModelServer(self.behaviour)

    def _fault_of(self, request: ModelRequest) -> Fault | None:
        with self._lock:
            return Fault.hang() if request.model in self.hangs else self.fails.get(request.model)

    def asked(self, model: str) -> list[ModelRequest]:
        return [one for one in list(self.server.requests) if one.model == model]


@asynccontextmanager
async def council_web(
    folder: Path, more: str = "", *, setup: Callable[[Talk], None] | None = None, **options: Any
) -> AsyncIterator[tuple[Web, Talk]]:
    talk = Talk()
    if setup is not None:
        setup(talk)
    async with talk.server, serving(folder, config(talk.server.url, more), **options) as web:
        yield web, talk
