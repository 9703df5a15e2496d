"""GPT-Researcher as a host: each attempt is a process of its own with its own environment and working folder.

    [hosts.reports]
    type = "researcher"
    slots = 15
    serves = ["gptr", "deep", "ma"]
    python = ".venv-researcher/bin/python"   # the interpreter that has gpt-researcher
    model = "qwen2.5-32b"                    # asked of Penstock itself, in the lane `calls`
    report_source = "local"                  # or "web", "hybrid"
    documents = "library"

The package is used as it is published: it is configured by environment variables and writes into the folder it is
run in, which is why no two runs share a process or a folder. What it prints is the attempt's log, readable while
it runs; the report, its sources and what it says it cost are the result.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from penstock.clock import Clock
from penstock.errors import HostError
from penstock.hosts import researcher_child
from penstock.hosts.base import Health, Job, Program
from penstock.hosts.model_reply import Usage
from penstock.hosts.own_door import OwnDoor
from penstock.hosts.researcher_failures import Failure, judged, missing_package
from penstock.hosts.researcher_options import MULTI_AGENT, Wish, read_options, read_wish
from penstock.hosts.workspace import AttemptLog, Redact, Workspace, clean
from penstock.model import Host, Outcome, Verdict
from penstock.trace import passed_on

_LOG_CHARS = 4000
_ERROR_CHARS = 1900
_CHECK_S = 60.0  # a slow disk needs some time for the first look at a thousand files
_LEAST_SECRET = 4
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# What a program needs of a machine; everything else a run is given by name.
_PASSED = (
    *("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)
_COUNTED = {"LLM_KWARGS": '{"stream_usage": true}'}  # or streamed answers are not counted
# Calls that come back to us may wait long in our queue, and would be made again and again: the run's own time-out
# is the bound.
_DAY_S = 86_400
_PATIENT = {
    "LLM_KWARGS": f'{{"stream_usage": true, "request_timeout": {_DAY_S}}}',
    "EMBEDDING_KWARGS": f'{{"request_timeout": {_DAY_S}}}',
    "LANGCHAIN_OPENAI_STREAM_CHUNK_TIMEOUT_S": "0",
}
_LOOK = """
import importlib.metadata, importlib.util
print(importlib.metadata.version("gpt-researcher"), importlib.util.find_spec("multi_agents") is not None)
"""
_SECRET_NAME = re.compile("KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.I)
_KNOWN = re.compile(r"0\.15(\.|$)")


class _Answer(msgspec.Struct):
    """What the child says."""

    result: dict[str, Any] | None = None
    failure: Failure | None = None


_answer = msgspec.json.Decoder(_Answer)


class ResearcherAdapter:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._options = read_options(host)
        self._door: OwnDoor | None = host.options.get("door")
        self._base = Path(self._options.work_dir) / host.name

    async def open(self) -> None:
        await asyncio.to_thread(clean, self._base, self._options.keep, self._options.log_days)

    async def close(self) -> None:
        pass

    def work(self, job: Job) -> Program:
        options = self._options
        wish = read_wish(job.kind, job.payload, options)
        wish = replace(wish, model=job.model or wish.model)
        url, key = self._entrance(job)
        env = self._environment(wish, url, key)
        if job.trace is not None:
            headers = passed_on(job.trace)
            env |= {"TRACEPARENT": headers["traceparent"], "TRACESTATE": headers.get("tracestate", "")}
        name = f"{job.task}.{job.attempt}"
        redact = _redaction(self._secrets(env, key))
        log = AttemptLog(self._base / f"{name}.log", options.log_limit_bytes, redact)
        space = Workspace(self._base, name, options.keep, log)
        env |= {"HOME": str(space.folder), "TMPDIR": str(space.folder)} | dict(options.env)
        if options.url is None:
            _past_proxies(env, url)

        def outcome(status: int, stdout: bytes, stderr: bytes) -> Outcome:
            ended = self._outcome(status, stdout, redact(stderr), wish)
            space.done = ended.verdict is Verdict.DONE
            # A report is what it is: a word of it may be a setting's value. Errors are read by anybody.
            error = None if ended.error is None else redact(ended.error.encode(errors="replace")).decode()
            return replace(ended, error=None if error is None else error[:_ERROR_CHARS])

        return Program(
            argv=(options.python, "-P", researcher_child.__file__),
            outcome=outcome,
            stdin=msgspec.json.encode({**wish.order, "parent": os.getpid()}),
            env=env,
            cwd=str(space.folder),
            output_limit_bytes=options.output_limit_bytes,
            inherits=False,
            before=space.make,
            heard=log.write,
            after=space.leave,
        )

    async def check(self) -> Health:
        return await asyncio.to_thread(self._look)

    # ---- what a run is given

    def _entrance(self, job: Job) -> tuple[str, str | None]:
        """Where its model calls go, and their key."""
        if self._options.url is not None:
            return self._options.url, self._options.key.value()
        if self._door is None:
            raise HostError(
                f"hosts.{self._host.name} has no `url`, and there is no front door of our own here"
            )
        access = self._door.admit(job, self._options.calls_lane)
        return access.url, access.key

    def _environment(self, wish: Wish, url: str, key: str | None) -> dict[str, str]:
        options = self._options
        env = {name: os.environ[name] for name in (*_PASSED, *options.pass_env) if name in os.environ}
        env |= {
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": key or "none",  # clients want one also where the server does not
            "FAST_LLM": f"openai:{wish.model or options.fast_model or options.model}",
            "SMART_LLM": f"openai:{wish.model or options.smart_model or options.model}",
            "STRATEGIC_LLM": f"openai:{wish.model or options.strategic_model or options.model}",
            "EMBEDDING": f"custom:{options.embedding_model or options.model}",
            **(_PATIENT if options.url is None else _COUNTED),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "PIP_NO_INDEX": "1",  # the package would install what it misses, in the middle of a run
            "PYTHONUNBUFFERED": "1",
        }
        if wish.documents is not None:
            env["DOC_PATH"] = wish.documents
        if options.retriever is not None or options.retriever_url is not None:
            env["RETRIEVER"] = options.retriever or "custom"
        if options.retriever_url is not None:
            env["RETRIEVER_ENDPOINT"] = options.retriever_url
        return env

    def _secrets(self, env: Mapping[str, str], key: str | None) -> list[str]:
        passed = [env[name] for name in self._options.pass_env if name in env]
        named = [value for name, value in self._options.env.items() if _SECRET_NAME.search(name)]
        found = {secret for secret in (key or "", *passed, *named) if len(secret) >= _LEAST_SECRET}
        return sorted(
            found, key=len, reverse=True
        )  # or the rest of one that begins like another would be told

    # ---- what became of it

    def _outcome(self, status: int, stdout: bytes, stderr: bytes, wish: Wish) -> Outcome:
        said = _COLOURS.sub("", stderr.decode(errors="replace"))
        logs = said[-_LOG_CHARS:] or None
        try:
            answer = _answer.decode(stdout) if stdout else _Answer()
        except (msgspec.MsgspecError, UnicodeDecodeError):  # killed while it wrote
            answer = _Answer()
        if answer.result is not None and status == 0:
            return self._success(answer.result, wish, logs)
        if answer.failure is not None:
            verdict, error = judged(answer.failure, self._host.name, self._options.python, self._options.url)
            needs_fix = answer.failure.missing is not None
            return Outcome(verdict, error=error, logs=logs, needs_fix=needs_fix)
        ended = f"killed by {_signal_name(-status)}" if status < 0 else f"exit status {status}"
        last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "")
        error = f"GPT-Researcher ended without a result, {ended}{': ' if last else ''}{last}"
        return Outcome(Verdict.TEMPORARY, error=error, logs=logs)

    def _success(self, result: dict[str, Any], wish: Wish, logs: str | None) -> Outcome:
        used = {
            model: Usage(u["input"], u["output"], u["input"] + u["output"])
            for model, u in result.pop("usage", {}).items()
        }
        tokens = sum(usage.total for usage in used.values())
        value = {
            "query": wish.order["query"],
            "report_source": wish.report_source,
            "tokens": tokens,
            **result,
        }
        if self._options.url is None:
            # Each call was a task of its own, and counted where it ran.
            return Outcome(Verdict.DONE, value, logs=logs)
        costs = [usage.cost_usd(self._host.prices, model) for model, usage in used.items()]
        known = [cost for cost in costs if cost is not None]
        return Outcome(Verdict.DONE, value, tokens=tokens, cost_usd=sum(known) if known else None, logs=logs)

    # ---- whether it could

    def _look(self) -> Health:
        options = self._options
        if options.documents is not None and not os.path.isdir(options.documents):
            return Health(
                False, f"hosts.{self._host.name}.documents: no folder {options.documents!r}; make it"
            )
        for name in options.pass_env:
            if name not in os.environ:
                return Health(False, f"hosts.{self._host.name}.pass_env: there is no variable {name}; set it")
        try:
            options.key.value()
            looked = subprocess.run(
                [options.python, "-P", "-c", _LOOK],
                capture_output=True,
                text=True,
                timeout=_CHECK_S,
                check=False,
            )
        except HostError as error:
            return Health(False, str(error))
        except (OSError, subprocess.TimeoutExpired) as error:
            return Health(
                False, f"hosts.{self._host.name}.python: {options.python} cannot be run ({error}); correct it"
            )
        if looked.returncode != 0:
            return Health(False, missing_package(self._host.name, options.python))
        version, _, has_team = looked.stdout.strip().partition(" ")
        if not _KNOWN.match(version):
            return Health(True, f"gpt-researcher {version}: made for 0.15, others may differ", amiss=True)
        if has_team != "True":
            return Health(True, f"gpt-researcher {version}, without {MULTI_AGENT}", amiss=True)
        return Health(True, f"gpt-researcher {version}")


def _past_proxies(env: dict[str, str], url: str) -> None:
    """Our own door is on this machine: no proxy finds it."""
    past = env.get("no_proxy") or env.get("NO_PROXY") or ""
    door = urlsplit(url).hostname or ""
    env["NO_PROXY"] = env["no_proxy"] = past if past.strip() == "*" else ",".join(filter(None, (past, door)))


def _redaction(secrets: list[str]) -> Redact:
    hidden = [secret.encode() for secret in secrets]

    def redact(data: bytes) -> bytes:
        for secret in hidden:
            data = data.replace(secret, b"[key]")
        return data

    return redact


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def make(host: Host, clock: Clock) -> ResearcherAdapter:
    return ResearcherAdapter(host)
