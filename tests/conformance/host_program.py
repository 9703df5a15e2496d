"""The user's program in the tests of hosts and engines: reads a payload from stdin and does what it says."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import Any


def spoken(payload: dict[str, Any]) -> str:
    return json.dumps(payload)


def ring(payload: dict[str, Any], name: str) -> str:
    with socket.create_connection(("127.0.0.1", payload["port"])) as line:
        line.sendall(json.dumps({"name": name, "pid": os.getpid()}).encode() + b"\n")
        return line.makefile().readline().strip()


def daemon(payload: dict[str, Any], name: str, *, close_pipes: bool) -> None:
    """A process that has left the group, the session, the parents and (if asked) the pipes behind."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.close(read_end)
            if close_pipes:
                quiet = os.open(os.devnull, os.O_RDWR)
                for descriptor in (0, 1, 2):
                    os.dup2(quiet, descriptor)
            os.close(write_end)
            ring(payload, name)
        os._exit(0)
    os.close(write_end)
    os.read(read_end, 1)  # until it is on its own
    os.wait()


def main() -> None:
    payload = json.load(sys.stdin)
    act = payload["act"]
    if payload.get("stderr"):
        sys.stderr.write(payload["stderr"])
    if payload.get("deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if act == "return":
        print(json.dumps(payload.get("value")))
    elif act == "status":
        sys.exit(payload["status"])
    elif act == "signal":
        os.kill(os.getpid(), signal.SIGKILL)
    elif act == "text":
        sys.stdout.write(payload["value"])
    elif act == "huge":
        sys.stdout.write("x" * payload["size"])
    elif act == "endless":
        while True:
            sys.stdout.write("x" * 10_000)
    elif act == "meet":
        print(json.dumps(ring(payload, payload.get("name", ""))))
    elif act == "environment":
        leads = os.getsid(0) == os.getpgid(0) == os.getpid()
        value = os.environ.get(payload["variable"])
        print(json.dumps({"cwd": os.getcwd(), "value": value, "leads a session": leads}))
    elif act == "daemon":
        daemon(payload, "daemon", close_pipes=payload.get("close_pipes", True))
        if payload.get("stay"):
            ring(payload, "main")
        print('"done"')
    elif act == "child":
        if os.fork() == 0:
            ring(payload, "child")
            os._exit(0)
        print('"done"')
    else:
        raise AssertionError(act)


if __name__ == "__main__":
    main()
