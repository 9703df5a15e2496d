"""What the dispatcher and its driver tell each other of the cluster."""

from __future__ import annotations

from typing import Any

import msgspec


class Joining(msgspec.Struct, kw_only=True):
    """Which cluster, and what its workers are given."""

    address: str
    namespace: str
    runtime_env: dict[str, Any] = {}
    names: str = ""  # what those of the workers begin with; none: it only looks around
    term: int = 0  # of the dispatcher


class Joined(msgspec.Struct, kw_only=True):
    version: str
    runtime_env: dict[str, Any] = {}  # with what was uploaded by its address


class Node(msgspec.Struct, kw_only=True):
    """A machine of the cluster that is alive."""

    node_id: str
    name: str
    resources: dict[str, float]
    labels: dict[str, str]
