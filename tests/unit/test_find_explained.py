"""What is shown of a fault beside a timeline is what its page in the docs says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.diagnosis.finders import FINDERS
from penstock.diagnosis.finders.explained import EXPLAINED

PAGES = Path(__file__).parents[2] / "docs" / "findings"


def plain(text: str) -> str:
    return " ".join(re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text).split()).lower()


def test_every_fault_is_explained() -> None:
    assert set(EXPLAINED) == set(FINDERS)


@pytest.mark.parametrize("name", sorted(FINDERS))
def test_the_explanation_is_that_of_the_docs(name: str) -> None:
    page = plain((PAGES / f"{name}.md").read_text())
    for text in EXPLAINED[name]:
        assert text
        assert plain(text) in page
