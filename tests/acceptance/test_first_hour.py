"""E9: what README.md and docs/quickstart.md say is true on a new machine, word for word."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.deployed_rig import free_port
from tests.figures import Tell

ROOT = Path(__file__).parent.parent.parent
_MODEL_SERVERS = (1234, 8000, 8080, 11434)  # where `penstock init` looks
_PATIENCE_S = "3600"  # how long it took is told: it says as much of what else the machine does


def _is_taken(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
@pytest.mark.local_model
def test_the_first_pages_do_what_they_say_on_a_new_machine(tell: Tell) -> None:
    """From the clone to an answer of a real model, a finished batch, `why`, `/v1`, and hosts of one's own."""
    if taken := [port for port in _MODEL_SERVERS if _is_taken(port)]:
        pytest.skip(
            f"a model server seems to run here, on port {taken[0]}: the pages have what is said without one"
        )
    done = subprocess.run(
        [ROOT / "tools" / "first_hour.sh", _PATIENCE_S, str(free_port())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    tell(done.stdout.splitlines()[-1])
