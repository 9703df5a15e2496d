"""A connection to one of the hosts that a URL names: each has a time of its own to answer.

The driver's timeout is for all hosts together, so that a first one that says nothing would use it up every time.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from math import inf
from typing import Any

import asyncpg

from penstock.config.postgres_place import PostgresPlace

# What goes wrong on the way: the server was not reached, or it did not answer.
LOST = (OSError, asyncpg.InterfaceError, asyncpg.PostgresConnectionError)
# Another host may do better. Who is not let in by one of them is told so, as with libpq.
_AWAY = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
)

_STATEMENTS = 400  # kept ready on the server
_SILENT_S = 10  # then the network is taken for cut
_SLOW_S = 1.0  # one that cannot be used and takes so long to say it, or says nothing, is asked last
# Where any host will do, their order is a wish, and is kept again after a while. Else the others say that they are
# not the one: nothing is lost by asking one last for good.
_WISHES = ("any", "prefer-standby")
_PASSED_OVER_S = 60.0

# Of the whole process: whoever connects next, a new store or another thread, need not find it out again.
_passed_over_until: dict[str, float] = {}


async def connected(
    place: PostgresPlace, tag: str, more: str = "", command_timeout_s: float | None = None
) -> tuple[Any, str]:
    """A connection that finds our tables, is known on the server by `tag`, and notices when the network is cut;
    and the URL of the one host that it leads to."""
    if len(place.hosts) == 1:
        return await _connected(place, place.dsn, None, tag, more, command_timeout_s), place.dsn
    kind = place.target or os.environ.get("PGTARGETSESSIONATTRS", "any")
    failed: dict[str, Exception] = {}
    try:
        for host, target in _tries(place, kind):
            if host in failed and not _is_of_another_kind(failed[host]):
                continue
            began = time.monotonic()
            try:
                connection = await _connected(place, host, target, tag, more, command_timeout_s)
            except (*_AWAY, asyncpg.TargetServerAttributeNotMatched) as error:
                failed[host] = error
                if time.monotonic() - began > min(_SLOW_S, place.connect_timeout_s / 2):
                    _pass_over(host, _PASSED_OVER_S if kind in _WISHES else inf)
            else:
                _passed_over_until.pop(host, None)
                return connection, host
        raise _worst(failed[host] for host in place.hosts)
    finally:
        failed.clear()  # each of them holds this frame


async def is_there(place: PostgresPlace, host: str) -> bool:
    """Whether the server answers, be it that it lets nobody in."""
    try:
        asked = await asyncpg.connect(host, timeout=place.connect_timeout_s)
        asked.terminate()
    except (*LOST, asyncpg.InternalClientError) as error:  # the latter: it is not the primary
        if isinstance(error, TimeoutError):
            _pass_over(host, _PASSED_OVER_S)
        return False
    except asyncpg.PostgresError:
        pass
    return True


async def _connected(
    place: PostgresPlace, host: str, target: Any, tag: str, more: str, command_timeout_s: float | None
) -> Any:
    async with asyncio.timeout(place.connect_timeout_s):
        connection = await asyncpg.connect(
            host,
            timeout=place.connect_timeout_s,
            command_timeout=command_timeout_s,
            statement_cache_size=0 if place.pooled else _STATEMENTS,
            max_cached_statement_lifetime=0,
            max_cacheable_statement_size=1 << 16,
            target_session_attrs=target,
        )
        try:
            _watch(connection)
            if not place.pooled:
                ours = f"SET search_path TO {place.schema}, pg_catalog, pg_temp"
                await connection.execute(f"{ours}; SET application_name TO '{tag}'; {more}")
        except BaseException:
            connection.terminate()
            raise
    return connection


def _watch(connection: Any) -> None:
    """Have the kernel tell soon when nobody is there any more."""
    transport = getattr(connection, "_transport", None)
    plug = None if transport is None else transport.get_extra_info("socket")
    if plug is None or plug.family == socket.AF_UNIX:
        return
    with suppress(OSError, AttributeError):
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENT_S // 2)
        plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _SILENT_S // 2)
        plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_S * 1000)


def _tries(place: PostgresPlace, kind: str) -> list[tuple[str, str | None]]:
    """The hosts in the URL's order, but last those that kept us waiting for nothing; and what each has to be."""
    now = time.monotonic()
    late = {host for host in place.hosts if _passed_over_until.get(host, 0.0) > now}
    hosts = sorted(place.hosts, key=lambda host: host in late)
    if kind != "prefer-standby":
        return [(host, None) for host in hosts]  # as the URL says
    # Asked for one host the driver would take it at once, for want of another.
    first: list[tuple[str, str | None]] = [(host, "standby") for host in hosts if host not in late]
    return first + [(host, "any") for host in hosts]


def _pass_over(host: str, for_s: float) -> None:
    until = time.monotonic() + for_s
    _passed_over_until[host] = max(until, _passed_over_until.get(host, 0.0))


def _is_of_another_kind(error: Exception) -> bool:
    return isinstance(error, asyncpg.TargetServerAttributeNotMatched)


def _worst(errors: Iterable[Exception]) -> Exception:
    """Which to tell: the last, and rather one of a host that is away than that the others are of another kind."""
    return sorted(errors, key=lambda error: not _is_of_another_kind(error))[-1]
