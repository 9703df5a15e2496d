"""[server], [models] and [prices]: the front door, the names its clients may use, what tokens cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from penstock.config import keys
from penstock.config.problems import kind_alone
from penstock.config.tables import Table
from penstock.model import Price


@dataclass(frozen=True, slots=True)
class Server:
    """What `serve` is told. Limits of a token hold for each of them, and for all who come without one."""

    host: str = "127.0.0.1"
    port: int = 8787
    patience_s: float = 600.0  # a call that has not started by then is answered with 429
    down_patience_s: float = 30.0  # the same, of one that comes while all hosts for it are down
    body_limit_bytes: int = 33_554_432
    max_queued: int = 10_000  # calls that may wait, per token
    max_queued_bytes: int = 1_073_741_824  # of their bodies, in all; each token may have half of it
    requests_per_min: float | None = None  # per token
    cors: tuple[str, ...] = ()  # origins whose pages may call
    record_bodies: bool = False  # keep what calls ask and answer; else only their figures
    board: bool = True  # pages for the browser, at /board
    advertise: str | None = None  # where standbys reach this server; else the address that is bound


def read_server(top: Table) -> Server:
    default = Server()
    table = top.table("server", "[server]")
    if table is None:
        return default
    table.only(keys.SERVER)
    return Server(
        host=table.text("host", default.host),
        port=table.whole("port", default.port, keys.PORT),
        patience_s=table.number("patience_s", default.patience_s, keys.SECONDS),
        down_patience_s=table.number("down_patience_s", default.down_patience_s, keys.SECONDS),
        body_limit_bytes=table.whole("body_limit_bytes", default.body_limit_bytes, keys.BYTES),
        max_queued=table.whole("max_queued", default.max_queued, keys.COUNT),
        max_queued_bytes=table.whole("max_queued_bytes", default.max_queued_bytes, keys.BYTES),
        requests_per_min=table.number("requests_per_min", None, keys.PER_MINUTE),
        cors=table.texts("cors", (), most=keys.MAX_ORIGINS),
        record_bodies=table.flag("record_bodies", default.record_bodies),
        board=table.flag("board", default.board),
        advertise=read_root_url(table, "advertise", "this server", "http://10.0.0.5:8787"),
    )


def read_root_url(table: Table, key: str, whose: str, example: str) -> str | None:
    """The address of a server as a whole, without a path."""
    given = table.text(key, "")
    if not given:
        return None
    try:
        parts = urlsplit(given)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_url = False
    if not is_url or parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        table.refuse(f"must be the address of {whose}, such as {example}", key)
        return None
    return given.rstrip("/")


def server_document(server: Server) -> dict[str, Any]:
    default = Server()
    changed = {key: getattr(server, key) for key in keys.SERVER}
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in changed.items()
        if value != getattr(default, key) and value is not None
    }


def read_models(top: Table) -> dict[str, str]:
    """Names that clients may use, and what is asked of the hosts instead."""
    table = top.table("models", '{ "gpt-4o" = "qwen2.5-32b" }')
    if table is None:
        return {}
    if len(table.raw) > keys.MAX_MODELS:
        table.refuse(f"{len(table.raw)} names are too many; at most {keys.MAX_MODELS}")
        return {}
    found = {name: meant for name in table.raw if (meant := table.text(name, "")) and _is_name(table, name)}
    for name in found:
        if _leads_to_itself(name, found):
            table.refuse("leads back to itself; name a model or a kind of a host", name)
    return found


def _is_name(table: Table, name: str) -> bool:
    if name and name.isprintable() and len(name) <= keys.MAX_MODEL:
        return True
    table.refuse(f"must be one line of at most {keys.MAX_MODEL} characters without control characters", name)
    return False


def _leads_to_itself(name: str, models: Mapping[str, str]) -> bool:
    seen = {name}
    while (meant := models.get(name)) is not None:
        if meant in seen:
            return True
        seen.add(meant)
        name = meant
    return False


def read_prices(top: Table) -> dict[str, Price]:
    """What a model's tokens cost, in USD per million."""
    like = '{ "gpt-4o-mini" = { input = 0.15, output = 0.60 } }'
    prices = top.table("prices", like)
    if prices is None:
        return {}
    found: dict[str, Price] = {}
    for model, value in prices.raw.items():
        if not isinstance(value, Mapping):
            prices.refuse(
                f"must be a table like {{ input = 0.15, output = 0.60 }}, not {kind_alone(value)}", model
            )
            continue
        table = prices.table(model, "{ input = 0.15, output = 0.60 }")
        if table is None:
            continue
        table.only(keys.PRICE)
        if not table.raw:
            table.refuse("is empty; give input and output in USD per million tokens")
        input = table.number("input", 0.0, keys.MONEY)
        found[model] = Price(
            input=input,
            output=table.number("output", 0.0, keys.MONEY),
            cached=table.number("cached", input, keys.MONEY),
        )
    return found


def price_document(price: Price) -> dict[str, float]:
    return {"input": price.input, "output": price.output, "cached": price.cached}
