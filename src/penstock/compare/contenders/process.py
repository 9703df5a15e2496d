"""One contender in a process of its own: `python -m penstock.compare.contenders.process NAME`.

It reads its plan from stdin, says when it is ready, begins when it is told to, says how it went, and leaves when
it is told to. When whoever started it is gone it ends at once, with all processes that it started.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
from dataclasses import asdict
from typing import Any

from penstock.compare.contenders import opened
from penstock.compare.plan import Plan


class Orders:
    """The words that come over stdin, heard in a thread: the end of it must be heard at any time."""

    def __init__(self) -> None:
        self._heard = {word: threading.Event() for word in ("go", "end")}
        threading.Thread(target=self._hear, name="orders", daemon=True).start()

    def wait(self, word: str) -> None:
        self._heard[word].wait()

    def _hear(self) -> None:
        for line in sys.stdin:
            self._heard[line.strip()].set()
        os.killpg(0, signal.SIGKILL)  # ourselves and all that we started


def say(word: str, **data: Any) -> None:
    sys.stdout.write(json.dumps({"word": word, **data}) + "\n")
    sys.stdout.flush()


def main(name: str) -> None:
    if os.getpgrp() != os.getpid():
        os.setsid()  # whoever started us is not to be killed with us
    plan = Plan.of_json(sys.stdin.readline())
    orders = Orders()
    with opened(name, plan) as run:
        say("ready")
        orders.wait("go")
        before = _usage()
        began = time.monotonic()
        report = run()
        ended = time.monotonic()
        after = _usage()
        say(
            "report",
            began=began,
            ended=ended,
            switches=after[0] - before[0],
            cpu_s=after[1] - before[1],
            endings=[asdict(ending) for ending in report.endings],
            noticed=report.noticed,
        )
        orders.wait("end")


def _usage() -> tuple[int, float]:
    """Context switches and seconds of a core, by all threads of this process, also those that ended."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_nvcsw + used.ru_nivcsw, used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(sys.argv[1])
