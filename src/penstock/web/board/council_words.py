"""What the Council page says in words: what a question would cost, and what a step of one waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.council.recorded import count, money
from penstock.diagnosis.why.answer import Why

_WAITS = {
    "slots": "a slot on {}",
    "worker": "a worker of {} on the cluster",
    "lane": "room in lane {}",
    "gate": "the gate {} to open",
    "rate": "the rate limit of {}",
    "host-down": "a host that is up",
    "paused": "`penstock resume`: it is paused",
    "store-down": "the store: nothing can be recorded",
    "order": "others that come first",
    "scheduled": "its next try",
    "dispatcher-down": "a dispatcher",
}


def estimate_told(made: Mapping[str, Any]) -> str:
    """Of what /api/councils/NAME/estimate answers."""
    told = [
        f"{_range(made['calls'], made['calls_most'])} calls",
        f"about {count(made['tokens'])} tokens, at most {count(made['tokens_most'])}",
    ]
    if made["usd_most"]:
        told.append(f"about {money(made['usd'])}, at most {money(made['usd_most'])}")
    if made.get("seconds") is not None:
        told.append(f"about {made['seconds']:.0f} s where every host is free")
    if made.get("unpriced"):
        told.append(f"no price is known of {', '.join(made['unpriced'])}")
    limit = made.get("limit_usd")
    if limit is not None and made["usd"] > limit:
        told.append(f"over the limit of {money(limit)}: it would be refused")
    return "; ".join(told)


def _range(expected: int, most: int) -> str:
    return str(expected) if expected == most else f"{expected} to {most}"


def waits_for(why: Why) -> str:
    """What a queued task waits for now; nothing where that is not known."""
    if not why.parts:
        return ""
    wait = why.parts[-1].wait
    name, _, target = wait.reason.partition(":")
    told = _WAITS.get(name, name).format(target.replace(",", " or "))
    return f"{told} ({wait.detail})" if wait.detail and name in ("host-down", "gate") else told
