"""Python functions as a host: which callable an attempt calls, and whether in a process of its own.

    [hosts.tools]
    type = "python"
    call = "pkg.mod:fn"                      # or: calls = { summarize = "pkg.mod:fn", "*" = "pkg.mod:rest" }
    isolation = "thread"                     # or "process": killable, a core of its own, spawn-safe (D9)
    path = ["lib"]                           # folders to import from, besides the config's own

The callable is given the payload and returns something that JSON can say. An async one runs on the host's own
loop, a sync one in a thread; with `isolation = "process"` both run in worker processes. Blocking code in
an async callable stalls this host alone, and the watchdog names it (C4).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec

from penstock.clock import Clock
from penstock.errors import PermanentError
from penstock.hosts.base import Call, Health, Job
from penstock.hosts.type_options import ANY_KIND, read_python
from penstock.model import Host


class PythonAdapter:
    def __init__(self, host: Host) -> None:
        self._host = host.name
        options = read_python(host)
        self._isolated, self._path = options.isolated, options.path
        self._calls = options.calls
        self._vital = _vital(self._calls.values())

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def work(self, job: Job) -> Call:
        target = self._calls.get(job.kind) or self._calls.get(ANY_KIND)
        if target is None:
            raise PermanentError(
                f"hosts.{self._host}.calls has no function for kind {job.kind!r}; "
                f'add one, or "{ANY_KIND}" for all the other kinds'
            )
        return Call(target, job.payload, self._isolated, self._path, job.trace, self._vital)

    async def check(self) -> Health:
        """Whether the modules can be found. They are not imported: that would run user code here."""
        return await asyncio.to_thread(self._look)

    def _look(self) -> Health:
        missing = sorted({t for t in self._calls.values() if not _can_find(t.partition(":")[0], self._path)})
        if not missing:
            return Health(True, "modules found")
        remedy = f"install the package, or add its folder to hosts.{self._host}.path"
        return Health(False, f"no module for {', '.join(missing)}; {remedy}")


def shares_process(host: Host) -> bool:
    """Whether a host's functions run in the process of whoever runs its attempts, and can crash it."""
    return host.type == "python" and host.options.get("isolation") != "process"


def _vital(targets: Iterable[str]) -> frozenset[str]:
    """What the host can do nothing without: the only module that it calls, and the only function."""
    targets = set(targets)
    modules = {target.partition(":")[0] for target in targets}
    parts = (("module", len(modules) == 1), ("function", len(targets) == 1))
    return frozenset(part for part, is_vital in parts if is_vital)


def _can_find(module: str, folders: Sequence[str]) -> bool:
    """`importlib.util.find_spec` without its import of the parent packages, which runs their code."""
    if module in sys.modules:
        return True
    where: list[str] | None = None
    name = ""
    for part in module.split("."):
        spec = _find(f"{name}{part}", where, folders)
        if spec is None:
            return False
        where = list(spec.submodule_search_locations or ())
        name += f"{part}."
    return True


def _find(name: str, where: list[str] | None, folders: Sequence[str]) -> ModuleSpec | None:
    for finder in sys.meta_path:
        spec = finder.find_spec(name, where)
        if spec is None and where is None:
            spec = finder.find_spec(name, list(folders))
        if spec is not None:
            return spec
    return None


def make(host: Host, clock: Clock) -> PythonAdapter:
    return PythonAdapter(host)
