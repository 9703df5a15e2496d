"""A question's record as a Markdown page: what was asked, the answer, who agreed, who did not, who said nothing.

Texts of models and documents stand in quotes, so that none of them can pass for a word of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from penstock.council import recorded
from penstock.council.markdown import quoted, tamed
from penstock.council.recorded import (
    Agreement,
    Recorded,
    Response,
    Retrieval,
    Review,
    Source,
    Synthesis,
)
from penstock.council.shown import clean_line

BALLOT_COLUMNS = ("reviewer", "saw", "ranked", "counted", "reasons")


def markdown(record: Recorded) -> str:
    """The whole page."""
    parts: list[Iterable[str]] = [_head(record)]
    if record.synthesis is not None:
        parts.append(_synthesis(record, record.synthesis))
    if record.agreement is not None:
        parts.append(_agreement(record, record.agreement))
    if record.review is not None:
        parts.append(_review(record.review))
    parts += [_answers(record), _failures(record), _passages(record), _notes(record)]
    lines = [line for part in parts for line in part]
    return "\n".join(lines).rstrip() + "\n"


def asked_at(record: Recorded) -> str:
    if record.asked_at is None:
        return ""
    try:
        return datetime.fromtimestamp(record.asked_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return ""


def about(record: Recorded) -> list[tuple[str, str]]:
    """What stands at the head of a page: a word, and what it is here."""
    told = [
        ("council", record.council),
        ("mode", record.mode),
        ("asked", asked_at(record)),
        ("question", record.id),
        ("conversation", record.conversation or ""),
        ("unfinished", record.unfinished or ""),
        ("in numbers", ", ".join(recorded.figures(record))),
        ("escalated", "" if record.escalated is None else record.escalated.why),
        ("documents", retrieval_told(record)),
    ]
    return [(word, value) for word, value in told if value]


def retrieval_told(record: Recorded) -> str:
    found = record.retrieval
    if found is None:
        return record.retrieval_why or ""
    if found.problem:
        return f"{passages_told(found) if found.passages else 'nothing was read'}: {found.problem}"
    return passages_told(found) if found.used else found.why or "not used"


def passages_told(found: Retrieval) -> str:
    """How many there are and how they were found; of the two ways one alone is told as such."""
    alone = " alone" if found.how in ("words", "vectors") else ""
    how = f", found by {found.how}{alone}" if found.how not in (None, "", "none") else ""
    number = len(found.passages)
    return f"{number} passage{'' if number == 1 else 's'} of {found.collection or 'the collection'}{how}"


def source_line(source: Source) -> str:
    return f"[{source.n}] {source.source}"


def _head(record: Recorded) -> Iterator[str]:
    yield "# A question to the council"
    yield ""
    yield quoted(record.query)
    yield ""
    yield from _table(("", ""), [(word, value) for word, value in about(record)])
    yield ""


def _synthesis(record: Recorded, synthesis: Synthesis) -> Iterator[str]:
    yield "## Answer"
    yield ""
    took = recorded.seconds(synthesis.response_time)
    yield f"*{_cell(synthesis.told)}{f', {took}' if took else ''}*"
    yield ""
    if synthesis.text:
        yield quoted(synthesis.text)
        yield ""
    yield from _listed("", passed_on(synthesis))
    yield from _listed("### Dissent", [f"{one.name}: {one.claim}" for one in synthesis.dissent])
    yield from _listed("### Sources", [source_line(one) for one in synthesis.sources])


def passed_on(synthesis: Synthesis) -> list[str]:
    """Who was to sum up and did not, and what else is to be said of the text."""
    told = [
        f"{one.name} was to sum up and could not: {one.error or 'no reason was given'}"
        for one in synthesis.passed_on
    ]
    return [*told, *synthesis.notes]


def _agreement(record: Recorded, agreement: Agreement) -> Iterator[str]:
    yield "## Agreement"
    yield ""
    yield _cell(agreement_told(agreement))
    yield ""
    yield from _listed("### In dispute", recorded.disagreements(record))
    names = [one.name for one in record.answered]
    if agreement.pairs:
        rows = [
            [a, *(recorded.share(agreement.between(a, b)) if a != b else "" for b in names)] for a in names
        ]
        yield from _table(["", *names], rows)
        yield ""
    yield from _listed("### Said by several", [recorded.text_of(one) for one in agreement.shared])
    yield from _listed("### Said by one alone", [f"{one.name}: {one.claim}" for one in agreement.alone])


def agreement_told(agreement: Agreement) -> str:
    """The chair's disputes come first: a figure of claims that match is no proof that nothing is contested."""
    told = recorded.disputes_told(agreement.disputes)
    if not agreement.measured or agreement.score is None:
        return f"{told}. Claims not compared: {agreement.why or 'no reason was given'}."
    how = f" by {agreement.how}" if agreement.how else ""
    notes = f" ({agreement.why})" if agreement.why else ""
    return f"{told}. Claims that match: {recorded.share(agreement.score)} of 1, measured{how}{notes}."


def _review(review: Review) -> Iterator[str]:
    yield "## Review"
    yield ""
    if told := review_told(review):
        yield _cell(told)
        yield ""
    columns, rows = ranking_table(review)
    if rows:
        yield from _table(columns, rows)
        yield ""
    if review.ballots:
        yield "### Ballots"
        yield ""
        yield from _table(BALLOT_COLUMNS, ballot_rows(review))
        yield ""


def review_told(review: Review) -> str:
    told = (
        []
        if review.kendalls_w is None
        else [f"The reviewers' agreement among themselves (Kendall's W) is {review.kendalls_w:.2f} of 1."]
    )
    return " ".join([*told, *([review.why] if review.why else [])])


def ranking_table(review: Review) -> tuple[list[str], list[list[str]]]:
    """The ranking, with a column for each thing that was judged."""
    rubric = list(dict.fromkeys(name for one in review.ranking for name in one.rubric))
    rows = [
        [
            str(place),
            one.name,
            "" if one.points is None else f"{one.points:g}",
            recorded.share(one.score),
            *(_figure(one.rubric.get(name)) for name in rubric),
        ]
        for place, one in enumerate(review.ranking, 1)
    ]
    return ["#", "member", "points", "score", *rubric], rows


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def ballot_rows(review: Review) -> list[list[str]]:
    return [
        [
            one.reviewer,
            ", ".join(one.order),
            recorded.order_of(one.ranks or ()),
            f"{one.state}: {one.error}" if one.error else one.state,
            recorded.text_of(one.reasons),
        ]
        for one in review.ballots
    ]


def _answers(record: Recorded) -> Iterator[str]:
    if record.answered:
        yield "## Answers"
        yield ""
    for one in record.answered:
        yield f"### {_cell(one.title)}"
        yield ""
        if told := member_told(one):
            yield f"*{_cell(told)}*"
            yield ""
        yield quoted(one.answer or "")
        yield ""
        yield from _listed("", [source_line(source) for source in one.sources])


def member_told(one: Response) -> str:
    told = [
        one.role or "",
        one.model or "",
        f"on {one.host}" if one.host else "",
        recorded.seconds(one.response_time),
        f"{recorded.count(one.tokens)} tokens" if one.tokens is not None else "",
        recorded.money(one.cost),
        f"{one.confidence:g} % sure" if one.confidence is not None else "",
        f"{one.attempts} attempts" if (one.attempts or 0) > 1 else "",
        *one.cut,
    ]
    return " · ".join(filter(None, told))


def _failures(record: Recorded) -> Iterator[str]:
    yield from _listed(
        "## Who said nothing", [f"{one.title}: {recorded.silence(one)}" for one in record.silent]
    )


def _passages(record: Recorded) -> Iterator[str]:
    if not record.passages:
        return
    yield "## Passages"
    yield ""
    for one in record.passages:
        heading = f", {one.heading}" if one.heading else ""
        score = f" ({recorded.share(one.score)})" if one.score is not None else ""
        yield f"### {_cell(f'[{one.n}] {one.source}{heading}{score}')}"
        yield ""
        yield quoted(one.text)
        yield ""


def _notes(record: Recorded) -> Iterator[str]:
    yield from _listed("## Limits", record.limits)


def _listed(title: str, texts: Sequence[str]) -> Iterator[str]:
    if not texts:
        return
    if title:
        yield title
        yield ""
    yield from (f"- {_cell(text)}" for text in texts)
    yield ""


def _cell(text: str) -> str:
    """A text of anybody's within a line of ours."""
    return tamed(clean_line(text), code=False).replace("|", "\\|").replace("*", "\\*")


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(_cell(one) for one in columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(_cell(one) for one in row) + " |"
