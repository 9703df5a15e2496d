"""A real Ray cluster of two nodes on this machine, and one driver in it for all who use it.

    python tools/ray_keeper.py FOLDER

Whoever uses it holds a shared lock on FOLDER/users: when nobody does, also because they were killed, it ends with
all its nodes. FOLDER/driver is a socket where each connection is a driver's line; FOLDER/control adds and kills.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parent.parent
SYSTEM = {
    "prestart_worker_first_driver": False,
    "enable_worker_prestart": False,
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,  # a node that was killed is missed soon
    "health_check_timeout_ms": 15_000,  # one that is only slow, beside many tests on few cores, is not
    "health_check_failure_threshold": 3,
}
NODE = {"num_cpus": 4, "object_store_memory": 80_000_000, "include_dashboard": False}


class Keeper:
    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster

        self._cluster: Any = Cluster(
            initialize_head=True,
            head_node_args={
                **NODE,
                "resources": {"head": 1000},
                "_system_config": SYSTEM,
                "temp_dir": str(folder / "r"),
                "labels": {"place": "head"},
            },
        )
        self._nodes: dict[int, Any] = {}
        self.address = self._cluster.address
        self.add({"resources": {"second": 1000}, "labels": {"place": "second"}})

    def add(self, wanted: dict[str, Any]) -> int:
        number = len(self._nodes) + 1
        self._nodes[number] = self._cluster.add_node(**{**NODE, **wanted})
        return number

    def kill(self, number: int) -> None:
        self._cluster.remove_node(self._nodes[number], allow_graceful=False)

    def workers(self, names: str) -> list[str]:
        from ray.util import list_named_actors

        return [
            one["name"] for one in list_named_actors(all_namespaces=True) if one["name"].startswith(names)
        ]

    def end(self) -> None:
        self._cluster.shutdown()


def listening(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


def serve_lines(server: socket.socket) -> None:
    from penstock.engine.cluster.driver import Session

    while True:
        line, _ = server.accept()
        threading.Thread(target=Session(line).serve, daemon=True).start()


def serve_control(server: socket.socket, keeper: Keeper, folder: Path) -> None:
    """Until nobody uses the cluster. Ray wants to start nodes in the first thread."""
    server.settimeout(1.0)
    with open(folder / "users", "w") as users:
        while not is_unused(users):
            try:
                line, _ = server.accept()
            except TimeoutError:
                continue
            line.settimeout(None)
            with line, line.makefile("rw") as file:
                try:
                    verb, what = json.loads(file.readline())
                    file.write(json.dumps({"told": getattr(keeper, verb)(what)}) + "\n")
                except Exception as error:  # noqa: BLE001 - whoever asked is told
                    file.write(json.dumps({"error": repr(error)}) + "\n")


def is_unused(users: IO[str]) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def main() -> None:
    import ray

    folder = Path(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # those who use it are asked to end, and then it ends
    keeper = Keeper(folder)
    try:
        ray.init(address=keeper.address, log_to_driver=False, configure_logging=False)
        lines, control = listening(folder / "driver"), listening(folder / "control")
        threading.Thread(target=serve_lines, args=(lines,), daemon=True).start()
        (folder / "ready.part").write_text(keeper.address)
        (folder / "ready.part").rename(folder / "ready")
        serve_control(control, keeper, folder)
    finally:
        ray.shutdown()
        keeper.end()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)


if __name__ == "__main__":
    main()
