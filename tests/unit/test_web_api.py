"""The HTTP API on a real socket: tasks, runs, hosts, pauses; what is wrong is told and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.store.base import TaskFilter
from tests.unit.web_rig import PATIENCE_S, Web, serving, token


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Web]:
    async with serving(tmp_path) as made:
        yield made


async def count(web: Web) -> int:
    return len(await web.store.tasks(TaskFilter()))


# ---- submitting


async def test_a_task_is_submitted_run_and_read_back(web: Web) -> None:
    answer = await web.post("/api/tasks", {"kind": "a", "payload": {"text": "ünïcode ✓"}, "priority": 1}, 201)
    (id,) = answer["task_ids"]
    task = await web.ended(id)
    assert (task["state"], task["run"], task["priority"]) == ("done", answer["run"], 1)
    assert task["payload"] == {"text": "ünïcode ✓"}
    assert task["value"] == {"slept_s": 0.0}
    assert [one["verdict"] for one in task["attempt_records"]] == ["done"]


async def test_many_tasks_are_one_run_with_dependencies_and_a_matrix(web: Web) -> None:
    ids = await web.submit(
        {"kind": "a", "id": "first"},
        {"kind": "b", "id": "second", "after": "first", "lane": "fast"},
        {"kind": "c", "id": "many", "payload": {}, "matrix": {"repeat": 3}},
        run="nightly",
    )
    assert ids == ["first", "second", "many-1", "many-2", "many-3"]
    for id in ids:
        assert (await web.ended(id))["state"] == "done"
    run = await web.get("/api/runs/nightly")
    assert run == {"run": "nightly", "tasks": 5, "live": 0, "states": run["states"]}
    assert run["states"]["done"] == 5


async def test_the_same_key_twice_is_one_task(web: Web) -> None:
    (id,) = await web.submit({"kind": "a", "key": "once"})
    assert await web.submit({"kind": "a", "key": "once"}) == [id]
    assert await count(web) == 1
    await web.ended(id)
    assert not web.parts.limits._waiting


WRONG_BODIES: list[tuple[bytes, int, str]] = [
    (b"", 400, "the body is not JSON"),
    (b"{", 400, "the body is not JSON"),
    (b'{"kind": "a", "payload": NaN}', 400, "the body is not JSON"),
    (b'{"kind": "a", "payload": 1e999}', 400, "out of range"),
    (b'{"kind": "a", "payload": "\xff"}', 400, "utf-8"),
    (b'{"kind": "a", "payload": "\\ud800"}', 400, "the body is not JSON"),
    (b'{"payload": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", 400, "nested too deep"),
    (b"[]", 422, "must be an object, not a list"),
    (b"3", 422, "must be an object, not 3"),
    (b"{}", 422, "kind: is missing"),
    (b'{"kind": "a", "prio": 1}', 422, "prio: unknown field; did you mean 'priority'?"),
    (b'{"kind": "a", "lane": "fats"}', 422, "lane: no lane 'fats'; did you mean 'fast'?"),
    (b'{"kind": "a", "priority": 9}', 422, "priority: must be a whole number from 0"),
    (b'{"kind": "a", "priority": true}', 422, "priority: must be a whole number"),
    (b'{"kind": "a", "lane": 7}', 422, "lane: must be text, not 7"),
    (b'{"kind": "a", "after": "nobody"}', 422, "nobody"),
    (b'{"kind": "a", "retries": 1' + b"0" * 400 + b"}", 422, "retries: must be a whole number"),
    (b'{"kind": "a", "payload": ' + b"[" * 200 + b"]" * 200 + b"}", 422, "nested deeper than"),
    (b'{"tasks": []}', 422, "tasks: must be a list of tasks, not an empty one"),
    (b'{"tasks": {}}', 422, "tasks: must be a list of tasks, not a table"),
    (b'{"tasks": [{"kind": "a"}], "name": "x"}', 422, "unknown field 'name' beside tasks"),
    (b'{"tasks": [{"kind": "a"}], "run": 3}', 422, "run: must be text, not 3"),
    (b'{"tasks": [{"kind": "a"}], "run": "a b"}', 422, "run: 'a b' cannot be used"),
    (b'{"tasks": [{"kind": "a"}, 3]}', 422, "tasks[2]: a task must be a table"),
    (b'{"tasks": [{"kind": "a"}, {"kind": "b", "timeout_s": -1}]}', 422, "tasks[2].timeout_s: must be"),
    (b'{"kind": "a", "matrix": {"repeat": 10001}}', 422, "10001 tasks are too many"),
    (
        b'{"kind": "a", "payload": "{text}", "matrix": {"input": "/etc/*"}}',
        422,
        "matrix.input: reads folders of this machine, which only task files on it may",
    ),
    (b'{"tasks": [' + b'{"kind":"a"},' * 10_000 + b'{"kind":"a"}]}', 422, "10001 tasks are too many"),
]


async def test_a_wrong_body_is_refused_whole(web: Web) -> None:
    """Promise 7: one clear error with its place, and nothing is changed."""
    headers = {"Content-Type": "application/json"}
    for body, status, told in WRONG_BODIES:
        error = await web.call("POST", "/api/tasks", status, content=body, headers=headers)
        assert told in error["message"], (body[:80], error)
    assert await count(web) == 0


async def test_only_json_is_taken(web: Web) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"):
        headers = {"Content-Type": kind} if kind else {}
        error = await web.call("POST", "/api/tasks", 415, content=b'{"kind": "a"}', headers=headers)
        assert error["type"] == "unsupported_media_type"
    assert await count(web) == 0
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    await web.call("POST", "/api/tasks", 201, content=b'{"kind": "a"}', headers=headers)


async def test_a_long_body_is_refused_whether_it_says_so_or_not(tmp_path: Path) -> None:
    """B7: the limit holds while reading, also where no length is told."""

    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"kind": "a", "payload": "'
        for _ in range(100):
            yield b"x" * 100

    headers = {"Content-Type": "application/json"}
    async with serving(tmp_path, "[server]\nbody_limit_bytes = 1000\n") as web:
        for content in (b" " * 1001, chunks()):
            error = await web.call("POST", "/api/tasks", 413, content=content, headers=headers)
            assert error["type"] == "too_large"
        await web.call("POST", "/api/tasks", 201, content=b'{"kind": "a"}'.ljust(1000), headers=headers)
        assert await count(web) == 1


# ---- reading


async def test_tasks_are_listed_in_pages_and_by_what_they_are(web: Web) -> None:
    await web.post("/api/pause", {})
    await web.submit(*({"kind": f"k{n % 2}", "id": f"t{n}"} for n in range(5)), run="one")
    await web.submit({"kind": "long", "lane": "fast", "host": "large", "id": "other"})
    listed = await web.get("/api/tasks?limit=2")
    assert [task["task_id"] for task in listed["tasks"]] == ["other", "t4"]
    assert "value" not in listed["tasks"][0]
    rest = await web.get(f"/api/tasks?limit=4&after={listed['next']}")
    assert [task["task_id"] for task in rest["tasks"]] == ["t3", "t2", "t1", "t0"]
    assert (await web.get(f"/api/tasks?after={rest['next']}"))["tasks"] == []
    oldest = await web.get("/api/tasks?oldest=true&limit=1&values=true")
    assert (oldest["tasks"][0]["task_id"], oldest["tasks"][0]["value"]) == ("t0", None)

    async def ids(query: str) -> list[str]:
        page = await web.get(f"/api/tasks?oldest=true&{query}")
        assert page["next"] is None
        return [task["task_id"] for task in page["tasks"]]

    assert await ids("kind=k1") == ["t1", "t3"]
    assert await ids("lane=fast") == await ids("host=large") == ["other"]
    assert await ids("run=one&state=queued&state=done") == ["t0", "t1", "t2", "t3", "t4"]
    assert await ids("state=running") == []


WRONG_QUERIES = [
    "limit=0",
    "limit=1001",
    "limit=x",
    "after=-1",
    f"after={2**63}",
    "state=gone",
    "oldest=perhaps",
    "run=" + "x" * 201,
]


async def test_wrong_parameters_are_named(web: Web) -> None:
    for query in WRONG_QUERIES:
        error = await web.get(f"/api/tasks?{query}", 422)
        assert error["message"].startswith(f"query.{query.partition('=')[0]}")


async def test_why_tells_the_reasons_and_they_add_up(web: Web) -> None:
    """E1 over HTTP."""
    await web.post("/api/pause", {"scope": "lane", "name": "fast"})
    (id,) = await web.submit({"kind": "a", "lane": "fast"})
    await web.post("/api/resume", {})  # the dispatcher has taken it in before it answers
    told = await web.get(f"/api/tasks/{id}/why")
    assert (told["state"], [wait["reason"] for wait in told["waits"]][-1]) == ("queued", "paused")
    assert (told["predicted_start"]["unknown"], told["predicted_start"]["in_s"]) == (None, 0.0)
    assert told["predicted_start"]["provided"] == ["what is paused is resumed"]
    assert told["remedy"]["text"] == "`penstock resume`"
    await web.post("/api/resume", {"scope": "lane", "name": "fast"})
    task = await web.ended(id)
    told = await web.get(f"/api/tasks/{id}/why")
    assert [{name: wait[name] for name in task["waits"][0]} for wait in told["waits"]] == task["waits"]
    assert sum(wait["share"] for wait in told["waits"]) == pytest.approx(1.0, abs=0.01)
    assert told["waited_s"] == pytest.approx(task["started_at"] - task["queued_at"], abs=1e-6)


async def test_why_of_a_run(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """E1 over HTTP: the sums of a run, of no more tasks than the limit."""
    ids = await web.submit(*({"kind": "a", "id": f"w{n}"} for n in range(3)), run="summed")
    for id in ids:
        await web.ended(id)
    told = await web.get("/api/runs/summed/why")
    assert (told["scope"], told["name"], told["states"], told["cut_short"]) == (
        "run",
        "summed",
        {"done": 3},
        False,
    )
    waits = [wait for id in ids for wait in (await web.get(f"/api/tasks/{id}/why"))["waits"]]
    assert told["waited_s"] == pytest.approx(sum(wait["seconds"] for wait in waits), abs=0.01)
    assert {one["reason"] for one in told["reasons"]} == {wait["reason"] for wait in waits}
    assert told["predicted_end"] is None
    monkeypatch.setattr("penstock.web.api.MOST_SUMMED", 2)
    cut = await web.get("/api/runs/summed/why")
    assert (cut["tasks"], cut["cut_short"]) == (2, True)


async def test_the_timeline_of_a_run_comes_in_pages(web: Web) -> None:
    """A6 over HTTP."""
    ids = await web.submit(*({"kind": "a", "id": f"t{n}"} for n in range(5)), run="nightly")
    for id in ids:
        await web.ended(id)
    whole = await web.get("/api/runs/nightly/timeline")
    assert [task["task_id"] for task in whole["tasks"]] == ids
    assert all(len(task["attempt_records"]) == 1 for task in whole["tasks"])
    assert whole["next"] is None
    first = await web.get("/api/runs/nightly/timeline?limit=3")
    rest = await web.get(f"/api/runs/nightly/timeline?limit=3&after={first['next']}")
    assert first["tasks"] + rest["tasks"] == whole["tasks"]
    assert rest["next"] is None


async def test_the_events_of_a_task(web: Web) -> None:
    (id,) = await web.submit({"kind": "a"})
    await web.ended(id)
    events = (await web.get(f"/api/tasks/{id}/events"))["events"]
    assert [event["type"] for event in events] == ["submitted", "started", "ended"]
    page = await web.get(f"/api/tasks/{id}/events?limit=1&after={events[0]['number']}")
    assert page == {"events": [events[1]], "next": events[1]["number"]}
    assert (await web.get("/api/events/past?limit=1"))["events"][0]["type"] == "acquired"


NOWHERE = [
    ("GET", "/api/tasks/nobody"),
    ("GET", "/api/tasks/nobody/why"),
    ("GET", "/api/tasks/nobody/events"),
    ("DELETE", "/api/tasks/nobody"),
    ("POST", "/api/tasks/nobody/cancel"),
    ("POST", "/api/tasks/nobody/retry"),
    ("POST", "/api/tasks/nobody/priority"),
    ("GET", "/api/runs/nobody"),
    ("GET", "/api/runs/nobody/timeline"),
    ("GET", "/api/runs/nobody/why"),
    ("GET", "/api/tasks/%00%F0%9F%A5%8B'\"--"),
    ("GET", "/api/tasks/"),
    ("GET", "/api"),
    ("GET", "/nowhere"),
    ("GET", "/api/ws"),
]


async def test_what_is_not_there_is_404(web: Web) -> None:
    for method, path in NOWHERE:
        assert (await web.call(method, path, 404))["type"] == "not_found", path


async def test_the_beginning_of_an_id_is_not_the_id(web: Web) -> None:
    await web.submit({"kind": "a", "id": "task-one"})
    await web.call("DELETE", "/api/tasks/task-o", 404)


METHODS = [
    ("PUT", "/api/tasks", "GET, POST"),
    ("PATCH", "/api/tasks/x", "DELETE, GET"),
    ("POST", "/health", "GET"),
    ("DELETE", "/api/pause", "POST"),
    ("OPTIONS", "/api/hosts", "GET"),
]


async def test_a_wrong_method_is_told_the_right_ones(web: Web) -> None:
    for method, path, allowed in METHODS:
        response = await web.http.request(method, path)
        assert (response.status_code, response.headers["allow"]) == (405, allowed)
        assert response.json()["error"]["type"] == "method_not_allowed"


# ---- changing


async def test_a_priority_is_changed_and_what_is_none_is_refused(web: Web) -> None:
    """D6."""
    await web.post("/api/pause", {})
    (id,) = await web.submit({"kind": "a"})
    for wrong in (5, -1, True, "1", 1.0, None):
        error = await web.post(f"/api/tasks/{id}/priority", {"priority": wrong}, 422)
        assert error["message"].startswith("priority: ")
    await web.post(f"/api/tasks/{id}/priority", {"level": 1}, 422)
    assert (await web.post(f"/api/tasks/{id}/priority", {"priority": 0}))["task_id"] == id
    assert (await web.get(f"/api/tasks/{id}"))["priority"] == 0
    assert (await web.get(f"/api/tasks/{id}/events"))["events"][-1]["data"] == {"from": 2, "to": 0}
    await web.post("/api/resume", {})
    await web.ended(id)
    error = await web.post(f"/api/tasks/{id}/priority", {"priority": 1}, 409)
    assert error["message"] == "the task is already done"


async def test_a_queued_task_is_cancelled_and_retried(web: Web) -> None:
    await web.post("/api/pause", {})
    (id,) = await web.submit({"kind": "a"})
    assert await web.call("DELETE", f"/api/tasks/{id}", 200) == {"task_id": id, "said": "cancelled"}
    assert (await web.call("DELETE", f"/api/tasks/{id}", 409))["message"] == "the task is already cancelled"
    assert await web.post(f"/api/tasks/{id}/retry") == {"task_id": id, "said": "queued again"}
    error = await web.post(f"/api/tasks/{id}/retry", status=409)
    assert "only a failed, cancelled or blocked task" in error["message"]
    await web.post("/api/resume", {})
    assert (await web.ended(id))["state"] == "done"


async def test_a_running_task_is_stopped(web: Web) -> None:
    (id,) = await web.submit({"kind": "long", "host": "large"})
    await web.running(id)
    assert (await web.post(f"/api/tasks/{id}/cancel"))["said"] == "stopping"
    assert (await web.ended(id))["state"] == "cancelled"


async def test_hosts_lanes_and_gates_stand_as_status_says(web: Web) -> None:
    (id,) = await web.submit({"kind": "long", "host": "large", "lane": "fast"})
    await web.running(id)
    hosts = (await web.get("/api/hosts"))["hosts"]
    assert hosts["large"] == {
        "active": 1,
        "available_slots": 0,
        "slots": 1,
        "queued": 0,
        "delayed": 0,
        "state": "up",
        "takes": "serves long",
        "detail": "",
        "error": None,
        "needs_fix": False,
    }
    assert (await web.get("/api/lanes"))["lanes"]["fast"]["running"] == 1
    assert (await web.get("/api/gates"))["gates"]["calm"]["open"] is True


async def test_slots_are_set(web: Web) -> None:
    assert await web.post("/api/hosts/small/slots", {"slots": 5}) == {"host": "small", "slots": 5}
    assert (await web.get("/api/hosts"))["hosts"]["small"]["slots"] == 5
    assert (await web.post("/api/hosts/smal/slots", {"slots": 5}, 404))[
        "message"
    ] == "there is no host 'smal'"
    for slots in (0, 1.5, True, None, "x", 100_001, 10**40):
        await web.post("/api/hosts/small/slots", {"slots": slots}, 422)
    assert (await web.get("/api/hosts"))["hosts"]["small"]["slots"] == 5


async def test_slots_outside_the_bounds_of_the_config_are_wrong_not_unknown(tmp_path: Path) -> None:
    tuned = '[hosts.tuned]\ntype = "simulated"\nslots = { auto = true, min = 2, max = 4 }\n'
    async with serving(tmp_path, tuned) as web:
        error = await web.post("/api/hosts/tuned/slots", {"slots": 9}, 422)
        assert error["type"] == "invalid_request"
        assert error["message"] == "the slots of tuned tune themselves between 2 and 4"
        await web.post("/api/hosts/tuned/slots", {"slots": 3})


async def test_pauses_are_checked(web: Web) -> None:
    wrong: list[dict[str, Any]] = [{"scope": "everything"}, {"scope": 1}, {"name": []}, {"scpe": "all"}]
    for body in wrong:
        await web.post("/api/pause", body, 422)
    for body in ({"scope": "host", "name": "smal"}, {"scope": "lane"}, {"scope": "all", "name": "x"}):
        await web.post("/api/pause", body, 404)
    lanes = (await web.get("/api/lanes"))["lanes"]
    assert not any(lane["paused"] for lane in lanes.values())
    assert await web.post("/api/pause", {"scope": "host", "name": "small"}) == {
        "scope": "host",
        "name": "small",
        "paused": True,
    }


# ---- who may


async def refused_all(web: Web, secret: str, calls: list[tuple[str, str, Any]]) -> None:
    for method, path, body in calls:
        headers = {"Authorization": f"Bearer {secret}"}
        error = await web.call(method, path, 403, json=body, headers=headers)
        assert error["type"] == "forbidden", path


async def test_each_scope_allows_its_own(tmp_path: Path) -> None:
    """Promise 8 and B7: nothing is done without the scope for it."""
    (reader, read), (sender, submit), (boss, admin) = (
        token("reader", "read"),
        token("sender", "submit"),
        token("boss", "submit", "read", "admin"),
    )
    async with serving(tmp_path, tokens=[reader, sender, boss], secret=admin) as web:
        await web.post("/api/pause", {})
        await web.submit({"kind": "a", "id": "one"})
        changes: list[tuple[str, str, Any]] = [
            ("POST", "/api/pause", {}),
            ("POST", "/api/resume", {}),
            ("POST", "/api/hosts/small/slots", {"slots": 9}),
            ("DELETE", "/api/tasks/one", None),
            ("POST", "/api/tasks/one/cancel", None),
            ("POST", "/api/tasks/one/retry", None),
            ("POST", "/api/tasks/one/priority", {"priority": 0}),
        ]
        paths = ["/api/tasks", "/api/tasks/one", "/api/tasks/one/why", "/api/tasks/one/events", "/api/hosts"]
        paths += [
            "/api/lanes",
            "/api/gates",
            "/api/runs/x",
            "/api/runs/x/timeline",
            "/api/runs/x/why",
            "/api/events",
            "/metrics",
        ]
        reads: list[tuple[str, str, Any]] = [("GET", path, None) for path in paths]
        await refused_all(web, read, [*changes, ("POST", "/api/tasks", {"kind": "a"})])
        await refused_all(web, submit, [*changes, *reads])
        assert (await web.get("/api/tasks/one"))["state"] == "queued"
        headers = {"Authorization": f"Bearer {submit}"}
        await web.post("/api/tasks", {"kind": "a"}, 201, headers=headers)


async def test_a_tokens_priority_holds_for_what_it_moves(tmp_path: Path) -> None:
    given, secret = token("nightly", "submit", "read", lane="fast", priority=3)
    boss, admin = token("boss", "admin", "submit")
    async with serving(tmp_path, tokens=[given, boss], secret=secret) as web:
        as_boss = {"Authorization": f"Bearer {admin}"}
        await web.post("/api/pause", {}, headers=as_boss)
        await web.post("/api/tasks", {"kind": "a", "id": "other"}, 201, headers=as_boss)
        (own,) = await web.submit({"kind": "a"})
        await web.post(f"/api/tasks/{own}/priority", {"priority": 4})
        error = await web.post(f"/api/tasks/{own}/priority", {"priority": 2}, 403)
        assert "more urgent than the token 'nightly' may ask for" in error["message"]
        await web.post("/api/tasks/other/priority", {"priority": 4}, 403)
        assert (await web.get(f"/api/tasks/{own}"))["priority"] == 4
        said = await web.post(f"/api/tasks/{own}/priority", {"priority": 0}, headers=as_boss)
        assert said == {"task_id": own, "said": "has priority 0 instead of 4"}


async def test_a_tokens_lane_and_priority_hold_for_what_it_submits(tmp_path: Path) -> None:
    given, secret = token("nightly", "submit", "read", lane="fast", priority=3)
    async with serving(tmp_path, tokens=[given], secret=secret) as web:
        one, two = await web.submit({"kind": "a"}, {"kind": "a", "lane": "fast", "priority": 4})
        task = await web.get(f"/api/tasks/{one}")
        assert (task["lane"], task["priority"]) == ("fast", 3)
        assert (await web.get(f"/api/tasks/{two}"))["priority"] == 4
        for entry in ({"kind": "a", "lane": "default"}, {"kind": "a", "priority": 2}):
            await web.post("/api/tasks", {"tasks": [{"kind": "a"}, entry]}, 403)
        assert await count(web) == 2


async def test_a_token_with_a_lane_may_cancel_in_that_lane(tmp_path: Path) -> None:
    given, secret = token("nightly", "submit", "read", lane="fast")
    boss, admin = token("boss", "admin", "submit")
    async with serving(tmp_path, tokens=[given, boss], secret=secret) as web:
        as_boss = {"Authorization": f"Bearer {admin}"}
        await web.post("/api/pause", {}, headers=as_boss)
        await web.post("/api/tasks", {"kind": "a", "id": "other"}, 201, headers=as_boss)
        (own,) = await web.submit({"kind": "a"})
        await web.call("DELETE", f"/api/tasks/{own}", 200)
        error = await web.call("DELETE", "/api/tasks/other", 403)
        assert "tasks of its own lane only" in error["message"]
        await web.call("DELETE", "/api/tasks/other", 200, headers=as_boss)


async def test_too_many_requests_are_told_when_to_come_back(tmp_path: Path) -> None:
    given, secret = token("busy", "read", "submit", requests_per_min=3)
    async with serving(tmp_path, tokens=[given], secret=secret) as web:
        for _ in range(3):
            await web.get("/api/hosts")
        response = await web.http.get("/api/hosts")
        assert response.status_code == 429
        assert 1 <= int(response.headers["retry-after"]) <= 60
        assert response.json()["error"]["type"] == "rate_limited"
        await web.get("/health")  # costs nothing


async def test_a_token_can_only_have_so_much_waiting(tmp_path: Path) -> None:
    given, secret = token("busy", "read", "submit", "admin", max_queued=3)
    async with serving(tmp_path, tokens=[given], secret=secret) as web:
        await web.post("/api/pause", {})
        ids = await web.submit({"kind": "a"}, {"kind": "a"})
        error = await web.post("/api/tasks", {"tasks": [{"kind": "a"}, {"kind": "a"}]}, 429)
        assert error["type"] == "queue_full"
        assert await count(web) == 2
        # A refused submit takes no room.
        await web.post("/api/tasks", {"kind": "a", "after": "nobody"}, 422)
        (third,) = await web.submit({"kind": "a"})
        await web.call("DELETE", f"/api/tasks/{ids[0]}", 200)
        await web.submit({"kind": "a"})
        await web.post("/api/resume", {})
        await web.ended(third)
        await web.ended(ids[1])


async def test_revoked_at_once(tmp_path: Path) -> None:
    (one, secret), (other, _) = token("one", "read"), token("other", "read")
    async with serving(tmp_path, tokens=[one, other], secret=secret) as web:
        await web.get("/api/hosts")
        assert await web.parts.client.revoke_token("one")
        assert (await web.get("/api/hosts", 401))["type"] == "unauthorized"
        added, fresh = token("fresh", "read")
        assert await web.parts.client.add_token(added)
        await web.get("/api/hosts", headers={"Authorization": f"Bearer {fresh}"})


async def test_without_a_token_only_the_short_form_of_health_is_there(tmp_path: Path) -> None:
    async with serving(tmp_path, tokens=[token()[0]]) as web:
        assert await web.get("/health") == {"status": "ok"}
        for path in ("/metrics", "/docs", "/openapi.json", "/api/tasks", "/nowhere", "/api/events"):
            response = await web.http.get(path)
            assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer"), path
        v1 = (await web.http.get("/v1/models")).json()["error"]
        assert (v1["type"], v1["code"], v1["param"]) == ("authentication_error", "unauthorized", None)


async def test_pages_of_other_sites_and_names_are_refused(web: Web) -> None:
    """Promise 8: a browser on this machine is no way in."""
    await web.get("/api/hosts", 403, headers={"Host": "evil.example"})
    await web.get("/api/hosts", 403, headers={"Origin": "https://evil.example"})
    await web.post("/api/pause", {}, 403, headers={"Sec-Fetch-Site": "cross-site"})
    response = await web.http.get("/api/hosts", headers={"Origin": web.url})
    assert response.status_code == 200
    assert not [name for name in response.headers if name.startswith("access-control")]


async def test_an_origin_that_is_named_may_call(tmp_path: Path) -> None:
    origin = {"Origin": "https://app.example.com"}
    async with serving(tmp_path, '[server]\ncors = ["https://app.example.com"]\n') as web:
        response = await web.http.get("/api/hosts", headers=origin)
        assert response.headers["access-control-allow-origin"] == origin["Origin"]
        asked = {
            **origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization",
        }
        response = await web.http.options("/api/tasks", headers=asked)
        assert (response.status_code, response.headers["access-control-allow-origin"]) == (
            200,
            origin["Origin"],
        )
        await web.get("/api/hosts", 403, headers={"Origin": "https://evil.example"})


# ---- the server itself


async def test_health_tells_what_is_wrong(web: Web) -> None:
    """D6's server side: store, dispatcher and hosts are looked at."""
    well = await web.get("/health")
    assert (well["status"], well["reasons"]) == ("ok", [])
    assert (well["hosts"]["up"], well["hosts"]["down"]) == (2, 0)
    assert (well["store"]["state"], well["dispatcher"]["state"]) == ("ok", "ok")


async def test_docs_load_nothing_from_elsewhere(web: Web) -> None:
    page = (await web.http.get("/docs")).text
    for path in (await web.get("/openapi.json"))["paths"]:
        assert path in page
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page


async def test_a_stopping_server_answers_and_takes_nothing_in(tmp_path: Path) -> None:
    async with serving(tmp_path) as web:
        (id,) = await web.submit({"kind": "long", "host": "large"})
        await web.running(id)
        web.service.stop()
        assert (await web.post("/api/tasks", {"kind": "a"}, 503))["type"] == "stopping"
        assert (await web.get(f"/api/tasks/{id}"))["state"] == "running"
        health = await web.http.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "failing")
        await web.post(f"/api/tasks/{id}/cancel")  # which lets it end
        async with asyncio.timeout(PATIENCE_S):
            await web.over.wait()
