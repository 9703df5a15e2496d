"""How sure a member says it is: the last line of a quick answer, which is not part of the answer.

Only the last line counts, and only a number from 0 to 100. Anything else is None: it did not say, and whoever
asked takes that for unsure. A fraction like 0.9 is None as well, for it may mean 0.9 of a hundred.
"""

from __future__ import annotations

import re

ASK = (
    "After your answer write one last line, and nothing after it: CONFIDENCE: followed by a whole number from 0 to "
    "100, which says how sure you are that the answer is right and complete."
)

_LINE = re.compile(
    r"[\s*_`#>~-]*confidence[\s*_`]*[:=][\s*_`]*(?P<number>[0-9]{1,3})(?:\.0*)?[\s*_`]*(?:%|/\s*100)?[\s*_`.]*",
    re.IGNORECASE,
)
_LONGEST_LINE = 100  # a longer one is prose
_LOOKS_LIKE_IT = re.compile(r"[\s*_`#>~-]*confidence[\s*_`]*[:=]", re.IGNORECASE)


def read_confidence(text: str) -> tuple[str, float | None]:
    """The answer without its last line where that is about confidence, and the figure."""
    kept = text.rstrip()
    before, _, last = kept.rpartition("\n")
    if len(last) > _LONGEST_LINE or not _LOOKS_LIKE_IT.match(last):
        return kept, None
    found = _LINE.fullmatch(last)
    figure = float(found["number"]) if found else None
    return before.rstrip(), figure if figure is not None and figure <= 100 else None
