"""What is odd about agents themselves; whether they can be used is for their hosts to tell."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from penstock.agents import keeper_note
from penstock.agents.server_file import fingerprint
from penstock.config import Config
from penstock.config.agents import Agent
from penstock.config.manifests import MANIFEST, ignored_keys
from penstock.config.own_files import agents_dir

WELL, WARNING, WRONG = "well", "warning", "wrong"

# Those of Linux 6; a later one may have more.
_CAPABILITIES = """
AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND BPF CHECKPOINT_RESTORE CHOWN DAC_OVERRIDE DAC_READ_SEARCH
FOWNER FSETID IPC_LOCK IPC_OWNER KILL LEASE LINUX_IMMUTABLE MAC_ADMIN MAC_OVERRIDE MKNOD NET_ADMIN
NET_BIND_SERVICE NET_BROADCAST NET_RAW PERFMON SETFCAP SETGID SETPCAP SETUID SYSLOG SYS_ADMIN SYS_BOOT SYS_CHROOT
SYS_MODULE SYS_NICE SYS_PACCT SYS_PTRACE SYS_RAWIO SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG WAKE_ALARM ALL
"""


def oddities(config: Config, environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """The agent's name, how bad it is, and what it is with what to do."""
    for agent in config.agents.values():
        for state, detail in _of(agent, environ):
            yield agent.name, state, detail
        keeper = keeper_note.found(os.path.join(agents_dir(config), agent.name))
        if keeper is not None and keeper.fingerprint != fingerprint(agent):
            detail = f"it is kept by {keeper}, which has read another config; restart that process"
            yield agent.name, WARNING, detail


def _of(agent: Agent, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if agent.folder is not None and (ignored := ignored_keys(agent.folder)):
        yield WELL, f"{MANIFEST} has keys that mean nothing here: {', '.join(ignored)}"
    for mount in agent.mounts:
        if not os.path.exists(mount.source):
            yield (
                WRONG,
                f"mounts: there is no {mount.source}; create it, or correct agents.{agent.name}.mounts",
            )
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
