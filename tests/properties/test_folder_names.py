"""B5: whatever files are called and hold, each is answered under its own name and nothing else is touched.

A request is read, answered and put away with the very functions of the watcher, without a dispatcher.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.config import TaskChecker
from penstock.intake.folder import answers
from penstock.intake.folder.bodies import Reader, Refused, Unfinished
from penstock.intake.folder.layout import find_layout, open_folders, take_hold
from penstock.intake.folder.requests import candidates, is_hidden, is_temporary, look_at, name_problem
from penstock.model import Task

SOAK = bool(os.environ.get("PENSTOCK_SOAK"))


def file_names() -> st.SearchStrategy[str]:
    """Any bytes that a file may be called, as Python tells them."""
    words = st.one_of(
        st.binary(min_size=1, max_size=255),
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=140).map(str.encode),
        st.sampled_from(
            [b"-rf", b"a;b", b"$(x)", b"%2e%2e", b"..x", b"x.tmp", b"CON", b"lock", b"queue.json"]
        ),
    )
    return (
        words.map(lambda word: word.replace(b"/", b"_").replace(b"\0", b"_"))
        .filter(lambda word: word not in (b".", b"..") and len(word) <= 255)
        .map(os.fsdecode)
    )


def everything(root: Path) -> dict[str, bytes]:
    return {
        os.path.join(folder, name): Path(folder, name).read_bytes()
        for folder, _, names in os.walk(root)
        for name in names
    }


@settings(max_examples=150 if SOAK else 50, deadline=None)
@given(names=st.sets(file_names(), min_size=1, max_size=4), body=st.binary(max_size=60))
@example(names={"\x1b]0;x\x07"}, body=b'{"kind": "echo"}')
@example(names={"é" * 127}, body=b'{"kind": "echo"}')
def test_b5_any_name_is_answered_in_its_place(names: set[str], body: bytes) -> None:
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        inbox = root / "inbox"
        (inbox / "requests").mkdir(parents=True)
        (root / "other").write_bytes(b"not ours")
        for name in names:
            (inbox / "requests" / name).write_bytes(body)
        with open_folders(find_layout(inbox)) as folders:
            hold = take_hold(folders)
            listed = [name for name in os.listdir(folders.requests) if not is_hidden(name)]
            found = candidates(folders.requests, listed)
            looked = look_at(folders, found, Reader(hold.name, TaskChecker()), 1000, 0.0)
            for one in looked:
                assert isinstance(one.found, Task | Refused | Unfinished)
                if isinstance(one.found, Task):
                    assert one.found.key == f"{hold.name}/{one.name}"
                    assert name_problem(one.name) is None
                    assert not is_temporary(one.name)
            given_ = answers.give(folders, [answers.Answer(one.name, False, b"no\n") for one in looked])
            hold.release()
        wanted = {name for name in names if not name.startswith(".")}
        assert set(given_.given) == wanted == {one.name for one in looked}
        left = everything(root)
        assert left.pop(str(root / "other")) == b"not ours"
        for name in wanted:
            assert left.pop(str(inbox / "errors" / name)) == b"no\n"
            assert left.pop(str(inbox / "done" / name)) == body
        for name in names - wanted:
            assert left.pop(str(inbox / "requests" / name)) == body
        assert set(left) == {str(inbox / ".penstock" / "lock"), str(inbox / ".penstock" / "queue.json")}


@given(file_names())
def test_b5_a_good_name_is_plain(name: str) -> None:
    if name_problem(name) is None and not is_hidden(name):
        assert name.isprintable()
        assert name == name.strip()
        assert not set(name) & set("/\\\0")
        assert len(name) <= 128
        name.encode()


@settings(max_examples=300 if SOAK else 100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_b5_any_text_is_a_task_a_refusal_or_unfinished(data: bytes) -> None:
    found = Reader("q", TaskChecker()).read("x", data, 0.0)
    assert isinstance(found, Task | Refused | Unfinished)
    if not isinstance(found, Task):
        assert "\n" not in found.why


@settings(max_examples=200 if SOAK else 70, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(
            ["command", "kind", "params", "payload", "id", "priority", "metadata", "timestamp", "x"]
        ),
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=5)
        | st.lists(st.integers(), max_size=2)
        | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    )
)
def test_b5_any_object_is_a_task_or_a_refusal(body: dict[str, object]) -> None:
    import msgspec

    found = Reader("q", TaskChecker(), kinds={"*": "agent"}).read("x", msgspec.json.encode(body), 0.0)
    assert isinstance(found, Task | Refused)
    if isinstance(found, Task):
        assert found.key == "q/x"
        assert (found.kind == "agent") == (body.get("command") is not None or body.get("kind") == "agent")
