"""Which sources an answer cites (D2), and how sure it says it is (D5): read from its text, whatever it repeats."""

from __future__ import annotations

import pytest

from penstock.council.plan.citations import cited
from penstock.council.plan.confidence import read_confidence
from tests.unit.council_words_rig import HOSTILE, passages

PASSAGES = passages("one", "two", "three")


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Cats live 15 years [1].", [1]),
        ("So [2], and [1][2], and [3, 1].", [2, 1, 3]),
        ("Docs say[1] 【2】 [1; 3]", [1, 2, 3]),
        ("None [4], [0], [10], [1-3], [ 1 ], [1 ], (1), [a], [1", []),
        ("Code `row[1]` and ``x[2] ` ``.\n```python\nrow[1]\n~~~\n```\nthen [3].", [3]),
        ("~~~\n[1]\n```\n[2]\n~~~~\n[3]", [3]),
        ("```\nnever closed [1]", []),
        ("an unpaired ` and [2]", [2]),
        ("١ [١] [¹] [１]", []),
        ("", []),
    ],
)
def test_d2_marks_of_shown_passages_are_citations(text: str, numbers: list[int]) -> None:
    assert cited(text, PASSAGES, (1, 2, 3)) == [{"n": n, "source": f"file-{n}.md"} for n in numbers]


@pytest.mark.parametrize("text", HOSTILE)
def test_d2_nothing_that_was_not_shown_is_ever_a_source(text: str) -> None:
    found = cited(f"{text}\nIt is so [1], says {text}", PASSAGES, (1,))
    assert found == [{"n": 1, "source": "file-1.md"}]
    assert cited(f"{text} [1] [2] [3]", PASSAGES, ()) == []


@pytest.mark.parametrize(
    ("text", "answer", "figure"),
    [
        ("15 years.\nCONFIDENCE: 85", "15 years.", 85),
        ("15 years.\n\n**Confidence: 85%**\n", "15 years.", 85),
        ("15 years.\nconfidence = 100/100.", "15 years.", 100),
        ("CONFIDENCE: 0", "", 0),
        ("15 years.\n- CONFIDENCE: 70.0", "15 years.", 70),
        ("15 years.\nCONFIDENCE: 0.9", "15 years.", None),
        ("15 years.\nCONFIDENCE: 101", "15 years.", None),
        ("15 years.\nCONFIDENCE: high", "15 years.", None),
        ("15 years.\nCONFIDENCE: 80 or 90", "15 years.", None),
        ("15 years.\nCONFIDENCE: -5", "15 years.", None),
        ("CONFIDENCE: 100\n15 years.", "CONFIDENCE: 100\n15 years.", None),
        ("My confidence: 90", "My confidence: 90", None),
        ("15 years.\nConfidence: " + "x" * 200, "15 years.\nConfidence: " + "x" * 200, None),
        ("15 years. ", "15 years.", None),
        ("", "", None),
    ],
)
def test_d5_only_a_last_line_with_a_figure_says_how_sure(
    text: str, answer: str, figure: float | None
) -> None:
    assert read_confidence(text) == (answer, figure)
