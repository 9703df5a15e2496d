"""The URL of a PostgreSQL database as the place of a store: its parts, our own ones, and what may be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

SCHEMES = ("postgresql://", "postgres://")
DEFAULT_SCHEMA = "penstock"
CONNECT_TIMEOUT_S = 5.0

_MISTYPED = re.compile(r"postgres(?:ql)?(?:[:;]|//)[:;/]*(.*)", re.DOTALL)
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,49}")
# Those of libpq that the driver takes from a URL.
_PLACES = ("host", "port", "dbname", "user")
_SECRETS = ("password", "sslpassword")
_SECRET_FILES = ("passfile", "sslkey")
_FILES = (*_SECRET_FILES, "sslcert", "sslrootcert", "sslcrl")
_OTHERS = (
    "passfile",
    "service",
    "sslmode",
    "sslcert",
    "sslkey",
    "sslrootcert",
    "sslcrl",
    "sslnegotiation",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "target_session_attrs",
    "krbsrvname",
    "gsslib",
)
_OURS = ("schema", "pooled", "connect_timeout")
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_SESSIONS = ("any", "primary", "standby", "read-write", "read-only", "prefer-standby")
_SWITCH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, slots=True, repr=False)
class PostgresPlace:
    dsn: str  # what the driver is given: the password may be in it
    hosts: tuple[str, ...]  # the same for each host alone
    target: str  # target_session_attrs, if it is said
    schema: str
    pooled: bool  # behind a pool that hands out a connection per transaction
    connect_timeout_s: float
    name: str  # fit for showing
    identity: str  # the same however the place is written, and whoever asks


def is_postgres(store: str) -> bool:
    return store.startswith(SCHEMES)


def named_files(store: str) -> list[tuple[str, str]]:
    """The files that its URL names, each with the parameter that does."""
    if not is_postgres(store):
        return []
    return [(name, path) for name, path in parse_qsl(urlsplit(store).query) if name in _FILES]


def secret_files(store: str) -> list[str]:
    """Those that nobody else may read."""
    return [path for name, path in named_files(store) if name in _SECRET_FILES]


def mistyped(store: str) -> str:
    """What to say of one that is meant as such a URL and is none, so that it would be taken for a file's path."""
    found = _MISTYPED.match(store)
    if found is None or is_postgres(store):
        return ""
    return f"is not a URL; did you mean {SCHEMES[0]}…?"


def postgres_place(url: str) -> PostgresPlace:
    """ValueError says in one line what is wrong with it, and never shows a password."""
    try:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise ValueError("is not a URL; write postgresql://USER@HOST:5432/DATABASE") from None
    options = dict(given)
    known = (*_PLACES, *_SECRETS, *_OTHERS, *_OURS)
    for name in options:
        if name not in known:
            raise ValueError(f"has an unknown parameter; there are {', '.join(sorted(known))}")
    if parts.fragment:
        raise ValueError("has a # in it; write %23 where it belongs to a name or password")
    if parts.netloc.count("@") > 1:  # the driver would look for the host behind the first
        raise ValueError(
            "has more than one @ before its path; write %40 where it belongs to a name or password"
        )
    schema = options.pop("schema", DEFAULT_SCHEMA)
    if not _SCHEMA.fullmatch(schema):
        raise ValueError(
            "names a schema that cannot be; use up to 50 of a-z, 0-9 and _, and begin with a letter"
        )
    pooled = _switch("pooled", options.pop("pooled", "false"))
    timeout_s = _seconds(options.pop("connect_timeout", f"{CONNECT_TIMEOUT_S:g}"))
    _check("sslmode", options, _SSL_MODES)
    _check("target_session_attrs", options, _SESSIONS)
    hosts = _hosts(parts, options)
    database = unquote(parts.path.lstrip("/")) or options.get("dbname", "")
    dsn = parts._replace(scheme="postgresql", query=urlencode(options)).geturl()
    user = unquote(parts.netloc.rpartition("@")[0].partition(":")[0]) or options.get("user", "")
    shown = f"postgresql://{quote(user) + '@' if user else ''}{hosts}/{quote(database)}"
    ours = {"schema": schema} if schema != DEFAULT_SCHEMA else {}
    name = shown + (f"?{urlencode(ours)}" if ours else "")
    return PostgresPlace(
        dsn,
        _one_by_one(parts._replace(scheme="postgresql"), options),
        options.get("target_session_attrs", ""),
        schema,
        pooled,
        timeout_s,
        name,
        f"{hosts}/{database}/{schema}",
    )


def shown_store(store: str) -> str:
    """A store's place without its secrets."""
    if not is_postgres(store):
        return store
    try:
        return postgres_place(store).name
    except ValueError:
        return store.partition("://")[0] + "://…"


def _hosts(parts: SplitResult, options: dict[str, str]) -> str:
    """One or several, each with its port."""
    given = parts.netloc.rpartition("@")[2] or options.get("host", "")
    usual = options.get("port", "5432").split(",")
    hosts = []
    for place, host in enumerate(unquote(given).split(",")):
        bare = re.fullmatch(r"(.*\]|[^\[\]]*?)(?::([^:\]]*))?", host) if not host.startswith("/") else None
        name, port = (bare[1], bare[2]) if bare is not None else (host, None)
        port = port or usual[min(place, len(usual) - 1)]
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError("has a port that is none; use a number from 1 to 65535")
        if not host.startswith("/") and not _is_name(name):
            raise ValueError("has a host that no host can be called; correct it")
        hosts.append(f"{quote(name.lower(), safe='[]:.-_')}:{port}")
    return ",".join(hosts)


def _one_by_one(parts: SplitResult, options: dict[str, str]) -> tuple[str, ...]:
    """The URL of each host, cut where the driver would cut it."""
    user, at, named = parts.netloc.rpartition("@")
    hosts = (named or options.get("host", "")).split(",")
    if len(hosts) > 1 and "" in hosts:
        raise ValueError("has a comma without a host beside it; take it out, or name the host")
    if named:
        given = parts._replace(query=urlencode(options))
        return tuple(given._replace(netloc=f"{user}{at}{host}").geturl() for host in hosts)
    ports = options.get("port", "").split(",")
    if len(ports) not in (1, len(hosts)):
        raise ValueError(f"has {len(ports)} ports for {len(hosts)} hosts; give each its own, or one for all")
    urls = []
    for place, host in enumerate(hosts):
        alone = {"host": host, "port": ports[place % len(ports)]}
        query = {name: alone.get(name, value) for name, value in options.items()}
        urls.append(parts._replace(query=urlencode(query)).geturl())
    return tuple(urls)


def _is_name(host: str) -> bool:
    try:
        host.encode("idna")  # as whoever looks it up does
    except UnicodeError:
        return False
    return True


def _check(name: str, options: dict[str, str], known: tuple[str, ...]) -> None:
    if options.get(name, known[0]) not in known:
        raise ValueError(f"has a {name} that is unknown; it must be one of {', '.join(known)}")


def _switch(name: str, value: str) -> bool:
    if value not in _SWITCH:
        raise ValueError(f"has a {name} that is unknown; it must be true or false")
    return _SWITCH[value]


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 600:
        raise ValueError("has a connect_timeout that is none; use a number of seconds above 0, up to 600")
    return seconds
