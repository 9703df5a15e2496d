"""What Docker and Podman tell of a container is read alike, also where a port is published twice. B2."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.agents.engine.recipe import FINGERPRINT_LABEL, HOME_LABEL, PORT_LABEL, SOCKET_LABEL
from penstock.agents.engine.sightings import Seen, happened, inspected, measured, summarized

LABELS = {PORT_LABEL: "8080/tcp", HOME_LABEL: "h", FINGERPRINT_LABEL: "f"}
RUNNING = {
    "Status": "running",
    "Running": True,
    "Paused": False,
    "StartedAt": "2026-11-15T22:49:12.312685123Z",
}


def told(state: dict[str, Any] | None = None, ports: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "Id": "c1",
        "Name": "/penstock-x-1",
        "Image": "sha256:feed",
        "Created": "2026-11-15T23:49:12.79127+01:00",
        "Config": {"Labels": LABELS},
        "State": RUNNING if state is None else state,
        "NetworkSettings": {"Ports": ports},
    } | more


def test_an_inspected_one() -> None:
    seen = inspected(told(ports={"8080/tcp": [{"HostIp": "127.0.0.1", "HostPort": "40123"}]}))
    assert (seen.id, seen.name, seen.image_id, seen.home, seen.fingerprint) == (
        *("c1", "penstock-x-1", "feed", "h", "f"),
    )
    assert (seen.running, seen.paused, seen.answers, seen.exit_code) == (True, False, True, None)
    assert seen.address == "127.0.0.1:40123"
    assert seen.started_at == pytest.approx(1794782952.312685)
    assert seen.created_at == pytest.approx(1794782952.79127)


@pytest.mark.parametrize(
    ("bound", "address"),
    [
        ([("::", "40001"), ("0.0.0.0", "40000")], "127.0.0.1:40000"),
        ([("0.0.0.0", "40000"), ("::", "40000")], "127.0.0.1:40000"),
        ([("::1", "40001"), ("127.0.0.1", "40002")], "127.0.0.1:40002"),
        ([("", "40003")], "127.0.0.1:40003"),
        ([("::1", "40001")], "[::1]:40001"),
        ([("10.0.0.7", "40004")], "10.0.0.7:40004"),
        ([("127.0.0.1", "")], None),
        ([("127.0.0.1", "x"), ("127.0.0.1", "0"), ("127.0.0.1", "70000")], None),
        ([], None),
    ],
)
def test_a_port_that_is_published_for_several_families(
    bound: list[tuple[str, str]], address: str | None
) -> None:
    """`docker port` has a line for each."""
    ports = {"8080/tcp": [{"HostIp": ip, "HostPort": port} for ip, port in bound], "9/tcp": None}
    assert inspected(told(ports=ports)).address == address
    listed = [{"IP": ip, "PublicPort": port, "PrivatePort": 8080, "Type": "tcp"} for ip, port in bound]
    entry = {"Id": "c1", "State": "running", "Labels": LABELS, "Ports": [*listed, {"PrivatePort": 9}]}
    assert summarized(entry).address == address


def test_an_engine_elsewhere_publishes_on_its_own_machine() -> None:
    ports = {"8080/tcp": [{"HostIp": "0.0.0.0", "HostPort": "40000"}]}
    assert inspected(told(ports=ports), host="engine.lan").address == "engine.lan:40000"
    assert inspected(told(ports=ports), host="fe80::1").address == "[fe80::1]:40000"


def test_without_a_network_its_address_is_its_socket() -> None:
    one = told(Config={"Labels": {SOCKET_LABEL: "/state/socket-1/agent.sock"}})
    assert inspected(one).address == "/state/socket-1/agent.sock"
    assert inspected(one | {"State": {"Status": "exited"}}).address is None


@pytest.mark.parametrize(
    ("state", "ending"),
    [
        ({"Status": "exited", "ExitCode": 0}, "ended with exit status 0"),
        ({"Status": "exited", "ExitCode": 3}, "ended with exit status 3"),
        ({"Status": "exited", "ExitCode": 143}, "ended with exit status 143 (signal 15)"),
        (
            {"Status": "exited", "ExitCode": 137},
            "ended with exit status 137 (signal 9, as one that is out of memory is)",
        ),
        ({"Status": "exited", "ExitCode": 137, "OOMKilled": True}, "was killed for want of memory"),
        ({"Status": "created", "ExitCode": 0}, "never ran"),
        ({"Status": "created", "ExitCode": 0, "Error": "no such program"}, "never ran (no such program)"),
    ],
)
def test_how_one_ended(state: dict[str, Any], ending: str) -> None:
    assert inspected(told(state)).ending == ending


def test_a_paused_one_runs_but_does_not_answer() -> None:
    for seen in (
        inspected(told({"Status": "paused", "Running": True, "Paused": True})),
        inspected(told({"Status": "paused", "Running": False})),  # as Podman tells it
        summarized({"Id": "c1", "State": "paused"}),
    ):
        assert (seen.running, seen.paused, seen.answers) == (True, True, False)


def test_one_of_a_list() -> None:
    seen = summarized(
        {
            "Id": "c1",
            "Names": ["/penstock-x-1"],
            "State": "Exited",
            "ImageID": "sha256:feed",
            "Created": 1794782952,
        }
    )
    assert seen == Seen("c1", "penstock-x-1", state="exited", image_id="feed", created_at=1794782952.0)


def test_figures() -> None:
    stats = measured(
        {
            "cpu_stats": {"cpu_usage": {"total_usage": 1_500_000_000}},
            "memory_stats": {"usage": 100, "limit": 200, "stats": {"inactive_file": 30}},
            "pids_stats": {"current": 4},
            "networks": {"eth0": {"rx_bytes": 1, "tx_bytes": 2}, "eth1": {"rx_bytes": 3, "tx_bytes": 4}},
        }
    )
    assert (stats.cpu_s, stats.memory_bytes, stats.memory_limit_bytes, stats.pids) == (1.5, 70, 200, 4)
    assert (stats.received_bytes, stats.sent_bytes) == (4, 6)
    assert measured({}).cpu_s is None


def test_what_happened() -> None:
    event = happened(
        {
            "Type": "container",
            "Action": "exec_start: sh",
            "Actor": {"ID": "c1", "Attributes": {HOME_LABEL: "h", "image": "x"}},
            "timeNano": 2_000_000_000,
        }
    )
    assert event is not None
    assert (event.action, event.container, event.at, dict(event.labels)) == (
        "exec_start",
        "c1",
        2.0,
        {HOME_LABEL: "h"},
    )
    assert happened({"Type": "image", "Action": "pull"}) is None


def test_an_empty_label_names_no_socket() -> None:
    ports = {"8080/tcp": [{"HostIp": "127.0.0.1", "HostPort": "40123"}]}
    assert inspected(told(ports=ports, Config={"Labels": {**LABELS, SOCKET_LABEL: ""}})).address == (
        "127.0.0.1:40123"
    )
