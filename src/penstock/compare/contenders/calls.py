"""One call of a model server with the standard library, as the ways with threads and processes make it."""

from __future__ import annotations

import json
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from penstock.compare.plan import Place, Work

PATH = "/v1/chat/completions"


class CallFailed(Exception):
    """No answer; another host, or another time, may have one."""


def body(work: Work) -> dict[str, Any]:
    """The same for every contender; the answer begins with the task's id."""
    return {
        "model": "simulated",
        "messages": [{"role": "user", "content": work.id}],
        "max_tokens": work.amount,
    }


def text_of(reply: Any) -> str:
    """The answer's first word is all that is kept."""
    try:
        return str(reply["choices"][0]["message"]["content"]).split()[0]
    except (KeyError, IndexError, TypeError) as error:
        raise CallFailed(f"an answer without a text: {error!r}") from None


def ask(place: Place, work: Work, timeout_s: float) -> str:
    address = urlsplit(place.url)
    connection = HTTPConnection(str(address.hostname), address.port, timeout=timeout_s)
    try:
        with closing(connection):
            connection.request("POST", PATH, json.dumps(body(work)), {"Content-Type": "application/json"})
            response = connection.getresponse()
            data = response.read()
    except (OSError, HTTPException) as error:
        raise CallFailed(f"{place.name}: {type(error).__name__}: {error}") from None
    if response.status != 200:
        raise CallFailed(f"{place.name}: HTTP {response.status}")
    return text_of(json.loads(data))
