"""A user's callable: found by its name, run in a thread or a worker process, never by the dispatcher.

`search_path` goes to the end of `sys.path`: a file beside the config must not take the place of a library
that the dispatcher itself imports later.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from penstock.engine.outcomes import failure, success
from penstock.errors import PermanentError
from penstock.model import Outcome

NUMBER_BYTES = 8  # of an attempt in a pool, on the line home


def load(target: str, search_path: Sequence[str]) -> Callable[[Any], Any]:
    """The function that `pkg.mod:fn` names. Importing runs user code: not for the dispatcher's thread."""
    module_name, _, name = target.partition(":")
    for folder in search_path:
        if folder not in sys.path:
            sys.path.append(folder)
    if module_name not in sys.modules:
        importlib.invalidate_caches()  # the file may have been added since the last attempt
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if f"{module_name}.".startswith(f"{missing}."):
            raise PermanentError(
                f"no module {missing!r} for {target!r}; install it, or add its folder to the host's `path`"
            ) from None
        raise PermanentError(
            f"{target!r} cannot be imported: it needs module {missing!r}; install that"
        ) from error
    function: Any = module
    for part in name.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        place = getattr(module, "__file__", None) or module_name
        raise PermanentError(
            f"no function {name!r} in {place}; correct the host's `call`, or define it there"
        )
    return function  # type: ignore[no-any-return]


def is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__ is meant
    )


def invoke(function: Callable[[Any], Any], payload: Any) -> Outcome:
    """Call it here and now; whatever it does, this returns."""
    try:
        value = function(payload)
        if inspect.iscoroutine(value):
            value = asyncio.run(_finish(value))
        return success(value)
    except BaseException as error:  # noqa: BLE001 - this runs the attempt: SystemExit must not end our thread
        return failure(error)


async def _finish(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return await coroutine


class _Line:
    """The way from a worker process back to its pool: a pipe that says which attempt has begun."""

    descriptor: int | None = None


def set_line(descriptor: int) -> None:
    os.set_inheritable(descriptor, False)
    _Line.descriptor = descriptor


def run_isolated(number: int, target: str, payload: Any, search_path: Sequence[str]) -> Outcome:
    """What a worker process does for an attempt. Its outcome can always be pickled: exceptions stay here."""
    if _Line.descriptor is not None:
        os.write(_Line.descriptor, number.to_bytes(NUMBER_BYTES, "little"))
    try:
        function = load(target, search_path)
    except BaseException as error:  # noqa: BLE001 - this runs the attempt: the import is user code
        return failure(error)
    return invoke(function, payload)
