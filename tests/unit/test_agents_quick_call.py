"""B2, B6: `agent call` on a warm agent loads next to nothing, and asks the engine only when it must."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.agents import agent_server, figures, serving
from penstock.agents.endpoints import LEAVING, PAUSED, READY, Endpoint, EndpointFile
from penstock.agents.keeper_note import KeeperNote
from penstock.agents.quick import known_config, quick_call, quick_sweep, turns
from penstock.agents.quick.known_config import Known
from penstock.agents.quick.quick_call import Unfinished
from penstock.agents.starts.failures import Failures
from penstock.cli import agent_call
from penstock.errors import EngineUnreachable, ImageMissing
from tests.unit.scripted_server import Script, ScriptedServer, chunked, head, says, scripted

PROOF = "the-proof"
PROVEN = f"X-Penstock-Proof: {PROOF}"
LINES = "Content-Type: application/x-ndjson"
STREAM = head(200, PROVEN, LINES, "Transfer-Encoding: chunked")
HEALTHY = says(head(200, PROVEN, "Content-Length: 2") + b"{}")
KNOWN = Known("f1", "/health", plain=False, start_s=60.0)
CALL = ["agent", "call", "reports", "render"]


def events(*lines: dict[str, Any]) -> bytes:
    return chunked(*(json.dumps(line).encode() + b"\n" for line in lines))


def answers(text: str) -> Script:
    return says(
        STREAM + events({"type": "stdout", "data": text}, {"type": "end", "status": "done", "exit": 0})
    )


def refuses(status: int, code: str) -> Script:
    body = json.dumps({"error": {"code": code, "message": "not here"}}).encode()
    return says(head(status, PROVEN, f"Content-Length: {len(body)}") + body)


class Place:
    """A folder with a config, and what is known of its agent."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "penstock.toml"
        self.config.write_text('[agents.reports]\nimage = "x"\n')
        self.agents_dir = f"{folder}/penstock.db.agents"
        self.file = EndpointFile(self.agents_dir, "reports")
        self.note()

    def note(self, known: Known = KNOWN) -> None:
        known_config.note(self.agents_dir, "reports", [known_config.stamp(str(self.config))], known)

    def has(
        self, address: str, *, instance: str = "i1", state: str = READY, trusted: bool = True
    ) -> Endpoint:
        endpoint = Endpoint(instance, f"c{instance}", "f1", address, "key", PROOF, state, time.time())
        self.file.create()
        with self.file.changing() as endpoints:
            endpoints.append(endpoint)
        if trusted:
            self.file.validated(endpoint)
        return endpoint


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_CONTAINER_SOCKET", str(tmp_path / "engine.sock"))
    return Place(tmp_path)


# ---- a warm call


def test_a_trusted_endpoint_is_called_and_nothing_else(place: Place, capfdbinary: Any) -> None:
    """There is no engine here at all."""
    with scripted(answers("hello")) as server:
        place.has(server.address)
        assert quick_call.run([*CALL, "a b", "--wide"]) == 0
        [request] = server.requests
    assert capfdbinary.readouterr() == (b"hello", b"")
    asked = json.loads(request.partition(b"\r\n\r\n")[2])
    assert (asked["command"], asked["params"]) == ("render", ["a b", "--wide"])
    assert b"Authorization: Bearer key\r\n" in request
    counts = figures.read(place.file.folder).counts
    assert counts == {"calls": 1, "answered": 1, "hits": 1, "pool_ready": 1}


def test_steps_are_shown_with_times(place: Place, capfdbinary: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    with scripted(answers("hello")) as server:
        place.has(server.address)
        assert quick_call.run(CALL) == 0
    told = capfdbinary.readouterr().err.decode()
    assert [line.split(" ms  reports: ")[1].split()[0] for line in told.splitlines()] == [
        "config",
        "endpoint",
        "answered",
    ]
    assert "key" not in told
    assert PROOF not in told


ENDED = says(head(200, "Content-Length: 27") + b'{"State":{"Running":false}}')
ENGINE_SAYS_RUNNING = says(
    head(200, "Content-Length: 46") + b'{"State": {"Running": true,  "Paused": false}}'
)


def test_one_that_was_not_seen_lately_is_validated(place: Place, tmp_path: Path, capfdbinary: Any) -> None:
    """B2: the container runs, and answers its health path with its own proof."""
    with (
        scripted(ENGINE_SAYS_RUNNING, path=str(tmp_path / "engine.sock")) as engine,
        scripted(HEALTHY, answers("hello")) as server,
    ):
        endpoint = place.has(server.address, trusted=False)
        assert quick_call.run(CALL) == 0
        assert engine.requests[0].startswith(b"GET /containers/ci1/json HTTP/1.1")
        assert server.requests[0].startswith(b"GET /health HTTP/1.1")
    assert place.file.validated_s_ago(endpoint) < 5
    assert capfdbinary.readouterr().out == b"hello"


@pytest.mark.parametrize(
    ("engine_says", "health"),
    [
        (says(head(404, "Content-Length: 2") + b"{}"), HEALTHY),
        (says(head(200, "Content-Length: 27") + b'{"State":{"Running":false}}'), HEALTHY),
        (says(b"nonsense\r\n"), HEALTHY),
        (ENGINE_SAYS_RUNNING, says(head(200, "X-Penstock-Proof: another", "Content-Length: 2") + b"{}")),
        (ENGINE_SAYS_RUNNING, says(head(500, PROVEN, "Content-Length: 2") + b"{}")),
        (ENGINE_SAYS_RUNNING, says(b"")),
        (ENGINE_SAYS_RUNNING, says(head(200, PROVEN, "Content-Length: 22") + b'{"status":"unhealthy"}')),
    ],
    ids=["gone", "ended", "no engine", "another instance", "ill", "silent", "unhealthy"],
)
def test_one_that_fails_validation_is_left_to_the_full_path(
    place: Place, tmp_path: Path, engine_says: Script, health: Script
) -> None:
    with scripted(engine_says, path=str(tmp_path / "engine.sock")), scripted(health) as server:
        place.has(server.address, trusted=False)
        left = quick_call.run(CALL)
        assert not [one for one in server.requests if one.startswith(b"POST /task")]
    assert isinstance(left, Unfinished)
    assert left.waiting is not None
    left.waiting.over()


@pytest.mark.parametrize("limits", [{"max_tasks": 5}, {"max_age_s": 60.0}], ids=["tasks", "age"])
def test_b4_one_whose_time_is_over_is_left_to_the_full_path(
    place: Place, tmp_path: Path, limits: dict[str, Any]
) -> None:
    place.note(KNOWN._replace(**limits))
    body = b'{"done":3,"failed":2}'
    health = says(head(200, PROVEN, f"Content-Length: {len(body)}") + body)
    with (
        scripted(ENGINE_SAYS_RUNNING, path=str(tmp_path / "engine.sock")),
        scripted(health) as server,
    ):
        endpoint = place.has(server.address, trusted=False)
        assert place.file.replace(endpoint.instance, created_at=endpoint.created_at - 60.0)
        left = quick_call.run(CALL)
        assert not [one for one in server.requests if one.startswith(b"POST /task")]
    assert isinstance(left, Unfinished)
    assert left.waiting is not None
    left.waiting.over()


@pytest.mark.parametrize("is_noted", [True, False])
def test_b4_containers_for_one_task_each_are_for_serve(
    place: Place, is_noted: bool, capfdbinary: Any
) -> None:
    """Who sees only his own call cannot keep it apart from others."""
    if is_noted:
        place.note(KNOWN._replace(max_tasks=1))
    else:
        place.config.write_text('[agents.reports]\nimage = "x"\nmax_tasks = 1\n')
    with scripted(answers("hello")) as server:
        place.has(server.address)
        ended = quick_call.run(CALL)
        if isinstance(ended, Unfinished):
            assert not is_noted
            ended = agent_call.finish(ended)
        assert server.requests == []
    assert ended == 3
    assert b"with max_tasks = 1 each command has a container of its own" in capfdbinary.readouterr().err


def test_a_paused_one_is_resumed_first(place: Place, tmp_path: Path, capfdbinary: Any) -> None:
    resumed = says(head(204))
    with (
        scripted(resumed, ENGINE_SAYS_RUNNING, path=str(tmp_path / "engine.sock")) as engine,
        scripted(HEALTHY, answers("hello")) as server,
    ):
        place.has(server.address, state=PAUSED)
        assert quick_call.run(CALL) == 0
        assert engine.requests[0].startswith(b"POST /containers/ci1/unpause")
    assert [one.state for one in place.file.read()] == [READY]
    assert figures.read(place.file.folder).counts["pool_resumed"] == 1
    assert capfdbinary.readouterr().out == b"hello"


def test_a_ready_one_goes_before_a_paused_one_and_a_leaving_one_is_none(
    place: Place, capfdbinary: Any
) -> None:
    with scripted(answers("from the ready one")) as server:
        place.has("127.0.0.1:1", instance="i2", state=PAUSED)
        place.has("127.0.0.1:1", instance="i3", state=LEAVING)
        place.has(server.address, instance="i1")
        assert quick_call.run(CALL) == 0
    assert capfdbinary.readouterr().out == b"from the ready one"


# ---- where nothing was run it is tried again


@pytest.mark.parametrize("code", ["stopping", "busy"])
def test_what_was_not_taken_in_is_asked_again(place: Place, code: str, capfdbinary: Any) -> None:
    with scripted(refuses(503, code), refuses(503, code), answers("third")) as server:
        place.has(server.address)
        assert quick_call.run(CALL) == 0
        assert len({json.loads(one.partition(b"\r\n\r\n")[2])["id"] for one in server.requests}) == 1
    assert capfdbinary.readouterr().out == b"third"


def test_b4_what_was_answered_with_nonsense_is_not_sent_again(place: Place, capfdbinary: Any) -> None:
    with scripted(says(b"garbage\r\n\r\n")) as server:
        endpoint = place.has(server.address)
        assert quick_call.run(CALL) == 3
        assert len([one for one in server.requests if one.startswith(b"POST /task")]) == 1
    assert b"'render' may have run" in capfdbinary.readouterr().err
    assert figures.read(place.file.folder).counts["unanswered"] == 1
    assert place.file.validated_s_ago(endpoint) > 5, "who comes next looks first"


def test_one_that_can_start_nothing_is_looked_at_by_who_comes_next(place: Place, capfdbinary: Any) -> None:
    error = {"code": "no_room", "message": "no process is left"}
    told = events({"type": "end", "status": "failed", "http": 503, "error": error})
    with scripted(says(STREAM + told)) as server:
        endpoint = place.has(server.address)
        assert quick_call.run(CALL) == 3
    assert b"no process is left" in capfdbinary.readouterr().err
    assert place.file.validated_s_ago(endpoint) > 5


def test_one_that_never_takes_it_is_an_error_of_one_line(place: Place, capfdbinary: Any) -> None:
    with scripted(refuses(503, "stopping")) as server:
        place.has(server.address)
        assert quick_call.run(CALL) == 3
        assert len(server.requests) == 8
    assert capfdbinary.readouterr().err == b"penstock: agents.reports: not here; try again later\n"
    assert figures.read(place.file.folder).counts["unanswered"] == 1


@pytest.mark.parametrize(
    ("code", "counted"), [("cannot_start", "unanswered"), ("handler_failed", "answered")]
)
def test_b9_what_could_not_be_begun_was_not_answered(place: Place, code: str, counted: str) -> None:
    end = {"type": "end", "status": "failed", "exit": 3, "error": {"code": code, "message": "it is missing"}}
    with scripted(says(STREAM + events(end))) as server:
        place.has(server.address)
        assert quick_call.run(CALL) == 3
    counts = figures.read(place.file.folder).counts
    assert (counts["calls"], counts[counted]) == (1, 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_b2_what_another_user_says_of_agents_is_not_believed(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> None:
    with scripted(answers("forged")) as server:
        place.has(server.address)
        me = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
        os.chown(place.agents_dir, me + 2, -1)
        assert quick_call.run(CALL) == 3
        assert server.requests == []
    assert b"belongs to another user" in capfdbinary.readouterr().err


def test_b4_one_that_is_being_stopped_costs_no_call(place: Place, capfdbinary: Any) -> None:
    """It leaves: the call goes on to another, or makes one."""
    with scripted(refuses(503, "draining")) as ending, scripted(answers("another")) as server:
        place.has(ending.address, instance="i2")
        left = quick_call.run(CALL)
        assert isinstance(left, Unfinished)
        assert left.waiting is not None
        left.waiting.over()
        assert [one.state for one in place.file.read()] == [LEAVING]
        place.has(server.address)
        assert quick_call.run(CALL) == 0
        assert len(ending.requests) == 1
    assert capfdbinary.readouterr().out == b"another"


def engine_says(document: dict[str, Any]) -> Script:
    body = json.dumps(document).encode()
    return says(head(200, f"Content-Length: {len(body)}") + body)


RUNS = engine_says({"State": {"Running": True}, "Image": "sha256:old"})


@pytest.mark.parametrize(
    ("now", "is_fit"),
    [
        (engine_says({"Id": "sha256:fresh"}), False),
        (engine_says({"Id": "old"}), True),
        (says(head(404, "Content-Length: 2") + b"{}"), True),
    ],
    ids=["built anew", "the same", "its name is gone"],
)
def test_b2_an_image_that_was_built_anew_is_noticed(
    place: Place, tmp_path: Path, now: Script, is_fit: bool
) -> None:
    place.note(KNOWN._replace(image="localhost/reports:latest"))
    with (
        scripted(RUNS, now, path=str(tmp_path / "engine.sock")) as engine,
        scripted(HEALTHY, answers("hello")) as server,
    ):
        place.has(server.address, trusted=False)
        left = quick_call.run(CALL)
        assert engine.requests[1].startswith(b"GET /images/localhost/reports:latest/json ")
    assert (left == 0) is is_fit
    if isinstance(left, Unfinished):
        assert left.waiting is not None
        left.waiting.over()
        assert [one.state for one in place.file.read()] == [READY], "it is good until there is another"


# ---- what nobody keeps


@contextmanager
def swept(place: Place, tmp_path: Path, *engine_says: Script) -> Iterator[tuple[ScriptedServer, str]]:
    """A call that validates one, and what the engine is asked after that; an address that nobody listens at."""
    with (
        scripted(ENGINE_SAYS_RUNNING, *engine_says, path=str(tmp_path / "engine.sock")) as engine,
        scripted(HEALTHY, answers("hello")) as server,
    ):
        place.has(server.address, trusted=False)
        yield engine, "127.0.0.1:1"
        place.note(KNOWN._replace(ends_itself=True))
        assert quick_call.run(CALL) == 0


def asked_of(engine: ScriptedServer) -> list[str]:
    return [one.split(b" HTTP")[0].decode() for one in engine.requests[1:]]


def test_b4_one_that_leaves_is_removed_by_a_later_call(place: Place, tmp_path: Path) -> None:
    """Once nobody uses it; there may never be a call that has to make a container."""
    removed = says(head(204))
    with swept(place, tmp_path, ENDED, removed) as (engine, nowhere):
        old = place.has(nowhere, instance="i2", state=LEAVING)
        used = place.has(nowhere, instance="i3", state=LEAVING)
        hold = ExitStack()
        hold.enter_context(place.file.using(used))
    hold.close()
    assert asked_of(engine) == [
        f"GET /containers/{old.container}/json",
        f"DELETE /containers/{old.container}?force=true&v=true",
    ]
    assert [one.instance for one in place.file.read()] == ["i1", "i3"]


def test_b9_what_is_done_after_the_answer_is_no_overhead_of_the_call(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[dict[str, int]] = []
    monkeypatch.setattr(
        quick_sweep, "sweep", lambda file, known, trail: counted.append(figures.read(file.folder).counts)
    )
    with swept(place, tmp_path):
        pass
    assert [one["answered"] for one in counted] == [1]


def test_one_that_leaves_and_is_at_work_is_left_alone(place: Place, tmp_path: Path) -> None:
    body = b'{"running": 1}'
    at_work = says(head(200, PROVEN, f"Content-Length: {len(body)}") + body)
    with scripted(at_work) as old, swept(place, tmp_path, ENGINE_SAYS_RUNNING) as (engine, _):
        place.has(old.address, instance="i2", state=LEAVING)
    assert [one.split()[0] for one in asked_of(engine)] == ["GET"]
    assert len(place.file.read()) == 2


def test_b4_one_that_ended_by_itself_is_removed_by_a_later_call(place: Place, tmp_path: Path) -> None:
    with swept(place, tmp_path, ENDED, ENDED, says(head(204))) as (engine, nowhere):
        place.has(nowhere, instance="i2", trusted=False)
        # The call must not choose it: it is of another config.
        with place.file.changing() as endpoints:
            endpoints[:] = [
                one._replace(fingerprint="f0") if one.instance == "i2" else one for one in endpoints
            ]
    assert [one.split()[0] for one in asked_of(engine)] == ["GET", "GET", "DELETE"]
    assert [one.instance for one in place.file.read()] == ["i1"]


def test_b7_what_a_killed_keeper_left_paused_is_resumed_so_that_it_can_end(
    place: Place, tmp_path: Path
) -> None:
    with swept(place, tmp_path, says(head(204))) as (engine, nowhere):
        place.has(nowhere, instance="i2", state=PAUSED)
    assert asked_of(engine) == ["POST /containers/ci2/unpause"]
    assert {one.state for one in place.file.read()} == {READY}


@pytest.mark.parametrize("state", [PAUSED, LEAVING])
def test_what_a_keeper_keeps_is_its_own_business(place: Place, tmp_path: Path, state: str) -> None:
    keeper = KeeperNote(place.file.folder, "f1")
    with swept(place, tmp_path) as (engine, nowhere):
        place.has(nowhere, instance="i2", state=state)
        assert keeper.take()
    assert asked_of(engine) == []
    assert place.file.read()[1].state == state
    keeper.free()


def test_another_program_on_the_port_is_passed_over(place: Place, capfdbinary: Any) -> None:
    """B2: the port of a container that is gone belongs to somebody else now."""
    foreign = head(200, LINES, "Transfer-Encoding: chunked") + events(
        {"type": "stdout", "data": "wrong"}, {"type": "end", "status": "done", "exit": 0}
    )
    with scripted(says(foreign)) as other, scripted(answers("right")) as server:
        wrong = place.has(other.address, instance="i2")
        for number in range(3):
            place.file.validated(wrong)
            with place.file.changing() as endpoints:
                endpoints[:] = [wrong]
            if number:
                place.has(server.address, instance=f"i{2 + number}")
            left = quick_call.run(CALL)
            if number:
                assert left == 0
            else:
                assert isinstance(left, Unfinished)
                assert left.waiting is not None
                left.waiting.over()
                assert place.file.validated_s_ago(wrong) == float("inf")
    assert capfdbinary.readouterr().out == b"rightright"


def test_a_lost_container_is_counted_and_told(place: Place, capfdbinary: Any) -> None:
    with scripted(says(STREAM + events({"type": "stdout", "data": "half"}))) as server:
        endpoint = place.has(server.address)
        assert quick_call.run(CALL) == 3
    assert place.file.validated_s_ago(endpoint) == float("inf"), "the next one trusts it"
    out, err = capfdbinary.readouterr()
    assert out == b"half"
    assert b"may have run" in err
    assert err.count(b"\n") == 1
    assert figures.read(place.file.folder).counts["unanswered"] == 1


# ---- no endpoint: one goes, the others wait


def held_turn(place: Place) -> int:
    place.file.create()
    lock = os.open(os.path.join(place.file.folder, "turn.lock"), os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def while_waiting(monkeypatch: pytest.MonkeyPatch, *acts: Any) -> list[float]:
    """Each look that the quick path takes finds what the next of these did."""
    left, pauses = list(acts), []

    def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        if left:
            left.pop(0)()

    monkeypatch.setattr(turns.time, "sleep", sleep)  # type: ignore[attr-defined]
    return pauses


def test_who_finds_somebody_at_it_waits_for_the_endpoint(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> None:
    lock = held_turn(place)
    with scripted(answers("made by another")) as server:
        pauses = while_waiting(monkeypatch, lambda: None, lambda: None, lambda: place.has(server.address))
        assert quick_call.run(CALL) == 0
    os.close(lock)
    assert len(pauses) == 3
    assert capfdbinary.readouterr().out == b"made by another"
    sums = figures.read(place.file.folder)
    assert sums.counts["misses"] == 1
    assert "lock_wait_s" in sums.longest


def test_who_waits_reads_files_only_when_they_have_changed(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> None:
    """Hundreds wait on the cores that the one who works needs."""
    lock, looks = held_turn(place), []
    read = EndpointFile.read

    def counted(self: EndpointFile, fingerprint: str | None = None) -> list[Endpoint]:
        looks.append(fingerprint)
        return read(self, fingerprint)

    monkeypatch.setattr(EndpointFile, "read", counted)
    monkeypatch.setattr(turns.time, "monotonic", lambda: 0.0)  # type: ignore[attr-defined]
    with scripted(answers("made by another")) as server:
        acts = [lambda: None] * 20 + [lambda: place.has(server.address)]
        assert len(while_waiting(monkeypatch, *acts)) == 0
        assert quick_call.run(CALL) == 0
    os.close(lock)
    assert capfdbinary.readouterr().out == b"made by another"
    assert len(looks) <= 4


def test_who_waits_looks_now_and_then_also_where_nothing_has_changed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What keeps an endpoint from being used may end without a trace in a file."""
    lock, now, looks = held_turn(place), [0.0], []

    def read(agents_dir: str, agent: str, config: str) -> None:
        looks.append(now[0])

    monkeypatch.setattr(known_config, "read", read)
    monkeypatch.setattr(turns.time, "monotonic", lambda: now[0])  # type: ignore[attr-defined]
    while_waiting(monkeypatch, *[lambda: now.__setitem__(0, now[0] + 1.0)] * 10, lambda: os.close(lock))
    left = quick_call.run(CALL)
    assert isinstance(left, Unfinished)
    assert left.waiting is not None
    left.waiting.over()
    assert len(looks) >= 10


def test_who_waited_is_told_of_the_failure_and_tries_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> None:
    failures = Failures(place.file.folder)
    place.file.create()
    failures.tell("attempt0", "f1", ImageMissing("an older failure"))
    lock = held_turn(place)
    while_waiting(
        monkeypatch,
        lambda: None,
        lambda: failures.tell("attempt1", "f1", ImageMissing("no image x; build it")),
    )
    assert quick_call.run(CALL) == 3
    os.close(lock)
    assert capfdbinary.readouterr().err == b"penstock: no image x; build it\n"
    assert figures.read(place.file.folder).counts == {"calls": 1, "unanswered": 1, "misses": 1}


def test_an_error_before_anything_could_be_started_is_that_of_all_who_wait(
    place: Place, capfdbinary: Any
) -> None:
    """There is no engine: not each of two hundred must find that out."""
    left = quick_call.run(CALL)
    assert isinstance(left, Unfinished)
    assert agent_call.finish(left) == 3
    told = capfdbinary.readouterr().err.decode()
    assert "no socket is there" in told
    failure = Failures(place.file.folder).last()
    assert failure is not None
    assert isinstance(failure.raised(), EngineUnreachable)
    assert told == f"penstock: {failure.message}\n"
    assert figures.read(place.file.folder).counts == {"calls": 1, "unanswered": 1, "misses": 1}
    # Who comes later tries anew.
    again = quick_call.run(CALL)
    assert isinstance(again, Unfinished)
    assert again.waiting is not None
    again.waiting.over()


def test_a_dead_ones_turn_is_taken(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = held_turn(place)
    while_waiting(monkeypatch, lambda: os.close(lock))
    left = quick_call.run(CALL)
    assert isinstance(left, Unfinished)
    assert left.waiting is not None
    again = os.open(os.path.join(place.file.folder, "turn.lock"), os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    left.waiting.over()
    fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(again)


def test_who_waits_too_long_for_the_turn_goes_all_the_same(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = held_turn(place)
    late = [0.0]
    monkeypatch.setattr(turns.time, "monotonic", lambda: late[0])  # type: ignore[attr-defined]
    while_waiting(monkeypatch, lambda: late.__setitem__(0, 76.0))
    assert isinstance(quick_call.run(CALL), Unfinished)
    os.close(lock)


def test_a_config_that_was_changed_is_read_anew(place: Place) -> None:
    with scripted(answers("old")) as server:
        place.has(server.address)
        place.config.write_text('[agents.reports]\nimage = "another"\n')
        left = quick_call.run(CALL)
        assert not server.requests
    assert isinstance(left, Unfinished)
    assert left.waiting is not None
    left.waiting.over()


# ---- serve


def test_it_goes_through_serve_where_that_runs(place: Place, capfdbinary: Any) -> None:
    with scripted(answers("served")) as server, serving.told(place.agents_dir, server.address, "local-key"):
        assert (
            quick_call.run(["agent", "call", "--lane", "fast", "--priority", "1", "reports", "render"]) == 0
        )
        [request] = server.requests
    assert request.startswith(b"POST /api/agents/reports/call HTTP/1.1")
    assert b"Authorization: Bearer local-key\r\n" in request
    body = json.loads(request.partition(b"\r\n\r\n")[2])
    assert (body["lane"], body["priority"]) == ("fast", 1)
    assert capfdbinary.readouterr().out == b"served"


@pytest.mark.parametrize("code", ["stopping", "unknown_agent"])
def test_a_serve_that_does_not_take_it_is_done_without(place: Place, code: str, capfdbinary: Any) -> None:
    with scripted(refuses(503, code)) as serve, scripted(answers("direct")) as server:
        place.has(server.address)
        with serving.told(place.agents_dir, serve.address, "local-key"):
            assert quick_call.run(CALL) == 0
        assert len(serve.requests) == 1
    assert capfdbinary.readouterr().out == b"direct"


def test_a_failure_that_serve_tells_names_the_agent_once(place: Place, capfdbinary: Any) -> None:
    error = {
        "code": "host_failed",
        "message": "agents.reports: container 1 is gone; the command may have run",
    }
    lost = says(STREAM + events({"type": "end", "status": "failed", "http": 502, "error": error}))
    with scripted(lost) as serve, serving.told(place.agents_dir, serve.address, "local-key"):
        assert quick_call.run(CALL) == 3
    assert (
        capfdbinary.readouterr()
        .err.decode()
        .startswith("penstock: agents.reports: render: container 1 is gone;")
    )


@pytest.mark.parametrize("changed_s", [-60.0, 60.0])
def test_who_asks_for_what_serve_has_not_read_yet_is_told_so(
    place: Place, changed_s: float, capfdbinary: Any
) -> None:
    """A command was added to the config; `serve` knows it when it is started again."""
    with (
        scripted(refuses(404, "unknown_command")) as serve,
        serving.told(place.agents_dir, serve.address, "local-key"),
    ):
        os.utime(place.config, (time.time() + changed_s,) * 2)
        assert quick_call.run(CALL) == 2
    told = capfdbinary.readouterr().err.decode()
    assert ("was changed after `penstock serve`" in told) is (changed_s > 0)
    assert told.count("\n") == 1


def test_steps_through_serve_are_shown_to_the_end(
    place: Place, capfdbinary: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    end = {"type": "end", "id": "task7.1", "status": "done", "exit": 0}
    with (
        scripted(says(STREAM + events({"type": "started"}, end))) as serve,
        serving.told(place.agents_dir, serve.address, "local-key"),
    ):
        assert quick_call.run(CALL) == 0
    last = capfdbinary.readouterr().err.decode().splitlines()[-1]
    assert "answered" in last
    assert "task7.1" in last


def test_a_serve_that_breaks_off_is_told(place: Place, capfdbinary: Any) -> None:
    with scripted(says(STREAM)) as serve, serving.told(place.agents_dir, serve.address, "local-key"):
        assert quick_call.run(CALL) == 3
    assert b"may have run" in capfdbinary.readouterr().err


def test_lanes_are_for_serve(place: Place, capfdbinary: Any) -> None:
    assert quick_call.run(["agent", "call", "--lane", "x", "reports", "render"]) == 2
    assert b"--lane is for calls through `penstock serve`" in capfdbinary.readouterr().err


# ---- what a command line says


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("agent call a b", ("a", "b", [])),
        ("agent call a b --json -c x", ("a", "b", ["--json", "-c", "x"])),
        ("-c p.toml agent call --json a b c", ("a", "b", ["c"])),
        ("agent call a --param-json [1] b", ("a", "b", [1])),
        ('agent call --param-json={"x":1} a b', ("a", "b", {"x": 1})),
        ("agent call a b -", ("a", "b", ["-"])),
    ],
)
def test_our_options_stand_before_the_command(line: str, expected: tuple[Any, ...]) -> None:
    asked = quick_call.parsed(line.split())
    assert asked is not None
    assert (asked.agent, asked.command, asked.params) == expected


@pytest.mark.parametrize(
    "line",
    [
        "agent call",
        "agent call a",
        "agent call --help",
        "--set x=1 agent call a b",
        "agent list a b",
        "submit agent call x",
        "agent call --timeout 0 a b",
        "agent call --timeout long a b",
        "agent call --priority 7 a b",
        "agent call --priority 01 a b",
        "agent call --param-json 3 a b",
        "agent call --param-json [] a b c",
        "agent call --stdin",
        "agent call a b \udcff",
    ],
)
def test_what_is_not_understood_is_left_to_the_full_path(line: str) -> None:
    assert quick_call.parsed(line.split()) is None


def test_options_reach_the_agent(place: Place, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("grün")
    line = ["agent", "call", "--stdin", "in.txt", "--timeout=2.5", "--id", "mine", "reports", "render"]
    with scripted(answers("")) as server:
        place.has(server.address)
        assert quick_call.run(line) == 0
        body = json.loads(server.requests[0].partition(b"\r\n\r\n")[2])
    assert (body["stdin"], body["timeout_s"], body["id"]) == ("grün", 2.5, "mine")


@pytest.mark.parametrize(("given", "told"), [("none.txt", "No such file"), ("odd.bin", "not UTF-8")])
def test_a_stdin_that_cannot_be_read(
    place: Place, tmp_path: Path, given: str, told: str, capfdbinary: Any
) -> None:
    (tmp_path / "odd.bin").write_bytes(b"\xff")
    assert quick_call.run(["agent", "call", "--stdin", given, "reports", "render"]) == 2
    assert told.encode() in capfdbinary.readouterr().err


# ---- as a process, with the real agent server


@pytest.fixture
def real(place: Place, tmp_path: Path) -> Iterator[Place]:
    handlers = {"sh": ["/bin/sh", "-c"]}
    words = [
        sys.executable,
        agent_server.__file__,
        "--listen=127.0.0.1:0",
        *(f"--handler={name}={json.dumps(argv)}" for name, argv in handlers.items()),
    ]
    secrets = {"PENSTOCK_AGENT_KEY": "key", "PENSTOCK_AGENT_PROOF": PROOF}
    with subprocess.Popen(words, env={**os.environ, **secrets}, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        address = server.stdout.readline().decode().rpartition("http://")[2].strip()
        place.has(address)
        try:
            with scripted(ENGINE_SAYS_RUNNING, path=str(tmp_path / "engine.sock")):
                yield place
        finally:
            server.terminate()


def penstock(place: Place, *words: str, before: Sequence[str] = ("-m", "penstock"), **more: Any) -> Any:
    place.file.validated(place.file.read()[0])
    return subprocess.run(
        [sys.executable, *before, *words], capture_output=True, timeout=60, check=False, **more
    )


LOADED = """
import runpy, sys
try:
    runpy.run_module("penstock", run_name="__main__", alter_sys=True)
except SystemExit as end:
    status = end.code
sys.stderr.write(" ".join(sys.modules))
sys.exit(status)
"""
HEAVY = {
    *("aiodocker", "aiohttp", "asyncio", "concurrent", "dataclasses", "email", "filelock", "hashlib", "http"),
    *(
        "inspect",
        "logging",
        "msgspec",
        "pathlib",
        "random",
        "rich",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
    ),
    *("tomllib", "typer"),
}


def test_b6_a_warm_call_loads_next_to_nothing(real: Place) -> None:
    done = penstock(real, "agent", "call", "reports", "sh", "echo warm", before=["-c", LOADED])
    assert (done.returncode, done.stdout) == (0, b"warm\n")
    loaded = set(done.stderr.decode().split())
    assert not {one.partition(".")[0] for one in loaded} & HEAVY
    # On a machine so busy that trust ran out meanwhile the engine was asked.
    assert "urllib" not in loaded or "penstock.agents.quick.quick_engine" in loaded
    ours = {one for one in loaded if one.startswith("penstock.")}
    assert not [one for one in ours if one.startswith(("penstock.cli", "penstock.config", "penstock.store"))]


def test_b6_bytes_and_status_are_the_commands_own(real: Place) -> None:
    script = r"printf 'a\000\377\n'; printf 'oh' >&2; cat; exit 41"
    done = penstock(real, "agent", "call", "--stdin", "-", "reports", "sh", script, input=b"from stdin")
    assert (done.returncode, done.stdout, done.stderr) == (41, b"a\x00\xff\nfrom stdin", b"oh")


def test_an_interrupt_ends_the_command_in_the_container(real: Place, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    words = ["agent", "call", "reports", "sh", f"echo begun; exec cat {fifo}"]
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"begun\n"
        # From here on the command waits for somebody to write.
        writer = os.open(fifo, os.O_WRONLY)
        child.send_signal(2)
        assert child.communicate(timeout=30) == (b"", b"penstock: interrupted\n")
        assert child.returncode == 130
    ended = threading.Event()

    def write_until_it_ends() -> None:
        try:
            while True:
                os.write(writer, b"x" * 4096)
        except BrokenPipeError:
            ended.set()

    thread = threading.Thread(target=write_until_it_ends, daemon=True)
    thread.start()
    assert ended.wait(20), "the command still runs"
    os.close(writer)
