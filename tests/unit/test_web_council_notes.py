"""As a model a council says in its words what its answer lacks (D6, D8): chat clients show no other field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.web.council_notes import documents, notes
from tests.unit.council_web_rig import DISSENT, QUERY, SUMMED_UP, council_web

CHAT = {"model": "council:shenron", "messages": [{"role": "user", "content": QUERY}]}


def synthesis(**fields: Any) -> dict[str, Any]:
    return {"synthesis": {"by": "SHENRON", "text": "So.", "method": "synthesis", **fields}}


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (synthesis(), []),
        ({}, []),
        (synthesis(method="single", by="GOKU"), ["This is the answer of GOKU alone; nobody has summed up."]),
        (
            synthesis(method="single", by="GOKU", passed_on=[{"name": "SHENRON", "error": "cut"}]),
            ["This is the answer of GOKU alone; nobody has summed up (SHENRON: cut)."],
        ),
        (synthesis(method="list", by=None), ["Nobody has summed up; these are the answers themselves."]),
        (
            synthesis(by="GOKU", passed_on=[{"name": "SHENRON", "error": "timed\nout"}]),
            ["GOKU has summed up in place of another (SHENRON: timed out)."],
        ),
        (
            synthesis(dissent=[{"name": "VEGETA", "claim": "It is\nnot the air."}]),
            ["VEGETA dissents: It is not the air."],
        ),
        (
            synthesis()
            | {
                "total_fighters": 3,
                "responses": [
                    {"name": "A", "state": "answered"},
                    {"name": "B", "state": "failed", "error": "refused"},
                    {"name": "C", "state": "cancelled", "error": None},
                    {"name": "D", "state": "not_asked"},
                ],
            },
            ["2 of 3 have not answered: B: refused; C: cancelled"],
        ),
        (
            synthesis() | {"retrieval": {"problem": "it is empty", "passages": [], "how": "none"}},
            ["Documents: nothing was read: it is empty"],
        ),
        (synthesis() | {"retrieval": {"problem": None, "passages": [{"n": 1}]}}, []),
        (
            synthesis() | {"limits": ["cost limit: the review was left out"]},
            ["cost limit: the review was left out"],
        ),
    ],
)
def test_what_an_answer_lacks_is_said_below_it(record: dict[str, Any], told: list[str]) -> None:
    wanted = "\n\n" + "\n".join(f"[{line}]" for line in told) if told else ""
    assert notes(record) == wanted


def test_passages_found_by_words_alone_are_told_so() -> None:
    found = {"problem": "collection 'k' is broken", "passages": [{"n": 1}, {"n": 2}], "how": "words"}
    assert documents(found) == "Documents: 2 passages found, by words alone: collection 'k' is broken"


def test_long_reasons_and_many_of_them_are_cut() -> None:
    responses = [{"name": f"M{n}", "state": "failed", "error": "x" * 900} for n in range(12)]
    told = notes({"responses": responses, "total_fighters": 12})
    assert told.startswith("\n\n[12 of 12 have not answered: M0: xxx")
    assert told.endswith("; and 4 more]")
    assert len(told) < 3000


async def test_a_missing_collection_is_said_and_where_it_would_lie_is_not(tmp_path: Path) -> None:
    """D6, D3: nobody who only asks is told the server's folders."""
    more = 'retrieval = { collection = "knowledge" }\n'
    async with council_web(tmp_path, more) as (web, _):
        for stream in (True, False):
            response = await web.http.post(
                "/v1/chat/completions", json={**CHAT, "stream": stream}, timeout=120
            )
            assert response.status_code == 200, response.text
            assert "Documents: nothing was read: collection 'knowledge' does not exist" in response.text
            assert str(tmp_path) not in response.text
        answered = response.json()
        assert answered["penstock"]["retrieval"]["problem"].startswith(
            "collection 'knowledge' does not exist"
        )
        content = answered["choices"][0]["message"]["content"]
        assert content.startswith(SUMMED_UP + DISSENT + "\n[Documents: nothing was read: ")
        asked = await web.post("/api/councils/shenron/ask", {"query": QUERY}, 202)
        async with web.http.stream("GET", asked["links"]["events"], timeout=120) as events:
            told = "".join([piece async for piece in events.aiter_text()])
        assert "collection 'knowledge' does not exist" in told
        assert str(tmp_path) not in told
