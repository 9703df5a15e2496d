"""D8: a record is rendered whole, as Markdown and as HTML, and no text in it can become markup."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from copy import deepcopy
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from penstock.council.markdown import html_of, inline, quoted
from penstock.council.recorded import read_record
from penstock.council.report import markdown
from penstock.council.report_page import page
from penstock.errors import UsageError
from tests.unit.council_rig import record, response

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
# All that a text of somebody's may become.
ALLOWED = frozenset(
    {"p", "br", "strong", "em", "code", "pre", "ul", "ol", "li", "h4", "h5", "h6", "blockquote", "hr"}
    | {"table", "thead", "tbody", "tr", "th", "td"}
)
VOID = frozenset({"br", "hr", "meta", "rect"})


class Outline(HTMLParser):
    """The elements of a page with their attributes, its text, and whether each element was closed in turn."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: set[tuple[str, str]] = set()
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {(name, value or "") for name, value in attrs}
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data!r}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"an instruction: {data!r}")

    @property
    def text(self) -> str:
        return "".join(self.texts)


HOSTILE = (
    "<script>alert(1)</script>",
    "</div></main><h2>Answer</h2>",
    "<img src=x onerror=alert(1)>",
    "![x](http://127.0.0.1:9/x.png)",
    "[click](javascript:alert(1))",
    "[x]: javascript:alert(1)",
    "[x\ny]: http://evil.example/x",
    "[x y]",
    "[b][x]",
    "<http://evil.example>",
    "\x1b]52;c;aGk=\x07",
    "\x9b2J\u202e",
    '" onmouseover="alert(1)',
    "<!-- ",
    "]]>",
    "{{STYLE}}",
    "{{SECTIONS}}",
    "&lt;b&gt;",
    "<svg onload=alert(1)>",
    "\x1b[2J\x00",
    "\ud800",
)
MARKS = (
    "```", "~~~", "`", "``", "**", "*", "# ", "###### ", "- ", "1. ", "  - ", "> ", ">> ", "| a | b |", "|---|---|",
    "---", "[1]", "[2]", "[99]", "\n", "\n\n", "    ", "word", "two words", "ünïcode 🐉", "\t", "_x_",
    "\\", "<", ">", "&", "[", "]", "](", "[x]", "!", "(", ")", "]:", "|",
)  # fmt: skip
texts = st.lists(st.sampled_from(HOSTILE + MARKS), max_size=25).map("".join)


@given(texts)
@settings(max_examples=400 if SOAK else 100, deadline=None)
def test_a_text_becomes_nothing_but_the_small_set(text: str) -> None:
    """D8: hostile answers cannot add markup, whatever they are made of."""
    made = Outline(html_of(text))
    assert set(made.tags) <= ALLOWED
    assert made.attributes == set()


@given(texts)
@settings(max_examples=100 if SOAK else 40, deadline=None)
def test_no_word_is_lost(text: str) -> None:
    words = re.findall(r"words|alert", text)
    assert re.findall(r"words|alert", Outline(html_of(text)).text) == words


@given(texts, texts)
@settings(max_examples=100 if SOAK else 40, deadline=None)
def test_a_page_has_the_same_skeleton_whatever_is_said(answer: str, name: str) -> None:
    """D8: with hostile texts in every place the page has our elements, and none with an attribute of theirs."""
    told = Outline(page(read_record(hostile(answer, name or "x"), "here")))
    plain = Outline(page(read_record(record(), "here")))
    outside = {tag for tag in told.tags if tag not in ALLOWED}
    assert outside == {tag for tag in plain.tags if tag not in ALLOWED}
    # Attributes that hold no text of anybody's have one of a few forms.
    ours = re.compile(r"[\w.,:;#'= /+-]*|width=device-width, initial-scale=1")
    policies = {value for name, value in told.attributes if name == "content" and "default-src" in value}
    assert len(policies) == 1
    assert {n for n, _ in told.attributes} <= {n for n, _ in plain.attributes}
    assert all(ours.fullmatch(value) for _, value in told.attributes)
    assert told.tags.count("style") == 1
    assert [value for name, value in told.attributes if name == "href"] == [
        value for name, value in told.attributes if name == "href" and re.fullmatch(r"#passage-\d+", value)
    ]


def hostile(answer: str, name: str) -> dict[str, Any]:
    """The record with these texts in every place that has one."""

    def put(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {k: put(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [put(v, key) for v in value]
        if not isinstance(value, str) or key in ("method", "state"):
            return value
        return name if key in ("name", "a", "b", "reviewer", "by") else answer

    changed: dict[str, Any] = put(deepcopy(record()))
    return changed


@given(texts)
@settings(max_examples=200 if SOAK else 100, deadline=None)
def test_a_quoted_text_stays_in_its_quote(text: str) -> None:
    """D8: in the Markdown page every line of a text bears our mark."""
    made = quoted(text)
    lines = made.split("\n")
    assert all(line.startswith(">") for line in lines)
    assert len(lines) == len(made.splitlines()), "a line break of theirs that begins a line without our mark"


READERS = (MarkdownIt("commonmark"), MarkdownIt("commonmark").enable(["table", "strikethrough"]))


def seen(text: str) -> Iterator[Token]:
    """All that readers of Markdown, with tables and without, make of a page."""
    for reader in READERS:
        waiting = reader.parse(text)
        while waiting:
            token = waiting.pop()
            yield token
            waiting += token.children or []


@given(texts)
@settings(max_examples=400 if SOAK else 100, deadline=None)
@example("[click\nhere]: http://evil.example/x\n\nplease [click here] now")
@example(">  [a]: http://evil.example/y\n\nsee [b][a]")
@example("\\[click](http://evil.example/)")
@example("| `a | <b>` |\n|---|---|\n| `a | [b](c)` |")
@example("one `\n` <b> ` `[a](b)`")
@example("\\`<b>`")
@example("[1]: http://evil.example\n\n[1] [x][1] [1][x] [1](y) [1]`(z)`")
@example("~~~ | <b>\n|---|---|")
def test_a_quoted_text_becomes_no_link_to_any_reader(text: str) -> None:
    """D8: no link, no image, no HTML, whatever an answer or a document is made of."""
    for token in seen(quoted(text)):
        assert token.type not in ("link_open", "image", "html_inline", "html_block")


@given(texts, texts)
@settings(max_examples=60 if SOAK else 20, deadline=None)
def test_no_page_leads_anywhere_or_steers_a_terminal(answer: str, name: str) -> None:
    """D8: with hostile texts in every place, in both forms."""
    told = read_record(hostile(answer, name or "x"), "here")
    made = markdown(told)
    for token in seen(made):
        assert token.type not in ("link_open", "image", "html_inline", "html_block")
    for text in (made, page(told)):
        signs = {sign for sign in text if not sign.isprintable()}
        assert signs <= {"\n", "\u200c", "\u200d"}


def test_code_is_shown_as_it_was_written() -> None:
    (quote,) = [
        token
        for token in READERS[0].parse(quoted("Take `a[0] & <b>` of `` x`y `` and ` alone"))
        if token.children
    ]
    assert [one.content for one in quote.children or [] if one.type == "code_inline"] == ["a[0] & <b>", "x`y"]


@pytest.mark.parametrize("text", ["    ```\n<b>", "- ```\n\n<b>", "word\n    ~~~\n<b>"])
def test_what_is_no_code_to_us_is_no_code_to_others(text: str) -> None:
    assert "\\`\\`\\`" in quoted(text) or "\\~~~" in quoted(text)


def test_markdown_has_everything() -> None:
    """D8: both forms name the answer, its sources, dissent, agreement, review, failures and limits."""
    told = markdown(read_record(record(), "here"))
    for said in (
        "> Does the dam hold?",
        "summed up by SHENRON, 1.5 s",
        "> It holds, **most** say [1].",
        "- BULMA was to sum up and could not: timed out",
        "- VEGETA: it does not hold",
        "- whether it holds\n- GOKU seems to contradict VEGETA: “it holds” / “it does not hold”",
        "- [1] docs/dam.md",
        "1 point in dispute. Claims that match: 0.42 of 1, measured by embeddings.",
        "| GOKU |  | 0.42 |",
        "(Kendall's W) is 0.50 of 1",
        "| 1 | GOKU | 3 | 0.90 | 8.5 | 9.0 |",
        "| VEGETA | GOKU, GOHAN | GOKU > GOHAN | repaired | GOKU: names a source |",
        "unusable: ranks nobody",
        "### 👑 VEGETA",
        "- 🥋 PICCOLO: failed: HTTP 500: out of memory",
        "- 🥋 GOHAN: cancelled: not there within 5 s of the quorum",
        "### [1] docs/dam.md, Strength (0.91)",
        "- the review was cut to 2 members",
        "| escalated | risk word: dam |",
        "2 of 4 answered, 4.2 s, 360 tokens, $0.0012",
    ):
        assert said in told, said
    assert told.count("whether it holds") == 1


@pytest.mark.parametrize(
    ("disputes", "said"),
    [
        (["whether it holds", "since when"], "2 points in dispute. Claims that match: 1.00 of 1"),
        (["whether it holds"], "1 point in dispute. Claims that match: 1.00 of 1"),
        ([], "No dispute found by the chair. Claims that match: 1.00 of 1"),
        (None, "Contradictions not checked. Claims that match: 1.00 of 1"),
    ],
)
def test_d4_what_the_chair_found_comes_before_the_figure(disputes: list[str] | None, said: str) -> None:
    """D4: full agreement of claims is never told alone, on any page."""
    one = record()
    one["agreement"] |= {"score": 1.0, "disputes": disputes, "conflicts": []}
    told = read_record(one, "here")
    assert f"## Agreement\n\n{said}, measured by embeddings." in markdown(told)
    made = page(told)
    assert f'<h2>Agreement</h2><p class="told">{said}, measured by embeddings.</p>' in made
    for dispute in disputes or ():
        assert made.index("<h2>Agreement</h2>") < made.index(dispute) < made.index("How far each two agree")


def test_a_page_has_everything() -> None:
    """D8"""
    made = Outline(page(read_record(record(), "here")))
    for said in (
        "Does the dam hold?",
        "summed up by SHENRON",
        "it does not hold",
        "names a source",
        "HTTP 500: out of memory",
        "0.42",
        "Kendall",
        "It may rise.",
        "the review was cut to 2 members",
    ):
        assert said in made.text, said
    assert made.tags.count("rect") == 5  # the four members, and the summing up
    assert ("href", "#passage-1") in made.attributes
    assert ("id", "passage-1") in made.attributes


def test_times_are_drawn_where_they_were() -> None:
    """On one axis, from the question to the last of it: documents, members, ballots, repairs, the chair."""
    whole = record(total_time=20.0)
    whole["retrieval"] |= {"started": 0.0, "ended": 2.0}
    for one in whole["responses"]:
        one |= {"started": 2.0, "ended": 8.0}
    for ballot in whole["review"]["ballots"]:
        ballot |= {"started": 8.0, "ended": 10.0, "repair": None}
    whole["review"]["ballots"][0]["repair"] = {"started": 10.0, "ended": 15.0}
    whole["synthesis"] |= {"started": 15.0, "ended": 20.0}
    made = page(read_record(whole, "here"))
    bars = re.findall(r'<rect class="(\w+)" x="([\d.]+)" width="([\d.]+)"', made)
    count = len(whole["responses"])
    assert bars[0] == ("library", "0.0", "10.0")
    assert {(x, width) for _, x, width in bars[1 : 1 + count]} == {("10.0", "30.0")}
    assert [one for one in bars[1 + count :] if one[0] == "chair"] == [("chair", "75.0", "25.0")]
    reviews = [(x, width) for _, x, width in bars[1 + count : -1]]
    assert reviews.count(("40.0", "10.0")) == len(whole["review"]["ballots"])
    assert reviews.count(("50.0", "25.0")) == 1
    assert "From the question on, 20.0 s in all" in made


def test_one_answer_alone_is_not_called_a_synthesis() -> None:
    """D5"""
    alone = record(responses=[response("GOKU")])
    alone["synthesis"] |= {"method": "single", "by": "GOKU", "passed_on": []}
    for told in (markdown(read_record(alone, "here")), page(read_record(alone, "here"))):
        assert "one answer alone, not a synthesis" in told
        assert "summed up" not in told


def test_a_question_that_nobody_answered_is_told() -> None:
    failed = record(
        responses=[r for r in record()["responses"] if not r["success"]],
        synthesis=None,
        agreement=None,
        review=None,
        retrieval=None,
        quorum={"needed": 2, "met": False},
    )
    told = markdown(read_record(failed, "here"))
    assert "0 of 2 answered, quorum of 2 not met" in told
    assert "## Answer" not in told
    assert "HTTP 500" in page(read_record(failed, "here"))


def test_a_problem_of_the_collection_is_told() -> None:
    """D3: never silently ignored."""
    broken = record()
    broken["retrieval"] |= {"used": False, "problem": "the collection is empty", "passages": []}
    for told in (markdown(read_record(broken, "here")), page(read_record(broken, "here"))):
        assert "nothing was read: the collection is empty" in told


def test_passages_that_were_found_by_words_alone_are_told_with_the_reason() -> None:
    """D3: what was read was read, also where the vectors could not be asked."""
    amiss = record()
    amiss["retrieval"] |= {"used": True, "how": "words", "problem": "the server does not answer"}
    number = len(amiss["retrieval"]["passages"])
    assert number
    for told in (markdown(read_record(amiss, "here")), page(read_record(amiss, "here"))):
        assert "nothing was read" not in told
        assert re.search(
            rf"{number} passages? of \w+, found by words alone: the server does not answer", told
        )


def test_marks_of_passages_lead_to_those_that_were_cited_and_are_there() -> None:
    """D3"""
    assert inline("see [1] and [2]", {1}) == 'see <a href="#passage-1">[1]</a> and [2]'


def test_what_models_write_is_shown() -> None:
    text = (
        "# Head\n\nSome `code <b>` and **bold *and* more**.\n\n1. one\n   - inner\n2. two\n\n"
        "```py\na < b\n```\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    )
    assert html_of(text) == (
        "<h4>Head</h4><p>Some <code>code &lt;b&gt;</code> and <strong>bold <em>and</em> more</strong>.</p>"
        "<ol><li>one<ul><li>inner</li></ul></li><li>two</li></ol><pre><code>a &lt; b</code></pre>"
        "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td>2</td></tr></tbody></table>"
    )


@pytest.mark.parametrize(
    "text", ["**a " * 20_000, "` `" * 20_000, "* `" * 20_000, "> " * 20_000, "- a " * 20_000]
)
def test_long_texts_are_no_trouble(text: str) -> None:
    assert Outline(html_of(text)).text.strip()
    assert quoted(text)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "expected `object`, got `array`"),
        ({"query": "x"}, "missing required field `responses`"),
        ({"query": "x", "responses": [{"name": 3}]}, "`$.responses[0].name`"),
    ],
)
def test_what_is_no_record_is_refused_with_its_place(value: Any, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_record(value, "x.json")
    told = str(caught.value)
    assert told.startswith("x.json: is no record of a council's question: ")
    assert problem in told
    assert "\n" not in told
