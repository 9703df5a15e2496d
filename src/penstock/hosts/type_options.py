"""The options of each type of host but `openai` and `researcher`, as its adapter takes them.

Small to import, because every command that reads a config asks them; the adapters are not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from penstock.config.keys import CALLS_LANE, Bounds, is_callable_path
from penstock.config.problems import misfit
from penstock.hosts.model_options import ModelOptions, Timeouts, read_options
from penstock.hosts.options import Options
from penstock.model import Host, Verdict

# ---- python

ANY_KIND = "*"


@dataclass(frozen=True, slots=True)
class PythonOptions:
    calls: Mapping[str, str]  # kind, or "*" for the rest -> package.module:function
    isolated: bool
    path: tuple[str, ...]


def read_python(host: Host) -> PythonOptions:
    options = Options(host)
    call = options.text("call")
    calls = options.text_table("calls")
    if call is not None and calls:
        options.problem("call", "stands beside calls; give only one of them")
    elif call is not None:
        if not is_callable_path(call):
            options.problem("call", _CALL_LIKE)
        calls = {ANY_KIND: call}
    elif not options.anything("calls") and options.anything("call") is None:
        options.problem("call", 'is missing; name the function to call, such as "package.module:function"')
    else:
        for kind, target in calls.items():
            if not is_callable_path(target):
                options.problem("calls", _CALL_LIKE, kind)
    read = PythonOptions(
        calls,
        isolated=options.choice("isolation", "thread", ("thread", "process")) == "process",
        path=options.texts("path"),
    )
    options.done()
    return read


_CALL_LIKE = 'must be like "package.module:function"'

# ---- command

EX_TEMPFAIL = 75
STDIN = ("json", "text", "none")
OUTPUT = ("auto", "json", "text")

# An argument as its pieces: texts, and fields of the payload.
Piece: TypeAlias = tuple[bool, str]  # whether it is a field; the text or the field's name
Argument: TypeAlias = tuple[Piece, ...]

_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class CommandOptions:
    argv: tuple[Argument, ...]
    payload_argv: bool
    stdin: str
    output: str
    temporary: frozenset[int]  # exit statuses worth another try
    env: Mapping[str, str]
    cwd: str | None
    limit_bytes: int


def read_command(host: Host) -> CommandOptions:
    options = Options(host)
    payload_argv = options.flag("allow_payload_argv", False)
    read = CommandOptions(
        argv=_argv(options, may_miss=payload_argv),
        payload_argv=payload_argv,
        stdin=options.choice("stdin", "json", STDIN),
        output=options.choice("output", "auto", OUTPUT),
        temporary=frozenset(options.wholes("temporary_exit", (EX_TEMPFAIL,))),
        env=options.text_table("env"),
        cwd=options.text("cwd"),
        limit_bytes=options.count("output_limit_bytes", 1_000_000),
    )
    options.done()
    return read


def _argv(options: Options, *, may_miss: bool) -> tuple[Argument, ...]:
    texts = options.texts("argv")
    if not options.anything("argv") and not may_miss:
        options.problem("argv", 'is missing; give the program and its arguments, such as ["prog", "{field}"]')
    arguments = []
    for number, text in enumerate(texts):
        try:
            arguments.append(_pieces(text))
        except ValueError as error:
            options.problem("argv", str(error), number)
    return tuple(arguments)


def _pieces(text: str) -> Argument:
    pieces: list[Piece] = []
    end = 0
    for found in _BRACES.finditer(text):
        pieces.append((False, text[end : found.start()]))
        end = found.end()
        token = found.group()
        if token in ("{{", "}}"):
            pieces.append((False, token[0]))
        elif found.group(1) is not None and _FIELD.fullmatch(found.group(1)):
            pieces.append((True, found.group(1)))
        else:
            raise ValueError(
                "has braces around what is no field of a payload; write {name}, or {{ and }} for braces"
            )
    pieces.append((False, text[end:]))
    return tuple(piece for piece in pieces if piece[1])


# ---- simulated

FAILURES = (Verdict.TEMPORARY, Verdict.PERMANENT, Verdict.HOST, Verdict.THROTTLED)
_SHARE = Bounds(0, 1)


@dataclass(frozen=True, slots=True)
class SimulatedOptions:
    duration_s: float = 1.0
    jitter: float = 0.0
    fail: Mapping[Verdict, float] = field(default_factory=dict)
    seed: int | str = 0
    cost_usd: float | None = None


def read_simulated(host: Host) -> SimulatedOptions:
    options = Options(host)
    seed = options.anything("seed", 0)
    if not isinstance(seed, int | str):
        options.problem("seed", "must be a number or a text")
    fail: Mapping[Verdict, float] = {}
    try:
        fail = failure_rates(options.anything("fail"))
    except ValueError as error:
        options.problem("fail", str(error))
    read = SimulatedOptions(
        duration_s=options.number("duration_s", 1.0),
        jitter=options.number("jitter", 0.0, most=1.0),
        fail=fail,
        seed=seed,
        cost_usd=options.number("cost_usd", 0.0) or None,
    )
    options.done()
    return read


def failure_rates(fail: Any) -> dict[Verdict, float]:
    """How often attempts fail in which way; ValueError says what is wrong with it, and does not repeat it."""
    if fail is None:
        return {}
    if isinstance(fail, str):
        return {_failure(fail): 1.0}
    if not isinstance(fail, Mapping):
        raise ValueError("must be a verdict or a table of rates, such as { temporary = 0.1 }")
    rates = {_failure(name): rate for name, rate in fail.items()}
    if any(misfit(rate, _SHARE) is not None for rate in rates.values()):
        raise ValueError("must have a number from 0 to 1 as every rate")
    if sum(rates.values()) > 1:
        raise ValueError("has rates that add up to more than 1; lower them")
    return rates


def _failure(name: Any) -> Verdict:
    if name not in FAILURES:
        raise ValueError(f"has an unknown failure; choose from {', '.join(FAILURES)}")
    return Verdict(name)


# ---- local

NOT_STARTED = "http://127.0.0.1/v1"  # until the server runs
_MOST_SLOTS = 256
_MOST_THREADS = 512
_LEAST_CONTEXT = 64  # with less the server does not even start


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """`context` is tokens per slot; `idle_s` of 0 keeps the server until the dispatcher ends."""

    gguf: str | None  # the packaged model for None
    model: str
    slots: int = 1
    context: int = 4096
    threads: int = 1
    embeddings: bool = False
    idle_s: float = 300.0
    start_s: float = 120.0
    environment: Mapping[str, str] = field(default_factory=dict)  # added to the dispatcher's own


@dataclass(frozen=True, slots=True)
class LocalOptions:
    server: ServerOptions
    calls: ModelOptions


def read_local(host: Host) -> LocalOptions:
    options = Options(host)
    default = ServerOptions(None, "")
    read = ServerOptions(
        gguf=options.text("gguf"),
        model=host.model or host.name,
        slots=host.auto.max if host.auto is not None else host.slots,
        context=options.count("context", default.context),
        threads=options.count("threads", default.threads),
        embeddings=options.flag("embeddings", default.embeddings),
        idle_s=options.number("idle_s", default.idle_s),
        start_s=options.number("start_s", default.start_s),
        environment=options.text_table("environment"),
    )
    if read.slots > _MOST_SLOTS:
        options.problem("slots", f"must be at most {_MOST_SLOTS}: llama.cpp's server takes no more")
    if read.threads > _MOST_THREADS:
        options.problem("threads", f"must be at most {_MOST_THREADS}: llama.cpp takes no more")
    if read.context < _LEAST_CONTEXT:
        options.problem("context", f"must be {_LEAST_CONTEXT} tokens or more")
    # Those that mean what they mean for an openai host.
    given = {name: host.options[name] for name in ("timeouts", "defaults") if name in host.options}
    calls = options.including(read_options, replace(host, options={**given, "url": NOT_STARTED}))
    options.done()
    assert calls is not None
    return LocalOptions(read, calls)


# ---- file_prompt

MAX_FILE_BYTES = 8 * 1024 * 1024
_NOWHERE = "http://127.0.0.1/v1"  # until an attempt is let in
# Behind our own door a call may have to queue: the attempt's own time limit is the bound.
_PATIENT = Timeouts(first_token_s=86_400.0, total_s=86_400.0)
_OF_SERVER = ("key_env", "key_file", "ca_file", "headers")


@dataclass(frozen=True, slots=True)
class FilePromptOptions:
    calls: ModelOptions
    calls_lane: str
    root: str
    limit_bytes: int


def read_file_prompt(host: Host) -> FilePromptOptions:
    options = Options(host)
    calls_lane = options.text("calls_lane") or CALLS_LANE
    root = options.text("root") or "."
    limit_bytes = options.count("max_file_bytes", MAX_FILE_BYTES)
    given = host.options
    if given.get("url") is None:
        for name in _OF_SERVER:
            if name in given:
                options.problem(name, "belongs to the server of `url`; add url, or remove this")
        given = {"url": _NOWHERE, **{name: value for name, value in given.items() if name not in _OF_SERVER}}
    calls = options.including(read_options, replace(host, options=given))
    options.done()
    assert calls is not None
    if host.options.get("url") is None and "timeouts" not in host.options:
        calls = replace(calls, timeouts=_PATIENT)
    return FilePromptOptions(calls, calls_lane, root, limit_bytes)


# ---- agent

OUTPUT_LIMIT_BYTES = 10_000_000


@dataclass(frozen=True, slots=True)
class AgentOptions:
    temporary: frozenset[int]
    limit_bytes: int


def read_agent(host: Host) -> AgentOptions:
    options = Options(host)
    read = AgentOptions(
        temporary=frozenset(options.wholes("temporary_exit", (EX_TEMPFAIL,))),
        limit_bytes=options.count("output_limit_bytes", OUTPUT_LIMIT_BYTES),
    )
    options.done()
    return read
