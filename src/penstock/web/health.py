"""/health and /metrics: whether the store keeps, the dispatcher starts, hosts and councils answer; the figures.

A look at the store is shared by all who ask within a second, so that asking often costs nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import Response

from penstock.agents import figures
from penstock.agents.endpoints import EndpointFile
from penstock.config import Config
from penstock.config.own_files import agents_dir
from penstock.errors import DispatcherError, StoreError
from penstock.model import HOST_DOWN, State
from penstock.store.base import Epoch, Snapshot, TaskFilter
from penstock.store.status import status_record
from penstock.telemetry.agent_metrics import AgentSums
from penstock.telemetry.metrics import CONTENT_TYPE
from penstock.web.auth import caller_of
from penstock.web.council_health import is_ours, look_at_councils, unread
from penstock.web.refusals import JSON
from penstock.web.shapes import HealthRecord, LiveRecord, errors

if TYPE_CHECKING:
    from penstock.web.app import Parts

_LOOK_S = 2.0  # a store that has not answered by then is not well
_FRESH_S = 1.0
_SILENT_BEATS = 5  # heartbeats a dispatcher may miss
_OF_DISPATCHER = (
    "penstock_queue_depth",
    "penstock_waiting_tasks",
    "penstock_running",
    "penstock_lane_running",
    "penstock_slots",
    "penstock_slots_used",
    "penstock_host_up",
    "penstock_host_state",
    "penstock_gate_open",
)


class Doctor:
    """Looks at the store, the dispatcher, the hosts and the councils."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._looking = asyncio.Lock()
        self._seen: dict[str, Any] = {}
        self._epoch: Epoch | None = None  # of the last look that succeeded
        self._seen_at = -inf
        self._queued: int | None = None

    async def look(self) -> Mapping[str, Any]:
        async with self._looking:  # those who come meanwhile share what is found
            if time.monotonic() - self._seen_at > _FRESH_S:
                self._seen = await self._look()
                self._seen_at = time.monotonic()
            return self._seen

    async def _look(self) -> dict[str, Any]:
        store = await self._store()
        dispatcher = self._dispatcher(store)
        checks = {"store": store, "dispatcher": dispatcher, "hosts": self._hosts()}
        if self._parts.config.councils:
            nothing = await asyncio.to_thread(unread, self._parts.config)
            checks["councils"] = look_at_councils(self._parts.config, self._down(), nothing)
        reasons = [
            f"{name}: {check['detail']}" for name, check in checks.items() if check["state"] == "failing"
        ]
        worst = {check["state"] for check in checks.values()}
        status = "failing" if "failing" in worst else "degraded" if "degraded" in worst else "ok"
        role = "leader" if self._parts.dispatching else "standby" if self._parts.stands_by else "none"
        return {"status": status, "role": role, "reasons": reasons, **checks}

    async def _store(self) -> dict[str, Any]:
        store = self._parts.store
        try:
            async with asyncio.timeout(_LOOK_S):
                epoch = await store.owned_by()
                if self._parts.dispatching:
                    await asyncio.shield(store.record([]))  # passes when all before it is on the disk
        except TimeoutError:
            return self._failing(store.trouble or f"it has not answered for {_LOOK_S:g} s")
        except (StoreError, DispatcherError) as error:  # the latter: another has just taken over
            return self._failing(str(error))
        if store.trouble is not None:
            return self._failing(store.trouble)
        self._epoch = epoch
        self._queued = self._known_queued()
        if self._queued is None:
            self._queued = (await store.count(TaskFilter(states=(State.QUEUED,)))).tasks
        return _check("ok", "", queued=self._queued)

    def _failing(self, detail: str) -> dict[str, Any]:
        """The store cannot be asked: of the queue, what was last known."""
        known = self._known_queued()
        return _check("failing", detail, queued=(self._queued or 0) if known is None else known)

    def _known_queued(self) -> int | None:
        """As the dispatcher knows it: the store would have to count, which takes seconds where it is long."""
        if self._parts.dispatcher is None:
            return None
        statistics = self._parts.dispatcher.statistics
        return statistics.live - statistics.running

    def _dispatcher(self, store: Mapping[str, Any]) -> dict[str, Any]:
        parts = self._parts
        if parts.draining and (parts.dispatching or parts.stands_by):
            return _check("failing", "it finishes what runs and takes in nothing more")
        if parts.stands_by:
            return self._standby(store)
        if not parts.dispatching:
            return _check("failing", "it does not run")
        if store["state"] != "ok":
            return _check("degraded", "it waits for the store")
        epoch = self._epoch
        if epoch is None:
            return _check("failing", "it has lost the store")
        silent_s = time.time() - epoch.seen_at
        if silent_s > _SILENT_BEATS * parts.config.heartbeat_s + _LOOK_S:
            return _check("failing", f"it has shown no sign of life for {silent_s:.0f} s")
        return _check("ok", "")

    def _standby(self, store: Mapping[str, Any]) -> dict[str, Any]:
        """Well as long as it can take over; that nobody leads is for a moment, and it ends that."""
        if store["state"] != "ok":
            return _check("degraded", "it stands by, and waits for the store")
        if self._epoch is None:
            return _check("degraded", "it stands by; nobody leads at the moment")
        owner = self._epoch.owner
        return _check("ok", f"it stands by; process {owner.pid} on {owner.machine} ({owner.command}) leads")

    def _hosts(self) -> dict[str, Any]:
        if not self._parts.dispatching:
            return _check("ok", "", up=0, down=0)
        names = [host.name for host in self._parts.config.plant.hosts if not is_ours(host)]
        down = sorted(self._down().intersection(names))
        detail = f"down: {', '.join(down[:20])}" if down else ""
        state = "ok" if not down else "failing" if len(down) == len(names) else "degraded"
        return _check(state, detail, up=len(names) - len(down), down=len(down))

    def _down(self) -> set[str]:
        if self._parts.dispatcher is None:
            return set()
        hosts = self._parts.dispatcher.statistics.hosts
        return {name for name, host in hosts.items() if host.state in HOST_DOWN}


def _check(state: str, detail: str, **figures: int) -> dict[str, Any]:
    return {"state": state, "detail": detail, **figures}


def add_routes(app: FastAPI, parts: Parts) -> None:
    doctor = Doctor(parts)

    @app.get(
        "/health",
        summary="Whether all is well",
        tags=["server"],
        responses={200: {"model": HealthRecord}, 503: {"model": HealthRecord}, **errors(403, 405, 413)},
        response_class=Response,
    )
    async def health(request: Request) -> Response:
        """200 when the store keeps, the dispatcher starts and a host is up, else 503 with the reasons.

        One that stands by is well when it can read the store and take over.
        Without a token, or without the scope `read`, only the status is told.
        """
        found = await doctor.look()
        caller = request.state.caller
        told = found if caller is not None and "read" in caller.scopes else {"status": found["status"]}
        return Response(
            msgspec.json.encode(told),
            503 if found["status"] == "failing" else 200,
            {"Cache-Control": "no-store"},
            media_type=JSON,
        )

    @app.get(
        "/health/live",
        summary="Whether the server answers",
        tags=["server"],
        responses={200: {"model": LiveRecord}, **errors(403, 405, 413)},
        response_class=Response,
    )
    async def live() -> Response:
        """Always 200: it says nothing of the store, so a server is not restarted for what is not its fault."""
        return Response(b'{"status":"ok"}', headers={"Cache-Control": "no-store"}, media_type=JSON)

    @app.get(
        "/metrics",
        summary="Figures for Prometheus",
        tags=["server"],
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **errors(401, 403, 405, 413),
        },
        response_class=Response,
    )
    async def metrics(request: Request) -> Response:
        """Needs the scope `read`."""
        caller_of(request.scope).must_have("read")
        found = await doctor.look()
        is_read = found["store"]["state"] == "ok"
        snapshot = parts.standing.last
        if parts.stands_by:
            snapshot = None  # the leader tells of the queue: sums over all servers stay right
        elif is_read:
            snapshot = await parts.standing.snapshot()
        parts.metrics.stand(_standing(parts, snapshot))
        if parts.config.agents:
            sums, containers = await asyncio.to_thread(_agents, parts.config)
            parts.metrics.stand_of_agents(sums)
            parts.metrics.stand({"penstock_agent_containers": containers})
        return Response(parts.metrics.text(), media_type=CONTENT_TYPE)


def _standing(parts: Parts, snapshot: Snapshot | None) -> dict[str, dict[tuple[str, ...], float]]:
    standing: dict[str, dict[tuple[str, ...], float]] = {
        "penstock_asyncio_tasks": {(): float(len(asyncio.all_tasks()))},
        "penstock_dispatcher_up": {(): float(parts.dispatching and not parts.draining)},
        "penstock_leader": {(): float(parts.dispatching)},
        "penstock_http_streams": {(): parts.feed.readers.count},
    }
    standing |= {name: {} for name in _OF_DISPATCHER}  # another's figures are its own to tell
    if snapshot is not None:
        lanes = status_record(parts.config.plant, snapshot)["lanes"]
        standing["penstock_queue_depth"] = {(name,): lane["queued"] for name, lane in lanes.items()}
    if parts.dispatcher is not None:
        statistics = parts.dispatcher.statistics
        hosts = statistics.hosts.items()
        standing |= {
            "penstock_waiting_tasks": {(reason,): tasks for reason, tasks in statistics.waiting.items()},
            "penstock_running": {(name,): host.active for name, host in hosts},
            "penstock_lane_running": {(name,): lane.running for name, lane in statistics.lanes.items()},
            "penstock_slots": {(name,): host.slots for name, host in hosts},
            "penstock_slots_used": {(name,): host.slots - host.free for name, host in hosts},
            "penstock_host_up": {(name,): float(host.state not in HOST_DOWN) for name, host in hosts},
            "penstock_host_state": {(name, host.state): 1.0 for name, host in hosts},
            "penstock_gate_open": {
                (name,): float(is_open) for name, (is_open, _) in statistics.gates.items()
            },
        }
    return standing


def _agents(config: Config) -> tuple[dict[str, AgentSums], dict[tuple[str, ...], float]]:
    """What is known of them on this machine; their files are read in a thread."""
    sums: dict[str, AgentSums] = {}
    containers: dict[tuple[str, ...], float] = {}
    for name in config.agents:
        files = EndpointFile(agents_dir(config), name)
        found = figures.read(files.folder)
        times = {
            one: [(figures.upper_s(size), count) for size, count in sizes.items()]
            for one, sizes in found.sizes.items()
        }
        sums[name] = AgentSums(found.counts, times, found.totals)
        for endpoint in files.read():
            key = name, endpoint.state
            containers[key] = containers.get(key, 0.0) + 1.0
    return sums, containers
