"""Model servers on this machine that the config does not have, with what to add for them."""

from __future__ import annotations

from urllib.parse import urlsplit

from penstock.config import Config
from penstock.setup.discovery import HERE, Found, Place, find, places_here
from penstock.setup.draft import tables_for

_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


async def unused_servers(config: Config) -> list[tuple[Found, str]]:
    """Each with the table that adds it."""
    found = [one for one in await find(places_here()) if one.place not in _known(config)]
    tables = tables_for(found, [host.name for host in config.plant.hosts])
    return list(zip(found, tables, strict=True))


def _known(config: Config) -> set[Place]:
    """Those that hosts have, and ourselves: our own front door looks like a model server too."""
    known = {Place(HERE, config.server.port)}
    for host in config.plant.hosts:
        url = host.options.get("url")
        if not isinstance(url, str):
            continue
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            continue
        name = (parts.hostname or "").lower()
        known.add(Place(HERE if name in _LOCAL_NAMES else name, port))
    return known
