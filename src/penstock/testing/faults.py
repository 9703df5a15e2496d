"""The faults a simulated model server can be told to have: what goes wrong with one call, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from penstock.errors import UsageError

Garbage = Literal[
    "bad-utf8",  # bytes that are no UTF-8
    "empty",  # 200 and not a byte
    "endless",  # a stream that never ends
    "html",  # a proxy's error page, with status 200
    "huge-line",  # one line of `size_bytes`
    "not-json",  # a text
    "truncated",  # JSON that stops in the middle
    "wrong-types",  # JSON in which every field has another type
]

Kind = Literal["refuse", "hang", "disconnect", "cut", "garbage", "trickle", "wrong-length", "error-inside"]


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with a call. Made by the functions below, which take what each kind needs."""

    kind: Kind
    status: int = 500
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    after_chunks: int | None = None
    garbage: Garbage = "not-json"
    size_bytes: int = 8 * 1024 * 1024
    bytes_per_s: float = 0.0

    @classmethod
    def refuse(
        cls,
        status: int = 500,
        body: Any = None,
        *,
        retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Fault:
        """Answer with this status at once; `body` is a text, bytes, or an object for JSON."""
        if not 400 <= status <= 599:
            raise UsageError(f"Fault.refuse: status {status} is no refusal; give one from 400 to 599")
        after = {} if retry_after_s is None else {"Retry-After": f"{retry_after_s:g}"}
        return cls("refuse", status=status, body=body, headers={**after, **(headers or {})})

    @classmethod
    def hang(cls, after_chunks: int | None = None) -> Fault:
        """Say nothing more: before the headers, or after that many chunks of a stream."""
        return cls("hang", after_chunks=_chunks("hang", after_chunks))

    @classmethod
    def disconnect(cls, after_chunks: int | None = None) -> Fault:
        """Reset the connection: before the headers, or after that many chunks."""
        return cls("disconnect", after_chunks=_chunks("disconnect", after_chunks))

    @classmethod
    def cut(cls, after_chunks: int = 1) -> Fault:
        """End the answer in good order but too early: no finish reason, no [DONE]."""
        return cls("cut", after_chunks=_chunks("cut", after_chunks))

    @classmethod
    def nonsense(cls, garbage: Garbage = "not-json", *, size_bytes: int = 8 * 1024 * 1024) -> Fault:
        """Status 200 with something that is no answer."""
        if garbage not in get_args(Garbage):
            raise UsageError(
                f"Fault.nonsense: there is no {garbage!r}; one of {', '.join(get_args(Garbage))}"
            )
        return cls("garbage", garbage=garbage, size_bytes=size_bytes)

    @classmethod
    def trickle(cls, bytes_per_s: float) -> Fault:
        """The right answer, byte by byte."""
        if bytes_per_s <= 0:
            raise UsageError(f"Fault.trickle: bytes_per_s is {bytes_per_s:g}; it must be above 0")
        return cls("trickle", bytes_per_s=bytes_per_s)

    @classmethod
    def wrong_length(cls) -> Fault:
        """A Content-Length beyond the answer's end, then the connection is closed."""
        return cls("wrong-length")

    @classmethod
    def error_inside(cls, message: str = "the model crashed", after_chunks: int = 0) -> Fault:
        """Status 200 and an error object: instead of the answer, or in its stream after that many chunks."""
        return cls("error-inside", body=message, after_chunks=_chunks("error_inside", after_chunks))


def _chunks(name: str, after: int | None) -> int | None:
    if after is not None and after < 0:
        raise UsageError(f"Fault.{name}: after_chunks is {after}; it must be at least 0")
    return after
