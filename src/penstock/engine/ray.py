"""The engine of many machines: what users' code does runs on nodes of a Ray cluster, all else as on one machine.

It is the local engine with more places: the hosts that are `remote` have pools of workers on the cluster. Our own
scheduler decides order and limits; Ray places workers and notices their deaths. Attempts run in workers that
outlive this process: the next dispatcher of the store finds them by their names, which are made of its secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.config.engine import EngineSettings
from penstock.engine.attempts import Place, Run
from penstock.engine.base import Key
from penstock.engine.cluster.crew import Terms
from penstock.engine.cluster.driver_letters import Joining, Node
from penstock.engine.cluster.frames import CUT, GONE, Ask
from penstock.engine.cluster.letters import VERSION, Hello
from penstock.engine.cluster.link import Line, Link, Spawn, spawned
from penstock.engine.cluster.pool import WorkerPool
from penstock.engine.cluster.remote import RemoteHost, fits_nowhere
from penstock.engine.cluster.worker import likeness
from penstock.engine.local import LocalEngine
from penstock.errors import AttemptError
from penstock.hosts.base import Health, Job
from penstock.hosts.relay import Relay
from penstock.model import Outcome, Verdict

_NAMESPACE = "penstock"
_ASK_S = 5.0  # for workers to say what they have, and for the cluster to name its nodes
_LOOK_S = 3.0  # a new dispatcher does not wait longer for its cluster and its workers before it dispatches,
_LOOK_LEAST_S = 1.0  # nor less, whatever took it so long
_SILENT_S = 60.0  # a worker of an earlier dispatcher that has not answered for so long is killed
_CHECK_S = 10.0
_AGAIN_S = 0.5
_NOT_YET = "the Ray cluster has not answered yet"

_log = logging.getLogger("penstock.engine")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which cluster, what runs there, and how it is reached."""

    settings: EngineSettings
    hosts: Mapping[str, RemoteHost]
    secret: Callable[[], Awaitable[bytes]]  # of the store: its workers' names are made of it
    runtime_env: Mapping[str, Any]  # what Ray gives to workers, and writes into its logs
    check_every_s: float = _CHECK_S
    look_s: float = _LOOK_S
    spawn: Spawn = spawned
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)  # what only we give them


class RayEngine(LocalEngine):
    """The arguments of a local engine, after the cluster."""

    def __init__(self, cluster: Cluster, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._cluster = cluster
        self._pools: dict[str, WorkerPool] = {}
        self._claimed: dict[Key, Run] = {}  # adopted, and not found yet
        self._absent: set[Key] = set()  # those that nobody has
        self._adopting = True  # until it is said which attempts go on
        self._looking: asyncio.Task[int] | None = None
        self._silent: dict[str, float] = {}  # workers that do not answer, and since when
        self._spare: Line | None = None
        self._withdrawn = False
        self._nodes: list[Node] | None = None  # as they were told first
        self._told_down: set[str] = set()  # hosts that were by their last check,
        self._unfit: set[str] = set()  # and those that no node could serve

    async def prepare(self) -> None:
        """A driver that has not joined the cluster: to start it takes the longest of a takeover."""
        if self._spare is None:
            with contextlib.suppress(OSError):  # told when it is needed and still cannot be started
                self._spare = await self._cluster.spawn()

    async def _spawn(self) -> Line:
        spare, self._spare = self._spare, None
        if spare is not None and spare.is_alive:
            return spare
        if spare is not None:
            await spare.close()
        return await self._cluster.spawn()

    async def open(self, term: int = 0) -> None:
        cluster, settings = self._cluster, self._cluster.settings
        secret = self._secret = await cluster.secret()  # which may fail: nothing is open yet
        await super().open(term)
        if unset := [name for name in settings.pass_env if name not in cluster.variables]:
            _log.warning("engine.pass_env: %s is not set here; workers are started without", ", ".join(unset))
        self._names = names_of(secret)
        joining = Joining(
            address=settings.address,
            namespace=settings.namespace or _NAMESPACE,
            runtime_env=dict(cluster.runtime_env),
            names=self._names,
            term=term,
        )
        self._link = Link(joining, self._relinked, self._spawn)
        terms = Terms(
            secret,
            self._names,
            self._tag,
            self._limits,
            settings.start_s,
            settings.idle_s,
            self._chores,
            self._clock.now,
            cluster.variables,
        )
        for name, remote in cluster.hosts.items():
            self._pools[name] = WorkerPool(
                remote, self._link, terms, self._finished, self._begun, self._notice
            )
        self._changes = asyncio.Event()
        self._opened_at = self._loop.time()
        self._link.open()

    async def close(self, *, at_once: bool = False) -> None:
        if self._spare is not None:
            await self._spare.close()
            self._spare = None
        if not self._open:
            return
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
        await super().close(at_once=at_once)
        await self._link.close()

    # ---- where attempts run

    def _stands(self, host: str) -> bool:
        remote = self._cluster.hosts.get(host)
        return remote is None or remote.agent is not None  # calls of agents are answered here

    def _assign(self, run: Run) -> Place:
        pool = self._pools.get(run.job.host)
        if pool is None or isinstance(
            run.job.payload, Relay
        ):  # somebody waits for it on a connection of ours
            return super()._assign(run)
        run.place = pool
        return pool

    def _places(self) -> Sequence[Place]:
        return (*super()._places(), *self._pools.values())

    def _begun(self, run: Run, slack_s: float) -> None:
        """A worker has it, and its time runs; of one that was adopted some is over, which makes for less slack."""
        if run.timeout_s is not None and run.reason is None and not run.ended:
            self._timers.set(run, self._clock.now() + run.timeout_s + slack_s)

    # ---- what outlives a dispatcher

    @property
    def detaches(self) -> bool:
        return True

    async def adopt(self, jobs: Sequence[Job]) -> set[Key]:
        for job in jobs:
            pool = self._pools.get(job.host)
            if pool is not None:
                timeout_s = self._default_timeout_s if job.timeout_s is None else job.timeout_s
                run = Run(job, timeout_s, place=pool)
                self._live[job.task, job.attempt] = self._claimed[job.task, job.attempt] = run
                self._begun(run, pool.start_s)  # it is set anew by the worker that has it
                self._let_in_again(job)
        claimed = set(self._claimed)
        await self._look_once()
        self._adopting = False
        return claimed - self._absent  # one that had ended may be reported by now

    def _let_in_again(self, job: Job) -> None:
        """Its key is the one it was given by the dispatcher that died."""
        way = self._cluster.hosts[job.host].way
        if way is not None:
            with contextlib.suppress(
                AttemptError
            ):  # its lane is no longer one of runs: its calls are refused
                way.admit(job, self._secret)

    async def sweep(self) -> int:
        return await super().sweep() + await self._look_once()

    def detached(self) -> Collection[Key]:
        return [*self._claimed, *(key for pool in self._pools.values() for key in pool.held())]

    def withdraw(self, but: Collection[str] = ()) -> None:
        self._withdrawn = True
        for pool in self._pools.values():
            pool.withdraw(but)

    def leave(self) -> None:
        left = self.detached()
        for pool in self._pools.values():
            pool.leave()
        for key in left:
            run = self._live.pop(key, None)
            if run is not None:
                run.ended = True

    def recorded(self, ended: Iterable[Key]) -> None:
        keys = list(ended)
        for pool in self._pools.values():
            pool.recorded(keys)

    async def _look_once(self) -> int:
        """Find the workers of this store, once; how many attempts there are unwanted.

        Who is not answered in time goes on, since what does not need the cluster must not wait for it: what was
        claimed may still be found later.
        """
        if self._looking is None:
            least_until = self._loop.time() + _LOOK_LEAST_S
            self._look_until = max(self._opened_at + self._cluster.look_s, least_until)
            self._looking = asyncio.get_running_loop().create_task(self._look_for_workers())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._look_until):
                return await asyncio.shield(self._looking)
        return 0

    async def _look_for_workers(self) -> int:
        while not self._link.is_up:
            self._changes.clear()
            await self._changes.wait()
        unwanted = 0
        answer, body = await self._link.wait(Ask(number=0, verb="nodes"))
        self._nodes = None if answer.fault else msgspec.json.decode(body, type=list[Node])
        names = await self._listed()
        while names:
            told = await asyncio.gather(*(self._meet(name) for name in names))
            unwanted += sum(count or 0 for count in told)
            names = [name for name, count in zip(names, told, strict=True) if count is None]
            self._give_up_claims({self._host_of(name) for name in names})
            if names:
                await asyncio.sleep(_AGAIN_S)
        self._give_up_claims()
        return unwanted

    async def _listed(self) -> list[str]:
        """The names of all workers of this store."""
        while True:
            answer, body = await self._link.wait(Ask(number=0, verb="list", worker=self._names))
            if not answer.fault:
                return msgspec.json.decode(body, type=list[str])
            await asyncio.sleep(_AGAIN_S)

    def _host_of(self, worker: str) -> str:
        return worker.removeprefix(self._names).rpartition("/")[0]

    async def _changed_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changes.wait()
                return True
        return False

    async def _meet(self, name: str) -> int | None:
        """Take a worker over, or end it; how many attempts there are unwanted. None: it cannot be reached now."""
        pool = self._pools.get(self._host_of(name))
        if pool is not None and name in pool.crew.hands:
            return 0  # the list took long, or was asked for again: one that we have hired meanwhile is on it
        try:
            async with asyncio.timeout(_ASK_S):
                answer, body = await self._link.wait(Ask(number=0, verb="meet", worker=name))
        except TimeoutError:
            self._not_answered(name)
            return None
        self._silent.pop(name, None)
        if answer.fault == GONE:
            return 0
        if answer.fault:
            return None
        hello = msgspec.json.decode(body, type=Hello)
        if pool is None or hello.version != VERSION:
            _log.warning("a Ray worker of another version, or of a host that is no more, is ended: %s", name)
            await self._link.wait(Ask(number=0, verb="kill", worker=name))
            return sum(not standing.is_over for standing in hello.attempts)
        return pool.enroll(name, hello, likeness(pool.crew.hiring()), self._claimed)

    def _not_answered(self, name: str) -> None:
        """One that hangs may run what was claimed: in the end it is killed, and then certainly nothing does."""
        now = self._loop.time()
        if now - self._silent.setdefault(name, now) >= _SILENT_S:
            _log.error("a Ray worker of an earlier dispatcher does not answer, and is killed: %s", name)
            self._link.ask(Ask(number=0, verb="kill", worker=name), b"", lambda answer, body: None)

    def _give_up_claims(self, silent: Collection[str] = ()) -> None:
        """Nobody has these, but on hosts that have silent workers. Known in time, they were never adopted; later,
        they were lost: one fault of a host."""
        claimed = {key: run for key, run in self._claimed.items() if run.job.host not in silent}
        hit: set[str] = set()
        for key, run in claimed.items():
            del self._claimed[key]
            if self._adopting:
                self._live.pop(key, None)
                self._absent.add(key)
                way = self._cluster.hosts[run.job.host].way
                if way is not None:
                    way.door.ended(*key)
                run.ended = True
            elif not run.ended:
                gone = "the Ray worker that ran it is gone, and its dispatcher was lost before it could tell"
                known = run.job.host in hit
                hit.add(run.job.host)
                self._finished(run, Outcome(Verdict.HOST, error=gone, orphaned=True, known_fault=known))

    # ---- the cluster

    def _relinked(self) -> None:
        self._changes.set()
        for pool in self._pools.values():
            if self._link.is_up:
                pool.linked()
            else:
                pool.cut()

    def watched(self) -> Mapping[str, float]:
        here = {name: every_s for name, every_s in super().watched().items() if name not in self._pools}
        if not self._cluster.check_every_s:
            return here
        return here | dict.fromkeys(self._pools, self._cluster.check_every_s)

    def down(self) -> Mapping[str, str]:
        """Until the cluster has been reached nobody knows what it can do."""
        if not self._cluster.check_every_s:
            return {}
        if not self._link.is_up:
            return dict.fromkeys(self._pools, self._link.why_down or _NOT_YET)
        nodes = self._nodes
        if nodes is None:
            return {}
        there = self._cluster.hosts.items()
        return {name: fits_nowhere(one, len(nodes)) for name, one in there if not _fit(one, nodes)}

    def want(self, host: str) -> None:
        """One worker that waits for its node: that is what makes a cluster grow that can."""
        if host in self._unfit and self._link.is_up and not self._withdrawn:
            self._pools[host].crew.hire(1)

    async def check(self, host: str) -> Health:
        remote = self._cluster.hosts.get(host)
        if remote is None:
            return await super().check(host)
        health = await self._examined(remote)
        if health.up:
            self._told_down.discard(host)
        else:
            if host in self._told_down:  # everybody knows by now: what goes back does not come again at once
                self._pools[host].put_back(health.detail)
            self._told_down.add(host)
        return health

    async def _examined(self, remote: RemoteHost) -> Health:
        self._unfit.discard(remote.host.name)
        if not self._link.is_up and not self._link.why_down:
            await self._changed_within(_ASK_S)
        if not self._link.is_up:
            return Health(False, self._link.why_down or _NOT_YET)
        try:
            async with asyncio.timeout(_ASK_S):
                answer, body = await self._link.wait(Ask(number=0, verb="nodes"))
        except TimeoutError:
            return Health(False, f"the Ray cluster at {self._cluster.settings.address} does not answer")
        if answer.fault:
            return Health(False, answer.error if answer.fault != CUT else self._link.why_down)
        nodes = msgspec.json.decode(body, type=list[Node])
        if fit := _fit(remote, nodes):
            return Health(True, f"Ray {self._link.joined.version}: {fit} of {len(nodes)} nodes")
        self._unfit.add(remote.host.name)
        return Health(False, fits_nowhere(remote, len(nodes)))


def _fit(remote: RemoteHost, nodes: Sequence[Node]) -> int:
    """How many nodes can serve a host."""
    return sum(remote.fits(node.resources, node.labels) for node in nodes)


def names_of(secret: bytes) -> str:
    """What the names of all workers of a store begin with: nobody who has not its secret can tell them."""
    return hashlib.sha256(b"penstock ray workers\0" + secret).hexdigest()[:32] + "/"
