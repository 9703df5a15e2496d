"""Whether a reply gives back what its prompt says instead of doing it, as small models do where they are lost.

What is compared are runs of words, so that a reply in which some words are changed or left out is found as well.
Material that the prompt brings (answers, passages, the question) may be quoted at any length: only what else the
prompt says counts, with what stands around the material.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST_REPEATED = 0.5  # of the words of a reply
_RUN = 4  # words: fewer meet by chance
_WORD = re.compile(r"\w+")

_Run = tuple[str, ...]


def repeats(reply: str, prompt: Iterable[str], material: Iterable[str]) -> bool:
    """Whether at least half of a reply are runs of words of the prompt that are not in its material."""
    words = _WORD.findall(reply.casefold())
    told = {run for text in prompt for run in _runs(text)}
    told -= {run for text in material for run in _runs(text)}
    repeated: set[int] = set()
    for at in range(len(words) - _RUN + 1):
        if tuple(words[at : at + _RUN]) in told:
            repeated.update(range(at, at + _RUN))
    return bool(repeated) and len(repeated) >= MOST_REPEATED * len(words)


def _runs(text: str) -> Iterable[_Run]:
    words = _WORD.findall(text.casefold())
    return zip(*(words[start:] for start in range(_RUN)), strict=False)
