"""The options of a host that is an OpenAI-compatible server: where it is, its key, its patience, its limits."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from penstock.hosts.model_key import Key
from penstock.hosts.options import Options
from penstock.model import Host

_FOREVER_S = 1e9
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OURS = frozenset({"accept-encoding", "connection", "content-length", "content-type", "host"})
_SECRET_HEADERS = frozenset({"api-key", "authorization", "cookie", "proxy-authorization", "x-api-key"})


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long each part of a call may take; `first_token_s` and `between_tokens_s` watch streams."""

    connect_s: float = 10.0
    first_token_s: float = 300.0
    between_tokens_s: float = 60.0
    total_s: float = 1800.0


@dataclass(frozen=True, slots=True)
class ModelOptions:
    url: str
    key: Key
    timeouts: Timeouts = Timeouts()
    headers: Mapping[str, str] = field(default_factory=dict)
    trust: ssl.SSLContext | None = None  # the system's authorities when None
    health_s: float = 30.0
    defaults: Mapping[str, Any] = field(default_factory=dict)
    max_reply_bytes: int = 64 * 1024 * 1024


def read_options(host: Host) -> ModelOptions:
    options = Options(host)
    default = ModelOptions("", Key(host.name))
    key_env, key_file = options.text("key_env"), options.text("key_file")
    if key_env and key_file:
        options.problem("key_file", "stands beside key_env; give only one of them")
    read = ModelOptions(
        url=_url(options),
        key=Key(host.name, key_env, key_file),
        timeouts=_timeouts(options),
        headers=_headers(options),
        trust=_trust(options),
        health_s=options.number("health_s", default.health_s, most=86_400),
        defaults=_defaults(options),
        max_reply_bytes=options.count("max_reply_bytes", default.max_reply_bytes),
    )
    options.done()
    return read


def _url(options: Options) -> str:
    url = (options.text("url") or "").strip()
    if not url:
        options.problem("url", 'is missing; give the server\'s address, such as "http://localhost:1234/v1"')
        return ""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        options.problem("url", f"is not an address ({error}); write it like http://localhost:1234/v1")
        return ""
    if parts.username is not None or parts.password is not None:
        options.problem("url", 'holds a secret; keep it in an environment variable: key_env = "ITS_NAME"')
    elif parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        options.problem("url", f"must be like http://localhost:1234/v1, not {url!r}")
    elif parts.query or parts.fragment:
        options.problem("url", "must end with its path, such as /v1: nothing after a ? or #")
    return url.rstrip("/")


def _timeouts(options: Options) -> Timeouts:
    given = options.anything("timeouts", {})
    names = Timeouts.__slots__
    if not isinstance(given, Mapping) or not set(given) <= set(names):
        options.problem("timeouts", f"must be a table with any of {', '.join(names)}, not {given!r}")
        return Timeouts()
    for name, value in given.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= _FOREVER_S:
            options.problem("timeouts", f"{name} must be a number of seconds above 0, not {value!r}")
            return Timeouts()
    return Timeouts(**given)


def _headers(options: Options) -> dict[str, str]:
    headers = options.text_table("headers")
    for name, value in headers.items():
        if name.lower() in _SECRET_HEADERS:
            options.problem(
                "headers", f'{name} carries a secret; keep it out of this file: key_env = "ITS_NAME"'
            )
        elif name.lower() in _OURS:
            options.problem("headers", f"{name} is set for each call; remove it")
        elif not _HEADER_NAME.fullmatch(name) or not value.isascii() or not value.isprintable():
            options.problem("headers", f"{name!r} is no header that can be sent: plain ASCII, one line")
    return headers


def _trust(options: Options) -> ssl.SSLContext | None:
    """The system's authorities and those of `ca_file`."""
    file = options.text("ca_file")
    if file is None:
        return None
    trust = ssl.create_default_context()
    try:
        trust.load_verify_locations(file)
    except ssl.SSLError:
        options.problem("ca_file", f"{file} holds no certificates in PEM form; name one that does")
    except OSError as error:
        options.problem("ca_file", f"{file} cannot be read ({error.strerror}); correct the path")
    return trust


def _defaults(options: Options) -> dict[str, Any]:
    defaults = options.anything("defaults", {})
    if not isinstance(defaults, Mapping):
        options.problem("defaults", f"must be a table, such as {{ temperature = 0.2 }}, not {defaults!r}")
        return {}
    for name in ("model", "stream"):
        if name in defaults:
            options.problem("defaults", f"{name} is no default; a host has model = …, a payload stream")
    return dict(defaults)
