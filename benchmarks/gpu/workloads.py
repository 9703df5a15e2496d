"""The two workloads: 200 mixed tasks, and questions to a council of six.

Both are the same for every way of sending them: the same calls with the same words and as many tokens to make.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

MIX = {  # kind: characters of its prompt, tokens of its answer
    "classify": (400, 16),
    "summary": (2400, 96),
    "chat": (800, 192),
    "code": (600, 384),
}
_WORDS = (
    "water",
    "gate",
    "pipe",
    "valve",
    "turbine",
    "river",
    "level",
    "pressure",
    "flow",
    "dam",
    "sluice",
    "wheel",
)


@dataclass(frozen=True, slots=True)
class Call:
    kind: str
    messages: list[dict[str, Any]]
    max_tokens: int

    def body(self, model: str, *, stream: bool = False) -> dict[str, Any]:
        return {"model": model, "messages": self.messages, "max_tokens": self.max_tokens, "stream": stream}


def mixed(count: int = 200, seed: int = 7) -> list[Call]:
    """As many of each kind, in an order by chance that is the same each time."""
    chance = random.Random(seed)
    kinds = [kind for kind in MIX for _ in range(count // len(MIX))]
    chance.shuffle(kinds)
    return [_call(kind, number, chance) for number, kind in enumerate(kinds)]


def _call(kind: str, number: int, chance: random.Random) -> Call:
    characters, tokens = MIX[kind]
    return Call(kind, [{"role": "user", "content": f"{number} {_text(characters, chance)}"}], tokens)


def _text(characters: int, chance: random.Random) -> str:
    words: list[str] = []
    while sum(map(len, words)) + len(words) < characters:
        words.append(chance.choice(_WORDS))
    return " ".join(words)


def questions(count: int, seed: int = 11) -> list[str]:
    chance = random.Random(seed)
    return [f"Question {number}: {_text(240, chance)}?" for number in range(count)]
