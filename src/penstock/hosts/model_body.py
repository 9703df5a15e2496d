"""From what a task or a client asks to the body that a model server is sent, and the model it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.config.call_tasks import CALL_KIND_OF
from penstock.errors import PermanentError
from penstock.model import ANY_MODEL, Host

CHAT, COMPLETIONS, EMBEDDINGS = "chat/completions", "completions", "embeddings"
AUTO = "auto"  # the name of whatever model a host has

_WORDS = {"chat": CHAT, "completion": COMPLETIONS, "embedding": EMBEDDINGS}
# By kind where the payload does not tell; users may submit tasks of the same names.
_OF_KIND = {**_WORDS, **{kind: endpoint for endpoint, kind in CALL_KIND_OF.items()}}
_NAMED = {
    **_WORDS,
    **{name: name for name in (CHAT, COMPLETIONS, EMBEDDINGS)},
    "chat.completions": CHAT,
}
_FORMS = (
    'a payload for a model is a text, {"prompt": "…"}, {"messages": [{"role": "user", "content": "…"}]} '
    'with any further OpenAI fields, or {"input": "…"} for embeddings'
)

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Ask:
    """One call of a model server."""

    endpoint: str
    body: bytes
    model: str | None  # the one that is asked for, if the body says
    streamed: bool
    own: bool = True  # the model is one that the config gives this host, not a name of the caller's
    trace: str | None = None  # the W3C context of the attempt


def ask_of_payload(
    payload: Any,
    kind: str,
    model: str | None,
    host: Host,
    defaults: Mapping[str, Any],
    seen: Sequence[str] = (),
) -> Ask:
    """The call that a task's payload asks for; PermanentError when it is none of the known forms."""
    endpoint, fields = _fields(payload, kind, host)
    streamed = fields.get("stream", False)
    if not isinstance(streamed, bool):
        raise PermanentError(f"the payload's `stream` must be true or false, not {streamed!r}")
    own_name = fields.pop("model", None)
    if own_name is not None and not isinstance(own_name, str):
        raise PermanentError(f"the payload's `model` must be a text, not {own_name!r}")
    if model is not None and not _is_real(host, model):
        model = None  # a name of the host's, such as a kind it serves: the host's own model is meant
    chosen = model or host.model or own_name or _some_model(host, endpoint, seen)
    body: dict[str, Any] = {"model": chosen} if chosen is not None else {}
    body |= fields
    if endpoint == EMBEDDINGS:
        streamed = False
        body.pop("stream", None)
    else:
        body |= {name: value for name, value in defaults.items() if name not in body}
        if streamed:
            body.setdefault("stream_options", {"include_usage": True})
    return Ask(endpoint, msgspec.json.encode(body), chosen, streamed, _is_own(host, chosen, seen))


def ask_of_relay(
    endpoint: str, body: bytes, streamed: bool, model: str | None, host: Host, seen: Sequence[str] = ()
) -> Ask:
    """A client's own body, byte for byte unless this host must be asked for a model of another name."""
    try:
        fields = _object.decode(body)
        named = msgspec.json.decode(fields["model"]) if "model" in fields else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PermanentError(f"the body is not a JSON object: {error}") from None
    if named is not None and not isinstance(named, str):
        raise PermanentError("the body's `model` must be a text")
    chosen = asked_model(model or named, host, endpoint, seen) or named
    if chosen is not None and chosen != named:
        fields["model"] = msgspec.Raw(msgspec.json.encode(chosen))
        body = msgspec.json.encode(fields)
    return Ask(endpoint, body, chosen, streamed, _is_own(host, chosen, seen))


def asked_model(name: str | None, host: Host, endpoint: str, seen: Sequence[str] = ()) -> str | None:
    """What to ask a host for when a caller says `name`; None when it must be told nothing else.

    A name may be one of the host's models, any model for a host that takes all, or stand for whatever the
    host has: `auto`, a kind it serves, or no name at all.
    """
    if name is not None and _is_real(host, name):
        return name
    return host.model or _some_model(host, endpoint, seen)


def _is_real(host: Host, name: str) -> bool:
    """Whether the server itself knows the name, as far as we can tell."""
    if name == host.model:
        return True
    if name == AUTO or name in host.serves:
        return False
    return name in host.models or ANY_MODEL in host.models or not host.models


def _is_own(host: Host, model: str | None, seen: Sequence[str]) -> bool:
    return model is None or model == host.model or model in host.models or model in seen


def real_models(host: Host) -> list[str]:
    """The models that the config gives it, without names that stand for others; any model is none of them."""
    own = [host.model] if host.model else []
    return own + [m for m in host.models if m not in (ANY_MODEL, AUTO, *host.serves, *own)]


def _some_model(host: Host, endpoint: str, seen: Sequence[str]) -> str | None:
    """A model of a host whose config prefers none: of those the server tells, one that fits the endpoint."""
    wanted = endpoint == EMBEDDINGS
    fitting = (name for name in (*real_models(host), *seen) if ("embed" in name.lower()) == wanted)
    return next(fitting, None)


def _fields(payload: Any, kind: str, host: Host) -> tuple[str, dict[str, Any]]:
    if isinstance(payload, str):
        endpoint = _OF_KIND.get(kind, CHAT)
        payload = {"input" if endpoint == EMBEDDINGS else "prompt": payload, "endpoint": endpoint}
    if not isinstance(payload, Mapping):
        raise PermanentError(f"{_FORMS}; not {_kind_of(payload)}{_astray(kind, host)}")
    fields = dict(payload)
    named = fields.pop("endpoint", None)
    if named is not None and (not isinstance(named, str) or named not in _NAMED):
        raise PermanentError(f"the payload's `endpoint` must be {CHAT}, {COMPLETIONS} or {EMBEDDINGS}")
    given = [name for name in ("messages", "prompt", "input") if name in fields]
    if len(given) != 1:
        has = " and ".join(given) or "none of them"
        raise PermanentError(f"{_FORMS}; this one has {has}{_astray(kind, host)}")
    endpoint = _endpoint(given[0], named, kind)
    if given[0] == "prompt" and endpoint == CHAT:
        prompt = fields.pop("prompt")
        if not isinstance(prompt, str):
            raise PermanentError(f"the payload's `prompt` must be a text, not {_kind_of(prompt)}")
        return endpoint, {"messages": [{"role": "user", "content": prompt}], **fields}
    _check(given[0], fields[given[0]])
    return endpoint, fields


def _astray(kind: str, host: Host) -> str:
    """The remedy where the task may have been meant for another host: a model host takes every kind by default."""
    if kind in _OF_KIND:
        return ""
    return (
        f"; where tasks of kind {kind!r} are meant for another host, leave it out of hosts.{host.name}.serves"
    )


def _endpoint(given: str, named: str | None, kind: str) -> str:
    endpoint = _NAMED[named] if named is not None else None
    if given == "prompt":
        endpoint = endpoint or (COMPLETIONS if _OF_KIND.get(kind) == COMPLETIONS else CHAT)
        fits = endpoint in (CHAT, COMPLETIONS)
    else:
        only = CHAT if given == "messages" else EMBEDDINGS
        endpoint = endpoint or only
        fits = endpoint == only
    if not fits:
        raise PermanentError(f"the payload's `{given}` does not go to {endpoint}; {_FORMS}")
    return endpoint


def _check(name: str, value: Any) -> None:
    """What every server refuses is refused here, with words about the payload."""
    if name == "messages":
        if not isinstance(value, list) or not value or not all(isinstance(one, Mapping) for one in value):
            raise PermanentError(
                'the payload\'s `messages` must be a list such as [{"role": …, "content": …}]'
            )
    elif not isinstance(value, str | list) or not value:
        raise PermanentError(f"the payload's `{name}` must be a text or a list, not {_kind_of(value)}")


def _kind_of(value: Any) -> str:
    kinds = {
        dict: "a table",
        list: "a list",
        bool: "true or false",
        type(None): "nothing",
        str: "an empty text",
    }
    return kinds.get(type(value), "a number")
