"""The course of a question for any council and any ends, in any order: a fold, which is what makes it restartable.

`moves` says the same for the same ends, asks nothing twice, takes nothing back, wants only what its ends allow,
and comes to a record. Members' texts are anything: none of them breaks it.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config.councils import Council, Member, Mode, ModeLimits, Quick, Retrieval
from penstock.council.plan.asking import read_question
from penstock.council.plan.course import moves, partial_record
from penstock.council.plan.replies import read_reply
from penstock.council.plan.steps import Moves, Question, StepEnd
from penstock.council.recorded import read_record
from penstock.errors import TaskError
from penstock.model import State

EXAMPLES = 2_000 if os.environ.get("PENSTOCK_SOAK") else 40
NAMES = ("A", "B", "C", "D")
MOST_STEPS = 60

texts = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["fine [1]\nCONFIDENCE: 90", "unsure\nCONFIDENCE: 3", "<think>hm</think>", "{}", "\x00\ud800"]
    ),
)
values = st.one_of(
    st.none(),
    texts,
    st.integers(),
    st.lists(texts, max_size=2),
    st.fixed_dictionaries(
        {"text": st.one_of(texts, st.integers())},
        optional={
            "finish_reason": st.sampled_from(["stop", "length", "content_filter", None, 7]),
            "refusal": st.one_of(texts, st.none()),
            "model": st.one_of(texts, st.integers()),
            "usage": st.one_of(st.none(), st.just({"prompt_tokens": 3, "completion_tokens": "x"})),
        },
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "passages": st.one_of(texts, st.lists(st.one_of(texts, st.just({"text": "Fact.", "source": 7})))),
            "how": texts,
            "problem": st.one_of(texts, st.integers()),
            "measured": st.booleans(),
            "score": st.one_of(st.floats(), texts),
            "pairs": st.one_of(texts, st.just([])),
        },
    ),
)
ends = st.builds(
    lambda state, value, error, cost: (state, value, error, cost),
    st.sampled_from([State.DONE] * 4 + [State.FAILED, State.CANCELLED, State.BLOCKED]),
    values,
    st.one_of(st.none(), texts, st.just("surtr answered 400: no")),
    st.one_of(st.none(), st.floats(0, 1)),
)


@st.composite
def councils(draw: st.DrawFn) -> Council:
    members = tuple(
        Member(
            name,
            model="m",
            max_tokens=draw(st.sampled_from([16, 1024])),
            context_tokens=draw(st.sampled_from([8192, 8192, 600])),
        )
        for name in NAMES[: draw(st.integers(1, 4))]
    )
    return Council(
        name="c",
        members=members,
        chair=draw(st.sampled_from([*members, Member("CHAIR")])),
        min_answers=draw(st.integers(1, len(members))),
        patience_s=draw(st.sampled_from([None, 0.0, 2.0])),
        retrieval=draw(st.sampled_from([None, Retrieval("kb", path="/kb")])),
        quick=Quick(members=draw(st.sampled_from([(), ("A",), ("A", "B")]))),
        limits={
            mode: ModeLimits(draw(st.sampled_from([None, 0.1])), draw(st.sampled_from([None, 5.0])))
            for mode in Mode
        },
    )


@st.composite
def questions(draw: st.DrawFn) -> tuple[Council, Question]:
    of = draw(councils())
    names = draw(st.sets(st.sampled_from([one.name for one in of.members]), min_size=1))
    return of, Question(
        id="q",
        query=draw(st.text(min_size=1, max_size=30)),
        mode=draw(st.sampled_from(list(Mode))),
        members=tuple(one.name for one in of.members if one.name in names),
        use_rag=of.retrieval is not None,
        asked_at=0.0,
    )


def played(of: Council, question: Question, data: st.DataObject) -> list[tuple[Any, ...]]:
    """Every look at a question that is answered by chance: what was known, and what was found."""
    asked: dict[str, float] = {}
    ended: dict[str, StepEnd] = {}
    looks: list[tuple[Any, ...]] = []
    now = 0.0
    for _ in range(MOST_STEPS):
        found = moves(of, question, asked, ended, now)
        looks.append((dict(asked), dict(ended), now, found))
        if found.record is not None:
            return looks
        for step in found.ask:
            assert step.name not in asked
            asked[step.name] = now
        live = [name for name in asked if name not in ended]
        assert live, "it waits for nothing"
        now += data.draw(st.sampled_from([0.0, 0.1, 1.0, 3.0]), label="wait")
        name = data.draw(st.sampled_from(live), label="ends")
        state, value, error, cost = data.draw(ends, label="how")
        ended[name] = StepEnd(state, asked[name], now, value=value, error=error, cost_usd=cost)
    raise AssertionError(f"no record after {MOST_STEPS} ends")


@settings(max_examples=EXAMPLES, deadline=None)
@given(questions(), st.data())
def test_any_ends_in_any_order_come_to_a_record(pair: tuple[Council, Question], data: st.DataObject) -> None:
    of, question = pair
    looks = played(of, question, data)
    for asked, ended, now, found in looks:
        assert moves(of, question, asked, ended, now) == found, "it is no function of what is known"
        assert all(name in asked and name not in ended for name in found.cancel)
        assert all(ended[name].is_done for step in found.ask for name in step.after)
    asked, ended, now, _ = data.draw(st.sampled_from(looks), label="looked at")
    read_record(partial_record(of, question, asked, ended, now), "while it runs")
    over: Moves = looks[-1][-1]
    record = json.loads(json.dumps(over.record))
    read_record(record, "at its end")
    answered = [one for one in record["responses"] if one["success"]]
    assert (over.error is None) == bool(answered)
    for one in record["responses"]:
        assert one["success"] or one["error"], "a failure without words"
    if record["synthesis"] and record["synthesis"]["method"] == "synthesis":
        assert len(answered) >= max(2, record["quorum"]["needed"])


@settings(max_examples=EXAMPLES, deadline=None)
@given(questions(), st.data())
def test_what_was_asked_stays_asked_for(pair: tuple[Council, Question], data: st.DataObject) -> None:
    """Monotone: with the ends of the whole question known from the start, the same steps are asked for."""
    of, question = pair
    of = replace(of, patience_s=None, limits={})
    looks = played(of, question, data)
    _, ended, now, over = looks[-1]
    again: dict[str, float] = {}
    for _ in range(MOST_STEPS):
        known = {name: end for name, end in ended.items() if name in again}
        found = moves(of, question, again, known, now)
        if found.record is not None:
            break
        assert found.ask, "it waits for what has ended"
        again |= {step.name: ended[step.name].queued_at for step in found.ask}
    assert set(again) == set(ended)
    assert found.record == over.record
    later = moves(of, question, again, ended, now + 1e6)
    assert later.record == over.record or not ended, "later, it is another record"


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from(list(State)), values, st.one_of(st.none(), texts))
def test_any_value_is_a_text_or_a_problem_in_words(state: State, value: Any, error: str | None) -> None:
    """D3: never both, never neither."""
    reply = read_reply(StepEnd(state, 0, 1, value=value, error=error), 100)
    assert (reply.problem is None) == bool(reply.text)
    assert reply.problem is None or reply.problem.strip()
    assert "\n" not in (reply.problem or "")


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    councils(),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.one_of(st.sampled_from(["query", "mode", "members", "use_rag", "conversation"]), texts),
                inner,
                max_size=4,
            ),
        ),
        max_leaves=6,
    ),
)
def test_any_payload_is_a_question_or_one_line(of: Council, payload: Any) -> None:
    try:
        found = read_question(of, payload, "q", 0.0)
    except TaskError as error:
        told = str(error)
    else:
        assert found.query.strip()
        assert found.members
        assert set(found.members) <= set(NAMES)
        return
    assert told.startswith("council 'c': ")
    assert len(told.splitlines()) == 1
