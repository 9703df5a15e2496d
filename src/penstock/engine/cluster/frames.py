"""How bytes become messages between the dispatcher and its driver: a head of JSON, and a body as it is."""

from __future__ import annotations

import struct

import msgspec

# What is read at a time, into room that stays: to ask for as much anew each time takes longer than the reading.
READ_BYTES = 262_144
_SIZES = struct.Struct("!IQ")  # of head and body


class Ask(msgspec.Struct, kw_only=True):
    """What the driver is to do; it answers by the number, once."""

    number: int
    verb: str  # join, hire, find, meet, call, kill, list, nodes
    worker: str = ""
    method: str = ""
    capacity: int = 1
    options: dict[str, msgspec.Raw] = {}


class Answer(msgspec.Struct, kw_only=True):
    number: int
    fault: str = ""  # one of FAULTS, or none
    error: str = ""


GONE = "gone"  # the worker is dead, or there is none of that name
AWAY = "away"  # it cannot be reached now
REFUSED = "refused"  # Ray will not have it: what it needs cannot be had
CUT = "cut"  # there is no driver, or no longer; or the worker obeys another dispatcher


def frame(head: Ask | Answer, body: bytes = b"") -> bytes:
    said = msgspec.json.encode(head)
    return _SIZES.pack(len(said), len(body)) + said + body


class Frames:
    """Cuts a stream into messages."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes | memoryview) -> list[tuple[bytes, bytes]]:
        """The messages that are whole by now, as head and body."""
        rest = self._rest
        rest += data
        found: list[tuple[bytes, bytes]] = []
        start = 0
        while len(rest) - start >= _SIZES.size:
            head_bytes, body_bytes = _SIZES.unpack_from(rest, start)
            head_at = start + _SIZES.size
            body_at = head_at + head_bytes
            end = body_at + body_bytes
            if len(rest) < end:
                break
            found.append((bytes(rest[head_at:body_at]), bytes(rest[body_at:end])))
            start = end
        del rest[:start]
        return found
