"""The DBOS side of the benchmark, in a process of its own: `python -m benchmarks.dbos_app URL POLL_S`.

It prints `ready` once its database is there, and takes nothing from the queue before it reads a line. Then
it prints when the first `no_op` began and when the last one did, or the seconds from submit to start of each
`stamp`.
"""

from __future__ import annotations

import itertools
import sys
import time

from dbos import DBOS

QUEUE = "bench"

_begun = itertools.count(1)


def no_op(total: int) -> None:
    if next(_begun) in (1, total):
        print(time.monotonic(), flush=True)


def stamp(submitted_at: float) -> None:
    print(time.monotonic() - submitted_at, flush=True)


def main() -> None:
    url, poll_s = sys.argv[1], float(sys.argv[2])
    DBOS(
        config={"name": "bench", "system_database_url": url, "log_level": "ERROR", "run_admin_server": False}
    )
    DBOS.workflow(name="no_op")(no_op)
    DBOS.workflow(name="stamp")(stamp)
    DBOS.launch()
    print("ready", flush=True)
    sys.stdin.readline()
    DBOS.register_queue(QUEUE, polling_interval_sec=poll_s)
    sys.stdin.read()
    DBOS.destroy()


if __name__ == "__main__":
    main()
