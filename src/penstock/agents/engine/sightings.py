"""Reads what the engine tells of a container: its list, its inspection and its figures, Docker's and Podman's.

Pure. A field that is missing or of another type is as if nothing was said: engines differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from penstock.agents.engine import recipe

_SIGNALS = 128  # what a status has above it is the number of the signal that ended the program
_LOOPBACK = ("127.0.0.1", "localhost")
_ANY = ("", "0.0.0.0", "::")  # noqa: S104 - what the engine says, not what we bind


@dataclass(frozen=True, slots=True)
class Seen:
    """A container as the engine tells of it."""

    id: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    state: str = ""  # the engine's word: created, running, paused, exited, dead…
    running: bool = False  # also true of a paused one, as for the engine
    paused: bool = False
    exit_code: int | None = None  # None: it has not ended, or the list does not tell
    oom_killed: bool = False
    address: str | None = None  # "127.0.0.1:40123", or the path of a Unix socket; None: it has none (yet)
    image_id: str = ""
    started_at: float | None = None
    created_at: float | None = None
    error: str = ""  # why the engine could not start it

    @property
    def answers(self) -> bool:
        """Whether a request would not hang for want of a running program."""
        return self.running and not self.paused

    @property
    def ending(self) -> str:
        """How it ended, as a part of a sentence."""
        if self.oom_killed:
            return "was killed for want of memory"
        if self.exit_code is None:
            return f"never ran ({self.error})" if self.error else "never ran"
        if self.exit_code > _SIGNALS:
            name = f"signal {self.exit_code - _SIGNALS}"
            why = ", as one that is out of memory is" if self.exit_code == _SIGNALS + 9 else ""
            return f"ended with exit status {self.exit_code} ({name}{why})"
        return f"ended with exit status {self.exit_code}" + (f" ({self.error})" if self.error else "")

    @property
    def agent(self) -> str:
        return self.labels.get(recipe.AGENT_LABEL, "")

    @property
    def instance(self) -> str:
        return self.labels.get(recipe.INSTANCE_LABEL, "")

    @property
    def fingerprint(self) -> str:
        return self.labels.get(recipe.FINGERPRINT_LABEL, "")

    @property
    def has_own_name(self) -> bool:
        """Whether it is called as its labels say: an image made of a container of ours hands its labels on."""
        return self.name == recipe.container_name(self.agent, self.instance)

    @property
    def home(self) -> str:
        return self.labels.get(recipe.HOME_LABEL, "")


@dataclass(frozen=True, slots=True)
class ContainerStats:
    """What a container uses; None: the engine does not tell."""

    cpu_s: float | None
    memory_bytes: int | None
    memory_limit_bytes: int | None
    pids: int | None
    received_bytes: int | None
    sent_bytes: int | None


@dataclass(frozen=True, slots=True)
class ContainerEvent:
    """Something that happened to a container: start, die, oom, pause, unpause, remove…"""

    action: str
    container: str
    at: float | None
    labels: Mapping[str, str] = field(default_factory=dict)


def inspected(told: Mapping[str, Any], host: str = "127.0.0.1") -> Seen:
    """From GET /containers/ID/json."""
    state = _table(told, "State")
    labels = _labels(_table(told, "Config"))
    status = str(state.get("Status") or "")
    is_paused = bool(state.get("Paused")) or status == "paused"
    is_running = bool(state.get("Running")) or is_paused
    has_ended = not is_running and status not in ("created", "configured", "initialized")
    return Seen(
        id=str(told.get("Id") or ""),
        name=str(told.get("Name") or "").removeprefix("/"),
        labels=labels,
        state=status,
        running=is_running,
        paused=is_paused,
        exit_code=_number(state.get("ExitCode")) if has_ended else None,
        oom_killed=bool(state.get("OOMKilled")),
        address=_address(labels, _bindings(_table(told, "NetworkSettings")), host) if is_running else None,
        image_id=str(told.get("Image") or "").removeprefix("sha256:"),
        started_at=_moment(state.get("StartedAt")),
        created_at=_moment(told.get("Created")),
        error=str(state.get("Error") or ""),
    )


def summarized(told: Mapping[str, Any], host: str = "127.0.0.1") -> Seen:
    """From one entry of GET /containers/json."""
    labels = _labels(told)
    status = str(told.get("State") or "").lower()
    names = told.get("Names")
    ports = told.get("Ports")
    created = told.get("Created")
    is_running = status in ("running", "paused")
    bindings = _listed_bindings(ports if isinstance(ports, list) else [])
    return Seen(
        id=str(told.get("Id") or ""),
        name=str(names[0]).removeprefix("/") if isinstance(names, list) and names else "",
        labels=labels,
        state=status,
        running=is_running,
        paused=status == "paused",
        address=_address(labels, bindings, host) if is_running else None,
        image_id=str(told.get("ImageID") or "").removeprefix("sha256:"),
        created_at=float(created) if isinstance(created, int | float) else _moment(created),
    )


def measured(told: Mapping[str, Any]) -> ContainerStats:
    """From GET /containers/ID/stats."""
    memory = _table(told, "memory_stats")
    networks = [one for one in _table(told, "networks").values() if isinstance(one, dict)]
    cpu_ns = _number(_table(_table(told, "cpu_stats"), "cpu_usage").get("total_usage"))
    used, cached = _number(memory.get("usage")), _number(_table(memory, "stats").get("inactive_file"))
    return ContainerStats(
        cpu_s=None if cpu_ns is None else cpu_ns / 1e9,
        memory_bytes=used if used is None or not cached else max(0, used - cached),
        memory_limit_bytes=_number(memory.get("limit")),
        pids=_number(_table(told, "pids_stats").get("current")),
        received_bytes=_sum(networks, "rx_bytes"),
        sent_bytes=_sum(networks, "tx_bytes"),
    )


def happened(told: Mapping[str, Any]) -> ContainerEvent | None:
    """From one line of GET /events; None: it is not of a container."""
    actor = _table(told, "Actor")
    if told.get("Type", "container") != "container":
        return None
    moment = told.get("timeNano")
    attributes = {str(key): str(value) for key, value in _table(actor, "Attributes").items()}
    return ContainerEvent(
        action=str(told.get("Action") or told.get("status") or "").partition(":")[0],
        container=str(actor.get("ID") or told.get("id") or ""),
        at=moment / 1e9 if isinstance(moment, int | float) else None,
        labels={name: value for name, value in attributes.items() if name.startswith(recipe.LABEL)},
    )


# ---- addresses: one port may be published once for each family of addresses, in any order


def _address(
    labels: Mapping[str, str], bindings: Mapping[str, list[tuple[str, int]]], host: str
) -> str | None:
    if socket := labels.get(recipe.SOCKET_LABEL):
        return socket
    found = bindings.get(labels.get(recipe.PORT_LABEL, ""), [])
    if not found:
        return None
    ip, port = min(found, key=_preference)
    return f"{_reached(ip, host)}:{port}"


def _preference(bound: tuple[str, int]) -> tuple[int, str, int]:
    ip, port = bound
    rank = 0 if ip in _LOOPBACK else 1 if ip in ("", "0.0.0.0") else 2 if ":" not in ip else 3  # noqa: S104
    return rank, ip, port


def _reached(ip: str, host: str) -> str:
    if ip in _ANY:
        ip = host
    return f"[{ip}]" if ":" in ip else ip


def _bindings(network: Mapping[str, Any]) -> dict[str, list[tuple[str, int]]]:
    found: dict[str, list[tuple[str, int]]] = {}
    for inside, bound in _table(network, "Ports").items():
        for one in bound if isinstance(bound, list) else []:
            if isinstance(one, dict) and (port := _port(one.get("HostPort"))):
                found.setdefault(inside, []).append((str(one.get("HostIp") or ""), port))
    return found


def _listed_bindings(ports: list[Any]) -> dict[str, list[tuple[str, int]]]:
    found: dict[str, list[tuple[str, int]]] = {}
    for one in ports:
        if isinstance(one, dict) and (port := _port(one.get("PublicPort"))):
            inside = f"{one.get('PrivatePort')}/{one.get('Type') or 'tcp'}"
            found.setdefault(inside, []).append((str(one.get("IP") or ""), port))
    return found


def _port(given: Any) -> int | None:
    try:
        port = int(given)
    except (TypeError, ValueError):
        return None
    return port if 0 < port < 65536 else None


# ---- fields


def _table(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = told.get(name)
    return found if isinstance(found, dict) else {}


def _labels(told: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in _table(told, "Labels").items()}


def _number(given: Any) -> int | None:
    return given if isinstance(given, int) and not isinstance(given, bool) else None


def _sum(tables: Iterable[Mapping[str, Any]], name: str) -> int | None:
    found = [number for one in tables if (number := _number(one.get(name))) is not None]
    return sum(found) if found else None


def _moment(given: Any) -> float | None:
    """A time as the engines write it, with nine digits after the second; the year 1 means never."""
    if not isinstance(given, str) or given.startswith("0001-"):
        return None
    whole, dot, rest = given.partition(".")
    if dot:
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        given = f"{whole}.{digits[:6].ljust(6, '0')}{rest[len(digits) :]}"
    try:
        return datetime.fromisoformat(given).timestamp()
    except ValueError:
        return None
