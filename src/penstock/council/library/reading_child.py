"""The process that reads documents: one after the other from stdin, each answered on stdout, until stdin ends.

A file may be made so that its reading never ends or takes all memory. Here it can be killed, and takes no more
than its share. Both ways a message is its length in eight bytes, then itself; of a file the form comes first.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from typing import BinaryIO

import msgspec

from penstock.council.library.formats import NoText, Unreadable, read
from penstock.council.library.sections import Form, Section
from penstock.errors import UsageError

LENGTH_BYTES = 8
MOST_S = 120.0  # for one file
_MEMORY_BYTES = 4 * 1024**3  # of addresses, which are more than what is used


class Read(msgspec.Struct):
    """What came of one file: its sections, or why there are none. `misses`: a package that is not installed."""

    sections: tuple[Section, ...] = ()
    note: str | None = None
    error: str | None = None
    is_without_text: bool = False
    misses: str | None = None


def answer(form: Form, data: bytes) -> Read:
    try:
        document = read(form, data)
        return Read(document.sections, document.note)
    except Unreadable as error:
        return Read(error=str(error), is_without_text=isinstance(error, NoText))
    except UsageError as error:
        return Read(misses=str(error))
    except MemoryError:
        return Read(error="wants too much memory")


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(LENGTH_BYTES) + message


def main(source: BinaryIO, sink: BinaryIO) -> None:
    while (form := _taken(source)) is not None:
        data = _taken(source)
        if data is None:
            return
        _limit_time()
        sink.write(framed(msgspec.json.encode(answer(Form(form.decode()), data))))
        sink.flush()


def _taken(source: BinaryIO) -> bytes | None:
    head = source.read(LENGTH_BYTES)
    size = int.from_bytes(head)
    message = source.read(size)
    return message if len(head) == LENGTH_BYTES and len(message) == size else None


def _limit_time() -> None:
    """Who waits for us kills us in time; where they are gone, the system does."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    soon = int(time.process_time() + MOST_S) + 1
    resource.setrlimit(
        resource.RLIMIT_CPU, (soon if most == resource.RLIM_INFINITY else min(soon, most), most)
    )


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    own = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    main(sys.stdin.buffer, own)
