"""A model on this machine with nothing else installed: llama.cpp's own server as a child process.

    [hosts.small]
    type = "local"
    gguf = "models/qwen2.5-7b-instruct-q4_k_m.gguf"   # the small packaged one by default
    slots = 2                                          # its parallel slots
    context = 4096                                     # tokens, of each slot

Calls go the way of an `openai` host's. The server is started by the first one, and the time that takes counts
against `start_s` alone; after `idle_s` without a call it is stopped. Its death is the host's fault: the next
attempt starts another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from penstock.clock import Clock
from penstock.errors import HostError, HostNeedsFix
from penstock.hosts.base import Health
from penstock.hosts.gguf import find
from penstock.hosts.local_server import LocalServer, Running
from penstock.hosts.model_body import EMBEDDINGS, Ask
from penstock.hosts.model_errors import said
from penstock.hosts.model_http import Answer, CallFailed, ModelServer, OnSent, nobody
from penstock.hosts.model_key import Key
from penstock.hosts.model_options import ModelOptions
from penstock.hosts.openai import OpenAIAdapter
from penstock.hosts.type_options import read_local
from penstock.model import Host, Outcome, Verdict

_TOO_LONG = "exceed_context_size_error"
_CHECK_S = 30.0  # a look at two files


class LocalModelServer(ModelServer):
    """The connections to a server that may have to be started first."""

    def __init__(self, host: str, options: ModelOptions, life: LocalServer, *, embeddings: bool) -> None:
        super().__init__(host, options)
        self._life = life
        self._embeddings = embeddings

    async def close(self) -> None:
        await super().close()
        await self._life.close()

    @asynccontextmanager
    async def ask(self, ask: Ask, on_sent: OnSent = nobody) -> AsyncIterator[Answer]:
        if ask.endpoint == EMBEDDINGS and not self._embeddings:
            text = f"{self.host} makes no embeddings; give it a model that does, with embeddings = true"
            raise CallFailed(Outcome(Verdict.PERMANENT, error=text), "no_embeddings")
        try:
            async with self._life.use() as running:
                self.options = replace(
                    self.options, url=f"{running.url}/v1", key=Key(self.host, value=running.key)
                )
                try:
                    async with super().ask(ask, on_sent) as answer:
                        yield answer
                except CallFailed as failed:
                    raise await self._autopsy(failed, running) from None
        except HostError as error:
            needs_fix = isinstance(error, HostNeedsFix)
            outcome = Outcome(Verdict.HOST, error=f"{self.host}: {error}", needs_fix=needs_fix)
            raise CallFailed(outcome, "not_started") from None

    async def _autopsy(self, failed: CallFailed, running: Running) -> CallFailed:
        """The same failure, told as the death of the server where it was that."""
        outcome = failed.outcome
        if outcome.verdict is not Verdict.HOST:
            return failed
        if failed.code == "timeout" and not await self._answers():
            running.child.kill()
            text = f"{outcome.error}, and answers nothing else either: it was ended"
        elif failed.unanswered and (death := await running.death()) is not None:
            text = f"{self.host}: llama.cpp's server died: {death}"
        else:
            return failed
        return CallFailed(replace(outcome, error=f"{text}; the next attempt starts it again"), failed.code)

    async def _answers(self) -> bool:
        try:
            await self.models()
        except CallFailed:
            return False
        return True


class LocalAdapter(OpenAIAdapter):
    def __init__(self, host: Host, clock: Clock) -> None:
        options = read_local(host)
        own = options.server
        server = LocalModelServer(host.name, options.calls, LocalServer(own), embeddings=own.embeddings)
        super().__init__(host, clock, server)
        self._gguf = own.gguf
        self.check_every_s = _CHECK_S

    async def check(self) -> Health:
        """Whether all it takes is there; it starts nothing."""
        path, problem = await asyncio.to_thread(find, self._gguf)
        is_there = problem is None
        return Health(is_there, problem or f"starts on first use: {path}", needs_fix=not is_there)

    def _refused(self, ask: Ask, status: int, headers: Any, body: bytes) -> CallFailed:
        failed = super()._refused(ask, status, headers, body)
        if said(body).type == _TOO_LONG:
            remedy = f"; raise hosts.{self._host.name}.context, or send less"
            failed.outcome = replace(failed.outcome, error=f"{failed.outcome.error}{remedy}")
        return failed


def make(host: Host, clock: Clock) -> LocalAdapter:
    return LocalAdapter(host, clock)
