"""The ways of sending a workload: one at a time, a thread per kind, a bare client at a fixed concurrency.

Penstock's own way is in `ours.py`. Each returns how many tokens were made.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from benchmarks.gpu.workloads import Call
from penstock.config.councils import Council, Mode
from penstock.council.plan.prompts import chair_prompt, member_prompt
from penstock.council.plan.steps import Question
from penstock.council.plan.texts import Answer

_TIMEOUT_S = 600.0


def question_of(council: Council, number: int, query: str) -> Question:
    names = tuple(member.name for member in council.members)
    return Question(f"q{number}", query, Mode.COUNCIL, names, use_rag=False, asked_at=0.0)


def member_calls(council: Council, question: Question) -> list[Call]:
    made = []
    for member in council.members:
        prompt = member_prompt(council, question, member, (), quick=False)
        made.append(Call(member.name, prompt.messages, prompt.max_tokens))
    return made


def chair_call(council: Council, question: Question, texts: Sequence[str]) -> Call:
    answers = [Answer(member.name, text) for member, text in zip(council.members, texts, strict=True)]
    prompt = chair_prompt(council, question, council.chair, answers, (), None)
    return Call("chair", prompt.messages, prompt.max_tokens)


# ---- in threads


class _Plain:
    """A connection of one thread."""

    def __init__(self, url: str, model: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
        self._path, self._model = parts.path + "/chat/completions", model

    def ask(self, call: Call) -> tuple[str, int]:
        body = json.dumps(call.body(self._model))
        self._connection.request("POST", self._path, body, {"content-type": "application/json"})
        reply = self._connection.getresponse()
        read = json.loads(reply.read())
        if reply.status != 200:
            raise RuntimeError(f"the server refused a call: {read}")
        return read["choices"][0]["message"]["content"], read["usage"]["completion_tokens"]


def one_at_a_time(url: str, model: str, calls: Sequence[Call]) -> int:
    plain = _Plain(url, model)
    return sum(plain.ask(call)[1] for call in calls)


def council_one_at_a_time(url: str, model: str, council: Council, asked: Sequence[Question]) -> int:
    plain, tokens = _Plain(url, model), 0
    for question in asked:
        told = [plain.ask(call) for call in member_calls(council, question)]
        _, last = plain.ask(chair_call(council, question, [text for text, _ in told]))
        tokens += last + sum(made for _, made in told)
    return tokens


def thread_per_kind(url: str, model: str, calls: Sequence[Call]) -> int:
    made: list[int] = []

    def work(kind: str) -> None:
        plain = _Plain(url, model)
        made.append(sum(plain.ask(call)[1] for call in calls if call.kind == kind))

    _in_threads([partial(work, kind) for kind in dict.fromkeys(call.kind for call in calls)])
    return sum(made)


def council_thread_per_kind(url: str, model: str, council: Council, asked: Sequence[Question]) -> int:
    """A thread for each member and one for the chair, who sums up each question once all six have answered."""
    answers: list[queue.Queue[tuple[str, int]]] = [queue.Queue() for _ in council.members]
    totals: list[int] = []

    def member(number: int) -> None:
        plain = _Plain(url, model)
        for question in asked:
            answers[number].put(plain.ask(member_calls(council, question)[number]))

    def chair() -> None:
        plain = _Plain(url, model)
        for question in asked:
            told = [one.get() for one in answers]
            _, last = plain.ask(chair_call(council, question, [text for text, _ in told]))
            totals.append(last + sum(made for _, made in told))

    _in_threads([*(partial(member, number) for number in range(len(council.members))), chair])
    return sum(totals)


def _in_threads(works: Sequence[Callable[[], None]]) -> None:
    failed: list[BaseException] = []

    def kept(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=kept, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


# ---- the bare client: what the server gives at best


class _Bare:
    def __init__(self, url: str, model: str, concurrency: int, session: aiohttp.ClientSession) -> None:
        self._url, self._model, self._session = f"{url}/chat/completions", model, session
        self._room = asyncio.Semaphore(concurrency)

    async def ask(self, call: Call) -> tuple[str, int]:
        async with self._room, self._session.post(self._url, json=call.body(self._model)) as reply:
            read: dict[str, Any] = await reply.json()
            if reply.status != 200:
                raise RuntimeError(f"the server refused a call: {read}")
            return read["choices"][0]["message"]["content"], read["usage"]["completion_tokens"]


def _session() -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)


async def bare(url: str, model: str, calls: Sequence[Call], concurrency: int) -> int:
    async with _session() as session:
        client = _Bare(url, model, concurrency, session)
        return sum(made for _, made in await asyncio.gather(*(client.ask(call) for call in calls)))


async def council_bare(
    url: str, model: str, council: Council, asked: Sequence[Question], concurrency: int
) -> int:
    async with _session() as session:
        client = _Bare(url, model, concurrency, session)

        async def question(one: Question) -> int:
            told = await asyncio.gather(*(client.ask(call) for call in member_calls(council, one)))
            _, last = await client.ask(chair_call(council, one, [text for text, _ in told]))
            return last + sum(made for _, made in told)

        return sum(await asyncio.gather(*map(question, asked)))
