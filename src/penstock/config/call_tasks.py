"""What a call of a model is as a task, however it comes in: by /v1, by `penstock ask`, from our own attempts.

The kind says for good that it is a call: in the queue, in the store, in a replay. Calls go to the hosts that have
their model, and to no others.
"""

from __future__ import annotations

from typing import Any

from penstock.model import CHAT_CALL, COMPLETION_CALL, EMBEDDING_CALL, OnCrash, Task

# The endpoints of /v1 that are calls, each with the kind of its tasks.
CALL_KIND_OF = {
    "chat/completions": CHAT_CALL,
    "completions": COMPLETION_CALL,
    "embeddings": EMBEDDING_CALL,
}


def call_task(endpoint: str, model: str, payload: Any = None, **fields: Any) -> Task:
    """The task of a call: `model` is a name that `Names.asked` gave, `fields` are those of `Task`.

    Somebody waits for its answer, and its way back is gone when the dispatcher is: then the call ends as well.
    """
    return Task(CALL_KIND_OF[endpoint], payload, model=model, on_crash=OnCrash.CANCEL, **fields)
