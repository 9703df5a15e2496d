"""A plant that notes what it has begun: functions, programs and pretended work, in a store of its own.

    plant(folder, kinds=("note",), pretends_s=0.02, works_s=0.005)

A function says so on stdout when it begins, and writes its number into ran.txt: once for each time that it ran.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

_CONFIG = """
    store = "queue.db"
    heartbeat_s = 0.5

    [retry]
    host_faults = 1000  # a task may be hit by many of the kills; that is not its fault here

    [hosts.functions]
    type = "python"
    slots = 4
    serves = {kinds}
    call = "work:note"
    path = ["."]

    [hosts.programs]
    type = "command"
    slots = 2
    serves = ["program"]
    argv = ["{python}", "-S", "-c", "print('1')"]

    [hosts.pretended]
    type = "simulated"
    slots = 4
    serves = ["sleep"]
    duration_s = {pretends_s}
"""

_WORK = """
    import os, time

    def note(payload):
        with open("ran.txt", "a") as file:
            file.write(f"{payload['n']}\\n")
        os.write(1, b"begun\\n")
        time.sleep(@works_s@)
        return payload["n"]
"""


def plant(folder: Path, *, kinds: Sequence[str], pretends_s: float, works_s: float) -> None:
    """Functions serve these kinds, and take so long; so do tasks of kind `sleep`, that only pretend."""
    config = _CONFIG.format(kinds=list(kinds), python=sys.executable, pretends_s=pretends_s)
    (folder / "penstock.toml").write_text(textwrap.dedent(config))
    (folder / "work.py").write_text(textwrap.dedent(_WORK.replace("@works_s@", str(works_s))))
