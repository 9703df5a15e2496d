"""What a council said, in a terminal or a pipe: a section per answer, the review, the agreement, the answer.

Texts of models are cleaned before they are shown: nothing in them moves the cursor or changes colours. On a
terminal their Markdown is drawn, with the addresses of links in plain sight; in a pipe it stays as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.cli import render
from penstock.council import recorded
from penstock.council.recorded import Recorded, Response, Review
from penstock.council.report import (
    agreement_told,
    member_told,
    passages_told,
    passed_on,
    ranking_table,
    retrieval_told,
    review_told,
    source_line,
)
from penstock.council.shown import clean, clean_line

if TYPE_CHECKING:
    from rich.console import Console

_MOST_CLAIMS = 3  # of a sort; the report has them all
_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red")


class Pages:
    """Prints sections of a record, each once, on stdout."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or (render.console() if sys.stdout.isatty() else None)
        self._told: set[str] = set()
        self._colours: dict[str, str] = {}

    def colour(self, name: str) -> str:
        return self._colours.setdefault(name, _COLOURS[len(self._colours) % len(_COLOURS)])

    def answer(self, one: Response) -> None:
        """A member's section, unless it was printed before."""
        if one.name in self._told:
            return
        self._told.add(one.name)
        if one.success:
            self.section(one.title, member_told(one), one.answer or "", self.colour(one.name))
        else:
            self.section(one.title, recorded.silence(one), "", "red")

    def record(self, record: Recorded) -> None:
        """All of it that was not printed before; the answer last, where it is read."""
        if record.retrieval is not None and record.retrieval.problem:
            self.section("Documents", retrieval_told(record), "")
        if record.escalated is not None:
            self.section("Escalated", f"the whole council was asked: {record.escalated.why}", "")
        for one in record.responses:
            self.answer(one)
        if record.review is not None:
            self._review(record.review)
        self._agreement(record)
        self._synthesis(record)

    def _review(self, review: Review) -> None:
        self.section("Review", review_told(review), "")
        columns, rows = ranking_table(review)
        if rows:
            numbers = [name if name == "member" else f">{name}" for name in columns]
            self.table(numbers, rows)
        for ballot in review.ballots:
            if ballot.state not in ("counted", ""):
                told = f": {ballot.error}" if ballot.error else ""
                self.line(f"  ballot of {ballot.reviewer} {ballot.state}{told}")

    def _agreement(self, record: Recorded) -> None:
        agreement = record.agreement
        if agreement is None or len(record.answered) < 2:
            return
        self.section("Agreement", agreement_told(agreement), "")
        self._listed("in dispute", recorded.disagreements(record))
        self._listed("said by one alone", [f"{one.name}: {one.claim}" for one in agreement.alone])

    def _synthesis(self, record: Recorded) -> None:
        synthesis = record.synthesis
        if synthesis is None:
            return
        took = recorded.seconds(synthesis.response_time)
        told = f"{synthesis.told}, {took}" if took and synthesis.method == "synthesis" else synthesis.told
        already = synthesis.method == "single" and any(
            one.name == synthesis.by and one.answer == synthesis.text for one in record.answered
        )
        text = f"{synthesis.by}'s answer above is all there is." if already else synthesis.text or ""
        self.section("Answer", told, text, "bold")
        extras = passed_on(synthesis), synthesis.dissent, synthesis.sources
        if text and any(extras):
            self.blank()
        for told in passed_on(synthesis):
            self.line(f"  {told}")
        self._listed("dissent", [f"{one.name}: {one.claim}" for one in synthesis.dissent], most=None)
        self._listed("sources", [source_line(one) for one in synthesis.sources], most=None)

    def closing(self, record: Recorded) -> None:
        """The last lines: what it took, and what can be done with it."""
        self.blank()
        told = recorded.figures(record)
        if record.retrieval is not None and record.retrieval.used:
            told.append(passages_told(record.retrieval))
        self.line(" · ".join([*told, *([f"question {record.id}"] if record.id else [])]), "dim")
        for note in record.limits:
            self.line(f"limit: {note}", "dim")

    # ---- lines

    def section(self, title: str, told: str, text: str, colour: str = "") -> None:
        title, told = clean_line(title), clean_line(told)
        self.blank()
        if self.console is None:
            render.say(f"## {title}" + (f" · {told}" if told else ""))
            if text:
                render.say()
                render.say(clean(text).strip("\n"))
            return
        from rich.markdown import Markdown
        from rich.text import Text

        head = Text(title, style=f"bold {colour}" if colour not in ("", "bold") else "bold")
        if told:
            head.append(f"  {told}", style="red" if colour == "red" else "dim")
        self.console.print(head)
        if text:
            self.console.print(Markdown(clean(text), hyperlinks=False, code_theme="ansi_dark"), style="")

    def blank(self) -> None:
        self.line("")

    def line(self, text: str, style: str = "") -> None:
        if self.console is None:
            render.say(clean_line(text) if not text.startswith("  ") else f"  {clean_line(text)}")
            return
        from rich.padding import Padding
        from rich.text import Text

        indent = 2 if text.startswith("  ") else 0
        self.console.print(Padding(Text(clean_line(text), style=style), (0, 0, 0, indent)))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        made = render.table(columns, rows, flexible="member")
        render.show(self.console or render.console(), made)

    def _listed(self, title: str, texts: Sequence[str], most: int | None = _MOST_CLAIMS) -> None:
        if not texts:
            return
        self.line(f"{title}:")
        for text in texts[:most]:
            self.line(f"  - {text}")
        if most is not None and len(texts) > most:
            self.line(f"  and {len(texts) - most} more, in the report")

    def flush(self) -> None:
        (sys.stdout if self.console is None else self.console.file).flush()
