"""The options of a host that is an OpenAI-compatible server: where it is, its key, its patience, its limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from penstock.config.keys import SECONDS, VARIABLE
from penstock.config.problems import meant, misfit
from penstock.hosts.model_key import Key
from penstock.hosts.options import Options
from penstock.model import Host

_URL_LIKE = "must be like http://localhost:1234/v1"
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
    ca_file: str | None = None  # authorities beside the system's
    health_s: float = 30.0
    defaults: Mapping[str, Any] = field(default_factory=dict)
    max_reply_bytes: int = 64 * 1024 * 1024


def read_options(host: Host) -> ModelOptions:
    options = Options(host)
    default = ModelOptions("", Key(host.name))
    key_env, key_file = options.text("key_env"), options.text("key_file")
    check_key_env(options)
    if key_env and key_file:
        options.problem("key_file", "stands beside key_env; give only one of them")
    read = ModelOptions(
        url=_url(options),
        key=Key(host.name, key_env, key_file),
        timeouts=_timeouts(options),
        headers=_headers(options),
        ca_file=options.text("ca_file"),
        health_s=options.number("health_s", default.health_s, most=86_400),
        defaults=_defaults(options),
        max_reply_bytes=options.count("max_reply_bytes", default.max_reply_bytes),
    )
    options.done()
    return read


def check_key_env(options: Options) -> None:
    """Whoever writes the key itself there must not see it in a message."""
    name = options.anything("key_env")
    if isinstance(name, str) and name and not VARIABLE.fullmatch(name):
        options.problem("key_env", "must be the name of an environment variable, which holds the key")


def _url(options: Options) -> str:
    url = (options.text("url") or "").strip()
    if not url:
        if not options.anything("url"):  # else it has been refused
            options.problem(
                "url", 'is missing; give the server\'s address, such as "http://localhost:1234/v1"'
            )
        return ""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        options.problem("url", _URL_LIKE)
        return ""
    if parts.username is not None or parts.password is not None:
        options.problem("url", 'holds a secret; keep it in an environment variable: key_env = "ITS_NAME"')
    elif parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        options.problem("url", _URL_LIKE)
    elif parts.query or parts.fragment:
        options.problem("url", "must end with its path, such as /v1: nothing after a ? or #")
    return url.rstrip("/")


def _timeouts(options: Options) -> Timeouts:
    names = Timeouts.__slots__
    given = options.table("timeouts", "{ total_s = 600 }")
    for name, value in given.items():
        if name not in names:
            options.problem("timeouts", f"unknown key{meant(name, names)}", name)
        elif (wrong := misfit(value, SECONDS)) is not None:
            options.problem("timeouts", f"must be a number of seconds {SECONDS}, not {wrong}", name)
    right = {name: value for name, value in given.items() if name in names and misfit(value, SECONDS) is None}
    return Timeouts(**right)


def _headers(options: Options) -> dict[str, str]:
    headers = options.text_table("headers")
    for name, value in headers.items():
        if name.lower() in _SECRET_HEADERS:
            options.problem(
                "headers", 'carries a secret; keep it out of this file: key_env = "ITS_NAME"', name
            )
        elif name.lower() in _OURS:
            options.problem("headers", "is set for each call; remove it", name)
        elif not _HEADER_NAME.fullmatch(name) or not value.isascii() or not value.isprintable():
            options.problem("headers", "is no header that can be sent; write plain ASCII on one line", name)
    return headers


def _defaults(options: Options) -> dict[str, Any]:
    defaults = options.table("defaults", "{ temperature = 0.2 }")
    for name, remedy in (("model", "a host has model = …"), ("stream", "a payload has stream")):
        if name in defaults:
            options.problem("defaults", f"is no default: {remedy}; remove it here", name)
    return dict(defaults)
