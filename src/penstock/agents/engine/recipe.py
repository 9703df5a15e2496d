"""What a container is made from: an agent of the config becomes the document that the engine creates it by.

Pure: the same agent and identity give the same document. Everything is closed unless the config opens it: the
root is read-only, capabilities are dropped, there is no way to new privileges, and processes, memory, swap and
logs are limited. Values that come from `pass_env` are in the environment of the container and nowhere else.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.config.agents import AGENT_FOLDER, Agent

LABEL = "io.penstock."
AGENT_LABEL, HOME_LABEL, INSTANCE_LABEL, FINGERPRINT_LABEL, PORT_LABEL, SOCKET_LABEL, SECRETS_LABEL = (
    LABEL + name for name in ("agent", "home", "instance", "fingerprint", "port", "socket", "secrets")
)
KEY_VARIABLE, PROOF_VARIABLE, INSTANCE_VARIABLE = OWN_VARIABLES = (
    "PENSTOCK_AGENT_KEY",
    "PENSTOCK_AGENT_PROOF",
    "PENSTOCK_AGENT_INSTANCE",
)
SERVER_FOLDER = "/penstock"
SERVER_FILE = f"{SERVER_FOLDER}/agent_server.py"
SOCKET_FOLDER = "/run/penstock"
SOCKET_FILE = "agent.sock"
LOG_LIMIT = "10m"  # a container that writes without end must not fill the disk
_TMP = "/tmp"  # noqa: S108 - of the container
# Podman puts folders in memory there on a read-only root, as large as the machine's memory unless we name them.
_SMALL_TMPFS = {"/run": 16, "/var/tmp": 16}  # noqa: S108 - of the container; megabytes
NOBODY = "65534:65534"
_FORGET = f"unset {' '.join(OWN_VARIABLES)}"
_MEGABYTE = 1024 * 1024

# Runs what is to come before our server, without its keys, then becomes the server. As the first process of a
# container it is only ended by signals that it takes care of.
_BEFORE = """\
import json, os, signal, subprocess, sys
own = ("PENSTOCK_AGENT_KEY", "PENSTOCK_AGENT_PROOF", "PENSTOCK_AGENT_INSTANCE")
env = {name: value for name, value in os.environ.items() if name not in own}
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
for name, argv in json.loads(sys.argv[1]).items():
    status = subprocess.call(argv, env=env, stdin=subprocess.DEVNULL)
    if status:
        sys.exit(f"{name} failed with status {status}")
os.execvp(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes one container this one and no other."""

    instance: str  # letters and digits; unique, also among those that are gone
    key: str  # callers send it
    proof: str  # what answers must send it
    home: str  # whose it is: a tag of the folder of endpoints and the machine

    def __repr__(self) -> str:  # keys and proofs are in no log
        return f"Identity({self.instance})"


@dataclass(frozen=True, slots=True)
class Place:
    """What the recipe must know of the machine."""

    server: str = ""  # the path of our agent server, which is mounted
    is_copied: bool = False  # the engine sees other files: the server and the agent's folder are copied in
    socket_folder: str | None = None  # where the container puts its socket when it has no network
    publish_on: str = "127.0.0.1"
    has_init: bool = True  # whether the engine has a small init to put before programs that reap no children
    is_podman: bool = False


def fingerprint(agent: Agent, server_source: bytes) -> str:
    """Of all that a container is made from; agents that differ in how many there are differ not in this.

    How long a container stays when nobody calls it is told to the server inside, so it counts.
    """
    made = asdict(agent)
    pool = made.pop("pool")
    made.pop("queue")
    made |= {"idle_s": pool["idle_s"], "concurrency": pool["concurrency"]}
    told = json.dumps(made, sort_keys=True, default=str).encode()
    server = server_source if agent.has_own_server else b""
    return hashlib.blake2b(told + b"\0" + server, digest_size=12).hexdigest()


def container_name(agent: str, instance: str) -> str:
    """Unique by the instance; of the agent's name, what engines allow in one."""
    return f"penstock-{re.sub('[^a-zA-Z0-9_.-]', '-', agent)[:60]}-{instance}"


def labels(agent: Agent, identity: Identity, mark: str, place: Place) -> dict[str, str]:
    """By which it is found again. No value of the environment is among them.

    Each of ours is there, if only empty: what is not is as the image says, and it could name any socket.
    """
    has_socket = not agent.network and place.socket_folder is not None
    return {
        AGENT_LABEL: agent.name,
        HOME_LABEL: identity.home,
        INSTANCE_LABEL: identity.instance,
        FINGERPRINT_LABEL: mark,
        PORT_LABEL: f"{agent.port}/tcp" if agent.network else "",
        SOCKET_LABEL: posixpath.join(place.socket_folder or "", SOCKET_FILE) if has_socket else "",
        SECRETS_LABEL: ",".join(agent.pass_env),
    }


def document(
    agent: Agent, identity: Identity, passed: Mapping[str, str], mark: str, place: Place
) -> dict[str, Any]:
    """The body of the engine's request to create it. `passed` holds the values of `pass_env`."""
    config: dict[str, Any] = {
        "Image": agent.image,
        "Labels": labels(agent, identity, mark, place),
        "Env": [f"{name}={value}" for name, value in environment(agent, identity, passed).items()],
        "HostConfig": _host_config(agent, place),
        "Tty": False,
        "OpenStdin": False,
    }
    if agent.privileges.user is not None:
        config["User"] = agent.privileges.user
    config |= _program(agent)
    if agent.network:
        config["ExposedPorts"] = {f"{agent.port}/tcp": {}}
    if place.is_copied:
        # What is copied lands in volumes of the container, which go with it: its root takes nothing in.
        config["Volumes"] = {folder: {} for folder in copied_folders(agent)}
    return config


def copied_folders(agent: Agent) -> list[str]:
    """The places in the container that a remote engine is sent the content of."""
    return [SERVER_FOLDER] * agent.has_own_server + [AGENT_FOLDER] * (agent.folder is not None)


def environment(agent: Agent, identity: Identity, passed: Mapping[str, str]) -> dict[str, str]:
    # A user without an entry in the image's list of users has no home, and the root is read-only.
    home = {"HOME": _TMP} if agent.privileges.user == NOBODY else {}
    own = {INSTANCE_VARIABLE: identity.instance}
    if not agent.plain:
        own |= {KEY_VARIABLE: identity.key, PROOF_VARIABLE: identity.proof}
    return home | dict(agent.env) | dict(passed) | own


def _program(agent: Agent) -> dict[str, Any]:
    """What runs: our server, the agent's own command, or what the image says."""
    steps = {"install": list(agent.install), "update": list(agent.update)}
    before = {name: argv for name, argv in steps.items() if argv}
    if agent.has_own_server:
        argv = [agent.python, SERVER_FILE, *server_arguments(agent)]
        if before:
            argv = [agent.python, "-c", _BEFORE, json.dumps(before), *argv]
        return {"Entrypoint": argv[:1], "Cmd": argv[1:]}
    if before and agent.command:
        # It knows nothing of us, so a shell of the image puts one before the other.
        steps_first = "".join(f"( {_FORGET}; {shlex.join(argv)} ) || exit; " for argv in before.values())
        return {"Entrypoint": ["/bin/sh", "-c", f"{steps_first}exec {shlex.join(agent.command)}"], "Cmd": []}
    return {"Cmd": list(agent.command)} if agent.command else {}


def server_arguments(agent: Agent) -> list[str]:
    """The options of our agent server."""
    if agent.network:
        found = ["--listen", f"0.0.0.0:{agent.port}"]
    else:
        # Callers are not the user that it runs as; nobody but them gets to the folder.
        found = ["--unix", posixpath.join(SOCKET_FOLDER, SOCKET_FILE), "--unix-mode", "666"]
    if agent.plain:
        found.append("--no-key")
    found += ["--concurrency", str(agent.pool.concurrency), "--idle-s", f"{agent.pool.idle_s:g}"]
    if agent.folder:
        found += ["--handlers", f"{AGENT_FOLDER}/handlers"]
    for name, argv in agent.handlers.items():
        found += ["--handler", f"{name}={json.dumps(list(argv))}"]
    if agent.runner:
        found += ["--runner", json.dumps(list(agent.runner))]
    return found


def _host_config(agent: Agent, place: Place) -> dict[str, Any]:
    closed = agent.privileges
    config: dict[str, Any] = {
        "ReadonlyRootfs": closed.read_only,
        "CapDrop": ["ALL"],
        "CapAdd": list(closed.capabilities),
        "SecurityOpt": [] if closed.new_privileges else ["no-new-privileges"],
        "Privileged": False,
        "Tmpfs": _tmpfs(agent, place),
        "Mounts": _mounts(agent, place),
        "LogConfig": {"Type": "json-file", "Config": {"max-size": LOG_LIMIT}},
        "RestartPolicy": {"Name": "no"},  # who restarts is decided in one place, and not by the engine
        "AutoRemove": False,
        "Init": bool(agent.command) and place.has_init,
    }
    if agent.network:
        bound = {"HostIp": place.publish_on, "HostPort": ""}  # the engine chooses
        config["PortBindings"] = {f"{agent.port}/tcp": [bound]}
    else:
        config["NetworkMode"] = "none"
    return config | limits(agent)


def limits(agent: Agent) -> dict[str, int]:
    """As the engine must report them back: one that it drops without a word is an error."""
    found: dict[str, int] = {}
    if agent.limits.memory_mb is not None:
        found["Memory"] = found["MemorySwap"] = int(agent.limits.memory_mb * _MEGABYTE)  # equal: no swap
    if agent.limits.cpus is not None:
        found["NanoCpus"] = round(agent.limits.cpus * 1e9)
    if agent.limits.pids is not None:
        found["PidsLimit"] = agent.limits.pids
    return found


def _mounts(agent: Agent, place: Place) -> list[dict[str, Any]]:
    mounts = [_mount(one.source, one.target, one.read_only) for one in agent.mounts]
    if agent.has_own_server and not place.is_copied:
        mounts.append(_mount(place.server, SERVER_FILE, read_only=True))
    if agent.folder is not None and not place.is_copied:
        mounts.append(_mount(agent.folder, AGENT_FOLDER, read_only=True))
    if not agent.network and place.socket_folder is not None:
        mounts.append(_mount(place.socket_folder, SOCKET_FOLDER, read_only=False))
    return mounts


def _tmpfs(agent: Agent, place: Place) -> dict[str, str]:
    """Room for temporary files, in memory; whoever mounts something else there has that."""
    sizes_mb = {_TMP: max(1, round(agent.limits.tmp_mb))}
    if agent.privileges.read_only:
        sizes_mb |= _SMALL_TMPFS
    owner = _owner(agent, place)
    return {
        folder: f"rw,nosuid,nodev,size={size}m,mode=1777{owner}"
        for folder, size in sizes_mb.items()
        if not any(f"{folder}/".startswith(f"{mount.target}/") for mount in agent.mounts)
    }


def _owner(agent: Agent, place: Place) -> str:
    """runc before 1.1.8 gives a folder in memory the mode of the image's own, closed to others.

    Podman takes the user of the container by its own word, and no numbers; Docker takes numbers alone.
    """
    if place.is_podman:
        return ",U"
    uid, _, gid = (agent.privileges.user or "").partition(":")
    return f",uid={uid},gid={gid}" if uid.isdecimal() and gid.isdecimal() else ""


def _mount(source: str, target: str, read_only: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}
