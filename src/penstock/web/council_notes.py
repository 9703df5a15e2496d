"""What a council's answer lacks, in lines for a chat: chat clients show words, and no fields of ours.

Whoever asks a council as a model should not take one answer for that of all, an answer without documents for one
with them, or a majority for everybody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_MOST_LETTERS = 300  # of one reason or claim
_MOST_NAMED = 8


def notes(record: Mapping[str, Any]) -> str:
    """To be put below the answer; nothing where nothing is to be said."""
    lines = [f"[{' '.join(line.split())}]" for line in _lines(record)]
    return "\n\n" + "\n".join(lines) if lines else ""


def _lines(record: Mapping[str, Any]) -> Iterator[str]:
    synthesis = _mapping(record.get("synthesis"))
    if (told := _method(synthesis)) is not None:
        yield told
    if (told := _absent(record)) is not None:
        yield told
    for one in _rows(synthesis.get("dissent"))[:_MOST_NAMED]:
        yield f"{one.get('name')} dissents: {_short(one.get('claim'))}"
    retrieval = record.get("retrieval")
    if isinstance(retrieval, Mapping) and retrieval.get("problem"):
        yield documents(retrieval)
    for one in _list(record.get("limits"))[:_MOST_NAMED]:
        yield _short(one)


def _method(synthesis: Mapping[str, Any]) -> str | None:
    passed_on = _rows(synthesis.get("passed_on"))
    unable = "; ".join(f"{one.get('name')}: {_short(one.get('error'))}" for one in passed_on[:_MOST_NAMED])
    because = f" ({unable})" if unable else ""
    if synthesis.get("method") == "single":
        return f"This is the answer of {synthesis.get('by')} alone; nobody has summed up{because}."
    if synthesis.get("method") == "list":
        return f"Nobody has summed up{because}; these are the answers themselves."
    if unable:
        return f"{synthesis.get('by')} has summed up in place of another{because}."
    return None


def _absent(record: Mapping[str, Any]) -> str | None:
    """Those who were asked and have not answered."""
    absent = [one for one in _rows(record.get("responses")) if one.get("state") in ("failed", "cancelled")]
    if not absent:
        return None
    reasons = "; ".join(
        f"{one.get('name')}: {_short(one.get('error') or one.get('state'))}" for one in absent[:_MOST_NAMED]
    )
    rest = f"; and {len(absent) - _MOST_NAMED} more" if len(absent) > _MOST_NAMED else ""
    return f"{len(absent)} of {record.get('total_fighters')} have not answered: {reasons}{rest}"


def documents(retrieval: Mapping[str, Any]) -> str:
    """What was found to read, and what went wrong with it."""
    passages, problem = len(_list(retrieval.get("passages"))), retrieval.get("problem")
    number = f"{passages} passage{'' if passages == 1 else 's'}"
    if not problem:
        return f"Documents: {number} found."
    if not passages:
        return f"Documents: nothing was read: {_short(problem)}"
    by = "by words alone" if retrieval.get("how") == "words" else f"by {retrieval.get('how')}"
    return f"Documents: {number} found, {by}: {_short(problem)}"


def _short(told: Any) -> str:
    text = str(told or "no reason given")
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 1] + "…"


def _mapping(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, Mapping) else {}


def _list(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else []


def _rows(given: Any) -> list[Mapping[str, Any]]:
    return [row for row in _list(given) if isinstance(row, Mapping)]
