"""A user's callable: found by its name, run in a thread or a worker process, never by the dispatcher.

`search_path` goes to the end of `sys.path`: a file beside the config must not take the place of a library
that the dispatcher itself imports later.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from penstock.engine.outcomes import failure, stopped, success
from penstock.errors import CodeMissing
from penstock.model import Outcome
from penstock.telemetry.ambient import within

# What is said between a worker process and its pool: an attempt's number; yes or no; that it is through.
NUMBER_BYTES = 8
THROUGH = bytes(NUMBER_BYTES)  # the number of no attempt
GO = b"y"
NO_GO = b"n"
_MOST_LOOKS = 100


def look_anew() -> None:
    """Let modules be found whose files were added since somebody last looked for any.

    Python forgets what it knows of folders that are not there one by one. Threads that make it do so at the same
    time take entries away from each other, and it fails with a KeyError; the next try finds fewer of them.
    """
    for _ in range(_MOST_LOOKS):
        with contextlib.suppress(KeyError):
            importlib.invalidate_caches()
            return


def load(target: str, search_path: Sequence[str]) -> Callable[[Any], Any]:
    """The function that `pkg.mod:fn` names. Importing runs user code: not for the dispatcher's thread."""
    module_name, _, name = target.partition(":")
    for folder in search_path:
        if folder not in sys.path:
            sys.path.append(folder)
    if module_name not in sys.modules:
        look_anew()  # its file may have been added since the last attempt
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if f"{module_name}.".startswith(f"{missing}."):
            raise CodeMissing(
                f"no module {missing!r} for {target!r}; install it, or add its folder to the host's `path`"
            ) from None
        raise CodeMissing(
            f"{target!r} cannot be imported: it needs module {missing!r}; install that"
        ) from error
    function: Any = module
    for part in name.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        place = getattr(module, "__file__", None) or module_name
        raise CodeMissing(
            f"no function {name!r} in {place}; correct the host's `call`, or define it there", what="function"
        )
    return function  # type: ignore[no-any-return]


def is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__ is meant
    )


def invoke(function: Callable[[Any], Any], payload: Any, trace: str | None = None) -> Outcome:
    """Call it here and now, in the attempt's trace; whatever it does, this returns."""
    try:
        with within(trace):
            value = function(payload)
            if inspect.iscoroutine(value):
                value = asyncio.run(_finish(value))
        return success(value)
    except BaseException as error:  # noqa: BLE001 - this runs the attempt: SystemExit must not end our thread
        return failure(error)


async def _finish(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return await coroutine


class _Line:
    """The way from a worker process to its pool, a socket. Without one the attempt just begins."""

    descriptor: int | None = None


def set_line(descriptor: int) -> None:
    os.set_inheritable(descriptor, False)
    _Line.descriptor = descriptor


def run_isolated(
    number: int, target: str, payload: Any, search_path: Sequence[str], trace: str | None = None
) -> Outcome:
    """What a worker process does for an attempt. Its outcome can always be pickled: exceptions stay here.

    It says which attempt it has, asks whether to begin, and says when it is through: an attempt that was
    stopped meanwhile must not run, and nobody is to be killed for one that is over.
    """
    line = _Line.descriptor
    if line is None:
        return _load_and_invoke(target, payload, search_path, trace)
    os.write(line, number.to_bytes(NUMBER_BYTES, "little"))
    if os.read(line, 1) != GO:
        return stopped()
    outcome = _load_and_invoke(target, payload, search_path, trace)
    os.write(line, THROUGH)
    return outcome


def _load_and_invoke(target: str, payload: Any, search_path: Sequence[str], trace: str | None) -> Outcome:
    try:
        function = load(target, search_path)
    except BaseException as error:  # noqa: BLE001 - this runs the attempt: the import is user code
        return failure(error)
    return invoke(function, payload, trace)
