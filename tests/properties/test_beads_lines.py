"""C3: fields of JSON lines are changed and merged without touching any other byte, whatever else is in the file."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.intake.beads.lines import BOM, REMOVED, Document, Inside, edited, members, merged, written

LOOSE = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # the machine may be busy
KEYS = st.sampled_from(["status", "assignee", "notes", "x", "Ünknown", "a b", ""])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
BLANKS = st.sampled_from(["", " ", "\t", "  "])


@st.composite
def objects(draw: st.DrawFn, ids: st.SearchStrategy[str]) -> str:
    """An issue as some program wrote it: any order, any blanks, escapes, numbers of any form."""
    fields = [("id", json.dumps(draw(ids)))]
    for name, value in draw(st.lists(st.tuples(KEYS, VALUES), max_size=5)):
        ascii = draw(st.booleans())
        fields.append(
            (name, json.dumps(value, ensure_ascii=ascii) if _writable(value) else json.dumps(value))
        )
    if draw(st.booleans()):
        fields.append(
            (
                "odd",
                draw(st.sampled_from(["1.50e+3", "123456789012345678901234567890", '"\\u00e9\\/"', "-0.0"])),
            )
        )
    fields = draw(st.permutations(fields))
    gap = draw(BLANKS)
    return "{" + gap + f"{gap},{gap}".join(f"{json.dumps(n)}{gap}:{gap}{v}" for n, v in fields) + gap + "}"


def _writable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """A file with all that files have: a mark of order, other ends of lines, broken lines, the same id twice."""
    ids = st.sampled_from(["bd-1", "bd-2", "bd-3"])
    broken = st.sampled_from(
        [b"", b"{", b'{"id":', b"<<<<<<< HEAD", b"null", b'{"id":5}', b"\xff\xfe", b"[1]"]
    )
    lines = draw(st.lists(objects(ids).map(str.encode) | broken, max_size=6))
    end = draw(st.sampled_from([b"\n", b"\r\n"]))
    tail = draw(st.sampled_from([b"", end, b'{"id":"bd-9","sta']))
    return draw(st.sampled_from([b"", BOM])) + end.join(lines) + tail


CHANGES = st.dictionaries(
    st.sampled_from(["bd-1", "bd-2", "gone"]),
    st.dictionaries(KEYS, VALUES | st.just(REMOVED), min_size=1, max_size=3),
    max_size=2,
)


def spans(raw: bytes, without: set[str]) -> list[str]:
    """The very text of the fields, but for some."""
    text = raw.removeprefix(BOM).decode()
    return [text[m.start : m.end] for m in members(text) if m.name not in without]


@LOOSE
@given(files(), CHANGES)
def test_c3_only_what_is_meant_is_changed(data: bytes, changes: dict[str, dict[str, Any]]) -> None:
    """C3: every other line is byte-identical, and of a changed line every other field, in its order."""
    before = Document(data)
    after = before.changed(changes)
    old, new = data.split(b"\n"), after.split(b"\n")
    assert len(old) == len(new)
    meant = {before.lines[id].number: fields for id, fields in changes.items() if id in before.lines}
    for number, (was, is_) in enumerate(zip(old, new, strict=True)):
        if number not in meant:
            assert is_ == was
            continue
        fields = meant[number]
        assert spans(is_, set(fields)) == spans(was, set(fields))
        found = json.loads(is_.removeprefix(BOM))
        for name, value in fields.items():
            assert (name not in found) if value is REMOVED else found[name] == value


@LOOSE
@given(objects(st.just("bd-1")), st.sampled_from(["assignee", "new"]), VALUES)
def test_c3_what_was_added_and_taken_out_leaves_no_trace(text: str, name: str, value: Any) -> None:
    """C3: to claim and to give back is nothing."""
    raw = text.encode()
    if name in json.loads(text):
        return
    assert edited(edited(raw, {name: value}), {name: REMOVED}) == raw


@LOOSE
@given(files(), CHANGES, CHANGES)
def test_c3_two_who_change_different_fields_both_have_their_way(
    data: bytes, theirs: dict[str, dict[str, Any]], ours: dict[str, dict[str, Any]]
) -> None:
    """C3: a concurrent writer's change is merged, never overwritten; of the same field theirs stands."""
    base = Document(data)
    their_file, our_file = base.changed(theirs), base.changed(ours)
    found = Document(merged(data, their_file, our_file))
    there, here = Document(their_file), Document(our_file)
    for id, line in base.lines.items():
        # A change of `updated_at` or of the id would make another line the issue; none is made here.
        is_ = found.lines[id].fields
        for name in {*line.fields, *theirs.get(id, {}), *ours.get(id, {})}:
            own = there if name in theirs.get(id, {}) and there.lines[id].fields != line.fields else here
            wanted = own.lines[id].fields
            if own is there and wanted.get(name, REMOVED) == line.fields.get(name, REMOVED):
                wanted = here.lines[id].fields  # they set what was there: no change
            assert is_.get(name, REMOVED) == wanted.get(name, REMOVED)


@LOOSE
@given(files(), st.lists(objects(st.sampled_from(["new-1", "new-2"])), max_size=2), CHANGES)
def test_c3_lines_that_others_add_are_kept(
    data: bytes, added: list[str], ours: dict[str, dict[str, Any]]
) -> None:
    """C3."""
    end = b"" if data.endswith(b"\n") or not data else b"\n"
    theirs = data + end + b"".join(line.encode() + b"\n" for line in added)
    found = Document(merged(data, theirs, Document(data).changed(ours)))
    assert {json.loads(line)["id"] for line in added} <= set(found.lines)


@LOOSE
@given(files())
def test_c3_a_merge_of_nothing_is_nothing(data: bytes) -> None:
    """C3."""
    assert merged(data, data, data) == data


@LOOSE
@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=3), VALUES)
def test_c3_what_is_inside_a_table_keeps_its_text(table: dict[str, Any], value: Any) -> None:
    """C3: metadata of others is not written anew."""
    raw = ('{"id":"bd-1","metadata":' + json.dumps(table, indent=None).replace(": ", ":  ") + "}").encode()
    after = edited(raw, {"metadata": Inside({"penstock": value})})
    assert json.loads(after)["metadata"] == {**json.loads(raw)["metadata"], "penstock": value}
    inner = spans(raw, set())[1].partition(":")[2]
    wanted = [inner[m.start : m.end] for m in members(inner) if m.name != "penstock"]
    got = spans(after, set())[1].partition(":")[2]
    assert [got[m.start : m.end] for m in members(got) if m.name != "penstock"] == wanted


def test_c3_metadata_that_is_no_table_is_left_alone() -> None:
    """C3."""
    fields = {"metadata": Inside({"penstock": 1})}
    assert edited(b'{"id":"a","metadata":"text"}', fields) == b'{"id":"a","metadata":"text"}'
    assert edited(b'{"id":"a","metadata":null}', fields) == b'{"id":"a","metadata":{"penstock":1}}'
    assert edited(b'{"id":"a"}', fields) == b'{"id":"a","metadata":{"penstock":1}}'


def test_c3_what_they_deleted_stays_deleted_unless_they_are_still_writing() -> None:
    """C3: a file that looks half written has not deleted anything."""
    data = b'{"id":"bd-1"}\n{"id":"bd-2"}\n'
    ours = Document(data).changed({"bd-1": {"status": "closed"}})
    assert set(Document(merged(data, b'{"id":"bd-1"}\n', ours)).lines) == {"bd-1"}
    for half in (b"", b'{"id":"bd-1"}\n{"id":"b'):
        assert set(Document(merged(data, half, ours)).lines) == {"bd-1", "bd-2"}


def test_c3_of_two_lines_with_one_id_the_one_updated_last_counts() -> None:
    """C3: after a merge of git both are there; only that one is changed."""
    old, new = (
        '{"id":"bd-1","status":"open","updated_at":"2026-01-01T00:00:00Z"}',
        ('{"id":"bd-1","status":"closed","updated_at":"2026-01-02T00:00:00Z"}'),
    )
    for lines in ([old, new], [new, old]):
        document = Document("\n".join(lines).encode())
        assert document.lines["bd-1"].issue.status == "closed"
        after = document.changed({"bd-1": {"status": "open"}}).decode().split("\n")
        assert after[lines.index(old)] == old


def test_c3_letters_that_cannot_be_written_are_escaped() -> None:
    """C3."""
    assert written("é") == '"é"'
    assert written("\ud800") == '"\\ud800"'
