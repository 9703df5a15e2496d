"""Tools for the tests of programs that call models: a model server that behaves as it is told.

async with ModelServer(ModelBehaviour(style="vllm", slots=4, tokens_per_s=50)) as server:
    client = openai.AsyncOpenAI(base_url=server.url, api_key="none")
    ...
    await server.wait_for(lambda stats: stats.in_flight == 4)
"""

from __future__ import annotations

from penstock.testing.behaviour import ModelBehaviour, RateLimit
from penstock.testing.calls import CallSpan, ModelRequest
from penstock.testing.faults import Fault
from penstock.testing.process import ServerProcess
from penstock.testing.server import ModelServer
from penstock.testing.stats import ServerStats

__all__ = [
    "CallSpan",
    "Fault",
    "ModelBehaviour",
    "ModelRequest",
    "ModelServer",
    "RateLimit",
    "ServerProcess",
    "ServerStats",
]
