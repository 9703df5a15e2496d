"""Which of several PostgreSQL hosts is used, and what is told when none can be."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import asyncpg
import pytest

from penstock.config.postgres_place import postgres_place
from penstock.store import postgres_hosts
from penstock.store.postgres_hosts import connected

OTHER_KIND = asyncpg.TargetServerAttributeNotMatched("of another kind")
REFUSED = ConnectionRefusedError(111, "refused")
LONG_S = 600.0


class Connection:
    def __init__(self, host: str) -> None:
        self.host = host

    async def execute(self, _statements: str) -> None: ...

    def terminate(self) -> None: ...


class Driver:
    """Stands for asyncpg. `is_like` says of a host what it is: an error, a kind of server, or silent."""

    def __init__(self, **is_like: Exception | str) -> None:
        self.is_like = is_like
        self.asked: list[str] = []

    async def connect(self, dsn: str, *, target_session_attrs: str | None = None, **_: Any) -> Connection:
        place = postgres_place(dsn)
        host = place.name.removeprefix("postgresql://").partition(":")[0]
        self.asked.append(host)
        found = self.is_like[host]
        if isinstance(found, Exception):
            raise found
        if found == "silent":
            await asyncio.Event().wait()
        wanted = target_session_attrs or place.target
        if wanted in ("primary", "standby") and wanted != found:
            raise OTHER_KIND
        return Connection(host)


@pytest.fixture(autouse=True)
def nobody_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_hosts, "_passed_over_until", {})
    monkeypatch.setattr(postgres_hosts, "_SLOW_S", LONG_S)  # a busy machine makes nobody look slow


async def asks(driver: Driver, target: str = "any") -> str:
    """Which host is used, and which were asked, in their order."""
    hosts = ",".join(driver.is_like)
    # Only one that says nothing is to be waited for until the end.
    patience_s = 0.05 if "silent" in driver.is_like.values() else LONG_S
    place = postgres_place(
        f"postgresql://{hosts}/q?connect_timeout={patience_s}&target_session_attrs={target}"
    )
    driver.asked.clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asyncpg, "connect", driver.connect)
        connection, host = await connected(place, "tag")
    assert f"//{connection.host}/" in host
    return f"{connection.host} of {' '.join(driver.asked)}"


async def test_the_first_that_can_be_used_is() -> None:
    assert await asks(Driver(a="primary", b="primary")) == "a of a"
    assert await asks(Driver(a=REFUSED, b="standby", c="primary"), "primary") == "c of a b c"
    starting = asyncpg.CannotConnectNowError("the database system is starting up")
    hung_up = asyncpg.ConnectionDoesNotExistError("closed in the middle of operation")
    assert await asks(Driver(a=starting, b=hung_up, c="primary")) == "c of a b c"


async def test_a_standby_is_preferred_but_not_needed() -> None:
    assert await asks(Driver(a="primary", b="standby"), "prefer-standby") == "b of a b"
    assert await asks(Driver(a=REFUSED, b="primary"), "prefer-standby") == "b of a b b"


async def test_a_silent_host_is_asked_last_until_it_answers() -> None:
    driver = Driver(a="silent", b="primary")
    assert await asks(driver, "primary") == "b of a b"
    assert await asks(driver, "primary") == "b of b"
    driver.is_like |= {"a": "primary", "b": "standby"}
    assert await asks(driver, "primary") == "a of b a"
    assert await asks(driver, "primary") == "a of a"


async def test_where_any_host_will_do_their_order_holds_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver(a="silent", b="standby")
    assert await asks(driver) == "b of a b"
    assert await asks(driver) == "b of b"
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + postgres_hosts._PASSED_OVER_S + 1)
    driver.is_like["a"] = "primary"
    assert await asks(driver) == "a of a"


@pytest.mark.parametrize(
    ("hosts", "told"),
    [
        ({"a": REFUSED, "b": "silent"}, TimeoutError),
        ({"a": "silent", "b": REFUSED}, ConnectionRefusedError),
        ({"a": REFUSED, "b": "standby"}, ConnectionRefusedError),
        ({"a": "standby", "b": "standby"}, asyncpg.TargetServerAttributeNotMatched),
        # It would say the same of the password again.
        ({"a": asyncpg.InvalidPasswordError("no"), "b": "primary"}, asyncpg.InvalidPasswordError),
    ],
)
async def test_what_is_told_when_there_is_none(
    hosts: dict[str, Exception | str], told: type[Exception]
) -> None:
    driver = Driver(**hosts)
    for _ in range(2):  # in whatever order they are asked
        with pytest.raises(told):
            await asks(driver, "primary")
