"""Penstock: a dispatcher for AI-agent work.

async with penstock.open("penstock.toml") as p:
    run = await p.submit_many([penstock.Task("summarize", {"text": t}, priority=1) for t in texts])
    async for result in run.results():
        print(result.task_id, result.value)
"""

from __future__ import annotations

import typing

from penstock.version import __version__

if typing.TYPE_CHECKING:
    from penstock.client import Client, Run, open
    from penstock.config import Config
    from penstock.errors import (
        HostError,
        HostNeedsFix,
        PenstockError,
        PermanentError,
        TemporaryError,
        ThrottledError,
    )
    from penstock.model import OnCrash, Result, State, Task, Wait
    from penstock.store.base import TaskFilter

__all__ = [
    "Client",
    "Config",
    "HostError",
    "HostNeedsFix",
    "OnCrash",
    "PenstockError",
    "PermanentError",
    "Result",
    "Run",
    "State",
    "Task",
    "TaskFilter",
    "TemporaryError",
    "ThrottledError",
    "Wait",
    "__version__",
    "open",
]

_HOMES = {
    "Client": "penstock.client",
    "Config": "penstock.config",
    "HostError": "penstock.errors",
    "HostNeedsFix": "penstock.errors",
    "OnCrash": "penstock.model",
    "PenstockError": "penstock.errors",
    "PermanentError": "penstock.errors",
    "Result": "penstock.model",
    "Run": "penstock.client",
    "State": "penstock.model",
    "Task": "penstock.model",
    "TaskFilter": "penstock.store.base",
    "TemporaryError": "penstock.errors",
    "ThrottledError": "penstock.errors",
    "Wait": "penstock.model",
    "open": "penstock.client",
}


def __getattr__(name: str) -> typing.Any:
    """Names are loaded when used: `penstock --version` costs little more than starting Python."""
    if name in _HOMES:
        from importlib import import_module

        found = globals()[name] = getattr(import_module(_HOMES[name]), name)  # and not asked for again
        return found
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
