"""llama.cpp's own server as a process of its own, for local_server.py, which runs this file as a program.

It is told by a line of JSON on stdin what to load and which key to ask callers for, so that no other user of
the machine can read the key from a list of processes. When its health endpoint says ready it says on stdout
where it listens. It ends when stdin does: with whoever started it, however that one ended.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any

_LOOPBACK = "127.0.0.1"
_WARNINGS = 2  # what llama.cpp logs: also errors, but not a dozen lines for each call
_SET_PARENT_DEATH_SIGNAL = 1  # of prctl(2)
_HEALTH_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Order:
    """What the parent asks for. `context` is tokens per slot."""

    gguf: str
    model: str
    slots: int
    context: int
    threads: int
    embeddings: bool
    key: str
    parent: int


def main() -> None:
    # What the libraries print is log, not answer.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as answer:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        order = Order(**json.loads(sys.stdin.buffer.readline()))
        _end_with(order.parent)
        server = _serve(order)
        _wait_healthy(server.listening_address)
        answer.write(f"{server.listening_address}\n")
    sys.stdin.buffer.read()
    os._exit(0)  # the library's own clean-up would wait for calls that nobody reads any more


def _end_with(parent: int) -> None:
    """Loading a model takes seconds in which no Python runs: on Linux the kernel sees to it."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _serve(order: Order) -> Any:
    os.environ["GGML_NO_BACKTRACE"] = "1"  # it would start a debugger on itself, and drown its last words
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = order.gguf
    params.model_alias = {order.model}
    params.hostnames = [_LOOPBACK]
    params.port = 0  # the kernel picks a free one
    params.api_keys = [order.key]
    params.n_parallel = order.slots
    params.n_ctx = order.context * order.slots
    params.cpuparams.n_threads = order.threads
    params.cpuparams_batch.n_threads = order.threads
    params.embedding = order.embeddings
    params.endpoint_metrics = True
    params.ui = False
    params.cors_origins = ""
    params.cache_ram_mib = 0  # it would keep up to 8 GiB of past prompts
    params.verbosity = _WARNINGS
    try:
        return xllamacpp.Server(params)  # returns when the model is loaded
    except RuntimeError:
        sys.exit(1)  # the log has said why, better than a traceback could


def _wait_healthy(url: str) -> None:
    """How long this may take is the parent's to say."""
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
            with contextlib.closing(connection):
                connection.request("GET", "/health")
                if connection.getresponse().status == http.client.OK:
                    return
        time.sleep(_HEALTH_PAUSE_S)


if __name__ == "__main__":
    main()
