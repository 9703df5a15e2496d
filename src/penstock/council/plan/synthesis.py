"""What the chair wrote: the answer for the asker, then a trailer for the record, which nobody is shown.

The chair ends its answer with a mark and puts JSON after it: {"disputes": […], "dissent": [{"name", "claim"}]}.
The mark holds a code made from the question's id that no member is told, so no answer and no passage can end the
chair's text. `Trailer` reads the text as it comes and lets through what is the answer; reading a whole text is
the same filter fed once. A trailer that is missing or cannot be read costs the answer nothing: it is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.council.plan.fences import code_of
from penstock.council.plan.objects import Flaw, plain, quoted, the_object

LONGEST_CLAIM = 500
MOST_CLAIMS = 50
_THINKS, _THOUGHT = "<think>", "</think>"
_DRESSING = " \t*_=#`~>-"  # what models put round a mark on its line
_RULE = " \t*_=-"


@dataclass(frozen=True, slots=True)
class Synthesis:
    """`text` is empty where the chair said nothing. `problem`: what of the trailer could not be read."""

    text: str
    disputes: tuple[str, ...] | None = None  # None: it gave no list of them
    dissent: tuple[tuple[str, str], ...] = ()  # (name, claim)
    problem: str | None = None


def mark_of(question_id: str) -> str:
    """What ends the chair's answer."""
    return f"END-OF-ANSWER-{code_of(question_id, 'trailer')}"


def read_synthesis(text: str, question_id: str, names: Sequence[str]) -> Synthesis:
    """The chair's whole reply. Dissent counts for `names`, those who answered."""
    trailer = Trailer(question_id)
    answer = trailer.feed(text) + trailer.close()
    if trailer.rest is None:
        return Synthesis(answer, problem="the chair gave no list of disputes")
    value = the_object(trailer.rest, "disputes", "dissent")
    if isinstance(value, Flaw):
        return Synthesis(answer, problem=f"the chair's list of disputes: {value.problem}")
    problems: list[str] = []
    disputes = _disputes(value.get("disputes", []), problems)
    dissent = _dissent(value.get("dissent", []), names, problems)
    told = "the chair's list of disputes: " + "; ".join(problems[:5]) if problems else None
    return Synthesis(answer, None if disputes is None else tuple(disputes), tuple(dissent), told)


class Trailer:
    """Lets the answer through as it comes and withholds the rest: thinking before it, the mark, the trailer.

    The pieces that come out add up to one text, however the reply was cut into chunks.
    """

    def __init__(self, question_id: str) -> None:
        self._mark = mark_of(question_id)
        self._held = ""
        self._thinking = False
        self._begun = False  # the answer has: no thinking and no white space before it any longer
        self._shown = False  # some of the answer was let through
        self._rest: list[str] | None = None

    @property
    def rest(self) -> str | None:
        """What came after the mark; None where there was none."""
        return None if self._rest is None else "".join(self._rest)

    def feed(self, chunk: str) -> str:
        """What may be shown of the answer, with this chunk."""
        if self._rest is not None:
            self._rest.append(chunk)
            return ""
        self._held += chunk
        if not self._begun and not self._begins():
            return ""
        at = self._held.find(self._mark)
        if at >= 0:
            self._rest = [self._held[at + len(self._mark) :]]
            answer, self._held = self._undressed(self._held[:at]), ""
        else:
            sure = self._sure()
            answer, self._held = self._held[:sure], self._held[sure:]
        self._shown = self._shown or bool(answer)
        return answer

    def close(self) -> str:
        """What was withheld in case a mark came. None did."""
        held, self._held = self._held, ""
        return "" if self._thinking or self._rest is not None else held.rstrip()

    def _begins(self) -> bool:
        """Drops what comes before the answer; False while there is nothing but that."""
        while True:
            if self._thinking:
                end = self._held.find(_THOUGHT)
                if end < 0:
                    self._held = self._held[-len(_THOUGHT) :]
                    return False
                self._held = self._held[end + len(_THOUGHT) :]
                self._thinking = False
            self._held = self._held.lstrip()
            if _THINKS.startswith(self._held):
                self._thinking = self._held == _THINKS
                return False
            self._thinking = self._held.startswith(_THINKS)
            if not self._thinking:
                self._begun = True
                return True

    def _sure(self) -> int:
        """Up to where no mark can begin: before the start of one, its dressing, and white space in front."""
        end = len(self._held)
        for length in range(min(len(self._mark) - 1, end), 0, -1):
            if self._held.endswith(self._mark[:length]):
                end -= length
                break
        return len(self._undressed(self._held[:end]))

    def _undressed(self, text: str) -> str:
        """Without what only dresses the mark: on its line, rules above it, and white space at the end."""
        lines = text.split("\n")
        own = 1 if self._shown else 0  # the first line ends one that was let through: it is the answer's
        if len(lines) > own and not lines[-1].strip(_DRESSING):
            lines.pop()
        while len(lines) > own and not lines[-1].strip(_RULE):
            lines.pop()
        return "\n".join(lines).rstrip()


def _disputes(value: Any, problems: list[str]) -> list[str] | None:
    if not isinstance(value, list):
        problems.append("disputes: must be a list of sentences")
        return None
    found = [plain(one, LONGEST_CLAIM) for one in value if isinstance(one, str)]
    if len(found) < len(value):
        problems.append("disputes: an entry is no sentence")
    return [one for one in dict.fromkeys(found) if one][:MOST_CLAIMS]


def _dissent(value: Any, names: Sequence[str], problems: list[str]) -> list[tuple[str, str]]:
    if not isinstance(value, list):
        problems.append("dissent: must be a list of objects with name and claim")
        return []
    known = {name.casefold(): name for name in names}
    found: list[tuple[str, str]] = []
    for one in value:
        name, claim = (one.get("name"), one.get("claim")) if isinstance(one, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(claim, str) or not plain(claim, LONGEST_CLAIM):
            problems.append("dissent: an entry has no name and claim")
        elif name.strip().casefold() not in known:
            problems.append(f"dissent: {quoted(name)} did not answer")
        else:
            found.append((known[name.strip().casefold()], plain(claim, LONGEST_CLAIM)))
    return list(dict.fromkeys(found))[:MOST_CLAIMS]
