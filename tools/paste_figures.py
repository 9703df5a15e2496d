"""Puts what benchmarks printed into a page, so that its figures are true output.

    python -m benchmarks scale partitions postgres-million > figures.txt
    python -m tools.paste_figures figures.txt docs/scale.md

In the page a line `<!-- figures: TOPIC -->` stands before the block that shows the topic's notes. Blocks of topics
that are not in the file stay as they are.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_NOTES = re.compile(r"^([a-z0-9-]+), penstock:\n(.*?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"(<!-- figures: ([a-z0-9-]+) -->\n\n?```text\n)(.*?)(```\n)", re.DOTALL)


def notes_in(printed: str) -> dict[str, str]:
    """Topic -> what stands below its name, under the table of all."""
    return {topic: notes.strip("\n") + "\n" for topic, notes in _NOTES.findall(printed)}


def pasted(page: str, printed: str) -> str:
    notes = notes_in(printed)
    return _BLOCK.sub(lambda found: found[1] + notes.get(found[2], found[3]) + found[4], page)


def main() -> int:
    if len(sys.argv) != 3:
        print(f"usage: python -m tools.paste_figures OUTPUT PAGE\n\n{__doc__}", file=sys.stderr)
        return 2
    printed, page = Path(sys.argv[1]), Path(sys.argv[2])
    text = page.read_text(encoding="utf-8")
    page.write_text(pasted(text, printed.read_text(encoding="utf-8")), encoding="utf-8")
    known = notes_in(printed.read_text(encoding="utf-8"))
    print(f"{page}: {', '.join(t for _, t, _, _ in _BLOCK.findall(text) if t in known) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
