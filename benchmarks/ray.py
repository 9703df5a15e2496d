"""What the contestants on a Ray cluster share: the cluster, what a task does, and how many run at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ADDRESS = "BENCHMARK_RAY"
SLOTS = 4
WARM = 50
PAYLOAD = {"text": "a" * 200, "number": 7}


def work(payload: Any) -> Any:
    """What every task does, here and there: hardly anything, so that what is measured is the way there and back."""
    return {"number": payload["number"] + 1, "text": payload["text"]}


@contextmanager
def cluster(folder: Path) -> Iterator[Mapping[str, str]]:
    """Two nodes on this machine, for all contestants of a topic."""
    from tools.ray_cluster import ray_cluster

    yield {ADDRESS: ray_cluster().address}


def address() -> str:
    return os.environ[ADDRESS]
