"""B5: what becomes of requests in a folder: whole, broken, hostile, twice, cancelled; and of the folder itself."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import socket
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import AlreadyOwned, StoreFull
from penstock.intake.folder import answers, layout, requests
from penstock.intake.folder.changes import Changes
from penstock.store.base import TaskFilter
from tests.unit.folder_rig import PATIENCE_S, Inbox, client_of, make_inbox, once, queue_of, watching


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return make_inbox(tmp_path)


# ---- requests that are well


async def test_b5_a_command_and_a_task_are_answered(inbox: Inbox) -> None:
    inbox.ask("one", {"id": "one", "command": "echo", "params": ["a"], "metadata": {"m": 1}, "timestamp": 7})
    inbox.ask("two.json", {"id": "two", "kind": "echo", "payload": {"b": 2}, "priority": 0, "lane": "slow"})
    inbox.ask("bad", {"command": "fail"})
    await once(inbox)
    assert inbox.files("requests") == inbox.files("urgent") == set()
    assert inbox.files("done") == {"one", "two.json", "bad"}
    one = inbox.response("one")
    assert (one["id"], one["state"], one["value"], one["kind"], one["run"]) == (
        "one",
        "done",
        ["a"],
        "echo",
        "watch",
    )
    two = inbox.response("two.json")
    assert (two["value"], two["priority"], two["lane"]) == ({"b": 2}, 0, "slow")
    assert "no good" in inbox.error("bad")
    assert inbox.files("responses") == {"one", "two.json"}
    assert (inbox.told.counts.taken, inbox.told.counts.done, inbox.told.counts.errors) == (3, 2, 1)


async def test_b5_requests_write_files_only_where_the_config_says_so(inbox: Inbox) -> None:
    """B5, promise 7: whoever may write a request may not write anywhere in the project."""
    inbox.ask("one", {"kind": "echo", "payload": "x", "output": "folder_work.py"})
    inbox.ask("two", {"command": "echo", "output": "folder_work.py"})
    inbox.ask("three", {"command": "echo", "output": None})
    before = (inbox.home / "folder_work.py").read_text()
    await once(inbox)
    for name in ("one", "two"):
        assert inbox.error(name) == (
            "output: files are written for requests only where `output_root` of the config says into which folder"
        )
    assert inbox.response("three")["state"] == "done"
    config = inbox.home / "penstock.toml"
    config.write_text(f'output_root = "made"\n{config.read_text()}')
    inbox.ask("four", {"kind": "echo", "payload": "x", "output": "a.md"})
    inbox.ask("five", {"kind": "echo", "payload": "x", "output": "../folder_work.py"})
    await once(inbox)
    assert inbox.response("four")["state"] == "done"
    assert (inbox.home / "made/a.md").read_text() == "x\n"
    assert "is outside of" in inbox.error("five")
    assert (inbox.home / "folder_work.py").read_text() == before


async def test_b5_a_mapped_command_keeps_its_name_in_the_payload(inbox: Inbox) -> None:
    inbox.ask("one", {"command": "report", "params": {"a": 1}, "metadata": {"m": 1}})
    inbox.ask("two", {"command": "fail"})
    await once(inbox, kinds={"*": "echo", "fail": "fail"}, lane="slow")
    one = inbox.response("one")
    assert one["value"] == {"command": "report", "params": {"a": 1}, "metadata": {"m": 1}}
    assert (one["kind"], one["lane"]) == ("echo", "slow")
    assert "no good" in inbox.error("two")


@pytest.mark.parametrize(
    ("made", "given", "taken", "answered"),
    [
        ("", "", "requests", "responses"),
        ("requests", "", "requests", "responses"),
        (".tasks", "", ".tasks/requests", ".tasks/responses"),
        ("tasks results", "", "tasks", "results"),
        ("queue/tasks", "", "queue/tasks", "queue/results"),
        ("queue", "queue", "queue/tasks", "queue/results"),
        (".tasks", ".tasks", ".tasks/requests", ".tasks/responses"),
    ],
)
async def test_b5_both_layouts_wherever_they_are(
    inbox: Inbox, made: str, given: str, taken: str, answered: str
) -> None:
    root = inbox.path.parent / "root"
    root.mkdir()
    for name in made.split():
        (root / name).mkdir(parents=True)
    inbox.path = root / given
    await once(inbox)  # makes what is missing
    (root / taken / "x").write_text('{"command": "echo", "params": [1]}')
    await once(inbox)
    assert json.loads((root / answered / "x").read_text())["value"] == [1]
    assert (root / taken).parent.joinpath("done", "x").is_file()


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("requests .tasks", "holds more than one queue: requests and .tasks/requests; name one"),
        ("tasks", "has tasks/ but no results/; if it is a queue, create that one too: mkdir "),
    ],
)
def test_b5_a_folder_that_could_be_two_things_is_not_guessed(tmp_path: Path, made: str, told: str) -> None:
    for name in made.split():
        (tmp_path / name).mkdir()
    with pytest.raises(Exception, match=r"^/") as raised:
        layout.find_layout(tmp_path)
    assert told in str(raised.value)
    with pytest.raises(Exception, match="there is no such folder; create it with"):
        layout.find_layout(tmp_path / "gone")


async def test_b5_the_oldest_first_within_a_priority(inbox: Inbox) -> None:
    for n, (name, priority) in enumerate([("e", 2), ("d", 0), ("c", 2), ("b", 0), ("a", 2)]):
        inbox.ask(name, {"kind": "echo", "payload": name, "priority": priority})
        os.utime(inbox.path / "requests" / name, ns=(0, 10**18 - n))
    await once(inbox)
    async with client_of(inbox, dispatch=False) as client:
        records = await client.tasks(TaskFilter())
    assert [record.task.payload for record in records] == ["b", "d", "a", "c", "e"]


# ---- requests that are not


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        ('{"kind": "ec', "is not JSON: "),
        ("not json", "is not JSON: "),
        (b"\xff\xfe{}", "is not JSON: "),
        (b'{"kind": "\xff"}', "is not "),
        ("[]", "must be an object with `command` or `kind`, not a list"),
        ("7", "must be an object with `command` or `kind`, not 7"),
        ("{}", "has neither `command` nor `kind`; give one of them"),
        ("[" * 50_000, "nested too deeply"),
        ({"kind": "echo", "id": "../x"}, "id: is '../x' but the file is 'x'; name the file after its id"),
        ({"kind": "echo", "id": 7}, "id: is 7 but the file is 'x'"),
        ({"kind": "eco"}, "kind: no host serves kind 'eco'; did you mean 'echo'?"),
        ({"kind": "echo", "lane": "slwo"}, "lane: no lane 'slwo'; did you mean 'slow'?"),
        ({"kind": "echo", "priorty": 1}, "priorty: unknown field; did you mean 'priority'?"),
        ({"kind": "echo", "priority": "high"}, "priority: must be a whole number from 0"),
        ({"kind": "echo", "after": "y"}, "after: a request has no `after`; leave it out"),
        ({"kind": "echo", "matrix": {"repeat": 3}}, "matrix: a request has no `matrix`"),
        ({"kind": "echo", "payload": "x" * 2000}, "payload has 2,002 bytes of JSON and 1,000 are allowed"),
        ({"command": "../../bin/sh"}, "command: '../../bin/sh' is not a name"),
        ({"command": 7}, "command: must be text, not 7"),
        ({"command": "echo", "params": "a"}, "params: must be a list or an object, not text"),
        ({"command": "echo", "payload": 1}, "payload: belongs to a task; with `command` give `params`"),
        ({"command": "echo", "prms": []}, "prms: unknown field; did you mean 'params'?"),
        ("x" * 70_000, "has 70,000 bytes and 66,536 are allowed; put the data in a file"),
    ],
)
async def test_b5_what_is_wrong_with_a_request_is_its_answer(inbox: Inbox, body: Any, error: str) -> None:
    inbox.ask("x", body)
    inbox.ask("good", {"command": "echo"})
    await once(inbox)
    assert error in inbox.error("x")
    assert "\n" not in inbox.error("x")
    assert inbox.files("responses") == {"good"}
    assert inbox.files("done") == {"x", "good"}


async def test_b5_only_plain_files_are_opened(inbox: Inbox) -> None:
    """A pipe would make its reader wait for ever, and a link leads anywhere."""
    folder = inbox.path / "requests"
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("/etc/hostname")
    (folder / "lost").symlink_to("nowhere")
    (folder / "sub").mkdir()
    (folder / "sub" / "inside").touch()
    with socket.socket(socket.AF_UNIX) as bound:
        here = os.open(folder, os.O_RDONLY)
        bound.bind(f"/proc/self/fd/{here}/sock")
        os.close(here)
        await once(inbox)
    what = {"pipe": "a pipe", "link": "a link", "lost": "a link", "sub": "a folder", "sock": "a socket"}
    for name, kind in what.items():
        assert inbox.error(name) == f"is {kind}, not a plain file; write the request itself there"
    assert inbox.files("done") == set(what)
    assert (inbox.path / "done" / "link").is_symlink()


async def test_b5_a_name_that_turns_into_a_link_is_not_followed(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.ask("x", {"command": "echo"})
    secret = inbox.path.parent / "secret"
    secret.write_text('{"command": "echo", "params": ["secret"]}')

    def swap(status: os.stat_result) -> None:
        if not (inbox.path / "requests" / "x").is_symlink():
            (inbox.path / "requests" / "x").unlink()
            (inbox.path / "requests" / "x").symlink_to(secret)

    monkeypatch.setattr(requests, "_not_plain", swap)
    await once(inbox)
    assert inbox.error("x") == "is not a plain file; write the request itself there"


async def test_b5_an_unreadable_request_is_an_error_after_a_moment(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.ask("x", {"command": "echo"})
    really = os.open

    def refuse(path: Any, *args: Any, **more: Any) -> int:
        if path == "x":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return really(path, *args, **more)

    monkeypatch.setattr(os, "open", refuse)
    await once(inbox)
    assert inbox.error("x") == "cannot be read: Permission denied"


async def test_b5_hidden_files_are_nobodys_request(inbox: Inbox) -> None:
    inbox.ask(".gitkeep", "")
    inbox.ask("one", {"command": "echo"})
    await once(inbox)
    assert inbox.files("requests") == {".gitkeep"}
    assert inbox.files("errors") == set()


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31m", " a", "a\\b", "n" * 200, b"a\xffb"])
async def test_b5_hostile_names_are_refused(inbox: Inbox, name: str | bytes) -> None:
    inbox.ask(os.fsdecode(name), {"command": "echo"})
    await once(inbox)
    (error,) = (inbox.path / "errors").iterdir()
    assert os.fsencode(error.name) == os.fsencode(name)
    assert "its name" in json.loads(error.read_text())["error"]
    assert len(inbox.files("done")) == 1
    assert inbox.files("responses") == set()


async def test_b5_a_half_written_request_is_waited_for(inbox: Inbox) -> None:
    path = inbox.path / "requests" / "slow"
    path.write_text('{"command": "echo", ')
    async with watching(inbox, quiet_s=PATIENCE_S, patience_s=PATIENCE_S):
        await inbox.told.until(unfinished=1)
        with path.open("a") as file:
            file.write('"params": [1]}')
        await inbox.told.until(answers=1)
    assert inbox.response("slow")["value"] == [1]


async def test_b5_a_file_that_never_becomes_whole_is_given_up(inbox: Inbox) -> None:
    (inbox.path / "requests" / "x.tmp").write_text('{"command": "echo"}')
    async with watching(inbox):
        await inbox.told.until(answers=1)
    assert inbox.error("x.tmp").startswith("has a name that stands for an unfinished file; rename it")


# ---- twice


async def test_b5_an_answered_id_keeps_its_answer(inbox: Inbox) -> None:
    inbox.ask("x", {"command": "echo", "params": [1]})
    await once(inbox)
    inbox.ask("x", {"command": "echo", "params": [2]})
    await once(inbox)
    assert inbox.response("x")["value"] == [1]
    assert inbox.told.notes == ["x: has an answer already, which stays; use each id once"]
    assert inbox.files("requests") == inbox.files("errors") == set()
    assert len(inbox.files("done")) == 2


async def test_b5_the_same_request_again_runs_once_and_another_is_refused(inbox: Inbox) -> None:
    for body, value in (({"command": "echo", "params": [1]}, [1]), ({"command": "echo", "params": [1]}, [1])):
        inbox.ask("x", body)
        await once(inbox)
        assert inbox.response("x")["value"] == value
        (inbox.path / "responses" / "x").unlink()
    inbox.ask("x", {"command": "echo", "params": [2]})
    await once(inbox)
    assert inbox.error("x").startswith("its id belongs to another request, which was answered before")
    async with client_of(inbox, dispatch=False) as client:
        assert len(await client.tasks()) == 1


# ---- cancelling


async def test_b5_urgent_cancels_before_the_start(inbox: Inbox) -> None:
    inbox.ask("x", {"command": "hold", "params": {"started": str(inbox.path.parent / "started")}})
    inbox.cancel("x")
    await once(inbox)
    assert json.loads((inbox.path / "errors" / "x").read_text())["state"] == "cancelled"
    assert not (inbox.path.parent / "started").exists()
    assert inbox.files("urgent") == inbox.files("requests") == set()
    async with client_of(inbox, dispatch=False) as client:
        (record,) = await client.tasks()
    assert (record.state, record.attempts) == ("cancelled", 0)


async def test_b5_urgent_cancels_what_runs(inbox: Inbox) -> None:
    started = inbox.path.parent / "started"
    inbox.ask("x", {"command": "hold", "params": {"started": str(started)}})
    async with watching(inbox) as client:
        async with asyncio.timeout(PATIENCE_S), client.watching() as watch:
            while not started.exists():
                await watch()
        inbox.cancel("x")
        await inbox.told.until(answers=1)
    body = json.loads((inbox.path / "errors" / "x").read_text())
    assert (body["state"], body["attempts"]) == ("cancelled", 1)
    assert body["error"]
    assert inbox.files("urgent") == set()


async def test_b5_urgent_without_a_request_is_removed_in_the_end(inbox: Inbox) -> None:
    inbox.ask("answered", {"command": "echo"})
    await once(inbox)
    inbox.cancel("answered")
    inbox.cancel("nobody")
    (inbox.path / "urgent" / "sub").mkdir()
    async with watching(inbox):
        await inbox.told.until(notes=2)
    assert inbox.files("urgent") == set()
    assert sorted(inbox.told.notes) == [
        f"urgent/{name}: there is no request of that name to cancel; removed" for name in ("nobody", "sub")
    ]


async def test_b5_urgent_ends_the_waiting_for_a_half_written_one(inbox: Inbox) -> None:
    (inbox.path / "requests" / "x").write_text("{")
    inbox.cancel("x")
    await once(inbox, quiet_s=PATIENCE_S, patience_s=PATIENCE_S)
    assert inbox.error("x") == "cancelled before it was whole"


# ---- killed in between


class Killed(BaseException):
    """As good as kill -9: nothing is put in order."""


@pytest.mark.parametrize("point", ["_make_ready", "_write_all", "_sync", "put_away", "_publish", "take_back"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_b5_a_watcher_killed_anywhere_answers_once(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch, point: str, when: str
) -> None:
    for n in range(3):
        inbox.ask(f"{n}", {"command": "echo", "params": [n]})
    really = getattr(answers, point)

    def die(*args: Any) -> Any:
        if when == "after":
            really(*args)
        raise Killed

    monkeypatch.setattr(answers, point, die)
    with pytest.raises(Killed):
        await once(inbox)
    monkeypatch.undo()
    taken = [path for path in (inbox.path / "responses").iterdir() if json.loads(path.read_text())]
    seen = [path.name for path in taken]
    for path in taken:
        path.unlink()  # by a reader who is quick
    await once(inbox)
    seen += inbox.files("responses")
    assert sorted(seen) == ["0", "1", "2"]
    assert inbox.files("done") == {"0", "1", "2"}
    assert inbox.files("requests") == inbox.files("errors") == set()
    assert inbox.files(".penstock") == {"lock", "queue.json", "responses", "errors"}
    async with client_of(inbox, dispatch=False) as client:
        assert [record.attempts for record in await client.tasks()] == [1, 1, 1]


async def test_b5_submitted_but_not_noted_is_run_once(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox.ask("x", {"command": "echo", "params": [1]})
    async with client_of(inbox) as client:
        really = client.submit_many

        async def die(*args: Any, **more: Any) -> Any:
            await really(*args, **more)
            raise Killed

        monkeypatch.setattr(client, "submit_many", die)
        with pytest.raises(Killed):
            await queue_of(inbox, client).run(once=True)
    await once(inbox)
    assert inbox.response("x")["attempts"] == 1
    async with client_of(inbox, dispatch=False) as client:
        assert len(await client.tasks()) == 1


async def test_b5_a_request_removed_while_it_runs_is_answered(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.ask("x", {"command": "echo"})
    really = answers.give

    def remove(*args: Any) -> Any:
        (inbox.path / "requests" / "x").unlink()
        return really(*args)

    monkeypatch.setattr(answers, "give", remove)
    await once(inbox)
    assert inbox.response("x")["state"] == "done"
    assert inbox.files("done") == set()


# ---- trouble


async def test_b5_a_full_disk_is_told_and_outlived(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox.ask("x", {"command": "echo"})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(answers, "_write_all", full)
    async with watching(inbox):
        await inbox.told.until(troubles=1)
        assert inbox.files("responses") == inbox.files("done") == set()
        monkeypatch.undo()
        await inbox.told.until(answers=1, troubles=2)
    assert inbox.told.troubles == ["No space left on device; free some space", None]
    assert inbox.response("x")["attempts"] == 1
    assert inbox.files(".penstock") == {"lock", "queue.json", "responses", "errors"}


async def test_b5_a_store_that_is_full_is_told_and_outlived(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watching(inbox) as client:
        really = client.submit_many

        async def full(*_: Any, **__: Any) -> Any:
            raise StoreFull("queue.db: no space left; free some")

        monkeypatch.setattr(client, "submit_many", full)
        inbox.ask("x", {"command": "echo"})
        await inbox.told.until(troubles=1)
        monkeypatch.setattr(client, "submit_many", really)
        await inbox.told.until(answers=1, troubles=2)
    assert inbox.told.troubles == ["queue.db: no space left; free some", None]


async def test_b5_a_folder_that_cannot_be_written_is_told(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, *_, **__: path != ".")
    with pytest.raises(PermissionError) as raised:
        await once(inbox)
    assert raised.value.filename == str(inbox.path)


def removed(folder: Path) -> None:
    """A watcher that had it open may still put something into it."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


async def test_b5_a_folder_that_is_removed_and_made_again_is_watched_on(inbox: Inbox) -> None:
    async with watching(inbox):
        inbox.ask("x", {"command": "echo", "params": [1]})
        await inbox.told.until(answers=1)
        away = inbox.path.with_name("away")
        inbox.path.rename(away)
        await inbox.told.until(troubles=1)
        assert (inbox.told.troubles[0] or "").startswith(f"{inbox.path}: No such file or directory; ")
        away.rename(inbox.path)
        inbox.ask("y", {"command": "echo"})
        await inbox.told.until(answers=2, troubles=2)
        # Another folder under the old name begins anew: an id of the old one means another request there.
        inbox.path.rename(away)  # at once: while it is taken apart the watcher may put folders back
        removed(away)
        (inbox.path / "requests").mkdir(parents=True, exist_ok=True)
        inbox.ask("x", {"command": "echo", "params": [2]})
        await inbox.told.until(answers=3)
    assert inbox.response("x")["value"] == [2]


async def test_b5_what_another_folder_has_under_way_is_not_answered_in_this_one(inbox: Inbox) -> None:
    started = inbox.home / "started"
    inbox.ask("x", {"command": "hold", "params": {"started": str(started)}})
    async with watching(inbox) as client:
        async with asyncio.timeout(PATIENCE_S), client.watching() as watch:
            while not started.exists():
                await watch()
        away = inbox.path.with_name("away")
        inbox.path.rename(away)  # at once: while it is taken apart the watcher may put folders back
        removed(away)
        (inbox.path / "requests").mkdir(parents=True, exist_ok=True)
        inbox.ask("x", {"command": "echo", "params": [2]})
        await inbox.told.until(answers=1)
        (running,) = await client.tasks(TaskFilter(kind="hold"))
        await client.cancel(running.task.id)
    left = f"{inbox.path}: is another folder than before; 1 request of the old one gets no answer"
    assert inbox.told.notes == [left]
    assert inbox.response("x")["value"] == [2]
    assert inbox.files("errors") == set()


async def test_b5_changes_are_heard_in_folders_that_were_made_again(inbox: Inbox) -> None:
    place = layout.find_layout(inbox.path)
    (inbox.path / "urgent").mkdir()
    heard = asyncio.Event()
    changes = Changes(place, heard.set, inbox.told.note)

    async def until_heard() -> None:
        heard.clear()
        async with asyncio.timeout(PATIENCE_S):
            for n in count():
                inbox.ask(f"{n}", "{}")
                with suppress(TimeoutError):
                    await asyncio.wait_for(heard.wait(), 0.05)
                    return

    async with asyncio.TaskGroup() as group:
        group.create_task(changes.hear())
        await until_heard()
        shutil.rmtree(inbox.path)
        for name in ("requests", "urgent"):
            (inbox.path / name).mkdir(parents=True)
        changes.renew()
        await until_heard()
        changes.close()
    assert inbox.told.notes == []


async def test_b5_a_file_system_that_tells_no_changes_is_named_once(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no more watches")

    monkeypatch.setattr("watchfiles.awatch", refuse)
    async with watching(inbox):
        await inbox.told.until(notes=1)
        inbox.ask("x", {"command": "echo"})
        await inbox.told.until(answers=1)  # by looking every now and then
    (note,) = inbox.told.notes
    assert note.startswith("the file system tells no changes (")
    assert "no more watches" in note


async def test_b5_a_folder_that_is_a_link_is_refused(inbox: Inbox) -> None:
    """Whoever may write requests cannot make the watcher write elsewhere."""
    elsewhere = inbox.path.parent / "elsewhere"
    elsewhere.mkdir()
    (inbox.path / "responses").symlink_to(elsewhere)
    inbox.ask("x", {"command": "echo"})
    with pytest.raises(OSError, match="is a link or no folder; a queue has real folders only: remove it"):
        await once(inbox)
    assert not list(elsewhere.iterdir())


async def test_b5_a_request_that_cannot_be_moved_is_answered_once(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.ask("x", {"command": "echo"})
    really = os.rename

    def refuse(source: Any, target: Any, **more: Any) -> None:
        if source == target == "x" and inbox.files("requests") and not inbox.files("responses"):
            busy = more["dst_dir_fd"]
            if os.path.samestat(os.fstat(busy), os.stat(inbox.path / "done")):
                raise OSError(errno.EBUSY, "Device or resource busy", source)
        really(source, target, **more)

    monkeypatch.setattr(os, "rename", refuse)
    async with watching(inbox):
        await inbox.told.until(answers=1, notes=1)
        inbox.ask("y", {"command": "echo"})
        await inbox.told.until(answers=2)
    assert inbox.told.notes == ["x: is answered but cannot be moved to done/: Device or resource busy"]
    assert [body["id"] for body in inbox.told.bodies] == ["x", "y"]


async def test_b5_one_watcher_at_a_time(inbox: Inbox) -> None:
    async with watching(inbox):
        inbox.ask("x", {"command": "echo"})
        await inbox.told.until(answers=1)
        with pytest.raises(AlreadyOwned, match=f"is already watched by process {os.getpid()}; stop that one"):
            await once(inbox)
    await once(inbox)


# ---- many


async def test_b5_each_file_of_many_is_opened_once(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the folder is looked at, the work follows the number of files."""
    opened: list[str] = []
    really = requests._read

    def count(folder: int, name: str, most_bytes: int) -> Any:
        opened.append(name)
        return really(folder, name, most_bytes)

    monkeypatch.setattr(requests, "_read", count)
    async with watching(inbox) as client:
        await client.pause()
        for n in range(1_000):
            inbox.ask(f"{n}", {"command": "echo", "params": [n]})
        while inbox.told.counts.taken < 1_000:
            await inbox.told.until(answers=0)
            await asyncio.sleep(0)
        await client.resume()
        await inbox.told.until(answers=1_000)
    assert sorted(opened, key=int) == [f"{n}" for n in range(1_000)]
    assert {body["value"][0] for body in inbox.told.bodies} == set(range(1_000))


async def test_b5_one_bad_request_does_not_hold_up_the_others(inbox: Inbox) -> None:
    """The store takes all tasks of a submit or none."""
    for n in range(50):
        size = 2_000 if n in (7, 33) else 1
        inbox.ask(f"{n}", {"kind": "echo", "payload": "x" * size})
    await once(inbox)
    assert inbox.files("errors") == {"7", "33"}
    assert len(inbox.files("responses")) == 48
