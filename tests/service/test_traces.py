"""Spans of generations, as a collector gets them; what cannot be sent is in nobody's way."""

import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from runtime.stream import Delta
from service.deployment.settings import read_settings
from service.serving.traces import begun, told, tracing
from tests.rows import rows
from tests.service.test_openai_switches import TEXT, TRACEPARENT, chunks_of

pytestmark = pytest.mark.slow


@pytest.fixture
def collected(monkeypatch) -> Iterator[list[Span]]:
    """Spans that a collector was sent, by the address in the environment."""
    found = list[Span]()

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                found.extend(resource.scope_spans[0].spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield found
        server.shutdown()


@rows(
    ("is_lost", "events"),
    [(False, ["first token", "switched"]), (True, ["first token", "engine lost", "switched"])],
)
async def test_a_request_is_a_span_with_its_switches_and_losses(collected, is_lost, events):
    collected.clear()
    with tracing(read_settings().otlp_endpoint) as tracer:
        await chunks_of("/completions", TEXT, 20, is_lost=is_lost, tracer=tracer)
    (span,) = collected
    assert (span.name, span.trace_id.hex(), span.parent_span_id.hex()) == ("generate m", *TRACEPARENT.split("-")[1:3])
    assert [*dict.fromkeys(event.name for event in span.events)] == events
    shapes = [event.attributes[0].value.string_value for event in span.events if event.attributes]
    assert len({*shapes}) == 2
    numbers = {each.key: each.value.int_value for each in span.attributes}
    assert numbers["gen_ai.usage.input_tokens"] == 2


async def test_without_the_extra_or_a_collector_that_hears_requests_are_served(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with tracing("http://127.0.0.1:9") as tracer:
        assert await chunks_of("/completions", TEXT, None, tracer=tracer)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with tracing("http://collector:4318") as tracer:
        assert tracer is None
    assert "no traces are sent to http://collector:4318: install the extra" in caplog.text
    with tracing(None) as tracer:
        assert tracer is None


async def test_a_span_says_which_replica_has_the_request_and_why(collected):
    async def generation():
        yield Delta("a", 1, 0.0, (), 0, None, "0-TP2", 0.0, route="CPU[0,1] 0.1+1 s; else CPU[2,3] 0.2+1 s")
        yield Delta("b", 2, 0.0, (), 1, None, "0-TP2", 0.0)

    with tracing(read_settings().otlp_endpoint) as tracer:
        assert [delta.text async for delta in told(generation(), begun(tracer, "m", {}))] == ["a", "b"]
    (span,) = collected
    assert {each.key: each.value.string_value for each in span.attributes}["intentctl.route"].startswith("CPU[0,1] 0.1")
