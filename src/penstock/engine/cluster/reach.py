"""Whether anything can be at the address of a cluster: Ray takes a minute to say that nobody is, if it does."""

from __future__ import annotations

import asyncio

_CONNECT_S = 3.0


async def nobody_at(address: str) -> str:
    """That nobody is there, and the remedy; nothing where somebody is, or where it is not for us to say."""
    if address == "auto":
        return ""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, OverflowError, TimeoutError, UnicodeError):  # the last of names that none can have
        return f"nothing answers at {host}:{port}; start Ray there, or correct engine.address"
    writer.close()
    return ""
