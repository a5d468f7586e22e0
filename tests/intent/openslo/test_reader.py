"""What others write is read where it says a bound that we know; anything else is refused with its path."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.models import Intent, Objective, TranslatorInfo
from intent.openslo.export import export
from intent.openslo.reader import OpenSloError, read
from tests.rows import rows


def exported(goal: Objective) -> dict:
    (document,) = export(Intent("text", "en", (goal,), TranslatorInfo("rules")), "vllm").slos
    return document


def slo() -> dict:
    return exported(Objective("ttft", "<=", "p99 TTFT under 2.5 s", stat="p99", value=2.5, unit="s"))


def changed(path: str, value: object) -> dict:
    """A good document with one value changed, or taken out."""
    document = copy.deepcopy(slo())
    *parents, last = path.strip("/").split("/")
    place = document
    for key in parents:
        place = place[int(key)] if isinstance(place, list) else place[key]
    if value is ...:
        del place[last]
    elif isinstance(place, list):
        place[int(last)] = value
    else:
        place[last] = value
    return document


QUERY = "indicator/spec/ratioMetric/good/metricSource/spec/query"


@rows(
    ("path", "value", "where"),
    [
        ("apiVersion", "openslo/v1alpha", "/0/apiVersion"),
        ("kind", "Service", "/0/kind"),
        ("metadata/name", ..., "/0/metadata/name"),
        ("metadata/owner", "me", "/0/metadata/owner"),
        ("metadata/annotations", {"intentctl.dev/colour": "red"}, "intentctl.dev/colour"),
        ("metadata/annotations", {"intentctl.dev/window": "{broken"}, "intentctl.dev/window"),
        ("metadata/annotations", {"intentctl.dev/window": '{"days": 3}'}, "intentctl.dev/window"),
        ("metadata/annotations", {"intentctl.dev/window": 5}, "intentctl.dev/window"),
        ("metadata/annotations", {"intentctl.dev/metric": "e2e"}, "intentctl.dev/metric"),
        ("metadata/annotations", {"intentctl.dev/stat": "p50"}, "intentctl.dev/stat"),
        ("metadata/annotations", "x", "/0/metadata/annotations"),
        ("spec/alertPolicies", [], "/0/spec/alertPolicies"),
        ("spec/indicatorRef", "x", "/0/spec/indicatorRef"),
        ("spec/objectives", [], "/0/spec/objectives"),
        ("spec/objectives/0/target", 0.97, "/0/spec/objectives/0/target"),
        ("spec/objectives/0/target", 1.0, "/0/spec/objectives/0/target"),
        ("spec/objectives/0/target", float("nan"), "/0/spec/objectives/0/target"),
        ("spec/objectives/0/target", True, "/0/spec/objectives/0/target"),
        ("spec/objectives/0/target", ..., "/0/spec/objectives/0/target"),
        ("spec/objectives/0/compositeWeight", 1, "/0/spec/objectives/0/compositeWeight"),
        ("spec/budgetingMethod", "Timeslices", "/0/spec/budgetingMethod"),
        ("spec/timeWindow", [{"duration": "1d"}, {"duration": "2d"}], "/0/spec/timeWindow"),
        ("spec/timeWindow/0/duration", "soon", "/0/spec/timeWindow/0/duration"),
        (f"spec/{QUERY}", "up", "/ratioMetric/good"),
        (f"spec/{QUERY}", 'sum(rate(http_seconds_bucket{le="1"}[5m]))', "/ratioMetric/total"),
        (f"spec/{QUERY}", 'sum(rate(vllm:time_to_first_token_seconds_bucket{le="x"}[5m]))', "/ratioMetric/good"),
        (f"spec/{QUERY}", 'sum(rate(vllm:time_to_first_token_seconds_bucket{le="1",pod="a"}[5m]))', "/ratioMetric/good"),
        (f"spec/{QUERY}", 'sum(rate(vllm:time_to_first_token_seconds_bucket{le!="1"}[5m]))', "/ratioMetric/good"),
        (f"spec/{QUERY}", 'sum(rate(vllm:time_to_first_token_seconds_bucket{le="1"}[1h]))', "/ratioMetric/total"),
        ("spec/indicator/spec/ratioMetric/bad", {}, "/ratioMetric/bad"),
        ("spec/indicator/spec/ratioMetric/good/metricSource/type", "Datadog", "/metricSource/type"),
        ("spec/indicator/spec", 3, "/0/spec/indicator/spec"),
        ("spec/description", 3, "/0/spec/description"),
        ("spec/description", "half \ud800", "/0/spec/description"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_its_path(path, value, where):
    with pytest.raises(OpenSloError) as refused:
        read([changed(path, value)])
    assert where in refused.value.path
    assert refused.value.problem


@rows("document", [None, 3, "text", [], {}, {"apiVersion": "openslo/v1"}])
def test_what_is_no_slo_is_refused(document):
    with pytest.raises(OpenSloError):
        read([document])
    with pytest.raises(OpenSloError):
        read([])


def threshold(text: str, **objective) -> dict:
    goal = Objective("gpu_util", ">=", "GPU utilisation", value=0.7, unit="ratio")
    document = exported(goal)
    document["metadata"]["annotations"] = {}
    document["spec"]["indicator"]["spec"]["thresholdMetric"]["metricSource"]["spec"]["query"] = text
    document["spec"]["objectives"][0] |= objective
    return document


def test_a_quantile_with_a_threshold_is_a_latency_bound():
    text = "histogram_quantile(0.95, sum by (le) (rate(vllm:e2e_request_latency_seconds_bucket[10m])))"
    (goal,) = read([threshold(text, op="lte", value=12)]).intent.goals
    assert (goal.metric, goal.stat, goal.op, goal.value) == ("e2e", "p95", "<=", 12.0)


@rows(
    ("text", "objective"),
    [
        ("up", {}),
        ("avg(avg_over_time(DCGM_FI_DEV_GPU_UTIL[5m]))", {}),
        ("avg(avg_over_time(DCGM_FI_DEV_GPU_UTIL[5m])) / 100", {"op": "gt"}),
        ("avg(avg_over_time(DCGM_FI_DEV_GPU_UTIL[5m])) / 100", {"value": "0.7"}),
        ("avg(avg_over_time(DCGM_FI_DEV_GPU_UTIL[5m])) / 100", {"timeSliceTarget": 0.9}),
        ("histogram_quantile(0.97, sum by (le) (rate(vllm:e2e_request_latency_seconds_bucket[10m])))", {"op": "lte"}),
        ("histogram_quantile(0.95, sum by (le) (rate(vllm:e2e_request_latency_seconds_bucket[10m])))", {"op": "gte"}),
    ],
)  # fmt: skip
def test_a_threshold_that_is_not_recognised_is_refused(text, objective):
    with pytest.raises(OpenSloError):
        read([threshold(text, **objective)])


def test_a_budget_and_a_period_that_an_intent_cannot_hold_are_listed():
    document = threshold("avg(avg_over_time(DCGM_FI_DEV_GPU_UTIL[5m]))/100", target=0.999)
    document["spec"]["timeWindow"][0]["duration"] = "1M"
    imported = read([document])
    assert [loss.pointer for loss in imported.left_out] == ["/0/spec/timeWindow/0", "/0/spec/objectives/0"]
    assert len(imported.intent.goals) == 1


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_no_document_raises_anything_but_a_named_refusal(data):
    for documents in (
        [data],
        [changed("spec", data)],
        [changed("metadata", data)],
        [changed("spec/indicator", data)],
    ):
        with pytest.raises(OpenSloError):
            read(documents)
