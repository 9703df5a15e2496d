"""A question while it is answered, for whoever asked: its live events, from wherever they can be heard.

From our own dispatcher's hub where this process dispatches; from the `serve` that runs on the same store, by its
Server-Sent Events; else, where another command dispatches, from the store, where answers are seen whole when their
tasks end. What the store says is the truth: a way that breaks off is replaced by the next one, and nothing is told
twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.agents import serving
from penstock.config import Config
from penstock.config.councils import Council
from penstock.config.own_files import agents_dir
from penstock.council.asking import FINAL, Steps, Wish, final_event, question_task
from penstock.council.choosing import council_named
from penstock.council.conversations import conversation_of
from penstock.council.plan.asking import read_question
from penstock.council.waiting import Waits
from penstock.errors import QuestionError
from penstock.lifecycle import ENDED
from penstock.model import State, Task, TaskRecord
from penstock.store.base import TaskFilter

if TYPE_CHECKING:
    from penstock.council.live import Follower, Hub
    from penstock.store.base import Answer, Store

_LOOK_S = 1.0  # how long nothing may be heard before the store is looked at
_EARLIER = 20  # questions of a run that are looked at for one of its conversation
_LAST_S = 1.0  # for the last event to come, once the store says that it is over
_CONNECT_S = 5.0
_MOST_LINE_BYTES = 64 * 1024 * 1024

Event = Mapping[str, Any]


class Asker(Protocol):
    """What a client is for a question."""

    config: Config

    async def submit(self, task: Task) -> str: ...

    async def get(self, task_id: str) -> TaskRecord: ...

    async def tasks(self, chosen: TaskFilter) -> list[TaskRecord]: ...

    async def cancel(self, *task_ids: str) -> Answer: ...

    def watching(self) -> AbstractAsyncContextManager[Callable[[], Awaitable[None]]]: ...


class Sources(NamedTuple):
    """Where a question is heard of; the client's own."""

    store: Store
    hub: Callable[[], Hub | None]  # of our own dispatcher, where there is one
    ensure: Callable[[], Awaitable[None]]  # that somebody dispatches, where that is up to us


class Gone(Exception):
    """Nothing more is heard this way."""


class Ear(Protocol):
    """One way to hear."""

    async def next(self, within_s: float) -> Event | None:
        """None: nothing in that time. Raises Gone."""

    async def close(self) -> None: ...


class Asking:
    """A question: iterate for its events, the last of which is `done`, `failed` or `cancelled`.

    It is kept when the first event, `asked`, comes. To stop listening does not cancel it.
    """

    def __init__(self, asker: Asker, council: str | None, wish: Wish, sources: Sources) -> None:
        self._asker = asker
        self._sources = sources
        self.council: Council = council_named(asker.config.councils, council)
        self._task = question_task(self.council, wish)
        self.id = ""
        self.run = ""
        self.begins_conversation = True  # its conversation has no earlier question
        self._told: set[str] = set()  # members whose answer was told
        self._texts: set[str] = set()  # steps of which some text was told
        self._steps: Steps | None = None  # where only the store tells of them
        self._seen = 0
        self._ear_at = 0.0
        self._waits: Waits | None = None
        self._waits_at = 0.0

    async def submit(self) -> str:
        """Keep it; its id once it is durable."""
        if not self.id:
            run = self._task.run
            earlier = await self._asker.tasks(TaskFilter(run=run, kind=self._task.kind, limit=_EARLIER))
            self.begins_conversation = all(conversation_of(one.task) != run for one in earlier)
            self.id = await self._asker.submit(self._task)
            self.run = (await self._asker.get(self.id)).task.run
        return self.id

    async def cancel(self) -> Answer:
        return await self._asker.cancel(self.id)

    async def record(self) -> dict[str, Any]:
        """Its record, when it is over. QuestionError where there is none."""
        last: Event = {}
        async for event in self:
            last = event
        told = last.get("record")
        if not isinstance(told, Mapping):
            raise QuestionError(
                f"question {self.id}: {last.get('event')}: {last.get('error') or 'no record'}"
            )
        return dict(told)

    def __aiter__(self) -> AsyncGenerator[dict[str, Any], None]:
        return self._events()

    async def _events(self) -> AsyncGenerator[dict[str, Any], None]:
        await self.submit()
        yield {
            "event": "asked",
            "id": self.id,
            "council": self.council.name,
            "conversation": self.run,
            "begins_conversation": self.begins_conversation,
        }
        async with self._asker.watching() as watch:
            ear: Ear | None = None
            try:
                while True:
                    if ear is None:
                        ear = await self._ear()
                        for step in self._texts if ear is not None else ():
                            yield {"event": "again", "step": step}  # it is all told from the beginning
                    heard: Event | None = None
                    if ear is None:
                        await watch()
                    else:
                        try:
                            heard = await ear.next(_LOOK_S)
                        except Gone:
                            await ear.close()
                            ear = None
                            await watch()
                    told = [heard] if heard is not None else await self._looked(ear)
                    for event in [*await self._waiting(told), *told]:
                        is_last = event.get("event") in FINAL
                        if is_last:
                            await self._kept(watch)
                        if self._is_new(event):
                            yield dict(event)
                        if is_last:
                            return
            finally:
                if ear is not None:
                    await ear.close()

    async def _ear(self) -> Ear | None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._ear_at:
            return None
        self._ear_at = loop.time() + _LOOK_S
        await self._sources.ensure()
        hub = self._sources.hub()
        if hub is not None:
            return HubEar(hub, self.id)
        served = await asyncio.to_thread(serving.found, agents_dir(self._asker.config))
        return (
            None
            if served is None
            else await ServedEar.open(served, f"councils/{self.council.name}/questions/{self.id}/events")
        )

    async def _waiting(self, told: Sequence[Event]) -> list[dict[str, Any]]:
        """What its steps wait for, looked at now and then; `told` is what is told next."""
        if self._waits is None:
            self._waits = Waits(self.id, self._asker.config.plant)
        for event in told:
            self._waits.hear(event)
        loop = asyncio.get_running_loop()
        if loop.time() < self._waits_at or any(event.get("event") in FINAL for event in told):
            return []
        self._waits_at = loop.time() + _LOOK_S
        queued = TaskFilter(states=(State.QUEUED,), run=self.run, lane=self.council.calls_lane)
        waiting = await self._asker.tasks(queued)
        hosts = (await self._sources.store.snapshot(time.time())).hosts if waiting else {}
        return self._waits.events(waiting, hosts)

    async def _kept(self, watch: Callable[[], Awaitable[None]]) -> None:
        """Its end is in the store: whoever asks again at once, in the same conversation, finds it there."""
        while (await self._asker.get(self.id)).state not in ENDED:
            await watch()

    def _is_new(self, event: Event) -> bool:
        if event.get("event") == "text":
            self._texts.add(str(event.get("step")))
        if event.get("event") != "answer":
            return True
        name = str(event.get("name"))
        if name in self._told:
            return False
        self._told.add(name)
        return True

    async def _looked(self, ear: Ear | None) -> list[Event]:
        """What the store knows: the end in any case, and the steps where nothing else tells of them."""
        record = await self._asker.get(self.id)
        told: list[Event] = []
        if ear is None:
            told += await self._of_steps(record)
        if record.state not in ENDED:
            return told
        while (
            ear is not None and (heard := await _last(ear)) is not None
        ):  # it may be about to tell it better
            told.append(heard)
            if heard.get("event") in FINAL:
                return told
        return [*told, final_event(record)]

    async def _of_steps(self, question: TaskRecord) -> list[Event]:
        if self._steps is None:
            asked = read_question(self.council, self._task.payload, self.id, question.task.queued_at)
            self._steps = Steps(self.council, asked)
        store, told = self._sources.store, list[Event]()
        for number, one in await store.ended_in_run(self.run, self._seen):
            self._seen = number
            told += self._steps.events(one)
        for one in await store.tasks(TaskFilter(states=(State.QUEUED, State.RUNNING), run=self.run)):
            told += self._steps.events(one)
        return told


async def _last(ear: Ear) -> Event | None:
    try:
        return await ear.next(_LAST_S)
    except Gone:
        return None


class HubEar:
    def __init__(self, hub: Hub, question: str) -> None:
        self._follower: Follower = hub.follow(question)

    async def next(self, within_s: float) -> Event | None:
        try:
            async with asyncio.timeout(within_s):
                told = await anext(self._follower)
                return {"number": told.number, **told.event}
        except TimeoutError:
            return None
        except StopAsyncIteration:
            raise Gone from None

    async def close(self) -> None:
        self._follower.close()


class ServedEar:
    """The events of `serve`. What is read is taken apart here, so that a wait can end at any moment."""

    def __init__(self, session: Any, reply: Any) -> None:
        self._session = session
        self._reply = reply
        self._rest = b""

    @classmethod
    async def open(cls, served: serving.Serving, path: str) -> ServedEar | None:
        """What is told at a path below /api. None: it is not there, or tells nothing of it."""
        import aiohttp

        session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S))
        url = f"http://{served.address}/api/{path}"
        try:
            reply = await session.get(url, headers={"Authorization": f"Bearer {served.key}"})
        except (aiohttp.ClientError, OSError, TimeoutError):
            await session.close()
            return None
        except BaseException:
            await session.close()
            raise
        if reply.status != 200:
            await session.close()
            return None
        return cls(session, reply)

    async def next(self, within_s: float) -> Event | None:
        import aiohttp

        try:
            async with asyncio.timeout(within_s):
                while True:
                    frame, found, rest = self._rest.partition(b"\n\n")
                    if found:
                        self._rest = rest
                        if (event := _event_of(frame)) is not None:
                            return event
                        continue
                    data = await self._reply.content.readany()
                    if not data or len(self._rest) > _MOST_LINE_BYTES:
                        raise Gone
                    self._rest += data
        except TimeoutError:
            return None
        except (aiohttp.ClientError, OSError):
            raise Gone from None

    async def close(self) -> None:
        self._reply.close()
        await self._session.close()


def _event_of(frame: bytes) -> Event | None:
    """None: a comment, or nothing that we know."""
    import msgspec

    data = b"\n".join(
        line.removeprefix(b"data:").strip() for line in frame.split(b"\n") if line.startswith(b"data:")
    )
    try:
        told = msgspec.json.decode(data) if data else None
    except msgspec.DecodeError:
        return None
    return told if isinstance(told, dict) else None
