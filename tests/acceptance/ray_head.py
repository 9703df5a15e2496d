"""A Ray cluster of one node at a given port, which dies when its stdin ends: nothing there ends in order."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from typing import Any


def main() -> None:
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="pray-")
    # Where it leaves the address: a fresh machine has no /tmp/ray, and another cluster's is not to be overwritten.
    os.environ["RAY_TMPDIR"] = folder
    os.mkdir(os.path.join(folder, "ray"))
    cluster: Any = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 2,
            "object_store_memory": 80_000_000,
            "include_dashboard": False,
            "gcs_server_port": int(sys.argv[1]),
            "temp_dir": folder,
            "_system_config": {"prestart_worker_first_driver": False, "enable_worker_prestart": False},
        },
    )
    print(cluster.address, flush=True)
    sys.stdin.read()
    cluster.head_node.kill_all_processes(check_alive=False, allow_graceful=False)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main()
