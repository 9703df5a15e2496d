"""What of an answer are claims: sentences and bullet points, in several languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from penstock.council.plan import claims as claims_module
from penstock.council.plan.claims import MAX_CHARACTERS, MAX_CLAIMS, Claims, claims_of

ANSWER = """\
# The answer

Sure, here is what I know!  **Paris** is the *capital* of
France [1]. It has 2.1 million inhabitants, e.g. in 2023. Is that many?

Key facts:

- The `Seine` flows through it; see [the map](https://example.com/map).
- [x] The Eiffel Tower was built in 1889.
  It is 330 m high.
1. Dr. Smith lives there.

| city | people |
|------|-------:|
| Paris | 2.1 million people |

```python
print("This is no claim. Nor is this.")
```

    indented code. is no claim either.

Another title
-------------

> It is called the City of Light[^2].

***
"""


def test_an_answer_in_markdown_is_taken_apart() -> None:
    assert claims_of(ANSWER).texts == (
        "Paris is the capital of France.",
        "It has 2.1 million inhabitants, e.g. in 2023.",
        "The Seine flows through it; see the map.",
        "The Eiffel Tower was built in 1889.",
        "It is 330 m high.",
        "Dr. Smith lives there.",
        "Paris, 2.1 million people",
        "It is called the City of Light.",
    )


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("Das Treffen ist am 3. Oktober. Es dauert z. B. zwei Stunden.", 2),
        ("Der 2. Versuch war gut. Der dritte nicht, d.h. gar nicht.", 2),
        ("M. Dupont habite à Lyon. Il n'est pas là !  Où est-il allé ?", 2),
        ("¡Hola a todos ustedes! El Sr. Pérez vive aquí. ¿Dónde está?", 2),
        ("水は百度で沸騰します。氷は零度で溶けます！本当ですか？", 2),
        ("पानी सौ डिग्री पर उबलता है। बर्फ शून्य पर पिघलती है।", 2),
        ("الماء يغلي عند مئة درجة. الجليد يذوب عند الصفر. هل هذا صحيح؟", 2),
        ("J. R. R. Tolkien wrote The Hobbit. He lived in the U.K. for most of his life.", 2),
        ("Use version 3.11.2 of it... Then restart the service.", 2),
        ("it is written in lower case. nobody cares about that.", 2),
        ("We sell apples, pears, etc. They are fresh from the tree.", 2),
        ("The value is approx. five units, i.e. not many of them.", 1),
        ('He said "It is done." Then he left the room.', 2),
        ("It starts at 5 p.m. It ends at 6 p.m. on most days.", 2),
    ],
)
def test_sentences_end_where_they_end_in_each_language(text: str, claims: int) -> None:
    found = claims_of(text).texts
    assert len(found) == claims, found


@pytest.mark.parametrize(
    "text", ["", "   \n\n", "```\nall of it is code here\n```", "# A title", "What is it?", "---"]
)
def test_what_makes_no_claim(text: str) -> None:
    assert claims_of(text) == Claims(())


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("Paris.", ("Paris.",)),
        ("42", ("42",)),
        ("No. The sky is blue today.", ("No.", "The sky is blue today.")),
        ("Yes. The sky is blue today.", ("Yes.", "The sky is blue today.")),
        ("Right then. The sky is blue today.", ("The sky is blue today.",)),
        ("It is so here. It is so here.", ("It is so here.",)),
        ("Great question! Let me explain it. Water is wet indeed.", ("Water is wet indeed.",)),
    ],
)
def test_short_answers_count_where_there_is_nothing_else(text: str, claims: tuple[str, ...]) -> None:
    assert claims_of(text).texts == claims


def test_an_open_fence_hides_the_rest() -> None:
    text = "It starts well enough.\n~~~\nnot a claim at all.\n```\nnor is this one.\n"
    assert claims_of(text).texts == ("It starts well enough.",)
    assert claims_of(text + "~~~\nThis is one again.").texts == (
        "It starts well enough.",
        "This is one again.",
    )
    assert claims_of("It begins like this.\n````\nnot a claim. ```").texts == ("It begins like this.",)


def test_numbers_and_lengths_are_bounded() -> None:
    many = "\n".join(f"- Item number {number} is here." for number in range(MAX_CLAIMS + 5))
    found = claims_of(many)
    assert (len(found.texts), found.is_cut) == (MAX_CLAIMS, True)
    assert claims_of("\n".join(many.split("\n")[:MAX_CLAIMS])).is_cut is False
    long = claims_of("word " * 1000).texts
    assert len(long) == 1
    assert len(long[0]) <= MAX_CHARACTERS
    assert claims_of("x" * 300_000).is_cut


# ---- texts that are written to take for ever


def _repeats(parsed: Any) -> Iterator[int]:
    """The most that each repeat of a pattern may repeat, of all there are in it."""
    if isinstance(parsed, tuple) and parsed and str(parsed[0]) in ("MAX_REPEAT", "MIN_REPEAT"):
        yield int(parsed[1][1])
    if isinstance(parsed, list | tuple) or hasattr(parsed, "data"):
        for part in getattr(parsed, "data", parsed):
            yield from _repeats(part)


def _searched() -> list[re.Pattern[str]]:
    """All patterns of the module that are looked for anywhere in a text: those not tied to its beginning."""
    named = [value for value in vars(claims_module).values() if isinstance(value, re.Pattern)]
    marks = [mark for mark, _ in claims_module._MARKS]
    return [one for one in (*named, *marks) if not one.pattern.startswith("^")]


def test_no_pattern_that_is_searched_for_repeats_without_bound() -> None:
    """An unbounded one runs to the end of the text from each of its places, and takes the square of its length."""
    parse = import_module("re._parser").parse
    assert list(_repeats(parse(r"a(?:b+|c{2,7})"))) == [int(parse("b+")[0][1][1]), 7]
    patterns = [one for one in _searched() if one is not claims_module._BORDER_CELL]  # of a cell, as a whole
    assert len(patterns) > 8
    for one in patterns:
        assert max(_repeats(parse(one.pattern)), default=0) <= 1000, one.pattern


HOSTILE = [
    "![", "**a ", "[a](", "[a]((", "<!--", "<a ", "`", "`a\n", "*a ", "_a ", "!", "!x", "|", "| ", "|\n", "--",
    "-- ", " ", "[1,", "[1 ", "a", "a.", "> ", "* ", "- x ", "(", "[", ". ", "。", "\n ", "1. ", "***", "~~a ",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_texts_are_read_to_their_end(piece: str) -> None:
    """200,000 characters of marks that are never closed, before and after what closes them or does not."""
    text = (piece * (200_000 // len(piece)))[:199_000]
    wholes = (f"{text}\n\nParis is the capital.", f"{text}x -->**`|", f"--{text}x")
    for whole in wholes[:1] if "\n" in piece else wholes:
        found = claims_of(whole)
        assert len(found.texts) <= MAX_CLAIMS
        assert all(len(claim) <= MAX_CHARACTERS for claim in found.texts)


def test_what_is_left_out_of_a_long_paragraph_is_told() -> None:
    found = claims_of("x" * 30_000 + " It is the end.")
    assert (len(found.texts), found.is_cut) == (1, True)


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ('See [the *map*](https://example.com/Map_(old) "a map") of Paris.', "See the map of Paris."),
        ("It is <!-- a note --> so <!-- another --> in Paris.", "It is so in Paris."),
        ("It is so in Paris <!-- unclosed.", "It is so in Paris <!-- unclosed."),
        ("It is ![a picture](x.png) so in Paris!!!!", "It is so in Paris!!!!"),
        ("It is `so` in ``Paris`` of __France__.", "It is so in Paris of France."),
    ],
)
def test_marks_are_taken_off(text: str, claim: str) -> None:
    assert claims_of(text).texts == (claim,)
