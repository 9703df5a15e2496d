"""The library as a host: it searches collections, keeps them, and measures how far answers agree.

It is there by itself where a config has councils, as the host and the kind `council-library`, and does one thing at
a time in a process of its own, which alone has embedded Chroma open. Embeddings of a model elsewhere are fetched
through the queue, as any call of that model.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from penstock.clock import Clock
from penstock.config.call_tasks import call_task
from penstock.config.councils import Council
from penstock.config.own_calls import run_of_calls
from penstock.council.library.embedding import missing
from penstock.council.library.librarian import Order
from penstock.errors import HostError, PermanentError, TemporaryError
from penstock.hosts.base import Health, Job, OwnCoroutine
from penstock.hosts.library_orders import embedding_body, read_embeddings, read_order
from penstock.hosts.library_process import LibraryProcess
from penstock.model import Host, Outcome, Task, Verdict

_log = logging.getLogger("penstock.hosts")
_TEXTS_AT_ONCE = 64  # in one call for embeddings
_EMBEDDINGS = "embeddings"  # the endpoint of /v1

# Asks a model through the queue: the task that stands for it, the endpoint, the body; and gives the reply's body.
CallModel = Callable[[Task, str, bytes], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class LibraryPlacement:
    """What the library must know of the config and the dispatcher it stands in."""

    councils: Mapping[str, Council]
    folder: str  # for full-text indexes of collections that are on servers
    call: CallModel
    calls_lane: str
    environment: Mapping[str, str] = field(default_factory=dict)  # of its process, added to our own
    idle_s: float = 300.0  # then its process ends, until it is needed again
    # Whoever knows that it will be needed is told how to say so.
    announce: Callable[[Callable[[], None]], None] | None = None


class LibraryAdapter:
    def __init__(self, host: Host) -> None:
        self._host = host.name
        self._placement: LibraryPlacement = host.options["placement"]
        self._process = LibraryProcess(self._placement.environment, self._placement.idle_s)
        self._logged: dict[str, str] = {}  # of each collection, what was wrong with it last

    async def open(self) -> None:
        if self._placement.announce is not None:
            self._placement.announce(self._process.warm)

    async def close(self) -> None:
        await self._process.close()

    def work(self, job: Job) -> OwnCoroutine:
        _, order = read_order(job.payload, self._placement.councils, self._placement.folder)

        async def perform() -> Outcome:
            return Outcome(Verdict.DONE, await self._done(job, order))

        return OwnCoroutine(perform)

    async def check(self) -> Health:
        problem = await asyncio.to_thread(missing)
        if problem is None:
            return Health(True, "retrieval is installed")
        needed = any(council.retrieval is not None for council in self._placement.councils.values())
        return Health(True, f"no retrieval by meaning: {problem}", amiss=needed)

    async def _done(self, job: Job, order: Order) -> object:
        answer = await self._process.ask(order)
        if answer.needs is not None and order.place is not None and order.place.embeddings is not None:
            try:
                vectors = await self._vectors(job, order.place.embeddings, answer.needs)
            except (HostError, PermanentError, TemporaryError) as error:
                if order.do != "search":
                    raise
                order = msgspec.structs.replace(order, no_vectors=_why(order.place.embeddings, error))
            else:
                order = msgspec.structs.replace(order, vectors=vectors)
            answer = await self._process.ask(order)
        if answer.error is not None:
            told = self._without_places(order, answer.error)
            raise (TemporaryError if answer.is_temporary else PermanentError)(told)
        if answer.needs is not None:
            raise PermanentError(f"hosts.{self._host}: there are no vectors of {len(answer.needs)} texts")
        if order.do == "search" and isinstance(answer.value, Mapping) and answer.value.get("problem"):
            return {**answer.value, "problem": self._without_places(order, str(answer.value["problem"]))}
        return answer.value

    def _without_places(self, order: Order, problem: str) -> str:
        """For records, which whoever asks can read; where things lie is told in the log."""
        place = order.place
        if order.do != "search" or place is None:
            return problem
        told = problem
        for where in sorted(filter(None, (place.path, place.url, place.words)), key=len, reverse=True):
            for words in (f" in {where}", f" on {where}", f" {where}", where):
                told = told.replace(words, "")
        if told != problem and self._logged.get(place.collection) != problem:
            self._logged[place.collection] = problem
            _log.warning("%s", problem)
        return told

    async def _vectors(self, job: Job, model: str, texts: Sequence[str]) -> dict[str, list[float]]:
        made: dict[str, list[float]] = {}
        for first in range(0, len(texts), _TEXTS_AT_ONCE):
            some = texts[first : first + _TEXTS_AT_ONCE]
            task = call_task(
                _EMBEDDINGS,
                model,
                lane=self._placement.calls_lane,
                run=run_of_calls(job.run),
                priority=job.priority,
                trace=job.trace,
            )
            reply = await self._placement.call(task, _EMBEDDINGS, embedding_body(model, some))
            made |= read_embeddings(model, some, reply)
        return made


def _why(model: str, error: Exception) -> str:
    return f"there are no embeddings of {model} to be had ({error})"


def make(host: Host, clock: Clock) -> LibraryAdapter:
    return LibraryAdapter(host)
