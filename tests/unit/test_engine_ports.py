"""The ports of containers that Podman forgot are taken back; nobody else's are touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance import engine_guard
from tests.acceptance.engine_guard import Engine, Ports

FORGOTTEN, KEPT, RUNNING, EARLIER = ("f" * 64, "a" * 64, "b" * 64, "e" * 64)


def rules(id: str) -> list[str]:
    name = f'--comment "dnat name: \\"podman\\" id: \\"{id}\\""'
    return [
        f"-A CNI-HOSTPORT-DNAT -p tcp -m comment {name} -m multiport --dports 39153 -j CNI-DN-{id[:8]}",
        f"-A POSTROUTING -s 10.88.4.10/32 -m comment {name} -j CNI-{id[:12]}",
    ]


def test_only_the_ports_of_a_container_that_is_gone_are_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(tmp_path)
    table = rules(EARLIER)
    said: list[tuple[str, ...]] = []
    monkeypatch.setattr(engine_guard, "_rules", lambda: table)
    monkeypatch.setattr(engine_guard, "_iptables", lambda *words: said.append(words))
    monkeypatch.setattr(engine_guard, "_command_lines", lambda: f"conmon\0-c\0{RUNNING}\0")
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    ports = Ports(engine)
    table += [*rules(FORGOTTEN), *rules(KEPT), *rules(RUNNING)]
    kept = tmp_path / "root" / "overlay-containers" / "containers.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps([{"id": KEPT}]))

    assert ports.sweep()
    assert said == []  # it may just be starting
    now += 60.0
    assert ports.sweep()
    assert {word for words in said for word in words if word.startswith("CNI-")} == {
        "CNI-HOSTPORT-DNAT",
        f"CNI-DN-{FORGOTTEN[:8]}",
        f"CNI-{FORGOTTEN[:12]}",
    }
    assert [words[1] for words in said if words[0] == "--delete"] == ["CNI-HOSTPORT-DNAT", "POSTROUTING"]
    assert not any(other in " ".join(words) for words in said for other in (KEPT, RUNNING, EARLIER))
    table[:] = rules(EARLIER)
    assert not ports.sweep()
