"""E6: the hosts of deploy/kuberay find the nodes of its cluster, in the words that Ray takes.

In the suite the nodes are those of the manifest on paper; PENSTOCK_SOAK=1 starts them on this machine, by the same
labels and resources, and runs a task of each host there through Ray's client, as the pods of Penstock do.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.config import parse
from penstock.engine.cluster.remote import RemoteHost
from tests.acceptance.deployed_rig import DEPLOY, free_port

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
PATIENCE_S = 300.0
_CLUSTER = """
import json, sys
from ray.cluster_utils import Cluster
port, folder, *groups = json.loads(sys.argv[1])
small = {"include_dashboard": False, "object_store_memory": 80_000_000}
head = {**small, "num_cpus": 0, "ray_client_server_port": port, "temp_dir": folder}
cluster = Cluster(initialize_head=True, head_node_args=head)
for group in groups:
    cluster.add_node(**small, num_cpus=1, num_gpus=group["resources"].get("GPU", 0), labels=group["labels"])
cluster.wait_for_nodes()
print("ready", flush=True)
sys.stdin.read()
cluster.shutdown()
"""


def config_text() -> str:
    manifest = yaml.safe_load((DEPLOY / "kuberay" / "config.yaml").read_text())
    return str(manifest["data"]["penstock.toml"])


def groups() -> list[dict[str, Any]]:
    """What a node of each group has, as Ray counts it."""
    spec = yaml.safe_load((DEPLOY / "kuberay" / "raycluster.yaml").read_text())["spec"]
    found = []
    for group in spec["workerGroupSpecs"]:
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        own = {name: float(amount) for name, amount in group.get("resources", {}).items()}
        gpus = {"GPU": float(limits["nvidia.com/gpu"])} if "nvidia.com/gpu" in limits else {}
        found.append({"resources": {"CPU": float(limits["cpu"]), **gpus, **own}, "labels": group["labels"]})
    return found


@contextmanager
def cluster(folder: Path, port: int) -> Iterator[None]:
    script = [sys.executable, "-c", _CLUSTER, json.dumps([port, str(folder), *groups()])]
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    with subprocess.Popen(
        script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **quiet}
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            assert any(line.strip() == "ready" for line in process.stdout)
            yield
        finally:
            process.stdin.close()
            process.wait(PATIENCE_S)


@pytest.mark.slow
def test_e6_hosts_find_the_nodes_of_the_cluster(tmp_path: Path) -> None:
    config = parse(config_text(), tmp_path / "penstock.toml")
    asking = [host for host in config.plant.hosts if host.ray is not None]
    for host in asking:
        fit = [
            group for group in groups() if RemoteHost(host, "m:f").fits(group["resources"], group["labels"])
        ]
        assert len(fit) == 1, host.name
    if not SOAK:
        return

    port = free_port()
    text = config_text().replace("postgresql://penstock@postgres/penstock", "queue.db")
    text = text.replace(config.engine.address, f"ray://127.0.0.1:{port}")
    text = text.replace('type = "ray"', 'type = "ray"\nworking_dir = "code"')
    (tmp_path / "penstock.toml").write_text(text)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "embeddings.py").write_text(
        "def embed(payload):\n    return payload['text'][::-1]\n"
    )
    tasks = [
        {"id": "one", "kind": "digest", "payload": {"file": __file__}},
        {"id": "two", "kind": "embed", "payload": {"text": "words"}},
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(f"{json.dumps(task)}\n" for task in tasks))
    with cluster(tmp_path.parent / f"ray{os.getpid()}", port):
        done = subprocess.run(
            [sys.executable, "-m", "penstock", "run", "tasks.jsonl", "--json"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256(Path(__file__).read_bytes()).hexdigest() in done.stdout
    assert "sdrow" in done.stdout, "the package came to the node by Ray's runtime environment"
