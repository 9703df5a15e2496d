"""[telemetry]: where traces go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from penstock.config import keys
from penstock.config.tables import Table


@dataclass(frozen=True, slots=True)
class Telemetry:
    # A collector's address; None: as OTEL_EXPORTER_OTLP_ENDPOINT says, if it does.
    otlp_endpoint: str | None = None


def read_telemetry(top: Table) -> Telemetry:
    table = top.table("telemetry", "[telemetry]")
    if table is None:
        return Telemetry()
    table.only(keys.TELEMETRY)
    endpoint = table.text("otlp_endpoint", "")
    if endpoint and not _is_url(endpoint):
        table.refuse('must be a URL such as "http://127.0.0.1:4318"', "otlp_endpoint")
    elif "@" in urlsplit(endpoint).netloc:
        table.refuse(
            "has a user or password in its URL, where everybody reads it; OTEL_EXPORTER_OTLP_HEADERS takes one",
            "otlp_endpoint",
        )
    return Telemetry(otlp_endpoint=endpoint or None)


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # a port that is no number
        return False


def telemetry_document(telemetry: Telemetry) -> dict[str, Any]:
    endpoint = telemetry.otlp_endpoint
    return {} if endpoint is None else {"otlp_endpoint": endpoint}
