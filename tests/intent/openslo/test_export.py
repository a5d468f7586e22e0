"""What is exported comes back the same; what cannot be said is listed."""

import json
from typing import get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from intent.models import (
    LATENCIES,
    PERCENTILES,
    UNITS,
    Config,
    DatedWindow,
    DatesWindow,
    FromNowWindow,
    Intent,
    Metric,
    Objective,
    PrecisionRule,
    Priority,
    RecurringWindow,
    TranslatorInfo,
)
from intent.openslo.export import ENGINES, export, thresholds
from intent.openslo.reader import read
from tests.rows import rows

NAMES = st.text(min_size=1, max_size=20).filter(lambda text: text.strip() and max(text) < "\ud800")
WINDOWS = st.one_of(
    st.sampled_from(("always", "peak", "off_peak", "lunch")),
    st.just(RecurringWindow(("mon", "fri"), "22:00", "06:00", "Asia/Tokyo")),
    st.just(DatedWindow("2026-11-11", "00:00", "24:00", "UTC")),
    st.just(DatesWindow("2026-12-20", "18:00", "09:00", "UTC", "2027-01-03")),
    st.builds(FromNowWindow, st.floats(1, 1e6)),
)
POSITIVE = st.floats(1e-6, 1e6)
EVIDENCE = NAMES.filter(str.strip)


@st.composite
def expressible(draw):
    metric = draw(st.sampled_from([*LATENCIES, *thresholds("vllm")]))
    latency = metric in LATENCIES
    stats = [*PERCENTILES, "mean"] if latency else [None, "p95", "mean"]
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
        over_s=draw(st.none() | st.integers(1, 366 * 24 * 60).map(lambda minutes: minutes * 60)),
    )


def intent_of(*goals, language="en") -> Intent:
    return Intent("text", language, goals, TranslatorInfo("rules"))


def slo(**changes) -> dict:
    goal = Objective("ttft", "<=", "p99 TTFT under 2.5 s", stat="p99", value=2.5, unit="s", **changes)
    (document,) = export(intent_of(goal), "vllm").slos
    return document


@pytest.mark.slow
@given(st.lists(expressible(), min_size=1, max_size=4), st.sampled_from(ENGINES))
def test_export_then_import_gives_the_same_goals(goals, engine):
    exported = export(intent_of(*goals), engine)
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
    spec = export(intent_of(goal), "vllm").slos[0]["spec"]
    assert "thresholdMetric" in spec["indicator"]["spec"]
    assert spec["budgetingMethod"] == "Timeslices"
    assert (spec["objectives"][0]["op"], spec["objectives"][0]["value"]) == ("gte", 0.7)


def test_every_name_is_a_dns_label_and_stands_once():
    goals = [Objective(m, "<=", "x", stat="p99.9" if m in LATENCIES else None, value=1.0) for m in get_args(Metric)]
    names = [one["metadata"]["name"] for one in export(intent_of(*goals, *goals), "vllm").slos]
    assert len(set(names)) == len(names)
    assert all(name.replace("-", "").isalnum() and name == name.lower() and len(name) <= 63 for name in names)


@rows(
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
    exported = export(intent_of(goal), "vllm")
    assert exported.slos == ()
    (loss,) = exported.left_out
    assert loss.pointer == "/goals/0"
    assert said in loss.message


@rows(
    ("changes", "said"),
    [({"window": "peak"}, "window"), ({"tenant": "free"}, "tenant"), ({"soft": True}, "preference")],
)
def test_what_is_kept_without_effect_is_listed_too(changes, said):
    goal = Objective("ttft", "<=", "x", stat="p99", value=2.5, unit="s", **changes)
    exported = export(intent_of(goal), "vllm")
    assert len(exported.slos) == 1
    assert said in exported.left_out[0].message


def test_a_bound_between_two_buckets_is_warned_about_with_both():
    (loss,) = export(intent_of(Objective("ttft", "<=", "x", stat="p99", value=2.0, unit="s")), "vllm").left_out
    assert "1 / 2.5 s" in loss.message
    assert "vllm:time_to_first_token_seconds" in loss.message


def test_the_bounds_that_people_say_are_buckets_of_the_service():
    for seconds in (0.05, 0.2, 0.5, 1.5, 2.0, 3.0, 10.0, 30.0):
        goal = Objective("ttft", "<=", "x", stat="p99", value=seconds, unit="s")
        assert export(intent_of(goal), "torch").left_out == ()


@rows("engine", ENGINES)
def test_a_model_is_told_apart_only_where_the_query_can(engine):
    goal = Objective("availability", ">=", "99.9 %", value=0.999, unit="ratio", model="llama-70b")
    exported = export(intent_of(goal), engine)
    assert "llama-70b" not in str(exported.slos[0]["spec"]["indicator"])
    assert any("does not tell models apart" in loss.message for loss in exported.left_out)


def test_losses_are_said_in_the_language_of_the_intent():
    (loss,) = export(intent_of(Priority("latency", "延迟优先"), language="zh"), "vllm").left_out
    assert "目标" in loss.message
