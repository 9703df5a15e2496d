"""Properties of chunks, for any text and any settings: nothing is lost, nothing is empty, nothing is too long."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.council.library.chunks import By, Chunk, Chunking, count_words, cut
from penstock.council.library.sections import Form, Section, markdown_sections

# Numbered, so that no two places of a text look alike.
WORDS = st.sampled_from(
    [
        "w{}",
        "# H{}",
        "\n",
        "\n\n",
        "def f{}(x):",
        "    return r{}",
        "\n```\n",
        "\n-----\n",
        "{}日本語",
        "\t",
        "é{}",
        "{}" + "a" * 70,
    ]
)
TEXTS = st.lists(WORDS, max_size=120).map(
    lambda words: " ".join(word.format(number) for number, word in enumerate(words))
)
ANY = TEXTS | st.text(max_size=300)
CHUNKINGS = st.tuples(st.sampled_from(By), st.integers(1, 40), st.integers(0, 39)).map(
    lambda three: Chunking(three[0], three[1], min(three[2], three[1] - 1))
)
FORMS = st.sampled_from([Form.MARKDOWN, Form.TEXT, Form.CODE])


def sections_of(form: Form, text: str) -> tuple[Section, ...]:
    return markdown_sections(text) if form is Form.MARKDOWN else (Section("", text),)


def covered(text: str, chunks: list[Chunk]) -> str:
    """The text's signs that the chunks, laid on it in their order, reach; blanks left out."""
    bare = "".join(text.split())
    reached = 0
    for chunk in chunks:
        part = "".join(chunk.text.split())
        found = bare.rfind(part, 0, reached + len(part))
        assert found >= 0, f"{part!r} does not go on at {bare[reached : reached + 20]!r}"
        reached = max(reached, found + len(part))
    return bare[:reached]


@given(FORMS, TEXTS, CHUNKINGS)
def test_every_word_is_in_some_chunk(form: Form, text: str, chunking: Chunking) -> None:
    """D2: what a document says can be found."""
    chunks = cut(form, sections_of(form, text), chunking)
    assert covered(text, chunks) == "".join(text.split())


@given(FORMS, ANY, CHUNKINGS)
def test_words_are_whole(form: Form, text: str, chunking: Chunking) -> None:
    chunks = cut(form, sections_of(form, text), chunking)
    found = {word for chunk in chunks for word in chunk.text.split()}
    assert {word for word in text.split() if re.fullmatch(r"[\x21-\x7e]{1,64}", word)} <= found


@given(FORMS, ANY, CHUNKINGS)
def test_chunks_are_neither_empty_nor_too_long(form: Form, text: str, chunking: Chunking) -> None:
    chunks = cut(form, sections_of(form, text), chunking)
    assert [chunk.position for chunk in chunks] == list(range(len(chunks)))
    assert all(chunk.text.strip() for chunk in chunks)
    assert all(1 <= count_words(chunk.text) <= chunking.chunk_words for chunk in chunks)
    assert bool(chunks) == bool(text.split())


@given(st.integers(0, 400), st.integers(1, 50), st.integers(0, 49))
def test_windows_overlap_by_what_was_asked(words: int, size: int, overlap: int) -> None:
    overlap = min(overlap, size - 1)
    text = " ".join(f"w{number}" for number in range(words))
    chunks = [
        [int(word[1:]) for word in chunk.text.split()]
        for chunk in cut(Form.TEXT, [Section("", text)], Chunking(By.WORDS, size, overlap))
    ]
    for before, after in pairwise(chunks):
        assert len(before) == size
        assert before[size - overlap :] == after[:overlap]
    assert not chunks or chunks[-1][-1] == words - 1


def test_windows_of_500_words_with_100_in_common() -> None:
    """D2: the council's way of cutting."""
    text = " ".join(map(str, range(1000)))
    chunks = cut(Form.TEXT, [Section("", text)], Chunking())
    assert [(c.text.split()[0], c.text.split()[-1]) for c in chunks] == [
        ("0", "499"),
        ("400", "899"),
        ("800", "999"),
    ]


def test_a_window_is_named_by_where_it_begins() -> None:
    sections = [Section("page 1", "one " * 6), Section("page 2", "two " * 6)]
    chunks = cut(Form.PDF, sections, Chunking(By.WORDS, 5, 0))
    assert [c.heading for c in chunks] == ["page 1", "page 1", "page 2"]
    assert chunks[1].text.split() == ["one", "two", "two", "two", "two"]


def test_tiny_sections_are_joined_and_long_ones_cut() -> None:
    sections = [
        Section("Guide", "# Guide\n"),
        Section("Guide › A", "## A\n" + "a " * 20),
        Section("Guide › B", "## B\n" + "b " * 50),
        Section("Guide › C", "## C\n"),
    ]
    chunks = cut(Form.MARKDOWN, sections, Chunking(By.HEADINGS, 30, 5))
    assert [c.heading for c in chunks] == ["Guide › A", "Guide › B", "Guide › B"]
    assert chunks[0].text.startswith("# Guide\n\n## A\na a")
    assert chunks[-1].text.endswith("## C")


CODE = """\
import os


def first():
    return 1


def second():
    x = 2

    return x
"""


def test_code_keeps_its_lines_and_blocks() -> None:
    chunks = cut(Form.CODE, [Section("", CODE)], Chunking(By.HEADINGS, 8, 2))
    assert [(c.heading, c.text.splitlines()[0]) for c in chunks] == [
        ("lines 1-5", "import os"),
        ("lines 8-11", "def second():"),
    ]
    assert chunks[1].text == "def second():\n    x = 2\n\n    return x"


def test_code_in_windows_repeats_whole_lines() -> None:
    lines = [f"line {number}" for number in range(10)]
    chunks = cut(Form.CODE, [Section("", "\n".join(lines))], Chunking(By.WORDS, 8, 4))
    assert [c.heading for c in chunks] == ["lines 1-4", "lines 3-6", "lines 5-8", "lines 7-10"]
    assert chunks[1].text.splitlines() == lines[2:6]


@pytest.mark.parametrize(
    "wrong", [Chunking(By.WORDS, 0, 0), Chunking(By.WORDS, 5, 5), Chunking(By.WORDS, 5, -1)]
)
def test_settings_that_would_never_end_are_refused(wrong: Chunking) -> None:
    assert wrong.problem() is not None
    with pytest.raises(ValueError, match="words"):
        cut(Form.TEXT, [], wrong)
