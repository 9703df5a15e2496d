"""penstock.toml → one frozen Config; and what that config says of a task before it is accepted.

keys.py         every key, its bounds, the types of host
files.py        find, read, parse
document.py     Config, and a document → Config
hosts.py rules.py server.py telemetry.py beads.py crosschecks.py
                the tables, and what must hold between them
engine.py       where attempts run, and which nodes a host has
agents.py agent_tables.py manifests.py agent_hosts.py
                container agents: what one is, how it is read, and the host it implies
councils.py council_tables.py council_members.py council_hosts.py council_reach.py
                councils: what one is, how it is read, the hosts it implies, and whether its members can be asked
settings.py     single keys laid over a config (`--set`)
tasks.py        whether a task could ever run here
tables.py problems.py places.py
                reading with every problem told at once, each with its line
"""

from __future__ import annotations

from penstock.config.document import Config, as_document, read_document
from penstock.config.files import find, load, parse
from penstock.config.keys import AVAILABLE, KEYS, HostTypes
from penstock.config.tasks import TaskChecker, check_task

__all__ = [
    "AVAILABLE",
    "KEYS",
    "Config",
    "HostTypes",
    "TaskChecker",
    "as_document",
    "check_task",
    "find",
    "load",
    "parse",
    "read_document",
]
