"""A collector that takes traces over OTLP/HTTP, and a model server that remembers what it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_NANO = 1_000_000_000


class Span(NamedTuple):
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start: float
    end: float
    attributes: Mapping[str, Any]
    error: str
    service: str


@dataclass
class Collector:
    url: str
    spans: list[Span] = field(default_factory=list)
    asked: list[Mapping[str, str]] = field(default_factory=list)  # headers of calls to the model

    def roots(self) -> list[Span]:
        """The tasks' own spans, in the order of their beginnings."""
        return sorted((s for s in self.spans if s.name.startswith("task ")), key=lambda s: s.start)

    def under(self, root: Span) -> list[Span]:
        return sorted((s for s in self.spans if s.parent_id == root.span_id), key=lambda s: (s.start, s.end))


@contextmanager
def collecting() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/traces":
                collector.spans += _decoded(body)
                self._answer(b"", "application/x-protobuf")
            else:
                collector.asked.append(dict(self.headers.items()))
                message = {"role": "assistant", "content": "hello"}
                choice = {"index": 0, "finish_reason": "stop", "message": message}
                usage = {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
                answer = {
                    "id": "c",
                    "object": "chat.completion",
                    "model": "m",
                    "choices": [choice],
                    "usage": usage,
                }
                self._answer(json.dumps(answer).encode(), "application/json")

        def do_GET(self) -> None:
            self._answer(b'{"object": "list", "data": [{"id": "m", "object": "model"}]}', "application/json")

        def _answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, name="collector")
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


def _decoded(body: bytes) -> Iterator[Span]:
    request = ExportTraceServiceRequest.FromString(body)
    for resource in request.resource_spans:
        named = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Span(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.start_time_unix_nano / _NANO,
                    span.end_time_unix_nano / _NANO,
                    {pair.key: _value(pair.value) for pair in span.attributes},
                    span.status.message,
                    named["service.name"],
                )


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))
