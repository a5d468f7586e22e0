"""What each engine exposes to Prometheus, and the queries about it: names, buckets and PromQL. Pure."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from intent.models import Metric
from intent.openslo.promql import quoted
from intent.tables import table

EngineName = Literal["torch", "vllm"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
SLICE = "5m"
"""What the queries look back on, and the slice of time that a threshold holds in."""


def histogram(engine: EngineName, metric: str) -> str:
    """The name of the histogram of a latency."""
    return str(_exposed(engine)["histograms"][metric]["name"])


def buckets(engine: EngineName, metric: str) -> tuple[float, ...]:
    """The bounds of a latency's histogram, in seconds."""
    return tuple(_exposed(engine)["histograms"][metric]["buckets"])


def thresholds(engine: EngineName) -> Mapping[Metric, str]:
    """Patterns of the queries whose value a bound can be held against."""
    patterns: Mapping[Metric, str] = _exposed(engine)["thresholds"]
    return patterns


def tells_models_apart(engine: EngineName, metric: Metric) -> bool:
    """Whether the query of a metric can be about one model."""
    pattern = thresholds(engine).get(metric)
    return pattern is None or "model}" in pattern


def query(engine: EngineName, metric: Metric, model: str | None) -> str:
    """The query whose value a threshold bounds."""
    matcher = f"model_name={quoted(model)}" if model else ""
    braces, behind = (f"{{{matcher}}}", f",{matcher}") if matcher else ("", "")
    return thresholds(engine)[metric].format(model=braces, and_model=behind)


def mean_query(engine: EngineName, metric: Metric, model: str | None) -> str:
    """The query of a latency's mean."""
    labels = f"{{model_name={quoted(model)}}}" if model else ""
    name = histogram(engine, metric)
    return f"sum(rate({name}_sum{labels}[{SLICE}])) / sum(rate({name}_count{labels}[{SLICE}]))"


def _exposed(engine: EngineName) -> Mapping[str, Any]:
    found: Mapping[str, Any] = table(__package__, "tables")["engines"][engine]
    return found
