"""A question's record as one HTML page that needs nothing else: no script, no server, no network.

All texts are escaped; what a model wrote can become the small set of elements in `markdown.py` and nothing more.
The page's own policy lets nothing run and nothing be fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple, Protocol

from penstock.council import recorded
from penstock.council.markdown import html_of
from penstock.council.recorded import Agreement, Passage, Recorded, Response, Review, Source, Synthesis
from penstock.council.report import (
    BALLOT_COLUMNS,
    about,
    agreement_told,
    ballot_rows,
    member_told,
    passed_on,
    ranking_table,
    review_told,
    source_line,
)
from penstock.council.shown import clean
from penstock.diagnosis.timeline.policy import fit_for_text, ground, part, policy

GENERATOR = '<meta name="generator" content="penstock council report">'  # by which a page of ours is known
_PACKAGE = "penstock.council"
_TITLE_LETTERS = 80
_SHADES = 6  # of the agreement of two


def page(record: Recorded) -> str:
    """The whole file."""
    style = ground() + part("report.css", _PACKAGE)
    title = " ".join(record.query.split())
    texts = {
        "TITLE": escape(title if len(title) <= _TITLE_LETTERS else title[: _TITLE_LETTERS - 1] + "…"),
        "QUERY": html_of(record.query),
        "ABOUT": "".join(f"<dt>{escape(word)}</dt><dd>{escape(value)}</dd>" for word, value in about(record)),
        "SECTIONS": "\n".join(filter(None, _sections(record))),
    }
    values = {name: clean(text) for name, text in texts.items()}
    values |= {"POLICY": escape(policy(style)), "STYLE": style}
    # In one pass over the template: what is put in is never looked at again.
    return fit_for_text(
        re.sub(r"\{\{([A-Z]+)\}\}", lambda found: values[found[1]], part("report.html", _PACKAGE))
    )


def _sections(record: Recorded) -> Iterable[str]:
    if record.synthesis is not None:
        yield _synthesis(record, record.synthesis)
    if record.agreement is not None:
        yield _agreement(record, record.agreement)
    if record.review is not None:
        yield _review(record.review)
    yield _answers(record)
    yield _listed("Who said nothing", [f"{one.title}: {recorded.silence(one)}" for one in record.silent], 2)
    yield _picture(record)
    yield _passages(record)
    yield _listed("Limits", record.limits, 2)


def _synthesis(record: Recorded, synthesis: Synthesis) -> str:
    took = recorded.seconds(synthesis.response_time)
    told = f"{synthesis.told}, {took}" if took else synthesis.told
    kind = "told" if synthesis.method == "synthesis" else "told warning"
    text = _answer(synthesis.text, _linked(record, synthesis.sources)) if synthesis.text else ""
    return (
        f'<section><h2>Answer</h2><p class="{kind}">{escape(told)}</p>{text}'
        + _listed("", passed_on(synthesis))
        + _listed("Dissent", [f"{one.name}: {one.claim}" for one in synthesis.dissent])
        + _sources(synthesis.sources, record)
        + "</section>"
    )


def _answer(text: str, cited: frozenset[int]) -> str:
    return f'<div class="answer">{html_of(text, cited)}</div>'


def _linked(record: Recorded, sources: Iterable[Source]) -> frozenset[int]:
    """Passages that were cited and stand on this page."""
    return frozenset(one.n for one in sources) & frozenset(one.n for one in record.passages)


def _sources(sources: Sequence[Source], record: Recorded) -> str:
    here = _linked(record, sources)
    items = "".join(
        f'<li><a href="#passage-{one.n}">{escape(source_line(one))}</a></li>'
        if one.n in here
        else f"<li>{escape(source_line(one))}</li>"
        for one in sources
    )
    return f"<h3>Sources</h3><ul>{items}</ul>" if items else ""


def _agreement(record: Recorded, agreement: Agreement) -> str:
    return (
        f'<section><h2>Agreement</h2><p class="told">{escape(agreement_told(agreement))}</p>'
        + _listed("In dispute", recorded.disagreements(record))
        + (_matrix(agreement, [one.name for one in record.answered]) if agreement.pairs else "")
        + _listed("Said by several", [recorded.text_of(one) for one in agreement.shared])
        + _listed("Said by one alone", [f"{one.name}: {one.claim}" for one in agreement.alone])
        + "</section>"
    )


def _matrix(agreement: Agreement, names: Sequence[str]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    rows = "".join(
        f'<tr><th scope="row">{escape(a)}</th>'
        + "".join("<td></td>" if a == b else _pair(agreement.between(a, b)) for b in names)
        + "</tr>"
        for a in names
    )
    return (
        '<div class="wide"><table class="matrix"><caption>How far each two agree, from 0 to 1</caption>'
        f"<thead><tr><td></td>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _pair(score: float | None) -> str:
    if score is None:
        return "<td>?</td>"
    shade = min(max(int(score * _SHADES), 0), _SHADES - 1)
    return f'<td class="m{shade}">{recorded.share(score)}</td>'


def _review(review: Review) -> str:
    columns, rows = ranking_table(review)
    ballots = ballot_rows(review)
    made = _table(columns, rows, {0, *range(2, len(columns))}) if rows else ""
    told = review_told(review)
    return (
        "<section><h2>Review</h2>"
        + (f'<p class="told">{escape(told)}</p>' if told else "")
        + made
        + (
            f"<details><summary>Ballots</summary>{_table(BALLOT_COLUMNS, ballots, ())}</details>"
            if ballots
            else ""
        )
        + "</section>"
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int]) -> str:
    right = frozenset(numbers)
    kinds = [' class="number"' if place in right else "" for place in range(len(columns))]
    head = "".join(
        f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(columns, kinds, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _answers(record: Recorded) -> str:
    if not record.answered:
        return ""
    return (
        "<section><h2>Answers</h2>" + "".join(_member(record, one) for one in record.answered) + "</section>"
    )


def _member(record: Recorded, one: Response) -> str:
    return (
        f'<details open><summary>{escape(one.title)}<span class="told">{escape(member_told(one))}</span></summary>'
        + _answer(one.answer or "", _linked(record, one.sources))
        + _listed("", [source_line(source) for source in one.sources])
        + "</details>"
    )


def _passages(record: Recorded) -> str:
    if not record.passages:
        return ""
    made = "".join(map(_passage, record.passages))
    return f"<section><h2>Passages</h2>{made}</section>"


def _passage(one: Passage) -> str:
    told = " · ".join(filter(None, [one.heading, recorded.share(one.score)]))
    return (
        f'<details id="passage-{one.n}"><summary>{escape(f"[{one.n}] {one.source}")}'
        f'<span class="told">{escape(told)}</span></summary>{_answer(one.text, frozenset())}</details>'
    )


def _listed(title: str, texts: Sequence[str], level: int = 3) -> str:
    if not texts:
        return ""
    head = f"<h{level}>{escape(title)}</h{level}>" if title else ""
    return head + "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"


# ---- the picture of times


class _Bar(NamedTuple):
    title: str
    began: float
    ended: float
    kind: str


def _picture(record: Recorded) -> str:
    """A bar for everything that was done, where it was done: seconds since the question."""
    bars = [bar for bar in _bars(record) if bar is not None]
    if not bars:
        return ""
    whole = max(record.total_time or 0.0, *(one.ended for one in bars), 1e-9)
    rows = "".join(_row(one, whole) for one in bars)
    return (
        f'<section><h2>Time</h2><figure><div class="times">{rows}</div><figcaption>'
        f"From the question on, {recorded.seconds(whole)} in all; dashed: no answer, or a ballot that does not "
        "count.</figcaption></figure></section>"
    )


def _bars(record: Recorded) -> Iterable[_Bar | None]:
    retrieval, review, synthesis = record.retrieval, record.review, record.synthesis
    if retrieval is not None:
        yield _placed("documents", retrieval, "library")
    for one in record.responses:
        # A record that tells no moments, or a member that was never begun, has the time since it was asked.
        yield _placed(one.title, one, "bar" if one.success else "silent", one.response_time)
    for ballot in () if review is None else review.ballots:
        kind = "review" if ballot.state in ("counted", "repaired") else "silent"
        yield _placed(f"{ballot.reviewer} reviews", ballot, "review" if ballot.repair else kind)
        if ballot.repair is not None:
            yield _placed(f"{ballot.reviewer} repairs", ballot.repair, kind)
    if record.agreement is not None:
        yield _placed("agreement", record.agreement, "library")
    if synthesis is not None:
        for passed in synthesis.passed_on:
            yield _placed(f"{passed.name} sums up", passed, "silent")
        if synthesis.method == "synthesis":
            yield _placed(
                f"{synthesis.by or 'the chair'} sums up", synthesis, "chair", synthesis.response_time
            )


class _Timed(Protocol):
    @property
    def started(self) -> float | None: ...

    @property
    def ended(self) -> float | None: ...


def _placed(title: str, of: _Timed, kind: str, took: float | None = None) -> _Bar | None:
    ended = of.ended if of.ended is not None else took
    if ended is None or ended < 0:
        return None
    began = of.started
    if began is None:
        began = 0.0 if took is None else ended - took
    return _Bar(title, min(max(began, 0.0), ended), ended, kind)


def _row(bar: _Bar, whole: float) -> str:
    begins = 100 * bar.began / whole
    width = max(0.5, 100 * (bar.ended - bar.began) / whole)
    return (
        f"<span>{escape(bar.title)}</span>"
        '<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="{bar.kind}" x="{min(begins, 100 - width):.1f}" width="{width:.1f}" height="10"/></svg>'
        f'<span class="number">{recorded.seconds(bar.ended - bar.began)}</span>'
    )
