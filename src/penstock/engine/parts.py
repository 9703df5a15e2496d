"""What an engine of many machines is made of; the wiring fills it in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from penstock.config.engine import EngineSettings
from penstock.engine.outputs import Outputs
from penstock.hosts.base import Adapter
from penstock.model import Host


@dataclass(frozen=True, slots=True)
class Parts:
    """The adapters are opened and closed by the engine of this machine that stands beside it."""

    settings: EngineSettings  # with what must not leave this machine among its `excludes`
    hosts: Mapping[str, Host]
    adapters: Mapping[str, Adapter]
    outputs: Outputs
    default_timeout_s: float | None
    store_tag: str  # marks the processes of the store's dispatchers on one machine
    secret: Callable[
        [], Awaitable[bytes]
    ]  # of the store: the same for all its dispatchers, wherever they are
