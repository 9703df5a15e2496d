"""What a reviewer's reply counts for: every shown answer ranked once and scored on every point, or nothing.

    {"reasons": {"A": "…", …},                   a sentence for every label
     "scores":  {"A": {"accuracy": 4, …}, …},    1 (poor) to 5 (excellent), every label, every point
     "ranking": ["B", "A"]}                      best first, each label exactly once

A label leads to a name only through the order that this reviewer was shown, and its own name is never in it:
so no reply, whatever it says, is a vote for its author. What a reply says beyond these three keys is not read.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.council.plan.anonymity import label_of
from penstock.council.plan.objects import Flaw, plain, quoted, the_object

LEAST_SCORE, MOST_SCORE = 1, 5
LONGEST_REASON = 600
_MOST_PROBLEMS = 8
_MOST_NAMED = 6  # labels of one problem
_LABEL = re.compile(r"\s*(?:answer\s+)?([A-Za-z]{1,2})\s*", re.IGNORECASE)
_NUMBER = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*")


@dataclass(frozen=True, slots=True)
class Ballot:
    """A vote that counts. `ranks` are the names of `order`, best first."""

    reviewer: str
    order: tuple[str, ...]
    ranks: tuple[str, ...]
    scores: Mapping[str, Mapping[str, float]]
    reasons: Mapping[str, str]

    def __post_init__(self) -> None:
        if self.reviewer in self.order:
            raise ValueError(f"{self.reviewer} cannot review its own answer")
        if len(set(self.order)) != len(self.order) or sorted(self.ranks) != sorted(self.order):
            raise ValueError(f"the ballot of {self.reviewer} does not rank each of {self.order} once")


def response_format(shown: int, rubric: Sequence[str]) -> dict[str, Any]:
    """The form of a ballot as JSON schema, for servers that can hold a model to one."""
    labels = [label_of(position) for position in range(shown)]
    scale = {"type": "integer", "enum": list(range(LEAST_SCORE, MOST_SCORE + 1))}
    ranking = {
        "type": "array",
        "items": {"type": "string", "enum": labels},
        "minItems": shown,
        "maxItems": shown,
    }
    points = _object(dict.fromkeys(rubric, scale))
    schema = _object(
        {
            "reasons": _object({label: {"type": "string"} for label in labels}),
            "scores": _object(dict.fromkeys(labels, points)),
            "ranking": ranking,
        }
    )
    return {"type": "json_schema", "json_schema": {"name": "review", "strict": True, "schema": schema}}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def read_ballot(reply: str, reviewer: str, order: Sequence[str], rubric: Sequence[str]) -> Ballot | Flaw:
    """The vote in a reply to the prompt that showed `order`, or what is wrong with it, in words."""
    if reviewer in order:
        raise ValueError(f"{reviewer} was shown its own answer")
    value = the_object(reply, "ranking")
    if isinstance(value, Flaw):
        return value
    names = {label_of(position): name for position, name in enumerate(order)}
    ranks, problems = _ranking(value.get("ranking"), names)
    scores, wrong_scores = _scores(value.get("scores"), names, rubric)
    reasons, wrong_reasons = _reasons(value.get("reasons"), names)
    problems = [*problems, *wrong_scores, *wrong_reasons]
    if problems:
        left = len(problems) - _MOST_PROBLEMS
        return Flaw("; ".join(problems[:_MOST_PROBLEMS]) + (f"; and {left} more" if left > 0 else ""))
    return Ballot(reviewer, tuple(order), tuple(ranks), scores, reasons)


def _ranking(value: Any, names: Mapping[str, str]) -> tuple[list[str], list[str]]:
    if not isinstance(value, list):
        return [], ["ranking: must be a list of labels, best first"]
    labels, problems = _labels("ranking", value, names)
    return [names[label] for label in labels], problems


def _labels(place: str, values: Iterable[Any], names: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Labels as given, each once, and what is wrong with the rest: in few words, however often it is wrong."""
    found: Counter[str] = Counter()
    strange: Counter[str] = Counter()
    for value in values:
        label = _label(value)
        if label in names:
            found[label] += 1
        else:
            strange[quoted(value)] += 1
    problems = [
        f"{label} is there {'twice' if times == 2 else f'{times} times'}"
        for label, times in found.items()
        if times > 1
    ]
    if strange:
        are = "is" if len(strange) == 1 else "are"
        problems.append(f"{_several(list(strange))} {are} none of the labels {', '.join(names)}")
    missing = [label for label in names if label not in found]
    if missing:
        problems.append(f"{_several(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    return list(found), [f"{place}: {problem}" for problem in problems]


def _several(names: Sequence[str]) -> str:
    shown = [
        *names[:_MOST_NAMED],
        *([f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []),
    ]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _label(value: Any) -> str:
    """ "B", "b" and "Answer B" are one label. A number is none: it may be a place or a label, from 0 or from 1."""
    match = _LABEL.fullmatch(value) if isinstance(value, str) else None
    return match[1].upper() if match else ""


def _scores(
    value: Any, names: Mapping[str, str], rubric: Sequence[str]
) -> tuple[dict[str, dict[str, float]], list[str]]:
    parts, problems = _keyed("scores", value, names)
    read: dict[str, dict[str, float]] = {}
    wrong: dict[str, list[str]] = {}  # what is wrong -> where
    for label, part in parts.items():
        if not isinstance(part, dict):
            wrong.setdefault(f"must be an object with {', '.join(rubric)}", []).append(f"scores.{label}")
            continue
        given = [(key.strip().casefold(), score) for key, score in part.items()]
        read[names[label]] = {}
        for point in rubric:
            found = [score for key, score in given if key == point.strip().casefold()]
            score = _score(found[0]) if len(found) == 1 else None
            if score is None:
                what = quoted(found[0]) if len(found) == 1 else "given twice" if found else "missing"
                told = f"{what}, must be {LEAST_SCORE} to {MOST_SCORE}"
                wrong.setdefault(told, []).append(f"scores.{label}.{point}")
            else:
                read[names[label]][point] = score
    return read, problems + [f"{_several(places)}: {what}" for what, places in wrong.items()]


def _score(value: Any) -> float | None:
    if isinstance(value, str) and (written := _NUMBER.fullmatch(value)):
        value = float(written[1])
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value) if LEAST_SCORE <= value <= MOST_SCORE else None


def _reasons(value: Any, names: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    parts, problems = _keyed("reasons", value, names)
    read: dict[str, str] = {}
    empty: list[str] = []
    for label, part in parts.items():
        reason = plain(part, LONGEST_REASON) if isinstance(part, str) else ""
        if reason:
            read[names[label]] = reason
        else:
            empty.append(f"reasons.{label}")
    return read, problems + ([f"{_several(empty)}: must be a sentence"] if empty else [])


def _keyed(place: str, value: Any, names: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """The parts of an object by label: each label once, and no other key."""
    if not isinstance(value, dict):
        return {}, [f"{place}: must be an object with the labels {', '.join(names)}"]
    found, problems = _labels(place, value, names)
    parts = {label: part for key, part in value.items() if (label := _label(key)) in found}
    return parts, problems
