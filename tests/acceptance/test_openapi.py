"""schemathesis over our own OpenAPI document: no 5xx, no undocumented answer, whatever is sent.

A fixed number of cases per operation, always the same ones. Streams are left out: they do not end.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from penstock.web.door import OPEN

CASES = 100 if os.environ.get("PENSTOCK_SOAK") else 5
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
]
ENDLESS = "/api/events"

CONFIG = """
store = "penstock.db"

[hosts.small]
type = "simulated"
slots = 4
duration_s = 0

[hosts.thinker]
type = "python"
call = "thinking:think"
serves = ["thinking"]
slots = 4

[councils.shenron]
members = [
  { name = "GOKU", kind = "thinking", host = "thinker" },
  { name = "VEGETA", kind = "thinking", host = "thinker" },
]
"""
THINKING = 'def think(payload):\n    return "It is so."\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Its address, and the secret of a token that may do everything."""
    folder: Path = tmp_path_factory.mktemp("server")
    (folder / "penstock.toml").write_text(CONFIG)
    (folder / "thinking.py").write_text(THINKING)
    penstock = [sys.executable, "-m", "penstock"]
    made = subprocess.run(
        [*penstock, "token", "add", "all", "--scope", "submit,read,admin"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    process = subprocess.Popen(
        [*penstock, "serve", "--port", "0"], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        line = next(line for line in process.stderr if " ready " in line)
        found = re.search(r"http://[\w.:]+", line)
        assert found is not None
        yield found[0], made.stdout.strip()
        process.send_signal(signal.SIGTERM)
        log = process.stderr.read()
        assert process.wait(60) == 0
        assert "a request failed" not in log
    finally:
        process.kill()
        process.wait(60)
        process.stderr.close()


def test_no_answer_is_a_fault_or_undocumented(server: tuple[str, str]) -> None:
    """E4, B7: whatever is sent to whatever route."""
    url, secret = server
    headers = {"Authorization": f"Bearer {secret}"}
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", headers=headers)
    answered: Counter[int] = Counter()
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        if operation.path == ENDLESS:
            continue

        either = operation.as_strategy() | operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)

        @hypothesis.given(case=either)
        @hypothesis.settings(
            max_examples=CASES,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        def try_case(case: Any) -> None:
            response = case.call(headers=headers, timeout=30)
            answered[response.status_code // 100] += 1
            case.validate_response(response, checks=CHECKS)

        try_case()
    assert min(answered[2], answered[4]) >= 3 * CASES, "good and bad requests were tried"


def test_every_route_documents_its_refusals(server: tuple[str, str]) -> None:
    url, secret = server
    schema = schemathesis.openapi.from_url(
        f"{url}/openapi.json", headers={"Authorization": f"Bearer {secret}"}
    )
    paths = schema.raw_schema["paths"]
    assert "/api/tasks" in paths
    for path, methods in paths.items():
        for method, operation in methods.items():
            statuses = set(operation["responses"])
            assert "405" in statuses or "4XX" in statuses, (method, path)
            assert path in OPEN or statuses & {"401", "4XX"}, (method, path)
            assert operation["security"] == ([] if path in OPEN else [{"token": []}])
