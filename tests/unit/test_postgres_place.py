"""The URL of a PostgreSQL store: what is refused, what is shown of it, and when two are the same store."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import parse
from penstock.config.postgres_place import postgres_place, shown_store
from penstock.config.store_place import beside_store
from penstock.errors import ConfigError

URL = "postgresql://ada:s3cr%40t@db.lab:5433/queue?sslmode=verify-full&sslrootcert=%2Fca.pem&schema=lab"


def test_what_is_ours_is_taken_out() -> None:
    place = postgres_place(URL + "&pooled=true&connect_timeout=7")
    assert (place.schema, place.pooled, place.connect_timeout_s) == ("lab", True, 7.0)
    assert (
        place.dsn == "postgresql://ada:s3cr%40t@db.lab:5433/queue?sslmode=verify-full&sslrootcert=%2Fca.pem"
    )


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        (
            "postgresql://u:p@a:1,b,[::1]:3/q?target_session_attrs=primary&connect_timeout=2",
            [
                "postgresql://u:p@a:1/q?target_session_attrs=primary",
                "postgresql://u:p@b/q?target_session_attrs=primary",
                "postgresql://u:p@[::1]:3/q?target_session_attrs=primary",
            ],
        ),
        (
            "postgresql://u@/q?host=a,%2Frun%2Fpg&port=1,2",
            ["postgresql://u@/q?host=a&port=1", "postgresql://u@/q?host=%2Frun%2Fpg&port=2"],
        ),
        ("postgresql://u@/q?host=a,b&port=1", [f"postgresql://u@/q?host={host}&port=1" for host in "ab"]),
        ("postgresql://u@/q?host=a,b", [f"postgresql://u@/q?host={host}" for host in "ab"]),
        ("postgres://db/q", ["postgresql://db/q"]),
    ],
)
def test_each_host_has_a_url_of_its_own(url: str, hosts: list[str]) -> None:
    place = postgres_place(url)
    assert list(place.hosts) == hosts
    assert (place.dsn in hosts) == (len(hosts) == 1)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (URL, "postgresql://ada@db.lab:5433/queue?schema=lab"),
        ("postgres://db/q", "postgresql://db:5432/q"),
        ("postgresql://u@a,b:6000/q?target_session_attrs=read-write", "postgresql://u@a:5432,b:6000/q"),
        (
            "postgresql://u@/q?host=%2Frun%2Fpg&port=5440&password=s3cr%40t",
            "postgresql://u@%2Frun%2Fpg:5440/q",
        ),
        ("postgresql://[::1]:5432/q", "postgresql://[::1]:5432/q"),
    ],
)
def test_what_is_shown_has_no_secret(url: str, name: str) -> None:
    assert postgres_place(url).name == shown_store(url) == name
    assert "s3cr" not in repr(postgres_place(url))


def test_the_same_store_is_the_same_however_it_is_written() -> None:
    one = "postgresql://ada:x@DB.lab/queue?sslmode=require"
    other = "postgres://bob@db.lab:5432/queue?schema=penstock"
    assert postgres_place(one).identity == postgres_place(other).identity
    assert beside_store(one, "work") == beside_store(other, "work")
    for different in ("postgresql://db.lab/queue2", "postgresql://db.lab:5433/queue", one + "&schema=b"):
        assert beside_store(different, "work") != beside_store(one, "work")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://db/q?schmea=x", "an unknown parameter; there are "),
        ("postgresql://db/q?schema=No-Good", "a schema that cannot be; use up to 50 of a-z"),
        ("postgresql://db/q?pooled=maybe", "pooled that is unknown; it must be true or false"),
        ("postgresql://db/q?sslmode=always", "sslmode that is unknown; it must be one of disable"),
        ("postgresql://db/q?connect_timeout=0", "connect_timeout that is none; use a number of seconds"),
        ("postgresql://db/q?target_session_attrs=best", "it must be one of any, primary"),
        ("postgresql://db:x5/q", "a port that is none; use a number"),
        ("postgresql://a,,b/q", "has a comma without a host beside it"),
        ("postgresql:///q?host=a,b,c&port=1,2", "has 2 ports for 3 hosts; give each its own"),
        ("postgresql://db/q#x", "has a # in it; write %23"),
        ("postgresql://u:p#ss@db/q", "has a # in it; write %23"),
        ("postgresql://u@a..b/q", "has a host that no host can be called"),
        (f"postgresql://u@db,{'a' * 64}/q", "a host that no host can be called"),
        ("postgresql://u:p@ss@db/q", "has more than one @ before its path; write %40"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(url: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f'store = "{url}"\n', tmp_path / "penstock.toml")
    (problem,) = caught.value.problems
    assert "store" in problem
    assert told in problem
    assert "\n" not in problem
