"""What the failure of a GPT-Researcher run means, judged by the exceptions that its process tells.

The package swallows errors and then stumbles over what it did not get, so the first cause counts, and what it
complained about before: a model that is not there fails for good, a server that cannot be reached is the host's
fault where the host has a server of its own, an answer without the form it needs is worth another try.
"""

from __future__ import annotations

import msgspec

from penstock.model import Verdict

_FOR_GOOD = frozenset({400, 401, 403, 404, 405, 413, 422})
_NO_DOCUMENTS = "Failed to load any documents"
_UNREACHED = ("ConnectionError", "ConnectError", "APITimeoutError", "TimeoutException", "ConnectTimeout")
_MISTAKES = ("builtins.AssertionError", "builtins.ImportError", "builtins.ValueError")
# Stumbling over an answer that has not the form which the code after it relies on.
_FORM = (
    *("builtins.AttributeError", "builtins.TypeError", "builtins.KeyError", "builtins.IndexError"),
    *("json.decoder.JSONDecodeError", "pydantic_core._pydantic_core.ValidationError"),
    "langchain_core.exceptions.OutputParserException",
)


class Failure(msgspec.Struct):
    """A run's own account of its end: exceptions from the outermost to their first cause."""

    types: list[str]
    texts: list[str]
    missing: str | None = None  # the module that could not be imported
    status: int = 0  # of the model call that failed
    notes: list[str] = []  # what the package complained about


def missing_package(host: str, python: str) -> str:
    return (
        f"{python} has no gpt-researcher; install it there with `pip install 'gpt-researcher>=0.15,<0.16'`, "
        f"or name the interpreter that has it: hosts.{host}.python"
    )


def judged(failure: Failure, host: str, python: str, url: str | None) -> tuple[Verdict, str]:
    if failure.missing is not None:
        if failure.missing.partition(".")[0] in (
            "gpt_researcher",
            "multi_agents",
            "backend",
            "langchain_core",
        ):
            return Verdict.HOST, missing_package(host, python)
        return Verdict.HOST, f"{python} has no {failure.missing}, which the run needs; install it there"
    told = _told(failure)
    if _NO_DOCUMENTS in " ".join(failure.texts):
        remedy = (
            "put .txt or .pdf files into its `documents` (.md needs packages that are not there by default)"
        )
        return Verdict.PERMANENT, f"{told}; {remedy}"
    if failure.status in _FOR_GOOD:
        return (
            Verdict.PERMANENT,
            f"{told}; the model server refuses it: correct the model, the key or the query",
        )
    if any(type_.endswith(_UNREACHED) for type_ in failure.types):
        verdict = Verdict.TEMPORARY if url is None else Verdict.HOST
        return verdict, f"{told}; the model server {url or 'of our own'} was not reached"
    if failure.status:
        return Verdict.TEMPORARY, told
    if failure.types[0] in _FORM:
        return (
            Verdict.TEMPORARY,
            f"{told}; a model's answer had not the form it needs: a larger one may do better",
        )
    return (Verdict.PERMANENT if failure.types[0] in _MISTAKES else Verdict.TEMPORARY), told


def _told(failure: Failure) -> str:
    """The outermost exception, its first cause, and the last complaint."""
    parts = [_named(failure.types[0], failure.texts[0])]
    if len(failure.types) > 1:
        parts.append(f"because of {_named(failure.types[-1], failure.texts[-1])}")
    if failure.notes and failure.notes[-1] not in failure.texts:
        parts.append(f"after it said: {failure.notes[-1]}")
    return ", ".join(parts)


def _named(type_: str, text: str) -> str:
    name = type_.rpartition(".")[2]
    return f"{name}: {text}" if text else name
