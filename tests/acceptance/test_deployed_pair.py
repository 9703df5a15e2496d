"""E6: two machines by the files of deploy/systemd, a real PostgreSQL behind them and a real HAProxy before them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.deployed_rig import Caller, Machine, database, front
from tests.acceptance.serve_rig import until


class Pair:
    def __init__(self, machines: dict[str, Machine], token: str, caller: Caller) -> None:
        self.machines = machines
        self.token = token
        self.caller = caller

    def roles(self) -> dict[str, str]:
        return {name: machine.role(self.token) for name, machine in self.machines.items()}

    def told(self) -> str:
        return "\n".join([str(self.roles()), *(machine.log for machine in self.machines.values())])

    def in_place(self) -> tuple[Machine, Machine]:
        """The leader and the one that stands by, once they are that."""
        until(lambda: sorted(self.roles().values()) == ["leader", "standby"], self.told)
        names = {role: name for name, role in self.roles().items()}
        return self.machines[names["leader"]], self.machines[names["standby"]]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as stack:
        server = stack.enter_context(database())
        machines = {name: Machine(tmp_path / name, server) for name in ("penstock-a", "penstock-b")}
        token = machines["penstock-a"].command("token", "add", "laptop").strip()
        url = stack.enter_context(front(tmp_path, machines))
        caller = Caller(url, token)
        stack.callback(caller.close)
        for machine in machines.values():
            stack.callback(machine.kill)
            machine.start()
        made = Pair(machines, token, caller)
        made.in_place()
        yield made
    for machine in machines.values():
        assert "Traceback" not in machine.log, machine.log


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_e6_a_stop_drains_and_hands_over_and_a_crash_is_taken_over(pair: Pair, tmp_path: Path) -> None:
    caller, file = pair.caller, tmp_path / "file"
    file.write_text("words")
    leader, standby = pair.in_place()
    for machine in (leader, standby):
        assert (machine.status("/health"), machine.status("/health/live")) == (200, 200)
    assert digest_of("words") in str(caller.wait(caller.submit(file), "done"))

    # A program that runs until we let it: it reads from a pipe.
    os.mkfifo(pipe := tmp_path / "pipe")
    held = caller.submit(pipe)
    caller.wait(held, "running")
    leader.first_signal()
    until(lambda: leader.status("/health") == 503, pair.told)
    assert leader.status("/health/live") == 200, "it is well, and must not be killed for draining"
    assert standby.status("/health") == 200
    meanwhile = caller.submit(file)  # by the front, which knows whom to ask
    assert caller.task(held)["state"] == "running"
    pipe.write_text("late")
    assert leader.ended() == 0, leader.log
    assert digest_of("late") in str(caller.wait(held, "done"))
    assert caller.task(held)["attempts"] == 1, "it was finished, not run again"
    caller.wait(meanwhile, "done")
    until(lambda: standby.role(pair.token) == "leader", pair.told)

    leader.start()
    leader, standby = pair.in_place()
    lost = caller.submit(pipe)
    caller.wait(lost, "running")
    leader.kill()
    until(lambda: standby.role(pair.token) == "leader", pair.told)
    pipe.write_text("again")
    assert digest_of("again") in str(caller.wait(lost, "done"))
    assert caller.task(lost)["attempts"] == 2, "the first died with its machine"
