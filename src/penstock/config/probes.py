"""What the text of a probe means: which scheme, what it reads, and where.

    psutil:disk_free_gb#/data
    python:package.module:function
    nvml:memory_free_gb#0
    prometheus:http://surtr:8000/metrics#max(vllm:kv_cache_usage_perc{model_name="qwen"})

The config refuses what these readers refuse, with its place; the dispatcher reads by what they return.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from penstock.config import keys
from penstock.config.problems import Near

FOLDS = ("avg", "max", "min", "sum")

_METRIC = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SELECTOR = re.compile(rf"(?:(\w+)\()?({_METRIC})?(\{{.*\}})?(\))?")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|$)')
_ESCAPE = re.compile(r"\\(.)")
_METRIC_LIKE = "http://HOST:8000/metrics#METRIC"


class BadProbe(ValueError):
    """What is wrong with a probe's text, and the words it could have been."""

    def __init__(self, message: str, near: Near | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.near = near


class Series(NamedTuple):
    """Numbers of a metrics page: those of a metric that have these labels, made one by `fold`."""

    url: str
    metric: str
    labels: tuple[tuple[str, str], ...] = ()
    fold: str = "sum"


def check(probe: str) -> None:
    """Raise BadProbe for a text that is no probe."""
    scheme, colon, rest = probe.partition(":")
    if not colon or scheme not in keys.PROBE_SCHEMES:
        near = Near(scheme, keys.PROBE_SCHEMES, "available")
        raise BadProbe("unknown probe scheme", near)
    match scheme:
        case "psutil":
            _check_psutil(rest)
        case "python" if not keys.is_callable_path(rest):
            raise BadProbe('must be like "python:package.module:function"')
        case "nvml":
            nvml(rest)
        case "prometheus":
            series(rest)


def _check_psutil(rest: str) -> None:
    what, _, folder = rest.partition("#")
    _known("psutil", what, keys.PSUTIL_PROBES)
    if folder and what != "disk_free_gb":
        raise BadProbe("only psutil:disk_free_gb takes a #FOLDER")


def nvml(rest: str) -> tuple[str, str]:
    """What is read, and of which GPU: its number, UUID or a part of its name; "" for all."""
    what, hash_, gpu = rest.partition("#")
    _known("nvml", what, keys.NVML_PROBES)
    if hash_ and not gpu.strip():
        raise BadProbe("names no GPU after #; give its number, UUID or name, or remove the #")
    return what, gpu.strip()


def _known(scheme: str, what: str, known: Collection[str]) -> None:
    if what not in known:
        raise BadProbe(f"unknown {scheme} probe", Near(what, known, "known"))


# ---- prometheus


def series(rest: str) -> Series:
    """URL#METRIC, with labels and a function around it where wanted."""
    url, _, selector = rest.partition("#")
    _check_url(url)
    if not selector.strip():
        raise BadProbe(f'has no metric; write it behind a #, like "prometheus:{_METRIC_LIKE}"')
    found = _SELECTOR.fullmatch(selector.strip())
    if found is None or not found[2] or bool(found[1]) != bool(found[4]):
        raise BadProbe('has no metric behind the #; write METRIC, METRIC{label="value"} or max(METRIC)')
    fold = found[1] or "sum"
    if fold not in FOLDS:
        raise BadProbe("unknown function", Near(fold, FOLDS, "known"))
    return Series(url, found[2], tuple(labels(found[3][1:-1]).items()) if found[3] else (), fold)


def _check_url(url: str) -> None:
    """Never repeats the URL: it may hold a password."""
    like = f'must be like "prometheus:{_METRIC_LIKE}"'
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadProbe(like) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"\s", url) or port == 0:
        raise BadProbe(like)
    if "@" in parts.netloc:
        raise BadProbe("has a user or password in its URL, where everybody reads it; remove it")
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if name.lower() in keys.SECRETS:
            raise BadProbe("has a secret in its URL, where everybody reads it; remove it")


def labels(text: str) -> dict[str, str]:
    """name="value", … as metrics pages and selectors write it."""
    found: dict[str, str] = {}
    text, end = text.rstrip(), 0
    while end < len(text):
        label = _LABEL.match(text, end)
        if label is None:
            raise BadProbe('has no list of labels in its braces; write label="value", …')
        found[label[1]] = _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else m[1], label[2])
        end = label.end()
    return found
