"""The user's functions in the tests of hosts and engines. What one does, its payload says."""

from __future__ import annotations

import asyncio
import collections.abc
import ctypes
import os
import selectors
import socket
import sys
import threading
from typing import Any, NoReturn

from penstock import errors
from tests.conformance.host_phone import greeting, ring, ring_async

NOT_A_FUNCTION = 1


class Unpicklable(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")
        self.lock = threading.Lock()


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message")


# Made anew each time: an error that is raised again carries the frames of every time before.
_RAISED: dict[str, collections.abc.Callable[[], BaseException]] = {
    "temporary": lambda: errors.TemporaryError("try again", retry_after_s=7.0),
    "permanent": lambda: errors.PermanentError("never"),
    "host": lambda: errors.HostError("the host is ill"),
    "throttled": lambda: errors.ThrottledError("too much", retry_after_s=3.0),
    "attempt": lambda: errors.AttemptError("it failed"),
    "mistake": lambda: ValueError("a\nbad   value"),
    "luck": lambda: ConnectionResetError("gone"),
    "half a character": lambda: OSError("bad \udc80 name"),
    "memory": lambda: MemoryError("no room"),
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "unpicklable": lambda: Unpicklable(1, 2),
    "unreadable": Unreadable,
    "cancelled": asyncio.CancelledError,
    "group": lambda: ExceptionGroup("two", [ValueError("one"), errors.HostError("the host is ill")]),
}


def raises(name: str) -> NoReturn:
    raise _RAISED[name]()


def plain(payload: dict[str, Any]) -> Any:
    """What needs no waiting."""
    act = payload["act"]
    if act == "return":
        return payload.get("value")
    if act == "raise":
        raises(payload["what"])
    if act == "recurse":
        return plain(payload)
    if act == "huge":
        return "x" * payload["size"]
    if act == "unusable":
        return {"inside": object()}
    if act == "circular":
        circle: list[Any] = []
        circle.append(circle)
        return circle
    if act == "exit":
        os._exit(payload["status"])
    if act == "crash":
        ctypes.string_at(0)
    if act == "pid":
        return os.getpid()
    raise AssertionError(act)


def sync(payload: dict[str, Any]) -> Any:
    if payload["act"] == "meet":
        return ring(payload)
    if payload["act"] == "family":
        return _family(payload)
    if "port" in payload:  # it is told when
        ring(payload)
    return plain(payload)


async def on_loop(payload: dict[str, Any]) -> Any:
    act = payload["act"]
    if act == "meet":
        return await ring_async(payload)
    if act == "block":
        return ring(payload)
    if act == "block in a selector":
        return _wait_in_selector(payload)
    if act == "block in a task of its own":
        return await asyncio.gather(_blocking(payload))
    if act == "ignore":
        return await _ignore(payload)
    if act == "cancel itself":
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()
    if act == "end the loop":
        task = asyncio.create_task(_exit())
        await asyncio.wait({task})
        return f"still here after {task.exception()!r}"
    if act == "thread":
        return await asyncio.to_thread(plain, {"act": "return", "value": "from a thread"})
    return plain(payload)


async def _blocking(payload: dict[str, Any]) -> str:
    return ring(payload)


def _wait_in_selector(payload: dict[str, Any]) -> str:
    """As `subprocess.run` waits for a program's output."""
    with (
        socket.create_connection(("127.0.0.1", payload["port"])) as line,
        selectors.DefaultSelector() as selector,
    ):
        line.sendall(greeting(payload))
        selector.register(line, selectors.EVENT_READ)
        selector.select()
        return line.recv(100).decode().strip()


async def _exit() -> None:
    sys.exit(5)


async def _ignore(payload: dict[str, Any]) -> str:
    """Code that takes no cancellation for an answer, until it is told to end on the phone."""
    call = asyncio.ensure_future(ring_async(payload))
    while not call.done():
        try:
            await asyncio.shield(call)
        except asyncio.CancelledError:
            continue
    return call.result()


def _family(payload: dict[str, Any]) -> Any:
    """A child process that calls as well, under its own name."""
    import subprocess

    from tests.conformance import host_program

    with subprocess.Popen([sys.executable, host_program.__file__], stdin=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        child.stdin.write(host_program.spoken({**payload, "act": "meet", "name": "child"}))
        child.stdin.close()
        return ring(payload)


class Callable:
    async def __call__(self, payload: dict[str, Any]) -> Any:
        return ["async object", await on_loop(payload)]


async_object = Callable()


def returns_a_coroutine(payload: dict[str, Any]) -> Any:
    return on_loop(payload)
