"""What the suite's browser is started with: it cannot hear of networks, and all else works as ever."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent.parent / "acceptance" / "without_netlink.py"
SOCKETS = """
import socket, sys
for family in (socket.AF_NETLINK, socket.AF_INET, socket.AF_UNIX):
    try:
        socket.socket(family, socket.SOCK_RAW if family == socket.AF_NETLINK else socket.SOCK_STREAM)
    except OSError:
        print(family.name, "refused")
    else:
        print(family.name, "made")
print(*sys.argv[1:])
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no filter for this machine")
def test_a_program_hears_of_no_network_and_is_otherwise_as_ever() -> None:
    words = [
        sys.executable,
        "-I",
        str(PROGRAM),
        sys.executable,
        "-I",
        "-c",
        SOCKETS,
        "an argument",
        "--another",
    ]
    told = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    assert told.splitlines() == [
        "AF_NETLINK refused",
        "AF_INET made",
        "AF_UNIX made",
        "an argument --another",
    ]
