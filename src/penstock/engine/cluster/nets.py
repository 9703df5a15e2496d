"""Whether two processes share a loopback: on one machine, and not in containers with networks of their own."""

from __future__ import annotations

import platform

from penstock.machine import boot_id, namespace


def here() -> str:
    """The same for all who share this one's, and for nobody else."""
    boot, net = boot_id(), namespace("net")
    return f"{boot} {net}" if boot and net else platform.node()
