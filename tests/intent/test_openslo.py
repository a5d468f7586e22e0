"""OpenSLO: what is exported comes back the same, what cannot be said is listed, anything else is refused with its path."""

import copy
import json
from typing import get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from intent.models import (
    LATENCIES,
    UNITS,
    Config,
    DatedWindow,
    FromNowWindow,
    Intent,
    Metric,
    Objective,
    PrecisionRule,
    Priority,
    RecurringWindow,
    TranslatorInfo,
)
from intent.openslo import TARGETS, buckets, export, histogram, tables
from intent.openslo_import import read
from intent.openslo_values import OpenSloError

NAMES = st.text(min_size=1, max_size=20).filter(lambda text: text.strip() and max(text) < "\ud800")
WINDOWS = st.one_of(
    st.sampled_from(("always", "peak", "off_peak", "lunch")),
    st.just(RecurringWindow(("mon", "fri"), "22:00", "06:00", "Asia/Tokyo")),
    st.just(DatedWindow("2026-11-11", "00:00", "24:00", "UTC")),
    st.builds(FromNowWindow, st.floats(1, 1e6)),
)
POSITIVE = st.floats(1e-6, 1e6)
EVIDENCE = NAMES.filter(str.strip)


@st.composite
def expressible(draw):
    metric = draw(st.sampled_from([*LATENCIES, *tables()["thresholds"]]))
    latency = metric in LATENCIES
    stats = [*TARGETS, "mean"] if latency else [None, "p95", "mean"]
    stat = draw(st.sampled_from(stats))
    return Objective(
        metric,
        draw(st.sampled_from(["<="] if latency and stat != "mean" else ["<=", ">="])),
        draw(EVIDENCE),
        stat=stat,
        value=draw(POSITIVE),
        unit=UNITS[metric][0],
        window=draw(WINDOWS),
        tenant=draw(st.none() | NAMES),
        model=draw(st.none() | NAMES),
        soft=draw(st.booleans()),
    )


def intent_of(*goals, language="en") -> Intent:
    return Intent("text", language, goals, TranslatorInfo("rules"))


def slo(**changes) -> dict:
    goal = Objective("ttft", "<=", "p99 TTFT under 2.5 s", stat="p99", value=2.5, unit="s", **changes)
    (document,) = export(intent_of(goal)).slos
    return document


@given(st.lists(expressible(), min_size=1, max_size=4))
def test_export_then_import_gives_the_same_goals(goals):
    exported = export(intent_of(*goals))
    written = yaml.safe_dump_all(json.loads(json.dumps(exported.slos)))
    imported = read(list(yaml.safe_load_all(written)))

    assert imported.intent.goals == tuple(goals)
    assert imported.left_out == ()
    assert all(goal.evidence in imported.intent.text for goal in goals)


def test_a_percentile_is_a_share_of_requests_in_a_bucket():
    document = slo(window="peak", tenant="free", model="llama-70b")
    spec = document["spec"]
    ratio = spec["indicator"]["spec"]["ratioMetric"]

    assert spec["objectives"][0]["target"] == 0.99
    assert spec["budgetingMethod"] == "Occurrences"
    assert 'vllm:time_to_first_token_seconds_bucket{le="2.5",model_name="llama-70b"}' in str(ratio["good"])
    assert 'vllm:time_to_first_token_seconds_count{model_name="llama-70b"}' in str(ratio["total"])
    assert document["metadata"]["labels"] == {"window": "peak", "tenant": "free", "model": "llama-70b"}
    assert document["metadata"]["annotations"]["intentctl.dev/window"] == "peak"


def test_other_bounds_are_thresholds_in_slices_of_time():
    goal = Objective("gpu_util", ">=", "GPU utilisation above 70%", value=0.7, unit="ratio")
    spec = export(intent_of(goal)).slos[0]["spec"]

    assert "thresholdMetric" in spec["indicator"]["spec"]
    assert spec["budgetingMethod"] == "Timeslices"
    assert (spec["objectives"][0]["op"], spec["objectives"][0]["value"]) == ("gte", 0.7)


def test_every_name_is_a_dns_label_and_stands_once():
    goals = [
        Objective(m, "<=", "x", stat="p99.9" if m in LATENCIES else None, value=1.0) for m in get_args(Metric)
    ]
    names = [one["metadata"]["name"] for one in export(intent_of(*goals, *goals)).slos]

    assert len(set(names)) == len(names)
    assert all(name.replace("-", "").isalnum() and name == name.lower() and len(name) <= 63 for name in names)


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        (Objective("cost", "minimize", "cheap"), "minimize"),
        (Objective("cost", "<=", "$40/h", value=40.0, unit="USD/h"), "cost"),
        (Objective("gpu_count", "==", "4 GPUs", value=4.0, unit="gpus"), "=="),
        (Objective("reconfig_pause", "<=", "pause", value=0.1, unit="s"), "pause"),
        (Objective("ttft", ">=", "slow", stat="p99", value=2.0, unit="s"), ">="),
        (Objective("ttft", "<=", "no stat", value=2.0, unit="s"), "statistic"),
        (PrecisionRule("forbid", "int4", "no int4"), "precision"),
        (Priority("latency", "latency first"), "priority"),
        (Config("tp", "==", 2, "tp=2"), "config"),
    ],
)
def test_what_cannot_be_said_is_listed_and_nothing_is_written_for_it(goal, said):
    exported = export(intent_of(goal))

    assert exported.slos == ()
    (loss,) = exported.left_out
    assert loss.pointer == "/goals/0"
    assert said in loss.message


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"window": "peak"}, "window"), ({"tenant": "free"}, "tenant"), ({"soft": True}, "preference")],
)
def test_what_is_kept_without_effect_is_listed_too(changes, said):
    goal = Objective("ttft", "<=", "x", stat="p99", value=2.5, unit="s", **changes)
    exported = export(intent_of(goal))

    assert len(exported.slos) == 1
    assert said in exported.left_out[0].message


def test_a_bound_between_two_buckets_is_warned_about_with_both():
    (loss,) = export(intent_of(Objective("ttft", "<=", "x", stat="p99", value=2.0, unit="s"))).left_out

    assert "1 / 2.5 s" in loss.message
    assert "vllm:time_to_first_token_seconds" in loss.message


def test_losses_are_said_in_the_language_of_the_intent():
    (loss,) = export(intent_of(Priority("latency", "延迟优先"), language="zh")).left_out

    assert "目标" in loss.message


@pytest.mark.vllm
def test_the_histograms_are_those_of_the_vllm_that_is_installed():
    from pathlib import Path

    import vllm
    from vllm.v1.metrics import buckets as theirs

    assert buckets("ttft") == theirs.TIME_TO_FIRST_TOKEN_BUCKETS
    assert buckets("tpot") == theirs.INTER_TOKEN_LATENCY_BUCKETS
    assert buckets("e2e") == theirs.REQUEST_LATENCY_BUCKETS
    source = (Path(vllm.__file__).parent / "v1" / "metrics" / "loggers.py").read_text()
    assert all(f'"{histogram(metric)}"' in source for metric in LATENCIES)


# -- what others write ---------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("document", [None, 3, "text", [], {}, {"apiVersion": "openslo/v1"}])
def test_what_is_no_slo_is_refused(document):
    with pytest.raises(OpenSloError):
        read([document])
    with pytest.raises(OpenSloError):
        read([])


def threshold(text: str, **objective) -> dict:
    goal = Objective("gpu_util", ">=", "GPU utilisation", value=0.7, unit="ratio")
    (document,) = export(intent_of(goal)).slos
    document["metadata"]["annotations"] = {}
    document["spec"]["indicator"]["spec"]["thresholdMetric"]["metricSource"]["spec"]["query"] = text
    document["spec"]["objectives"][0] |= objective
    return document


def test_a_quantile_with_a_threshold_is_a_latency_bound():
    text = "histogram_quantile(0.95, sum by (le) (rate(vllm:e2e_request_latency_seconds_bucket[10m])))"
    (goal,) = read([threshold(text, op="lte", value=12)]).intent.goals

    assert (goal.metric, goal.stat, goal.op, goal.value) == ("e2e", "p95", "<=", 12.0)


@pytest.mark.parametrize(
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
    document["spec"]["timeWindow"][0]["duration"] = "7d"
    imported = read([document])

    assert [loss.pointer for loss in imported.left_out] == ["/0/spec/timeWindow/0", "/0/spec/objectives/0"]
    assert len(imported.intent.goals) == 1


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
