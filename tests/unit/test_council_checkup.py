"""What `check` says of councils: who can answer, and whether there is a collection."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock.config import Config, parse
from penstock.config.own_files import library_dir
from penstock.council.library import embedding
from penstock.hosts.library_orders import place
from penstock.setup.council_checkup import findings

HOSTS = """
[hosts.surtr]
type = "openai"
url = "http://surtr:1234/v1"
model = "qwen"
slots = 2
[hosts.fenrir]
type = "simulated"
slots = { auto = true, min = 1, max = 4 }
"""


def config_of(tmp_path: Path, members: str, rest: str = "") -> Config:
    text = f"{HOSTS}\n[councils.c]\nmembers = [{members}]\n{rest}"
    return parse(text, tmp_path / "penstock.toml")


def test_members_are_told_with_the_hosts_that_can_answer(tmp_path: Path) -> None:
    config = config_of(
        tmp_path, '{ name = "GOKU", model = "qwen" }, { name = "PICCOLO" }', 'chair = "SHENRON"'
    )
    assert list(findings(config)) == [
        ("c", "well", "chair SHENRON; GOKU by surtr; PICCOLO by surtr, fenrir"),
    ]


def test_members_whose_hosts_are_down_are_told(tmp_path: Path) -> None:
    """D2: fewer than the quorum is wrong, fewer than all is worth a word; a chair alone as well."""
    members = '{ name = "GOKU", host = "surtr" }, { name = "VEGETA", host = "fenrir" }'
    chair = 'chair = { name = "SHENRON", host = "surtr" }'

    def told(down: set[str], rest: str = "") -> list[tuple[str, str]]:
        return [(how, what) for _, how, what in findings(config_of(tmp_path, members, rest), down)][1:]

    assert told(set(), chair) == []
    (one,) = told({"surtr"}, "min_answers = 1")
    assert one == ("warning", "1 of 2 members can be asked now, not GOKU; see to their hosts above")
    (few,) = told({"surtr"}, "min_answers = 2")
    assert few[0] == "wrong"
    assert few[1].startswith("1 of 2 members can be asked now, not GOKU; 2 answers make its quorum")
    (none,) = told({"surtr", "fenrir"})
    assert none[0] == "wrong"
    assert none[1].startswith("0 of 2 members can be asked now, not GOKU, VEGETA")
    alone = members.replace("surtr", "fenrir")
    _, lost = findings(config_of(tmp_path, alone, chair), {"surtr"})
    assert lost[1] == "warning"
    assert lost[2].startswith("the chair, SHENRON, cannot be asked now")


def test_members_that_cannot_answer_at_once_are_worth_a_word(tmp_path: Path) -> None:
    members = ", ".join(f'{{ name = "m{number}", host = "surtr" }}' for number in range(3))
    _, crowd = findings(config_of(tmp_path, members))
    assert crowd[1] == "warning"
    assert crowd[2].startswith("3 members share 2 slots of surtr: some wait for others; raise the slots")


def test_whether_a_collection_is_there(tmp_path: Path) -> None:
    config = config_of(tmp_path, '{ name = "GOKU" }', 'retrieval = { collection = "notes", path = "shelf" }')
    told = list(findings(config))[1]
    assert told[1] == "warning"
    assert told[2].startswith(
        f"there is no collection 'notes' in {tmp_path}/shelf, so members get no passages; fill"
    )
    (tmp_path / "shelf").mkdir()
    file = tmp_path / "shelf" / "chroma.sqlite3"
    file.write_bytes(b"no database, though as long as the header of one would be" * 9)
    assert list(findings(config))[1][2].endswith("cannot be read; see to its files")
    file.unlink()
    with closing(sqlite3.connect(file)) as made:
        made.execute("CREATE TABLE collections (name TEXT)")
        made.execute("INSERT INTO collections VALUES ('other')")
        made.commit()
        assert "there is no collection 'notes'" in list(findings(config))[1][2]
        made.execute("INSERT INTO collections VALUES ('notes')")
        made.commit()
    assert list(findings(config))[1] == (
        "c",
        "well",
        f"passages come from collection 'notes' in {tmp_path}/shelf",
    )


def test_a_real_collection_is_found(tmp_path: Path) -> None:
    """The table is Chroma's own, and could be another in a later version."""
    from penstock.council.library.vectors import Shelf, Vectors

    shelf = tmp_path / "shelf"
    Vectors(Shelf("notes", str(shelf)), make="a model").close()
    rest = 'retrieval = { collection = "notes", path = "shelf" }'
    assert list(findings(config_of(tmp_path, '{ name = "GOKU" }', rest)))[1][1] == "well"


def test_a_server_is_not_asked(tmp_path: Path) -> None:
    rest = 'retrieval = { collection = "notes", url = "http://127.0.0.1:9" }'
    told = list(findings(config_of(tmp_path, '{ name = "GOKU" }', rest)))[1]
    assert told == (
        "c",
        "well",
        "passages come from collection 'notes' on http://127.0.0.1:9, which was not asked",
    )


def test_what_is_not_installed_is_named_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "_NEEDED", ("no_such_package",))
    rest = 'retrieval = { collection = "notes" }'
    told = list(findings(config_of(tmp_path, '{ name = "GOKU" }', rest)))[1]
    assert told[1] == "warning"
    assert told[2].startswith("members get no passages: no_such_package is not installed; pip install")


def test_without_the_extra_words_are_searched_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `check` says is what a question then gets."""
    monkeypatch.setattr(embedding, "_NEEDED", ("no_such_package",))
    for rest in (
        'retrieval = { collection = "notes", path = "shelf" }',
        'retrieval = { collection = "notes", url = "http://127.0.0.1:9", tenant = "team" }',
    ):
        config = config_of(tmp_path, '{ name = "GOKU" }', rest)
        retrieval = config.councils["c"].retrieval
        assert retrieval is not None
        words = Path(place(retrieval, library_dir(config)).words)
        assert list(findings(config))[1][2].startswith("members get no passages: ")
        words.parent.mkdir(exist_ok=True)
        words.write_bytes(b"an index")
        assert list(findings(config))[1][1:] == (
            "warning",
            "passages are found by words alone: no_such_package is not installed; "
            "pip install 'penstock-ai[rag]'",
        )


def test_a_key_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHROMA_KEY", raising=False)
    rest = 'retrieval = { collection = "notes", url = "http://127.0.0.1:9", key_env = "CHROMA_KEY" }'
    config = config_of(tmp_path, '{ name = "GOKU" }', rest)
    assert list(findings(config))[1][1] == "warning"
    assert (
        "the environment variable CHROMA_KEY with the key of http://127.0.0.1:9 is not set"
        in (list(findings(config))[1][2])
    )
    monkeypatch.setenv("CHROMA_KEY", "secret")
    assert list(findings(config))[1][1] == "well"


def test_no_councils_nothing_to_say() -> None:
    assert list(findings(parse(HOSTS))) == []
