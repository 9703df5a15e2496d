"""Which parts a config leads to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import penstock
from penstock.config import parse
from penstock.errors import ConfigError, UsageError
from penstock.wiring import are_traced, make_traces, open_store, read_config


async def test_a_python_host_finds_what_lies_beside_its_config(tmp_path: Path) -> None:
    (tmp_path / "beside_the_config.py").write_text("def double(n):\n    return 2 * n\n")
    config = tmp_path / "penstock.toml"
    config.write_text('[hosts.h]\ntype = "python"\ncall = "beside_the_config:double"\n')
    async with penstock.open(config) as p:
        result = await p.wait(await p.submit(penstock.Task("k", 21)))
    assert (result.state, result.value) == (penstock.State.DONE, 42)


def test_all_that_is_wrong_with_the_hosts_options_is_told_at_once(tmp_path: Path) -> None:
    """Promise 7: an adapter's problems come together, each with its host."""
    text = '[hosts.a]\ntype = "python"\n[hosts.b]\ntype = "command"\nargv = []\n'
    with pytest.raises(ConfigError) as caught:
        parse(text, tmp_path / "penstock.toml")
    assert [
        told.partition(": is missing")[0].partition("penstock.toml")[2] for told in caught.value.problems
    ] == [
        ":1: hosts.a.call",
        ":5: hosts.b.argv",
    ]


def test_a_store_whose_driver_is_not_installed_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text('store = "postgresql://somewhere/queue"\n')
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    for module in [name for name in sys.modules if name.startswith("penstock.store.postgres_")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(UsageError, match=r"pip install 'penstock-ai\[postgres\]'"):
        open_store(read_config(path))


VARIABLES = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_SDK_DISABLED",
    "OTEL_TRACES_EXPORTER",
)
TRACED = '[telemetry]\notlp_endpoint = "http://127.0.0.1:4318"\n'


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("text", "variables", "traced"),
    [
        ("", {}, False),
        (TRACED, {}, True),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ("", {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        (TRACED, {"OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_traces_are_sent_where_the_config_or_the_standard_variables_name_a_collector(
    text: str, variables: dict[str, str], traced: bool, environment: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    assert are_traced(parse(text)) is traced


def test_without_opentelemetry_a_collector_in_the_config_is_an_error_with_its_remedy(
    environment: pytest.MonkeyPatch,
) -> None:
    """One in the environment may be meant for other programs."""
    environment.delitem(sys.modules, "penstock.telemetry.traces", raising=False)
    environment.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(UsageError, match=r"pip install 'penstock-ai\[otel\]'"):
        make_traces(parse(TRACED))
    environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")
    assert make_traces(parse("")) is None


@pytest.mark.parametrize(
    "endpoint", ["127.0.0.1:4318", "ftp://c", "http://", "http://c:port", "http://u:p@c"]
)
def test_an_endpoint_that_is_no_url_is_refused(endpoint: str) -> None:
    """Promise 7"""
    with pytest.raises(ConfigError, match="otlp_endpoint"):
        parse(f'[telemetry]\notlp_endpoint = "{endpoint}"\n')
