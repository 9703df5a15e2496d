"""What a simulated member of a council says: a few sentences on the question, a ballot, the chair's summing up.

For prompts that tell the model who it is; others are answered with their own words, as ever. The same prompt gets
the same answer. Whoever is somebody else, by the prompt, says something else, so that there is agreement to measure
and an order to vote for.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from itertools import cycle
from typing import Any

from penstock.testing.calls import ModelRequest

_QUESTION = re.compile(r"^Question:\n(.+?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"write this line, alone:\n(.+)\n")
_LABELS = re.compile(r"Review the answers ([A-Z]{1,2}(?:, [A-Z]{1,2})*)\.")
_POINTS = re.compile(r"for each of: (.+?)\. In \"ranking\"")
_SCALE = re.compile(r"whole number from (\d+) \(poor\) to (\d+)")
_FENCED = re.compile(r"^<<begin.*?^<<end[^\n]*$", re.MULTILINE | re.DOTALL)
_PASSAGE = re.compile(r"^<<begin passage \[(\d+)\]", re.MULTILINE)
_CONFIDENCE = "CONFIDENCE:"
_MOST_TOPIC = 8  # words of the question that an answer takes up
_OPENINGS = ("In short", "As far as I can tell", "Put plainly", "On balance", "It comes down to this")
_VIEWS = (
    "it works as long as the load stays below {number} percent",
    "the first thing to look at is what waits, and for what",
    "it fails sooner or later where nobody measures it",
    "the plain way is the right one, and the clever one costs {number} hours",
    "it depends on who has to live with it for {number} years",
    "most of it is sound, and the rest can be tried on a small case first",
)
_REASONS = ("It answers what was asked.", "It gives a figure without a reason.", "It is short and clear.")


def said(request: ModelRequest, tokens: int | None) -> str | None:
    """The answer, of about `tokens` words; None where the prompt is nobody's part to play."""
    text = request.last_text
    if not _has_part(request.body):
        return None
    chance = random.Random(request.prompt)  # noqa: S311 - a figure, not a secret
    if (labels := _LABELS.search(text)) is not None:
        return _ballot(labels[1].split(", "), text, chance)
    answer = _answer(_topic(text), _PASSAGE.findall(text), tokens, chance)
    if (mark := _MARK.search(text)) is not None:
        return f'{answer}\n\n{mark[1]}\n{{"disputes": [], "dissent": []}}'
    if _CONFIDENCE in text:
        return f"{answer}\n{_CONFIDENCE} {chance.randint(40, 95)}"
    return answer


def _has_part(body: Mapping[str, Any]) -> bool:
    messages = body.get("messages")
    first = messages[0] if isinstance(messages, list) and messages else None
    return isinstance(first, Mapping) and first.get("role") == "system"


def _topic(text: str) -> str:
    found = _QUESTION.findall(_FENCED.sub("", text))
    asked = found[-1] if found else text.strip().partition("\n")[0]
    words = asked.split()
    return " ".join(words[:_MOST_TOPIC]).rstrip("?.!,;:") + (" …" if len(words) > _MOST_TOPIC else "")


def _answer(topic: str, passages: list[str], tokens: int | None, chance: random.Random) -> str:
    views = chance.sample(_VIEWS, len(_VIEWS))
    sentences = [f"{chance.choice(_OPENINGS)}, on “{topic}”: {views[0]}."]
    wanted = 0 if tokens is None else tokens
    for number, view in enumerate(cycle([*views[1:], views[0]])):
        if number and sum(len(one.split()) for one in sentences) >= wanted:
            break
        cited = f" [{passages[number % len(passages)]}]" if passages else ""
        sentences.append(f"{view[0].upper()}{view[1:]}{cited}.")
    text = " ".join(sentences)
    while "{number}" in text:
        text = text.replace("{number}", str(chance.randint(2, 9) * 10), 1)
    return text


def _ballot(labels: list[str], text: str, chance: random.Random) -> str:
    points = found[1].split(", ") if (found := _POINTS.search(text)) is not None else []
    scale = _SCALE.search(text)
    least, most = (int(scale[1]), int(scale[2])) if scale is not None else (1, 5)
    ranking = chance.sample(labels, len(labels))
    best = {label: most - place * (most - least) // len(labels) for place, label in enumerate(ranking)}
    ballot = {
        "reasons": {label: chance.choice(_REASONS) for label in labels},
        "scores": {
            label: {point: max(least, best[label] - chance.randint(0, 1)) for point in points}
            for label in labels
        },
        "ranking": ranking,
    }
    return json.dumps(ballot)
