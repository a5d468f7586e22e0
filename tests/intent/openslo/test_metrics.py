"""Queries name what an engine really exposes: the service's own registry, and the vLLM that is installed."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from intent.models import LATENCIES
from intent.openslo.export import buckets, histogram, mean_query, query, thresholds
from runtime.engine import EngineStats
from service.serving.metrics import Metrics
from tests.rows import rows

SELECTED = re.compile(r"(intentctl_\w+)\{([^}]*)\}")


def exposed() -> dict[str, list[dict[str, str]]]:
    """Sample name to its labels, of a service that nobody has asked anything yet."""
    text = Metrics("llama-70b").render(EngineStats(0, 0, 8, 8))
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(dict(sample.labels))
    return found


@rows("metric", [*thresholds("torch"), *sorted(LATENCIES)])
def test_the_service_exposes_what_its_queries_select(metric):
    ask = mean_query if metric in LATENCIES else query
    samples = exposed()
    for name, matchers in SELECTED.findall(ask("torch", metric, "llama-70b")):
        wanted = dict(re.findall(r'(\w+)=~?"([^"]*)"', matchers))
        assert any(
            all(re.fullmatch(pattern, labels.get(label, "")) for label, pattern in wanted.items())
            for labels in samples[name]
        )


@rows("metric", sorted(LATENCIES))
def test_the_buckets_of_the_service_are_those_of_its_queries(metric):
    bounds = [labels["le"] for labels in exposed()[f"{histogram('torch', metric)}_bucket"]]
    assert bounds == [*map(repr, buckets("torch", metric)), "+Inf"]


@pytest.mark.vllm
def test_the_histograms_are_those_of_the_vllm_that_is_installed():
    from pathlib import Path

    import vllm
    from vllm.v1.metrics import buckets as theirs

    assert buckets("vllm", "ttft") == theirs.TIME_TO_FIRST_TOKEN_BUCKETS
    assert buckets("vllm", "tpot") == theirs.INTER_TOKEN_LATENCY_BUCKETS
    assert buckets("vllm", "e2e") == theirs.REQUEST_LATENCY_BUCKETS
    source = (Path(vllm.__file__).parent / "v1" / "metrics" / "loggers.py").read_text()
    assert all(f'"{histogram("vllm", metric)}"' in source for metric in LATENCIES)
