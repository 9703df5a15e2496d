"""Prompts of every kind of text (D2, D4): fences hold, budgets hold, and no chunking changes what is read."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.council.plan.budget import tokens_of, tokens_of_messages
from penstock.council.plan.citations import cited
from penstock.council.plan.fences import code_of, material
from penstock.council.plan.fitting import shortened
from penstock.council.plan.prompts import chair_prompt, member_prompt, repair_prompt, review_prompt
from penstock.council.plan.steps import Turn
from penstock.council.plan.synthesis import Trailer, mark_of, read_synthesis
from penstock.council.plan.texts import Answer, Message, Passage
from penstock.errors import TaskError
from tests.unit.council_words_rig import HOSTILE, NAMES, council, member, question

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
thorough = settings(max_examples=1000 if SOAK else 40)

ID = "q-1"
MARK = mark_of(ID)
CODES = [code_of(ID, kind, "shenron", "GOKU") for kind in ("member", "review", "chair")] + [MARK]
pieces = st.one_of(
    st.sampled_from(CODES),
    st.sampled_from(
        ["<<begin", "<<end", " passage [1] ", " answer A ", ">>", "\n", "\r", "\u200b", "\u2028", " "]
    ),
    st.sampled_from(HOSTILE),
    st.text(max_size=8),
)
texts = st.lists(pieces, max_size=8).map("".join)
FENCE = re.compile(r"^\s*<<(begin|end) (.*) ([0-9a-f]{8})>>$", re.IGNORECASE)


def blocks(messages: list[Message], code: str) -> list[tuple[str, str]]:
    """The fenced parts of a prompt as the rules in it tell to read them; any line that breaks them fails."""
    found: list[tuple[str, str]] = []
    opened: str | None = None
    body: list[str] = []
    for line in messages[-1]["content"].split("\n"):
        assert line.splitlines() in ([], [line]), "a character that ends a line, and is not one"
        if not line.lower().lstrip().startswith(("<<begin", "<<end")):
            body.append(line)
            continue
        fence = FENCE.match(line)
        assert fence is not None
        assert fence[3] == code
        assert fence[1] == ("begin" if opened is None else "end")
        if opened is None:
            opened, body = fence[2], []
        else:
            assert fence[2] == opened
            found.append((opened, "\n".join(body)))
            opened = None
    assert opened is None
    return found


@thorough
@given(st.lists(texts, max_size=3), st.lists(texts, max_size=3), texts, texts)
def test_d2_no_text_breaks_a_members_fences(
    bodies: list[str], turns: list[str], query: str, source: str
) -> None:
    """D2: passages, sources, earlier turns and even the question stay what they are."""
    code = CODES[0]
    given_ = [Passage(n, source, source, body) for n, body in enumerate(bodies, 1)]
    asked = question(query, turns=[Turn(turn, turn) for turn in turns])
    roomy = member("GOKU", context_tokens=200_000)
    prompt = member_prompt(council(), asked, roomy, given_, quick=True)
    found = blocks(prompt.messages, code)
    assert [what for what, _ in found] == [
        *(f"earlier turn {n}" for n in range(1, len(turns) + 1)),
        *(f"passage [{n}]" for n in range(1, len(bodies) + 1)),
    ]
    for (_, body), text in zip(found[len(turns) :], bodies, strict=True):
        assert body.split("\n\n", 1)[1] == material(text, code)
    assert sum(message["content"].lower().count(code) for message in prompt.messages) == (
        2 * len(found) + bool(found)
    )


@thorough
@given(st.lists(texts, min_size=2, max_size=4), texts, st.booleans())
def test_d4_no_answer_breaks_out_of_a_review_or_the_chairs_prompt(
    said: list[str], query: str, with_passage: bool
) -> None:
    given_ = [Answer(name, text) for name, text in zip(NAMES[1:], said, strict=False)]
    shown = [Passage(1, "a.md", "", said[0])] if with_passage else []
    roomy = member("GOKU", context_tokens=200_000)
    review = review_prompt(council(), question(query), roomy, given_, shown)
    labels = [what for what, _ in blocks(review.messages, CODES[1])]
    assert labels == [f"passage [{one.n}]" for one in shown] + [
        f"answer {'ABCD'[n]}" for n in range(len(said))
    ]
    repair = repair_prompt(review, said[0], said[1])
    assert [what for what, _ in blocks(repair.messages, CODES[1])] == [*labels, "your reply"]
    chair = chair_prompt(council(), question(query), roomy, given_, shown, None)
    named = [what for what, _ in blocks(chair.messages, CODES[2])]
    assert sorted(named) == sorted(
        [f"passage [{one.n}]" for one in shown] + [f"answer of {one.name}" for one in given_]
    )
    assert sum(message["content"].count(MARK) for message in chair.messages) == 1


long = st.builds(
    lambda text, n: text * n,
    st.sampled_from(["word ", "Wörter. ", "文。", "x1;", *HOSTILE[:9]]),
    st.integers(0, 300),
)


@thorough
@given(
    st.integers(100, 3000),
    st.lists(long, max_size=4),
    st.lists(long, max_size=4),
    st.lists(long, min_size=1, max_size=5),
    long,
)
def test_no_prompt_is_above_its_models_budget(
    left: int, bodies: list[str], turns: list[str], said: list[str], query: str
) -> None:
    """Either it fits, with what was left out told, or it is refused."""
    reader = member("GOKU", context_tokens=left + 500, max_tokens=500)
    asked = question(query, turns=[Turn("?", turn) for turn in turns])
    given_ = [Passage(n, "a.md", "", body) for n, body in enumerate(bodies, 1)]
    replies = [Answer(name, text) for name, text in zip(NAMES[1:], said, strict=False)]
    with suppress(TaskError):
        prompt = member_prompt(council(), asked, reader, given_, quick=True)
        assert tokens_of_messages(prompt.messages) <= left
        assert len(prompt.shown) + sum(note.startswith("passage") for note in prompt.cut) == len(bodies)
        assert len(blocks(prompt.messages, CODES[0])) >= len(prompt.shown)
    with suppress(TaskError):
        chair = chair_prompt(council(), asked, reader, replies, given_, None)
        assert tokens_of_messages(chair.messages) <= left
        assert len(blocks(chair.messages, CODES[2])) >= len(chair.shown) + len(replies)
    with suppress(TaskError):
        review = review_prompt(council(), asked, reader, replies)
        assert tokens_of_messages(review.messages) + review.spare_tokens <= left
        repair = repair_prompt(review, said[0], said[-1])
        assert tokens_of_messages(repair.messages) <= left


@given(long | texts, st.integers(20, 400))
def test_a_shortened_text_fits(text: str, room: int) -> None:
    assert tokens_of(shortened(text, room)) <= room


@given(texts)
def test_what_is_safe_stays_as_it_is(text: str) -> None:
    once = material(text, *CODES)
    assert material(once, *CODES) == once


@given(texts, st.sets(st.integers(0, 4)))
def test_d2_only_what_was_shown_is_cited(text: str, shown: set[int]) -> None:
    sources = [Passage(n, f"{n}.md") for n in range(4)]
    found = cited(text, sources, shown)
    assert {one["n"] for one in found} <= shown & {0, 1, 2, 3}
    assert len({one["n"] for one in found}) == len(found)
    assert cited(material(text), sources, shown) == [], "material has no mark that counts"


reply_pieces = st.one_of(
    st.sampled_from([MARK, MARK[:5], MARK[:-1], MARK[1:], "E", "<think>", "</think>", "<thi", "nk>"]),
    st.sampled_from(["\n", "\n\n", " ", "**", "---", "```", "#", '{"disputes": []}', "word", "END-OF-"]),
    st.text(max_size=4),
)


@settings(max_examples=3000 if SOAK else 150)
@given(st.lists(reply_pieces, max_size=10).map("".join), st.lists(st.integers(1, 12), max_size=40))
def test_d4_a_trailer_is_withheld_however_the_reply_is_cut(reply: str, sizes: list[int]) -> None:
    """D4, streamed: what was let through piece by piece is the text that is read from the whole."""
    trailer = Trailer(ID)
    told, at = "", 0
    for size in [*sizes, *[1] * len(reply)]:
        if at >= len(reply):
            break
        told += trailer.feed(reply[at : at + size])
        at += size
    told += trailer.close()
    assert told == read_synthesis(reply, ID, NAMES).text
    assert MARK not in told
    assert told == told.strip()
    whole = Trailer(ID)
    whole.feed(reply)
    assert trailer.rest == whole.rest
