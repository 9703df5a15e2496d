"""Finding model servers: which places are looked at, what answers there, and what it says of itself.

Each place is asked for a few pages at once, and told apart by those that only one kind of server has. Whatever
comes back is bounded in size and time and may be nonsense: a page that is not what it should be counts as
not there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import aiohttp
import msgspec

from penstock.config.keys import MAX_MODEL

TIME_LIMIT_S = 4.0
_CONNECT_S = 1.5
_MAX_BYTES = 4 * 1024 * 1024
_PATHS = ("/v1/models", "/api/tags", "/api/ps", "/api/v0/models", "/props", "/slots", "/metrics")

HERE = "127.0.0.1"
_LOCAL_NAMES = ("localhost", HERE, "::1")

# The words in the name of a model that makes vectors and cannot chat.
_EMBEDDING_WORDS = ("embed", "bge-", "bge_", "gte-", "minilm", "e5-", "mxbai", "nomic-bert", "arctic-embed")
_MOST_SLOTS = 256


class Kind(NamedTuple):
    name: str  # of a host of this kind
    title: str
    port: int


LM_STUDIO = Kind("lmstudio", "LM Studio", 1234)
OLLAMA = Kind("ollama", "Ollama", 11434)
VLLM = Kind("vllm", "vLLM", 8000)
LLAMA_CPP = Kind("llamacpp", "llama.cpp", 8080)
OTHER = Kind("server", "an OpenAI-compatible server", 0)
KINDS = (LM_STUDIO, OLLAMA, VLLM, LLAMA_CPP)


class Place(NamedTuple):
    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    @property
    def is_here(self) -> bool:
        return self.host in _LOCAL_NAMES


@dataclass(frozen=True, slots=True)
class Found:
    """A model server, as it describes itself."""

    kind: Kind
    place: Place
    models: tuple[str, ...] = ()  # those that chat, a loaded one first
    embeddings: tuple[str, ...] = ()
    unusable: int = 0  # models whose names cannot be used
    slots: int | None = None  # None: it does not tell
    wants_key: bool = False
    waiting_metric: str | None = None  # of its metrics page: how many calls wait inside

    def as_record(self) -> dict[str, Any]:
        return {
            "kind": self.kind.name,
            "url": f"{self.place.url}/v1",
            "models": list(self.models),
            "embeddings": list(self.embeddings),
            "slots": self.slots,
            "wants_key": self.wants_key,
        }


def places_here() -> list[Place]:
    return [Place(HERE, kind.port) for kind in KINDS]


async def find(places: Sequence[Place], time_limit_s: float = TIME_LIMIT_S) -> list[Found]:
    """The model servers at these places, in their order; each has so long to answer."""
    once = list(
        dict.fromkeys(Place(HERE if p.is_here and p.host != "::1" else p.host, p.port) for p in places)
    )
    timeout = aiohttp.ClientTimeout(total=time_limit_s, connect=min(_CONNECT_S, time_limit_s))
    connector = aiohttp.TCPConnector(limit=256, force_close=True)
    async with (
        aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
        asyncio.TaskGroup() as group,
    ):
        looks = [group.create_task(_look(session, place)) for place in once]
    return [found for look in looks if (found := look.result()) is not None]


class _Page(NamedTuple):
    status: int = 0  # 0: there was none
    body: bytes = b""

    @property
    def json(self) -> Any:
        if self.status != 200:
            return None
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


async def _look(session: aiohttp.ClientSession, place: Place) -> Found | None:
    async with asyncio.TaskGroup() as group:
        asked = {path: group.create_task(_get(session, place.url + path)) for path in _PATHS}
    return recognise(place, {path: page.result() for path, page in asked.items()})


async def _get(session: aiohttp.ClientSession, url: str) -> _Page:
    try:
        async with session.get(url, allow_redirects=False) as reply:
            body = bytearray()
            async for chunk in reply.content.iter_chunked(65_536):
                body += chunk
                if len(body) > _MAX_BYTES:
                    return _Page()
            return _Page(reply.status, bytes(body))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return _Page()


# ---- what the pages say


def recognise(place: Place, pages: Mapping[str, _Page]) -> Found | None:
    """What kind of server has these pages; None for none."""
    listed = _records(pages["/v1/models"].json, "data")
    owners = {record.get("owned_by") for record in listed or () if isinstance(record.get("owned_by"), str)}
    if "penstock" in owners:  # that would be asking ourselves
        return None
    props = pages["/props"].json
    # Later versions of llama.cpp also have Ollama's /api/tags, so it is looked for first.
    if "llamacpp" in owners or (isinstance(props, dict) and "default_generation_settings" in props):
        return _described(LLAMA_CPP, place, listed or (), slots=_llama_slots(props, pages["/slots"].json))
    native = _records(pages["/api/v0/models"].json, "data")
    if native is not None:
        ordered = sorted(native, key=lambda record: record.get("state") != "loaded")
        return _described(LM_STUDIO, place, ordered, slots=4)
    tags = _records(pages["/api/tags"].json, "models")
    if tags is not None:
        loaded = {record.get("name") for record in _records(pages["/api/ps"].json, "models") or ()}
        ordered = sorted(tags, key=lambda record: record.get("name") not in loaded)
        return _described(OLLAMA, place, ordered, slots=_ollama_slots(place))
    metrics = pages["/metrics"].body if pages["/metrics"].status == 200 else b""
    wants_key = pages["/v1/models"].status in (401, 403)
    if "vllm" in owners or (b"\nvllm:" in metrics and (wants_key or listed is not None)):
        waiting = "vllm:num_requests_waiting" if b"\nvllm:num_requests_waiting" in metrics else None
        return _described(VLLM, place, listed or (), wants_key=wants_key, waiting_metric=waiting)
    if listed is not None or (wants_key and _is_openai_refusal(pages["/v1/models"].body)):
        return _described(OTHER, place, listed or (), wants_key=wants_key)
    return None


def _records(document: Any, key: str) -> list[dict[str, Any]] | None:
    """The list of tables at a key; None for anything else. Ollama without models says null."""
    if not isinstance(document, dict) or key not in document:
        return None
    listed = document[key]
    if listed is None:
        return []
    if not isinstance(listed, list) or not all(isinstance(record, dict) for record in listed):
        return None
    return listed


def _is_openai_refusal(body: bytes) -> bool:
    refusal = _Page(200, body).json
    return isinstance(refusal, dict) and "error" in refusal


def _described(kind: Kind, place: Place, records: Sequence[Mapping[str, Any]], **more: Any) -> Found:
    chat: dict[str, None] = {}
    embeddings: dict[str, None] = {}
    unusable = 0
    for record in records:
        name = record.get("id", record.get("name"))
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name.strip()) <= MAX_MODEL:
            unusable += 1
        elif record.get("type") == "embeddings" or is_embedding(name):
            embeddings[name] = None
        else:
            chat[name] = None
    return Found(kind, place, tuple(chat), tuple(embeddings), unusable, **more)


def is_embedding(model: str) -> bool:
    """Whether a model makes vectors, by its name."""
    lowered = model.lower()
    return any(word in lowered for word in _EMBEDDING_WORDS)


def _llama_slots(props: Any, slots: Any) -> int | None:
    total = props.get("total_slots") if isinstance(props, dict) else None
    if total is None and isinstance(slots, list):
        total = len(slots)
    return total if _is_count(total) else None


def _ollama_slots(place: Place) -> int | None:
    """Its own environment variable, which on this machine may be ours as well."""
    said = os.environ.get("OLLAMA_NUM_PARALLEL", "") if place.is_here else ""
    return int(said) if said.isascii() and said.isdecimal() and _is_count(int(said)) else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST_SLOTS
