"""[agents.NAME]: a container that answers tasks: what it is made of, what it may use, how many there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

AGENT_PORT = 8080
AGENT_FOLDER = "/agent"  # where an agent's folder is seen inside its containers


@dataclass(frozen=True, slots=True)
class Limits:
    """What one container may use; None: as much as there is."""

    cpus: float | None = None
    memory_mb: float | None = None
    pids: int | None = 256
    tmp_mb: float = 64.0  # of /tmp, in memory: the root is read-only


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of this machine inside the container."""

    source: str  # an absolute path
    target: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class Privileges:
    """What is closed unless the config opens it."""

    read_only: bool = True  # the root
    new_privileges: bool = False
    capabilities: tuple[str, ...] = ()  # all are dropped but these
    user: str | None = "65534:65534"  # None: as the image says


@dataclass(frozen=True, slots=True)
class Pool:
    """How many containers there are, and for how long."""

    containers: int = 1  # at most so many at work at a time
    concurrency: int = 8  # tasks that one container runs at a time; more wait inside it
    warm: int = 0  # paused ones that are ready beside those at work
    idle_s: float = 600.0  # one that had nothing to do for so long is stopped; 0: never
    max_tasks: int | None = None  # a container that has done so many is replaced
    max_age_s: float | None = None  # and one that is so old
    start_s: float = 60.0  # it must answer by then, counted from its creation


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent. `command` serves the protocol itself; otherwise our agent server does, with `handlers`."""

    name: str
    image: str
    command: tuple[str, ...] = ()
    handlers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # command of a task -> argv
    runner: tuple[str, ...] = ()  # argv for every command that has no handler; gets its name first
    python: str = "python3"  # that of the image, for our agent server
    folder: str | None = None  # mounted read-only as /agent; its handlers/ holds scripts by name
    install: tuple[str, ...] = ()  # argv that runs once in each container, before it serves
    update: tuple[str, ...] = ()  # the same, after `install`
    env: Mapping[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()  # names of variables of ours that it gets: where secrets come from
    port: int = AGENT_PORT  # inside the container
    health: str = "/health"
    plain: bool = False  # its server knows no keys: it is known by its container alone
    network: bool = True  # False: none at all; it is reached by a socket in a mounted folder
    mounts: tuple[Mount, ...] = ()
    limits: Limits = field(default_factory=Limits)
    privileges: Privileges = field(default_factory=Privileges)
    pool: Pool = field(default_factory=Pool)
    queue: str | None = None  # a folder queue whose requests are this agent's

    @property
    def has_own_server(self) -> bool:
        """Whether our agent server is mounted into the image."""
        return bool(self.handlers or self.runner or self.folder) and not self.command
