"""SQL from the `.sql` files beside this one: migrations whole, queries by name."""

from __future__ import annotations

import os
from functools import cache
from typing import Any


def sql_file(name: str) -> str:
    """The text of a file under `sql/`. The module's own loader reads it, wherever the package is installed;
    `importlib.resources` would do the same and costs a command 15 ms to import."""
    path = os.path.join(os.path.dirname(__file__), "sql", name)
    data: bytes = __spec__.loader.get_data(path)  # type: ignore[union-attr]
    return data.decode()


@cache
def named_queries(name: str) -> dict[str, str]:
    """The queries of a file, by the `-- name:` above each."""
    queries: dict[str, str] = {}
    for part in sql_file(name).split("-- name: ")[1:]:
        title, _, body = part.partition("\n")
        lines = [line for line in body.splitlines() if not line.startswith("--")]
        queries[title.strip()] = "\n".join(lines).strip()
    return queries


def printable(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
