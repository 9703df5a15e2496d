"""The library's process: one order at a time on stdin, its answer on stdout. library_process.py runs it.

It has Chroma's collections and the embedding model, which are large, hold locks and may die: not for the
dispatcher's process. It ends when stdin does: with whoever started it, however that one ended.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from typing import Any, BinaryIO

import msgspec

from penstock.council.library.librarian import Librarian, NeedsVectors, Order
from penstock.errors import AttemptError, TemporaryError

LENGTH_BYTES = 4  # of the number before each order and each answer
_SET_PARENT_DEATH_SIGNAL = 1  # of prctl(2)

_orders = msgspec.msgpack.Decoder(Order)


class Answer(msgspec.Struct, omit_defaults=True):
    """What came of an order: a value, texts that a model elsewhere must make vectors of, or an error."""

    value: Any = None
    needs: list[str] | None = None
    error: str | None = None
    is_temporary: bool = False


def main(parent: int) -> None:
    # What the libraries print is log, not answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    _end_with(parent)
    warnings.simplefilter("ignore")
    librarian = Librarian()
    while (order := _read(sys.stdin.buffer)) is not None:
        answer = msgspec.msgpack.encode(_answer(librarian, order))
        answers.write(len(answer).to_bytes(LENGTH_BYTES, "big") + answer)
        answers.flush()
    librarian.close()
    os._exit(0)  # the libraries' threads have nothing left to do, and some would be waited for


def _read(orders: BinaryIO) -> bytes | None:
    length = orders.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        return None
    size = int.from_bytes(length, "big")
    order = orders.read(size)
    return order if len(order) == size else None


def _answer(librarian: Librarian, order: bytes) -> Answer:
    try:
        return Answer(librarian.perform(_orders.decode(order)))
    except NeedsVectors as need:
        return Answer(needs=list(need.texts))
    except AttemptError as error:
        return Answer(error=str(error), is_temporary=isinstance(error, TemporaryError))


def _end_with(parent: int) -> None:
    """Chroma works for seconds without a look at stdin: on Linux the kernel sees to it."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
