"""Which passages an answer cites: marks like [2] or [1, 3], outside code, of passages that its author was shown.

A mark with a number that was not shown is no citation, whatever made the model write it: so nothing that stands
in a passage or in an answer can put a source on the list that was not in the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from penstock.council.plan.texts import Passage

# Some models write wide brackets. A space after the bracket makes it no mark: that is how `material` defuses one.
CITATION = re.compile(r"([\[\u3010])([0-9]{1,4}(?:[ \t]*[,;][ \t]*[0-9]{1,4}){0,50})([\]\u3011])")
_NUMBER = re.compile(r"[0-9]+")
_FENCE = re.compile(r"^ {0,3}(`{3,}(?!.*`)|~{3,})")  # ```x``` is code within a line
_SPAN = re.compile(r"(?<!`)(`{1,3})(?!`)[^\n]*?(?<!`)\1(?!`)")


def cited(text: str, passages: Iterable[Passage], shown: Collection[int]) -> list[dict[str, Any]]:
    """As `sources` of a record, in the order in which the text names them first: {"n", "source"}."""
    sources = {passage.n: passage.source for passage in passages if passage.n in shown}
    numbers = (n for mark in CITATION.finditer(without_code(text)) for n in numbers_of(mark))
    return [{"n": n, "source": sources[n]} for n in dict.fromkeys(numbers) if n in sources]


def numbers_of(mark: re.Match[str]) -> list[int]:
    return [int(number) for number in _NUMBER.findall(mark[2])]


def without_code(text: str) -> str:
    """The text less its Markdown code: `a[1]` there is an index."""
    kept: list[str] = []
    fence = ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif mark:
            fence = mark[1]
        else:
            kept.append(_SPAN.sub(" ", line))
    return "\n".join(kept)
