"""OpenTelemetry: a span for each generation, in which switches and losses of its engine are events."""

import logging
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING

from runtime.errors import RuntimeFault
from runtime.stream import Delta

if TYPE_CHECKING:  # an extra, which is loaded where a collector is named
    from opentelemetry.trace import Span, Tracer

log = logging.getLogger(__name__)

LAST_S = 2.0
"""For what was not sent when the service ends; a collector may hang."""


@contextmanager
def tracing(collector: str | None) -> "Iterator[Tracer | None]":
    """What makes spans, and sends them in a thread of its own; None where no collector is named.

    The OpenTelemetry SDK reads ``OTEL_...`` itself.
    """
    if collector is None:
        yield None
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("no traces are sent to %s: install the extra, `pip install 'intentctl[otel]'`", collector)
        yield None
        return
    provider = TracerProvider(resource=Resource.create({"service.name": "intentctl"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield provider.get_tracer("intentctl")
    finally:
        ending = threading.Thread(target=provider.shutdown, daemon=True)
        ending.start()
        ending.join(LAST_S)


def begun(tracer: "Tracer", model: str, headers: Mapping[str, str]) -> "Span":
    """The span of a request's generation; ``traceparent`` of the headers is above it."""
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    above = TraceContextTextMapPropagator().extract(headers)
    about = {"gen_ai.operation.name": "generate", "gen_ai.request.model": model}
    return tracer.start_span(f"generate {model}", above, SpanKind.SERVER, about)


async def told(generation: AsyncGenerator[Delta, None], span: "Span") -> AsyncGenerator[Delta, None]:
    """The generation, of which the span tells first token, switches, pauses and end."""
    fingerprint = ""
    try:
        async with aclosing(generation):
            async for delta in generation:
                if delta.is_pause:
                    span.add_event("engine lost")
                elif delta.fingerprint != fingerprint:
                    span.add_event("switched" if fingerprint else "first token", {"topology": delta.fingerprint})
                    fingerprint = delta.fingerprint
                if delta.route:
                    span.set_attribute("intentctl.route", delta.route)
                if delta.usage is not None:
                    span.set_attribute("gen_ai.usage.input_tokens", delta.usage.prompt_tokens)
                    span.set_attribute("gen_ai.usage.output_tokens", delta.usage.completion_tokens)
                yield delta
    except RuntimeFault as error:
        span.record_exception(error)
        raise
    finally:
        span.end()
