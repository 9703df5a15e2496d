"""A host that has a model follow a file of instructions on a document: two files, one call, one text.

    [hosts.prompts]
    type = "file_prompt"
    serves = ["file_prompt"]
    model = "qwen2.5-32b"       # for tasks that name none; Penstock's own hosts answer, in the lane `calls`
    root = "inputs"             # files are read in here and nowhere else; the config's folder by default

    {"instructions": "prompts/review.md", "document": "notes/a.md", "temperature": 0.2}

`file_a` and `file_b` are other words for the two files; `prompt` and `text` give instructions and document as they
stand; an `id` is the task's label and is not sent. With `url` the call goes to that server, with every option of an
`openai` host; without, through the dispatcher's own door. The text is saved as the task's `output` by the engine.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from penstock.clock import Clock
from penstock.config.keys import CALLS_LANE
from penstock.config.own_files import OwnFiles
from penstock.config.problems import meant
from penstock.errors import PermanentError
from penstock.hosts.base import Health, Job, OwnCoroutine, Spent
from penstock.hosts.model_http import ModelServer
from penstock.hosts.model_key import Key
from penstock.hosts.model_options import ModelOptions
from penstock.hosts.openai import OpenAIAdapter
from penstock.hosts.own_door import Access, OwnDoor
from penstock.hosts.rooted_files import RootedFiles
from penstock.hosts.type_options import read_file_prompt
from penstock.model import Host, Outcome, Verdict

_FILES = {"instructions": ("instructions", "file_a"), "document": ("document", "file_b")}
_TEXTS = {"instructions": "prompt", "document": "text"}
# Fields of OpenAI's API that a payload may have beside its files; `overrides` takes any.
_SETTINGS = (
    "frequency_penalty",
    "max_completion_tokens",
    "max_tokens",
    "presence_penalty",
    "reasoning_effort",
    "response_format",
    "seed",
    "stop",
    "stream",
    "temperature",
    "top_p",
)
_KNOWN = (
    *(name for names in _FILES.values() for name in names),
    *_TEXTS.values(),
    "id",
    "model",
    "overrides",
    *_SETTINGS,
)


@dataclass(frozen=True, slots=True)
class Order:
    """What a payload asks for: each part is a file or a text."""

    files: Mapping[str, str]
    texts: Mapping[str, str]
    model: str | None
    settings: Mapping[str, Any]

    def messages(self, files: RootedFiles) -> list[dict[str, str]]:
        """What the model is sent; reads the files."""
        parts = {
            part: self.texts[part] if part in self.texts else files.text(self.files[part], part)
            for part in _FILES
        }
        return [
            {"role": "system", "content": parts["instructions"]},
            {"role": "user", "content": parts["document"]},
        ]


def order_of(payload: Any) -> Order:
    if not isinstance(payload, Mapping):
        raise PermanentError(
            'a payload for file_prompt is a table such as {"instructions": "FILE", "document": "FILE"}'
        )
    for name in payload:
        if name not in _KNOWN:
            hint = meant(str(name), _KNOWN, "known") if isinstance(name, str) else ""
            raise PermanentError(
                f"the payload has an unknown field {name!r}{hint}; any other goes into `overrides`"
            )
    label = payload.get("id")
    if isinstance(label, bool) or not isinstance(label, str | int | float | None):
        raise PermanentError(
            "the payload's `id` must be a text or a number: it is what records call the task"
        )
    files: dict[str, str] = {}
    texts: dict[str, str] = {}
    for part, names in _FILES.items():
        given = [name for name in (*names, _TEXTS[part]) if payload.get(name) is not None]
        if len(given) != 1:
            raise PermanentError(
                f"the payload needs one of {', '.join(names)} (a file) or {_TEXTS[part]} (the text itself) for "
                f"the {part}; this one has {' and '.join(given) or 'none of them'}"
            )
        value = payload[given[0]]
        if not isinstance(value, str) or not value.strip():
            raise PermanentError(f"the payload's `{given[0]}` must be a text that is not empty")
        (texts if given[0] == _TEXTS[part] else files)[part] = value
    model = payload.get("model")
    if model is not None and (not isinstance(model, str) or not model):
        raise PermanentError(f"the payload's `model` must be a text, not {model!r}")
    return Order(files, texts, model, _settings(payload))


def _settings(payload: Mapping[str, Any]) -> dict[str, Any]:
    overrides = payload.get("overrides")
    if overrides is None:
        overrides = {}
    if not isinstance(overrides, Mapping):
        raise PermanentError('the payload\'s `overrides` must be a table, such as {"temperature": 0.2}')
    for name in ("messages", "prompt", "input", "model", "n"):
        if name in overrides:
            raise PermanentError(
                f"the payload's `overrides` cannot have `{name}`: it is told apart from them"
            )
    return {**{name: payload[name] for name in _SETTINGS if payload.get(name) is not None}, **overrides}


class FilePromptAdapter:
    def __init__(self, host: Host, clock: Clock, options: ModelOptions, files: RootedFiles) -> None:
        self._host = host
        self._clock = clock
        self._options = options
        self._files = files
        self._door: OwnDoor | None = host.options.get("door") if host.options.get("url") is None else None
        self._lane = str(host.options.get("calls_lane") or CALLS_LANE)
        self._remote = (
            OpenAIAdapter(host, clock, ModelServer(host.name, options)) if self._door is None else None
        )
        self.check_every_s = 0.0 if self._remote is None else self._remote.check_every_s

    async def open(self) -> None:
        if self._remote is not None:
            await self._remote.open()

    async def close(self) -> None:
        if self._remote is not None:
            await self._remote.close()

    def work(self, job: Job) -> OwnCoroutine:
        order = order_of(job.payload)
        calling: list[OwnCoroutine] = []
        access = None if self._door is None else self._door.admit(job, self._lane)

        async def run() -> Outcome:
            messages = await asyncio.to_thread(order.messages, self._files)
            call = job._replace(
                kind="chat",
                payload={**order.settings, "messages": messages},
                model=job.model or order.model,
            )
            async with self._calls(access) as adapter:
                calling.append(adapter.work(call))
                outcome = await calling[0].run()
            return self._told(outcome, order)

        def spent() -> Spent:
            # What went through our own door is counted where it was answered.
            return calling[0].spent() if calling and access is None else Spent()

        return OwnCoroutine(run, spent)

    @asynccontextmanager
    async def _calls(self, access: Access | None) -> AsyncIterator[OpenAIAdapter]:
        """Who makes the call: over connections of the host's, or with the key of this one attempt."""
        if access is None or self._door is None:
            assert self._remote is not None
            yield self._remote
            return
        options = replace(self._options, url=access.url, key=Key(self._host.name, value=access.key))
        adapter = OpenAIAdapter(self._host, self._clock, ModelServer(self._host.name, options))
        await adapter.open()
        try:
            yield adapter
        finally:
            await adapter.close()
            self._door.dismiss(access)

    def _told(self, outcome: Outcome, order: Order) -> Outcome:
        if self._door is not None:
            outcome = replace(outcome, tokens=None, cost_usd=None, host_fault=False)
            if (
                outcome.verdict is Verdict.HOST
            ):  # one of the hosts behind the door, and that one has been blamed
                outcome = replace(outcome, verdict=Verdict.TEMPORARY)
        if outcome.verdict is not Verdict.DONE:
            return outcome
        text = outcome.value.get("text")
        if not isinstance(text, str) or not text.strip():
            finish = outcome.value.get("finish_reason")
            why = f" (finish_reason {finish!r})" if finish else ""
            return replace(
                outcome,
                verdict=Verdict.TEMPORARY,
                value=None,
                error=f"the model answered without a text{why}; another try may help, or a larger max_tokens",
            )
        return replace(outcome, value={**outcome.value, **order.files})

    async def check(self) -> Health:
        if not await asyncio.to_thread(os.path.isdir, self._files.root):
            detail = f"the folder {self._files.root} is not there; make it, or correct hosts.{self._host.name}.root"
            return Health(False, detail, amiss=True)
        if self._remote is not None:
            return await self._remote.check()
        return Health(True, f"calls models through Penstock itself, in lane {self._lane}")


def make(host: Host, clock: Clock) -> FilePromptAdapter:
    options = read_file_prompt(host)
    own_files: OwnFiles | None = host.options.get("own_files")
    return FilePromptAdapter(
        host, clock, options.calls, RootedFiles(options.root, options.limit_bytes, own_files)
    )
