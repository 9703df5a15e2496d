"""What is odd about agents themselves; whether they can be used is for their hosts to tell."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress

from penstock.agents import keeper_note
from penstock.agents.engine.server_file import fingerprint
from penstock.config import Config
from penstock.config.agents import Agent
from penstock.config.manifests import MANIFEST, Manifest, ManifestError, read_manifest
from penstock.config.own_files import agents_dir
from penstock.machine import HAS_PROC

WELL, WARNING, WRONG = "well", "warning", "wrong"
_FIRST_OPEN_PORT = 1024

# Those of Linux 6; a later one may have more.
_CAPABILITIES = """
AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND BPF CHECKPOINT_RESTORE CHOWN DAC_OVERRIDE DAC_READ_SEARCH
FOWNER FSETID IPC_LOCK IPC_OWNER KILL LEASE LINUX_IMMUTABLE MAC_ADMIN MAC_OVERRIDE MKNOD NET_ADMIN
NET_BIND_SERVICE NET_BROADCAST NET_RAW PERFMON SETFCAP SETGID SETPCAP SETUID SYSLOG SYS_ADMIN SYS_BOOT SYS_CHROOT
SYS_MODULE SYS_NICE SYS_PACCT SYS_PTRACE SYS_RAWIO SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG WAKE_ALARM ALL
"""


def oddities(config: Config, environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """The agent's name, how bad it is, and what it is with what to do."""
    hosts = [host for host in config.plant.hosts if host.name in config.plant.outliving]
    on_nodes = {host.options.get("agent", host.name) for host in hosts if host.type == "agent"}
    for agent in config.agents.values():
        for state, detail in _of(agent, environ, agent.name in on_nodes):
            yield agent.name, state, detail
        keeper = keeper_note.found(os.path.join(agents_dir(config), agent.name))
        if keeper is not None and keeper.fingerprint != fingerprint(agent):
            detail = f"it is kept by {keeper}, which has read another config; restart that process"
            yield agent.name, WARNING, detail


def _of(agent: Agent, environ: Mapping[str, str], on_nodes: bool) -> Iterator[tuple[str, str]]:
    if not HAS_PROC and not on_nodes:
        yield WRONG, "container agents need Linux with /proc; run the dispatcher there"
    yield from _of_manifest(agent)
    for mount in agent.mounts:
        if os.path.exists(mount.source):
            continue
        if on_nodes:
            yield WARNING, f"mounts: there is no {mount.source} here; it must be on the nodes that run it"
        else:
            remedy = f"create it, or correct agents.{agent.name}.mounts"
            yield WRONG, f"mounts: there is no {mount.source}; {remedy}"
    if unset := [name for name in agent.pass_env if name not in environ]:
        yield WARNING, f"pass_env: {', '.join(unset)} is not set here; set it where Penstock is started"
    names = [name.removeprefix("CAP_") for name in agent.privileges.capabilities]
    if unknown := [name for name in names if name not in _CAPABILITIES.split()]:
        yield WARNING, f"capabilities: Linux has no {', '.join(unknown)}; see capabilities(7)"
    if not agent.has_own_server and not agent.command:
        yield (
            WARNING,
            "it has neither handlers, runner, path nor command, so its image's own program must be an agent server",
        )
    if agent.has_own_server and not (
        agent.handlers or agent.runner or os.path.isdir(f"{agent.folder}/handlers")
    ):
        yield (
            WARNING,
            f"it has no command: there is no {agent.folder}/handlers, and neither handlers nor a runner",
        )
    user = (agent.privileges.user or "0").partition(":")[0]
    if agent.network and agent.port < _FIRST_OPEN_PORT and user not in ("0", "root"):
        yield (
            WARNING,
            f"port: below 1024, some engines let root alone listen at {agent.port}; choose a higher one",
        )


def _of_manifest(agent: Agent) -> Iterator[tuple[str, str]]:
    """What a folder decides that the config does not show."""
    found = None
    with suppress(ManifestError):  # it was changed since it was read
        found = None if agent.folder is None else read_manifest(agent.folder)
    manifest = found or Manifest()
    if manifest.ignored:
        yield WELL, f"{MANIFEST} has keys that mean nothing here: {', '.join(manifest.ignored)}"
    if manifest.pass_env:
        yield WELL, f"{MANIFEST} takes of Penstock's environment: {', '.join(manifest.pass_env)}"
