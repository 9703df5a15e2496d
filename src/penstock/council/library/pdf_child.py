"""The process that reads PDFs: one after the other from stdin, each answered on stdout, until stdin ends.

A file may be made so that its reading never ends or takes all memory. Here it can be killed, and takes no more
than its share. Both ways a message is its length in eight bytes, then itself.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import BinaryIO

import msgspec

from penstock.council.library.formats import Unreadable, read
from penstock.council.library.sections import Form, Section
from penstock.errors import UsageError

LENGTH_BYTES = 8
_MEMORY_BYTES = 4 * 1024**3  # of addresses, which are more than what is used


class Read(msgspec.Struct):
    """What came of one file: its sections, or why there are none. `misses`: a package that is not installed."""

    sections: tuple[Section, ...] = ()
    error: str | None = None
    misses: str | None = None


def answer(data: bytes) -> Read:
    try:
        return Read(read(Form.PDF, data).sections)
    except Unreadable as error:
        return Read(error=str(error))
    except UsageError as error:
        return Read(misses=str(error))
    except MemoryError:
        return Read(error="wants too much memory")


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(LENGTH_BYTES) + message


def main(source: BinaryIO, sink: BinaryIO) -> None:
    while head := source.read(LENGTH_BYTES):
        data = source.read(int.from_bytes(head))
        sink.write(framed(msgspec.json.encode(answer(data))))
        sink.flush()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    own = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    main(sys.stdin.buffer, own)
