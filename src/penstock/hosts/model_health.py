"""Whether a model server could take work now: its list of models says so, and what to do when it does not."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.config.wording import some
from penstock.hosts.base import Health
from penstock.hosts.model_body import real_models
from penstock.hosts.model_errors import said
from penstock.hosts.model_http import CHECK_S, CallFailed, ModelServer
from penstock.model import Host

_BUSY_S = 30.0  # a server that answered a call so lately is busy, not down
_MOST_MODELS = 10_000
_SHOWN = 8


async def read_models(server: ModelServer, host: Host) -> Health:
    silent_s = server.silent_s()
    try:
        status, body = await server.models()
    except CallFailed as failed:
        if failed.code == "timeout" and silent_s < _BUSY_S:
            return Health(True, "busy: it answers calls, but not what its models are")
        if failed.code == "timeout":
            return Health(False, f"GET {server.options.url}/models: no answer within {CHECK_S:g} s")
        fault = failed.outcome
        return Health(False, fault.error or "it does not answer", needs_fix=fault.needs_fix)
    return judge(status, body, host, server)


def judge(status: int, body: bytes, host: Host, server: ModelServer) -> Health:
    options = server.options
    words = said(options.key.redact_bytes(body)).message[:200]  # hidden before it is cut
    place = f"GET {options.url}/models"
    if status in (401, 403):
        return Health(False, f"{place}: {status} {words}; {options.key.remedy}", needs_fix=True)
    if status == 429:
        return Health(True, "it asks for less")
    if status in (404, 405):
        return Health(
            False,
            f"{place}: {status} {words}; the url usually ends in /v1, and a server that tells no models "
            f"wants hosts.{host.name}.health_s = 0",
            needs_fix=True,
        )
    if not 200 <= status < 300:
        return Health(False, f"{place}: {status} {words}; see the server's own log")
    models = _names(body)
    if models is None:
        return Health(False, f"{place}: no list of models; is it an OpenAI-compatible server? {words}")
    missing = _missing(host, models)
    notes = [note for note in (missing, options.key.warning()) if note]
    told = "; ".join([f"{len(models)} model{'s' * (len(models) != 1)}: {some(models, _SHOWN)}", *notes])
    return Health(True, told, models, amiss=bool(missing))


def _names(body: bytes) -> tuple[str, ...] | None:
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    data = found.get("data", found.get("models")) if isinstance(found, dict) else found
    if data is None and isinstance(found, dict) and "data" in found:
        return ()  # so Ollama says that it has none
    if not isinstance(data, list):
        return None
    names = (one.get("id", one.get("name")) for one in data[:_MOST_MODELS] if isinstance(one, dict))
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str) and name))


def _missing(host: Host, models: tuple[str, ...]) -> str:
    """A configured model that the server does not have. Ollama's own names end in a tag."""
    known = {*models, *(name.removesuffix(":latest") for name in models)}
    lacking = [name for name in real_models(host) if name not in known]
    return (
        f"not among them: {some(lacking, _SHOWN)}; load it there, or correct hosts.{host.name}.model"
        if lacking
        else ""
    )
