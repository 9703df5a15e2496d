"""PostgreSQL for tests: one server per test process, begun when it is first wanted, and a fresh place per test.

PENSTOCK_TEST_POSTGRES names a server to use instead, as the URL of a database that may be filled with schemas.
"""

from __future__ import annotations

import os
from functools import cache
from itertools import count

from tests.endings import ENDINGS
from tools.postgres_server import PostgresServer

_numbers = count(1)


@cache
def server() -> PostgresServer:
    """The one of this process; it goes when the process does. Tests that stop or change a server make their own."""
    begun = PostgresServer().start()
    ENDINGS.callback(begun.close)
    return begun


def fresh_schema() -> str:
    """A name that no other test of any process uses."""
    return f"t{os.getpid()}_{os.urandom(3).hex()}_{next(_numbers)}"


def fresh_url(more: str = "") -> str:
    """The place of a store that is not there yet."""
    given = os.environ.get("PENSTOCK_TEST_POSTGRES")
    schema = f"schema={fresh_schema()}" + (f"&{more}" if more else "")
    if given:
        return f"{given}{'&' if '?' in given else '?'}{schema}"
    return server().url(more=schema)
