"""What is kept of a call's body and of its answer where [server] says `record_bodies = true`; else neither is."""

from __future__ import annotations

from typing import Any

import msgspec

KEPT_BYTES = 1 << 20
_FIGURES_BYTES = 2048  # of a payload, beside the body
_WORST = 6  # bytes that one byte may need in JSON


def kept_body(body: bytes, limit_bytes: int) -> dict[str, Any]:
    """The part of a task's payload that holds what the client asked; never more than a payload may have."""
    most = min(KEPT_BYTES, limit_bytes) - _FIGURES_BYTES
    return _kept("body", body, max(0, most))


class KeptAnswer:
    """Takes an answer's bytes as they are sent, up to a limit."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._cut = False

    def add(self, data: bytes) -> None:
        room = KEPT_BYTES - len(self._data)
        self._data += data[:room]
        self._cut = self._cut or len(data) > room

    def record(self) -> dict[str, Any]:
        """The part of a task's value that holds the answer: JSON as it is, a stream as its text."""
        if self._cut:
            return {"answer": self._data.decode(errors="replace"), "answer_cut": True}
        return _kept("answer", bytes(self._data), KEPT_BYTES) if self._data else {}


def _kept(name: str, data: bytes, most: int) -> dict[str, Any]:
    if len(data) > most:
        return {name: data[: most // _WORST].decode(errors="replace"), f"{name}_cut": True}
    try:
        # All of it: what is only passed over is not looked at, and a text that cannot be read is not to be kept.
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = data.decode(errors="replace")
        return {name: text} if len(data) * _WORST <= most else _kept_text(name, text, most)
    return {name: msgspec.Raw(data)}


def _kept_text(name: str, text: str, most: int) -> dict[str, Any]:
    if len(msgspec.json.encode(text)) <= most:
        return {name: text}
    return {name: text[: most // _WORST], f"{name}_cut": True}
