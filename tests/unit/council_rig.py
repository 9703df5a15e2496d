"""A question's record as a council makes it, with everything in it that a record can have."""

from __future__ import annotations

from typing import Any


def response(name: str, **given: Any) -> dict[str, Any]:
    told = {
        "name": name,
        "fighter": name,
        "emoji": "🥋",
        "role": "the direct thinker",
        "answer": f"{name} says **yes** [1].",
        "success": True,
        "response_time": 2.5,
        "error": None,
        "tokens": 120,
        "cost": 0.0004,
        "sources": [{"n": 1, "source": "docs/dam.md"}],
        "host": "surtr",
        "model": "qwen2.5-32b",
        "attempts": 1,
        "state": "answered",
        "cut": [],
    }
    return {**told, **given}


def silent(name: str, state: str, error: str) -> dict[str, Any]:
    return response(
        name, state=state, error=error, success=False, answer=None, sources=[], tokens=None, cost=None
    )


def record(**given: Any) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": "01QUESTION",
        "council": "shenron",
        "mode": "thorough",
        "query": "Does the dam hold?",
        "conversation": "01QUESTION",
        "asked_at": 1_700_000_000.0,
        "rag_context_used": True,
        "retrieval": {
            "used": True,
            "collection": "knowledge_base",
            "how": "hybrid",
            "problem": None,
            "passages": [
                {
                    "n": 1,
                    "source": "docs/dam.md",
                    "heading": "Strength",
                    "score": 0.91,
                    "text": "It holds 40 m.",
                },
                {"n": 2, "source": "docs/river.md", "heading": "", "score": 0.4, "text": "It may rise."},
            ],
            "took_s": 0.02,
        },
        "responses": [
            response("GOKU"),
            response(
                "VEGETA",
                emoji="👑",
                answer="No, it does not [2].",
                sources=[{"n": 2, "source": "docs/river.md"}],
            ),
            silent("PICCOLO", "failed", "HTTP 500: out of memory"),
            silent("GOHAN", "cancelled", "cancelled: not there within 5 s of the quorum"),
        ],
        "success_count": 2,
        "total_fighters": 4,
        "quorum": {"needed": 2, "met": True},
        "escalated": {"why": "risk word: dam"},
        "synthesis": {
            "by": "SHENRON",
            "text": "It holds, **most** say [1].",
            "method": "synthesis",
            "dissent": [{"name": "VEGETA", "claim": "it does not hold"}],
            "disputes": ["whether it holds"],
            "sources": [{"n": 1, "source": "docs/dam.md"}],
            "passed_on": [{"name": "BULMA", "error": "timed out"}],
            "response_time": 1.5,
        },
        "agreement": {
            "measured": True,
            "how": "embeddings",
            "score": 0.42,
            "pairs": [{"a": "GOKU", "b": "VEGETA", "score": 0.42}],
            "shared": ["the dam is tall"],
            "alone": [{"name": "GOKU", "claim": "it was built in 1931"}],
            "conflicts": [{"a": "GOKU", "b": "VEGETA", "claims": ["it holds", "it does not hold"]}],
            "disputes": ["whether it holds"],
            "why": None,
        },
        "review": {
            "ranking": [
                {"name": "GOKU", "points": 3.0, "score": 0.9, "rubric": {"accuracy": 8.5, "clarity": 9.0}},
                {"name": "VEGETA", "points": 1.0, "score": 0.4, "rubric": {"accuracy": 4.0, "clarity": 7.0}},
            ],
            "ballots": [
                {
                    "reviewer": "VEGETA",
                    "order": ["GOKU", "GOHAN"],
                    "ranks": ["GOKU", "GOHAN"],
                    "scores": {"GOKU": {"accuracy": 8}},
                    "reasons": {"GOKU": "names a source"},
                    "state": "repaired",
                    "error": None,
                },
                {
                    "reviewer": "GOKU",
                    "order": ["VEGETA", "GOHAN"],
                    "ranks": [],
                    "scores": {},
                    "reasons": {},
                    "state": "unusable",
                    "error": "ranks nobody",
                },
            ],
            "kendalls_w": 0.5,
            "why": None,
        },
        "tokens": 360,
        "cost": 0.0012,
        "limits": ["the review was cut to 2 members"],
        "total_time": 4.25,
    }
    return {**told, **given}
