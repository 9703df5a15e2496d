"""The hosts of a run while it is waited for: those that are down and why, and whether waiting is of any use.

Read from the store, so that it does not matter which process dispatches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli.render import counted, one_line
from penstock.model import HOST_DOWN, HOST_TRIED, State
from penstock.scheduling.details import TRIPPED
from penstock.store.base import TaskFilter
from penstock.store.status import fault_of

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.model import Plant, Task
    from penstock.store.base import HostStatus, Snapshot

_EVERY_S = 0.2  # between two looks at the hosts, at least
_REST = 10.0  # of the time between two looks, looking takes at most a tenth


class Outage(NamedTuple):
    """A host that failed with its last attempt or check."""

    host: str
    error: str
    needs_fix: bool
    is_down: bool  # else it is given more tasks all the same
    is_tried: bool = False  # it may have been mended meanwhile

    def __str__(self) -> str:
        how = "is down" if self.is_down else "failed"
        later = "" if self.needs_fix else "; Penstock keeps trying it"
        return one_line(f"host {self.host} {how}: {self.error.removeprefix(f'{self.host}: ')}{later}")


class HostWatch:
    """`tasks` are those that are waited for, by id; `tell` hears what is new of hosts, in lines for people.

    What attempts for somebody else failed with before `since` may have been mended: the next attempt shows it.
    """

    def __init__(
        self, client: Client, tasks: Mapping[str, Task], tell: Callable[[str], None], since: float
    ) -> None:
        self._client = client
        self._since = since
        self._tell = tell
        self._tasks = tasks
        self._names = {task.id: id for id, task in tasks.items() if task.id}  # as `after` names them
        self._next_at = 0.0
        self._told: dict[str, str] = {}  # by host: its error
        self.outages: Mapping[str, Outage] = {}
        self.stuck: str | None = None  # why nothing that is left can run until somebody fixes a host
        self.left = 0

    async def look(self, left: Collection[str]) -> None:
        """Look at the hosts again, unless somebody has just done so; `left` are the tasks that have not ended."""
        began = time.monotonic()
        if began < self._next_at:
            return
        snapshot = await self._client.glance()
        self.outages = outages(snapshot)
        broken = {
            one.host
            for one in self.outages.values()
            if one.needs_fix and not one.is_tried and self._is_new(snapshot.hosts[one.host])
        }
        if broken:
            hosts = self._stuck_on(left, broken, snapshot.plant_or(self._client.config.plant))
            if hosts and not await self._some_run(left):
                self.stuck, self.left = self._why(sorted(hosts)), len(left)
        took = time.monotonic() - began
        self._next_at = began + took + max(_EVERY_S, _REST * took)
        for line in self._news() if self.stuck is None else ():  # which says it all
            self._tell(line)

    def way_on(self, run: str, go_on: str, cancel: str) -> str:
        """The last line of a command that waits no longer; `go_on` and `cancel` are commands."""
        stays, them = ("stays", "it") if self.left == 1 else ("stay", "them")
        return (
            f"{self.stuck}; {counted(self.left, 'task')} of run {run} {stays} queued: `{go_on}` goes on with "
            f"{them}, `{cancel}` cancels {them}"
        )

    # ---- what is told

    def _news(self) -> Iterator[str]:
        """Once per host and error: that it is tried again and fails in the same way is no news."""
        for host, outage in self.outages.items():
            before = self._told.get(host)
            if before is None or (outage.is_down and outage.error != before):
                self._told[host] = outage.error
                yield str(outage)
        for host in [host for host in self._told if host not in self.outages]:
            del self._told[host]
            yield f"host {host} works again"

    def _why(self, hosts: list[str]) -> str:
        first, *others = hosts
        more = f" (and so do {', '.join(others)}: `penstock status`)" if others else ""
        return one_line(f"host {first} needs a fix{more}: {self.outages[first].error}")

    # ---- whether it is of any use to wait

    def _is_new(self, host: HostStatus) -> bool:
        """Whether it may be held against a host. Checks are made again every few seconds; attempts are not."""
        is_checked = TRIPPED.search(host.detail) is None
        return is_checked or self._client.dispatches or host.changed_at >= self._since

    def _stuck_on(self, left: Collection[str], broken: Collection[str], plant: Plant) -> set[str]:
        """The hosts without which none of these tasks can run; none where one of them can."""
        found: dict[tuple[object, ...], set[str]] = {}
        hosts: set[str] = set()
        stuck: set[str] = set()
        dependent: set[str] = set()
        for id in left:
            task = self._tasks[id]
            sort = (task.kind, task.host, task.model, task.lane, *sorted((task.needs or {}).items()))
            able = found.get(sort)
            if able is None:
                able = found[sort] = {host.name for host in plant.fitting(task)}
            if able and able <= set(broken):
                hosts |= able
                stuck.add(id)
            elif task.after:
                dependent.add(id)
            else:
                return set()
        while follow := {id for id in dependent if not stuck.isdisjoint(self._after(id))}:
            stuck |= follow
            dependent -= follow
        return set() if dependent else hosts

    def _after(self, id: str) -> Iterator[str]:
        return (self._names.get(name, name) for name in self._tasks[id].after)

    async def _some_run(self, left: Collection[str]) -> bool:
        running = await self._client.tasks(TaskFilter(states=(State.RUNNING,)))
        return any(record.task.id in left for record in running)


def outages(snapshot: Snapshot) -> dict[str, Outage]:
    """By host, those of which something is known to be wrong."""
    return {
        name: Outage(
            name, fault.error, fault.needs_fix, status.state in HOST_DOWN, status.state in HOST_TRIED
        )
        for name, status in snapshot.hosts.items()
        if (fault := fault_of(snapshot, name)) is not None
    }
