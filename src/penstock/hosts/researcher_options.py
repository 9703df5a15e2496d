"""The options of a `researcher` host, and what a payload may say: each becomes the order of one run.

Which report a task asks for is said by its payload's `report_type`, else by its kind (through `report_types`, or
because the kind is itself a type of report), else by the host's `report_type`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.config.keys import AUTO_MODEL, CALLS_LANE
from penstock.errors import PermanentError
from penstock.hosts.model_key import Key
from penstock.hosts.model_options import check_key_env
from penstock.hosts.options import Options
from penstock.hosts.web_addresses import address_problem
from penstock.hosts.workspace import KEEP
from penstock.model import Host

MULTI_AGENT = "multi_agent"
DEEP = "deep"
REPORT_TYPES = (
    "research_report",
    "resource_report",
    "outline_report",
    "custom_report",
    "detailed_report",
    "subtopic_report",
    DEEP,
    MULTI_AGENT,
)
# The words that report runners have for them.
KINDS = {
    "gptr": "research_report",
    "research": "research_report",
    "dr": DEEP,
    "deep_research": DEEP,
    "ma": MULTI_AGENT,
    "multi-agent": MULTI_AGENT,
}
SOURCES = ("web", "local", "hybrid")
_FIELDS = (
    "query",
    "report_type",
    "report_source",
    "documents",
    "tone",
    "model",
    "source_urls",
    "document_urls",
    "query_domains",
    "custom_prompt",
    "max_sections",
    "guidelines",
    "follow_guidelines",
)
_ADDRESSES = ("source_urls", "document_urls")
_MOST_SECTIONS = 100


@dataclass(frozen=True)
class ResearcherOptions:
    python: str
    work_dir: str
    keep: str
    log_limit_bytes: int
    log_days: float
    output_limit_bytes: int
    report_type: str
    report_types: Mapping[str, str]
    report_source: str
    documents: str | None
    retriever: str | None
    retriever_url: str | None
    url: str | None
    key: Key
    calls_lane: str
    model: str
    fast_model: str | None
    smart_model: str | None
    strategic_model: str | None
    embedding_model: str | None
    env: Mapping[str, str]
    pass_env: tuple[str, ...]
    require_context: bool
    private_urls: bool


def read_options(host: Host) -> ResearcherOptions:
    options = Options(host)
    url, key_env, key_file = options.text("url"), options.text("key_env"), options.text("key_file")
    read = ResearcherOptions(
        python=options.text("python") or sys.executable,
        work_dir=options.text("work_dir") or "penstock-work",
        keep=options.choice("keep", "none", KEEP),
        log_limit_bytes=options.count("log_limit_bytes", 10_000_000),
        log_days=options.number("log_days", 7.0),
        output_limit_bytes=options.count("output_limit_bytes", 10_000_000),
        report_type=options.choice("report_type", "research_report", REPORT_TYPES),
        report_types=options.text_table("report_types"),
        report_source=options.choice("report_source", "web", SOURCES),
        documents=options.text("documents"),
        retriever=options.text("retriever"),
        retriever_url=options.text("retriever_url"),
        url=None if url is None else url.rstrip("/"),
        key=Key(host.name, key_env, key_file),
        calls_lane=options.text("calls_lane") or CALLS_LANE,
        model=host.model or AUTO_MODEL,
        fast_model=options.text("fast_model"),
        smart_model=options.text("smart_model"),
        strategic_model=options.text("strategic_model"),
        embedding_model=options.text("embedding_model"),
        env=options.text_table("env"),
        pass_env=options.texts("pass_env"),
        require_context=options.flag("require_context", True),
        private_urls=options.flag("private_urls", False),
    )
    _check(host, read, options, bool(key_env or key_file))
    options.done()
    return read


def _check(host: Host, read: ResearcherOptions, options: Options, has_key: bool) -> None:
    check_key_env(options)
    for kind, type_ in read.report_types.items():
        if type_ not in REPORT_TYPES:
            options.problem("report_types", f"no such report; one of {', '.join(REPORT_TYPES)}", kind)
    if read.url is not None and not read.url.startswith(("http://", "https://")):
        options.problem("url", "must begin with http:// or https://")
    if read.url is not None and host.model is None:
        options.problem("model", "is missing; say which model of that server writes")
    if read.url is None and has_key:
        options.problem("key_env", "is for a server of your own; give its `url`, or remove the key")
    if read.report_source != "web" and read.documents is None:
        options.problem("documents", "is missing: report_source says that it is read; name a folder")
    if read.retriever == "custom" and read.retriever_url is None:
        options.problem("retriever_url", 'is missing: retriever = "custom" asks that address; give it')
    if read.retriever_url is not None and read.retriever not in (None, "custom"):
        options.problem("retriever_url", 'belongs to retriever = "custom"; remove it, or set that')


# ---- payloads


@dataclass(frozen=True)
class Wish:
    """What one payload asks for."""

    report_type: str
    report_source: str
    documents: str | None
    model: str | None
    order: dict[str, Any]  # for the child


def read_wish(kind: str, payload: Any, options: ResearcherOptions) -> Wish:
    """PermanentError for a payload that cannot be used."""
    fields = {"query": payload} if isinstance(payload, str) else payload
    if not isinstance(fields, dict):
        raise PermanentError(f'a payload for a researcher is a text or {{"query": …}}, not {_named(payload)}')
    unknown = sorted(set(fields) - set(_FIELDS))
    if unknown:
        raise PermanentError(f"the payload's {unknown[0]!r} is unknown; it may have {', '.join(_FIELDS)}")
    query = _text(fields, "query")
    if query is None or not query.strip():
        raise PermanentError("the payload has no `query`; say what to research")
    report_type = _choice(fields, "report_type", REPORT_TYPES) or _type_of(kind, options)
    source = _choice(fields, "report_source", SOURCES) or options.report_source
    documents = _documents(_text(fields, "documents"), options.documents)
    if source != "web" and documents is None and not fields.get("document_urls"):
        raise PermanentError(f"report_source {source!r} needs `documents` of the host: a folder to read from")
    order = {
        "query": query,
        "report_type": report_type,
        "report_source": source,
        "tone": _text(fields, "tone"),
        "custom_prompt": _text(fields, "custom_prompt") or "",
        "require_context": options.require_context,
        "arguments": _arguments(fields, report_type, options),
        "team": {
            "max_sections": _count(fields, "max_sections", 3),
            "guidelines": _texts(fields, "guidelines"),
            "follow_guidelines": _flag(fields, "follow_guidelines", bool(fields.get("guidelines"))),
        },
    }
    return Wish(report_type, source, documents, _text(fields, "model"), order)


def _type_of(kind: str, options: ResearcherOptions) -> str:
    if kind in options.report_types:
        return options.report_types[kind]
    return kind if kind in REPORT_TYPES else KINDS.get(kind, options.report_type)


def _arguments(fields: Mapping[str, Any], report_type: str, options: ResearcherOptions) -> dict[str, Any]:
    given = {name: _texts(fields, name) for name in (*_ADDRESSES, "query_domains") if fields.get(name)}
    for name in _ADDRESSES:
        for url in given.get(name, ()):  # the package would open what is no address as a file
            if (wrong := address_problem(url, inside_too=options.private_urls)) is not None:
                raise PermanentError(f"{name}: {url[:200]!r} {wrong}")
    if given and report_type == MULTI_AGENT:
        raise PermanentError(f"{next(iter(given))!r} is unknown to multi_agent; it searches by itself")
    return given


def _documents(asked: str | None, root: str | None) -> str | None:
    """The folder to read from: never outside the host's own, whoever wrote the payload."""
    if asked is None:
        return root
    if root is None:
        raise PermanentError(
            "`documents` of a payload is a folder inside the host's `documents`: it has none"
        )
    top = os.path.realpath(root)
    found = os.path.realpath(os.path.join(top, asked))
    if found != top and not found.startswith(top.rstrip(os.sep) + os.sep):
        raise PermanentError(f"documents: {asked!r} leads out of the host's own folder; name one inside it")
    return found


def _named(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__


def _wrong(name: str, wanted: str, value: Any) -> PermanentError:
    return PermanentError(f"the payload's {name!r} must be {wanted}, not {str(value)[:80]!r}")


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise _wrong(name, "a text", value)
    if value is not None and "\0" in value:
        raise PermanentError(f"the payload's {name!r} contains a NUL character")
    return value


def _choice(fields: Mapping[str, Any], name: str, allowed: tuple[str, ...]) -> str | None:
    value = _text(fields, name)
    if value is not None and value not in allowed:
        raise _wrong(name, f"one of {', '.join(allowed)}", value)
    return value


def _texts(fields: Mapping[str, Any], name: str) -> list[str]:
    value = fields.get(name) or []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _wrong(name, "a list of texts", value)
    return value


def _count(fields: Mapping[str, Any], name: str, default: int) -> int:
    value = fields.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST_SECTIONS:
        raise _wrong(name, f"a whole number from 1 to {_MOST_SECTIONS}", value)
    return value


def _flag(fields: Mapping[str, Any], name: str, default: bool) -> bool:
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise _wrong(name, "true or false", value)
    return value
