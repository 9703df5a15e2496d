"""What a step is made from, as a few characters: what was made from other answers is another step.

A question that is asked again keeps what is done. A review, a measure or a synthesis of fewer answers than there
are would go into its record as if it had seen them all; so the key of such a step tells what it has seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from penstock.council.plan.texts import Answer, Passage

_CHARS = 12  # of one question's few steps no two are taken for each other


def digest_of(answers: Iterable[Answer] = (), passages: Iterable[Passage] = (), *more: Any) -> str:
    """The same in every life of a question, and whatever its members are configured to."""
    said = [(one.name, one.text) for one in answers]
    found = [(one.source, one.heading, one.text) for one in passages]
    return sha256(json.dumps([said, found, *more]).encode()).hexdigest()[:_CHARS]
