"""Whatever a client sends, the simulated model server answers or refuses it in the protocol's form."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.testing import ModelServer

CHAT = "/chat/completions"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "one two"}]},
    "/completions": {"prompt": "one two"},
    "/embeddings": {"input": "one two"},
}
FIELDS = [
    *("messages", "prompt", "input", "stream", "stream_options", "include_usage", "n", "stop", "echo"),
    *("max_tokens", "max_completion_tokens", "logprobs", "top_logprobs", "dimensions", "encoding_format"),
    *("tools", "tool_choice", "function", "name", "parameters", "response_format", "json_schema", "schema"),
    *("role", "content", "text", "type", "properties", "required", "items", "anyOf", "minItems", "enum"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer.in_thread() as server:
        yield server
        assert (server.stats.in_flight, server.stats.aborted, server.stats.disconnected) == (0, 0, 0)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**40) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_no_body_breaks_the_server(server: ModelServer, data: st.DataObject) -> None:
    """Promise 7."""
    path, given_fields = data.draw(st.sampled_from(sorted(BODIES.items())))
    extra = data.draw(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4))
    body = {"model": "simulated", **given_fields, **extra}
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), method="POST")
    try:
        with urllib.request.urlopen(request) as response:
            status, answer = response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            status, answer = error.code, error.read()
    assert status in (200, 400, 404), (status, answer)
    assert status == 200 or set(json.loads(answer)["error"]) == {"message", "type", "param", "code"}
