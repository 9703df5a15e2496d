"""Turns what a container engine complains about into one of our errors: what is wrong, where, what to do.

Docker and Podman word the same fault differently, so it is known by phrases of both; a status alone says little
(Podman answers 500 to nearly everything). What no phrase fits is told in the engine's own words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.agents.engine.engine_socket import HOW_TO_START
from penstock.errors import AgentError, EngineUnreachable, ImageMissing, NoRoomForAgent

NO_CONNECTION = 900  # what aiodocker gives instead of a status when nobody answered
_MOST_CHARACTERS = 400
_SHORTEST_SECRET = 4  # shorter ones hide nothing, and hiding them would make every message unreadable


@dataclass(frozen=True, slots=True)
class Asked:
    """What was being done, for the message."""

    engine: str  # its URL
    agent: str = ""
    image: str = ""
    program: str = ""  # the first word of what runs in the container
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def place(self) -> str:
        return f"agents.{self.agent}" if self.agent else "containers"


class _Fault(NamedTuple):
    phrases: str
    kind: Callable[[str], AgentError]
    remedy: str


_NO_LIMITS = (
    "the engine may not limit cpus, memory or processes here: delegate those controllers to your user "
    "(systemd: Delegate=cpu memory pids), or ask for none: agents.*.limits = {{ pids = 0 }}"
)
_FAULTS = (
    _Fault(
        r"no space left on device|disk quota exceeded|not enough space",
        NoRoomForAgent,
        "the engine's disk is full: free some (podman system prune, or docker system prune)",
    ),
    _Fault(
        r"no available (?:ipv4 |ip )?address|no ip addresses available|IP addresses? .* exhausted|"
        r"failed to allocate for range|could not find an available,? (?:non-overlapping )?IPv4 address",
        NoRoomForAgent,
        "the engine's network has no address left: stop other containers, or give it a larger network",
    ),
    _Fault(
        r"port is already allocated|all ports are allocated|address already in use|"
        r"(?:no|find(?: an?)?|allocate(?: an?)?) (?:free |available |open |host )?ports?\b|"
        r"cannot assign requested address|"
        r"rootlessport .*(?:bind|listen)",
        NoRoomForAgent,
        "no port of this machine is left for it: stop other containers, or widen ip_local_port_range",
    ),
    _Fault(
        r"cannot allocate memory|resource temporarily unavailable|too many open files|out of memory|"
        r"exceeds? maximum (?:number|locks)|allocation failed; exceeded num_locks|no free locks|"
        r"can't create new thread|pthread_create failed",
        NoRoomForAgent,
        "this machine has no memory, process or file left for it: stop other containers, or raise its limits",
    ),
    _Fault(
        r"unable to set memory limit|minimum memory limit|memory limit should be|memory limit .*too (?:small|low)",
        AgentError,
        "agents.*.limits.memory_mb is too little to start anything in: give it more",
    ),
    _Fault(
        r"cfs quota|range of cpus|nanocpus|cpu.* out of range",
        AgentError,
        "agents.*.limits.cpus is not within what this machine has: give from 0.01 to its number of cores",
    ),
    _Fault(
        r"init binary|docker-init",
        AgentError,
        "the engine has no init: install catatonit (Podman) or tini (Docker)",
    ),
    _Fault(
        r"error setting rlimit|setrlimit",
        AgentError,
        "the engine's default_ulimits are above what this machine allows: lower them in containers.conf",
    ),
    _Fault(
        r"can ?not pause|pausing .*not supported|unable to freeze|freezer",
        AgentError,
        "the engine cannot pause containers here: give it control groups of version 2, or set agents.*.warm = 0",
    ),
    _Fault(
        r"cgroup|controller .* (?:not available|is not|unavailable)|Limitation discarded|cpu\.max|memory\.max",
        AgentError,
        _NO_LIMITS,
    ),
    _Fault(
        r"slirp4netns|\bpasta\b|rootless netns|rootlessport|netavark|plugin type=|iptables|"
        r"failed to create endpoint",
        AgentError,
        "the engine cannot give it a network: see that its network programs are installed and /dev/net/tun can be "
        "opened, or set agents.*.network = false",
    ),
    _Fault(
        r"executable file not found|exec: .*no such file|exec format error|"
        r"exec: .*permission denied|crun: .*(?:not found|no such file)",
        AgentError,
        "the image cannot run {program!r}: name a program that it has (agents.*.command or agents.*.python)",
    ),
    _Fault(
        r"bind source path does not exist|statfs .*no such file|mounting .*no such file|"
        r"error (?:stat|mount)ing .*no such file|mkdir .*read-only file system|not a shared mount",
        AgentError,
        "a mount cannot be made: see that agents.*.mounts and agents.*.path are there on the engine's machine",
    ),
    _Fault(
        r"unable to find user|no matching entries in passwd|no users found|unable to find group",
        AgentError,
        "the image has no such user: give agents.*.user as numbers, as 65534:65534",
    ),
    _Fault(
        r"insufficient UIDs|lchown|potentially insufficient|cannot find (?:UID|mappings)",
        AgentError,
        "your user has no range of ids for containers: add one to /etc/subuid and /etc/subgid, then "
        "`podman system migrate`",
    ),
)
_GONE = re.compile(r"no such container|no container with name or id|does not exist in database", re.I)
_IMAGE = re.compile(
    r"no such image|image not known|image .*not found|unable to find image|manifest unknown", re.I
)


def translated(status: int, message: str, asked: Asked) -> AgentError:
    """The error for what the engine answered."""
    told = one_line(message, asked.secrets)
    if status == NO_CONNECTION:
        # aiodocker quotes aiohttp, which quotes the system, each in brackets: the system says what is wrong.
        inmost = re.search(r"\[([^\[\]]+)\]+$", told)
        return unreachable(asked, told if inmost is None else inmost[1])
    if asked.image and _IMAGE.search(told):
        return image_missing(asked)
    for fault in _FAULTS:
        if re.search(fault.phrases, told, re.I):
            remedy = fault.remedy.format(program=asked.program or "its command")
            return fault.kind(
                f"{asked.place}: {remedy.replace('agents.*', asked.place)} (the engine says: {told})"
            )
    return AgentError(
        f"{asked.place}: the container engine refused, with status {status}: {told}: see its own log"
    )


def is_gone(status: int, message: str) -> bool:
    """Whether there is no such container, or image: Podman says so with status 500 while it is being removed."""
    return status == 404 or bool(_GONE.search(message))


def limit_dropped(asked: Asked, told: str) -> AgentError:
    """For an engine that made the container without a limit, instead of refusing."""
    remedy = _NO_LIMITS.format().replace("agents.*", asked.place)
    return AgentError(f"{asked.place}: {remedy} (the engine set {told})")


def unreachable(asked: Asked, told: str) -> EngineUnreachable:
    return EngineUnreachable(
        f"{asked.place}: the container engine at {asked.engine} does not answer: {told}: {HOW_TO_START}"
    )


def image_missing(asked: Asked) -> ImageMissing:
    return ImageMissing(
        f"{asked.place}.image: the engine at {asked.engine} has no image {asked.image!r}: build or pull it there "
        f"(podman build -t NAME . | podman pull NAME, or the same with docker)"
    )


def hidden(text: str, secrets: Iterable[str]) -> str:
    """The text without any of them."""
    parts = {part for secret in secrets for part in (secret, *secret.splitlines())}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= _SHORTEST_SECRET:
            text = text.replace(part, "***")
    return text


def one_line(message: str, secrets: Iterable[str] = ()) -> str:
    told = " ".join(hidden(message, secrets).split())
    return told if len(told) <= _MOST_CHARACTERS else f"{told[:_MOST_CHARACTERS]}…"
