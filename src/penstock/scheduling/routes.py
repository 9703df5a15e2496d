"""The route key: what a task asks of hosts, lanes and gates, as one short text.

Tasks with the same key can go to the same places, so the scheduler keeps them in one class and the store
counts them together. The text is a compact JSON array: `["kind","lane",host,model,needs]`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache


def route_key(
    kind: str, lane: str, host: str | None, model: str | None, needs: Mapping[str, float] | None
) -> str:
    """The same text for the same wishes, in whatever order and number type the units were written."""
    if needs is None:
        return _encoded(kind, lane, host, model, None)
    return _encoded(kind, lane, host, model, tuple(sorted((unit, float(n)) for unit, n in needs.items())))


# A queue of a million tasks has a handful of keys; encoding each once makes the rest a lookup.
@lru_cache(maxsize=4096)
def _encoded(
    kind: str, lane: str, host: str | None, model: str | None, needs: tuple[tuple[str, float], ...] | None
) -> str:
    units = None if needs is None else [[unit, int(n) if n.is_integer() else n] for unit, n in needs]
    return json.dumps([kind, lane, host, model, units], ensure_ascii=False, separators=(",", ":"))
