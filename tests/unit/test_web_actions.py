"""Many tasks changed at once over HTTP: by their ids, by a filter, within the rights of whoever asks (D6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.web import actions
from tests.unit.web_rig import Web, serving, token

ACTIONS = "/api/tasks/actions"


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request does three tasks and has no time for more."""
    monkeypatch.setattr(actions, "_CHUNK", 3)
    monkeypatch.setattr(actions, "_PATIENCE_S", 0.0)


async def states(web: Web, **chosen: Any) -> dict[str, str]:
    told = await web.http.get("/api/tasks", params={"limit": 1000, **chosen})
    return {task["task_id"]: task["state"] for task in told.json()["tasks"]}


async def test_named_tasks_are_cancelled_moved_and_retried(tmp_path: Path) -> None:
    async with serving(tmp_path) as web:
        await web.post("/api/pause", {})
        ids = await web.submit(*({"kind": "a"} for _ in range(4)))
        report = await web.post(ACTIONS, {"do": "cancel", "task_ids": ids[:2]})
        assert report == {
            "do": "cancel", "done": 2, "skipped": 0, "refused": 0, "reasons": [], "next": None, "until": None
        }  # fmt: skip
        report = await web.post(ACTIONS, {"do": "priority", "priority": 0, "task_ids": [*ids, "nobody"]})
        assert (report["done"], report["skipped"], report["refused"]) == (2, 2, 1)
        said = {reason["task_id"]: reason["said"] for reason in report["reasons"]}
        assert said == {
            "nobody": "there is no such task", **dict.fromkeys(ids[:2], "is already cancelled")
        }  # fmt: skip
        report = await web.post(ACTIONS, {"do": "retry", "task_ids": [ids[0], ids[0], ids[2]]})
        assert (report["done"], report["skipped"]) == (1, 1), "one that is named twice is one"
        assert set((await states(web, priority=0)).values()) == {"queued"}
        assert list(await states(web, state="cancelled")) == [ids[1]]


async def test_all_that_fit_a_filter_are_changed_in_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when one request has no time for all: the next goes on where it ended; none is left or done twice."""
    monkeypatch.setattr(actions, "_CHUNK", 3)
    async with serving(tmp_path) as web:
        await web.post("/api/pause", {})
        await web.submit(*({"kind": "a", "id": f"a{i}"} for i in range(10)))
        await web.submit(*({"kind": "b", "id": f"b{i}"} for i in range(4)))
        report = await web.post(ACTIONS, {"do": "cancel", "filter": {"kind": "a", "search": "a"}})
        assert (report["done"], report["skipped"], report["next"]) == (10, 0, None)
        assert set((await states(web, kind="b")).values()) == {"queued"}
        monkeypatch.setattr(actions, "_PATIENCE_S", 0.0)
        asked: dict[str, Any] = {"do": "retry", "filter": {"state": ["cancelled", "done"], "priority": [2]}}
        done, requests = 0, 0
        while True:
            report = await web.post(ACTIONS, asked)
            done, requests = done + report["done"], requests + 1
            assert report["skipped"] == 0
            if report["next"] is None:
                break
            asked["after"] = report["next"]
        assert (done, requests > 2) == (10, True)
        assert set((await states(web, kind="a")).values()) == {"queued"}


@pytest.mark.usefixtures("few_at_once")
async def test_what_is_submitted_after_it_was_asked_is_left_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as web:
        await web.post("/api/pause", {})
        before = await web.submit(*({"kind": "a"} for _ in range(7)))
        asked: dict[str, Any] = {"do": "cancel", "filter": {"kind": "a"}}
        report = await web.post(ACTIONS, asked)
        assert report["done"] == 3
        after = await web.submit(*({"kind": "a"} for _ in range(7)))
        while report["next"] is not None:
            asked |= {"after": report["next"], "until": report["until"]}
            report = await web.post(ACTIONS, asked)
        assert set(await states(web, state="cancelled")) == set(before)
        assert set(await states(web, state="queued")) == set(after)


@pytest.mark.usefixtures("few_at_once")
async def test_those_named_are_all_told_of_however_long_it_takes(tmp_path: Path) -> None:
    async with serving(tmp_path) as web:
        await web.post("/api/pause", {})
        ids = await web.submit(*({"kind": "a"} for _ in range(10)))
        report = await web.post(ACTIONS, {"do": "cancel", "task_ids": [*ids, "nobody"]})
        assert (report["done"], report["refused"], report["next"]) == (10, 1, None)


async def test_a_token_changes_its_own_lane_only(tmp_path: Path) -> None:
    given, secret = token("nightly", "submit", "read", lane="fast", priority=2)
    boss, admin = token("boss", "admin", "submit")
    reader, read = token("reader", "read")
    async with serving(tmp_path, tokens=[given, boss, reader], secret=secret) as web:
        as_boss = {"Authorization": f"Bearer {admin}"}
        await web.post("/api/pause", {}, headers=as_boss)
        await web.post("/api/tasks", {"kind": "a", "id": "other"}, 201, headers=as_boss)
        (own,) = await web.submit({"kind": "a"})
        asked = {"do": "priority", "priority": 3, "task_ids": ["other", own]}
        report = await web.post(ACTIONS, asked)
        assert (report["done"], report["refused"]) == (1, 1)
        assert report["reasons"] == [{"task_id": "other", "said": "is of another lane than the token's own"}]
        for level, filter in ((4, {"kind": "a"}), (3, {"lane": "fast"})):
            report = await web.post(ACTIONS, {"do": "priority", "priority": level, "filter": filter})
            assert (report["done"], report["skipped"], report["refused"]) == (1, 0, 0)
        await web.post(ACTIONS, {"do": "cancel", "filter": {"lane": "default"}}, 403)
        error = await web.post(ACTIONS, {"do": "priority", "priority": 1, "filter": {}}, 403)
        assert "more urgent than the token" in error["message"]
        await web.post(
            ACTIONS, {"do": "cancel", "filter": {}}, 403, headers={"Authorization": f"Bearer {read}"}
        )
        assert (await web.get("/api/tasks/other"))["priority"] == 2


async def test_a_token_that_may_not_read_learns_nothing_of_others(tmp_path: Path) -> None:
    """Neither by a filter nor by ids: what is not its own is as what there is not."""
    given, secret = token("nightly", "submit", lane="fast")
    laneless, free = token("free", "submit")
    boss, admin = token("boss", "admin", "submit")
    async with serving(tmp_path, tokens=[given, laneless, boss], secret=secret) as web:
        as_boss = {"Authorization": f"Bearer {admin}"}
        await web.post("/api/pause", {}, headers=as_boss)
        await web.post("/api/tasks", {"kind": "a", "id": "secret-customer"}, 201, headers=as_boss)
        report = await web.post(ACTIONS, {"do": "cancel", "filter": {"search": "secret-customer"}})
        assert (report["done"], report["refused"], report["reasons"]) == (0, 0, [])
        names = ["secret-customer", "nobody"]
        report = await web.post(ACTIONS, {"do": "cancel", "task_ids": names})
        assert report["reasons"] == [{"task_id": name, "said": "there is no such task"} for name in names]
        told = [await web.call("DELETE", f"/api/tasks/{name}", 404) for name in names]
        assert told[0]["message"].replace(*names) == told[1]["message"]
        as_free = {"Authorization": f"Bearer {free}"}
        for which in ({"filter": {"search": "secret"}}, {"task_ids": ["nobody"]}):
            error = await web.post(ACTIONS, {"do": "cancel", **which}, 403, headers=as_free)
            assert "may change no tasks" in error["message"]


WRONG: list[tuple[Any, str]] = [
    ({}, "do: "),
    ({"do": "dance", "filter": {}}, "do: "),
    ({"do": ["cancel"], "filter": {}}, "do: "),
    ({"do": "cancel"}, "name the tasks"),
    ({"do": "cancel", "task_ids": ["x"], "filter": {}}, "name the tasks"),
    ({"do": "cancel", "task_ids": []}, "task_ids: "),
    ({"do": "cancel", "task_ids": "x"}, "task_ids: "),
    ({"do": "cancel", "task_ids": [1]}, "task_ids: "),
    ({"do": "cancel", "task_ids": ["x"] * 1001}, "task_ids: 1001 are too many"),
    ({"do": "cancel", "task_ids": ["x"], "after": 1}, "after: "),
    ({"do": "cancel", "filter": {}, "after": -1}, "after: "),
    ({"do": "cancel", "filter": {}, "until": "x"}, "until: "),
    ({"do": "cancel", "task_ids": ["x"], "until": 1}, "until: "),
    ({"do": "cancel", "filter": {}, "priority": 1}, "priority: leave it out"),
    ({"do": "priority", "filter": {}}, "priority: "),
    ({"do": "cancel", "filter": []}, "filter: "),
    ({"do": "cancel", "filter": {"colour": "red"}}, "filter: unknown field 'colour'"),
    ({"do": "cancel", "filter": {"kind": 1}}, "filter.kind: "),
    *(
        ({"do": "cancel", "filter": {name: empty}}, f"filter.{name}: it is empty")
        for name, empty in (("state", []), ("priority", []), ("state", ""), ("lane", ""), ("search", ""))
    ),
    ({"do": "cancel", "filter": {"search": "x" * 201}}, "filter.search: "),
    ({"do": "cancel", "filter": {"state": "gone"}}, "filter.state: "),
    ({"do": "cancel", "filter": {"state": [["queued"]]}}, "filter.state: "),
    ({"do": "cancel", "filter": {"priority": [7]}}, "filter.priority: "),
    ({"do": "cancel", "filter": {}, "why": "x"}, "unknown field 'why'"),
]


async def test_promise_7_what_is_not_understood_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as web:
        await web.post("/api/pause", {})
        (id,) = await web.submit({"kind": "a"})
        for body, told in WRONG:
            error = await web.post(ACTIONS, body, 422)
            assert error["message"].startswith(told), body
        assert await states(web) == {id: "queued"}
        report = await web.post(ACTIONS, {"do": "cancel", "filter": {"state": "done"}})
        assert (report["done"], report["skipped"]) == (0, 0), "a state that cannot be cancelled"


async def test_tasks_are_searched_and_filtered_by_priority(tmp_path: Path) -> None:
    async with serving(tmp_path) as web:
        await web.post("/api/pause", {})
        await web.submit(*({"kind": "a", "id": f"t{i}", "priority": i} for i in range(5)))
        assert list(await states(web, search="t3")) == ["t3"]
        assert list(await states(web, priority=[0, 4])) == ["t4", "t0"]
        page = await web.get("/api/tasks?search=t&limit=2")
        assert [task["task_id"] for task in page["tasks"]] == ["t4", "t3"]
        rest = await web.get(f"/api/tasks?search=t&limit=9&after={page['next']}")
        assert ([task["task_id"] for task in rest["tasks"]], rest["next"]) == (["t2", "t1", "t0"], None)
        await web.call("GET", "/api/tasks?priority=5", 422)
