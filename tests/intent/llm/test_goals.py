"""Each type of goal from its slots, and the slots that the text does not bear."""

from dataclasses import asdict, replace

import pytest

from benchmarks.misbehaving_llm import NOTHING, goal
from intent.llm.reading import read_answer


@pytest.fixture(scope="session")
def here(catalogue):
    return replace(
        catalogue,
        tenants=("acme", "free"),
        models=("counting", "llama"),
        aliases={"免费用户": "free"},
        devices={"A100": 4, "L40S": 4},
        nodes=("a", "node-b"),
    )


def read(text, here, *goals):
    return read_answer({**NOTHING, "goals": list(goals)}, text, here)


def one(evidence, kind, **slots):
    return goal(evidence=evidence, type=kind, **slots)


def meant(text, here, *goals):
    found = read(text, here, *goals)
    assert found.problems == []
    assert found.draft.questions == []
    (said,) = found.draft.goals[-1:]
    left_out = {"evidence", "type"}
    return {
        key: value
        for key, value in asdict(said).items()
        if value not in (None, False, "always") and key not in left_out
    }


OBJECTIVE = {"comparison": "<=", "number": "2", "unit": "s", "subject": "ttft"}
TTFT = one("TTFT under 2s", "objective", **OBJECTIVE)


@pytest.mark.parametrize(
    ("text", "slots", "values"),
    [
        ("TTFT under 2s", OBJECTIVE, {"metric": "ttft", "op": "<=", "value": 2.0, "unit": "s", "stat": "p95"}),
        ("first token has to beat 2s", OBJECTIVE, {"metric": "ttft", "op": "<=", "value": 2.0, "unit": "s", "stat": "p95"}),
        (
            "acme p99 TTFT under 2s at night, ideally",
            OBJECTIVE | {"stat": "p99", "tenant": "acme", "window": "at night", "soft": "ideally"},
            {"metric": "ttft", "op": "<=", "value": 2.0, "unit": "s", "stat": "p99", "tenant": "acme", "window": "overnight",
             "soft": True},
        ),
        (
            "at least 20 tokens/s per user",
            {"subject": "throughput_tok", "comparison": ">=", "number": "20", "unit": "tokens/s", "period": "per user"},
            {"metric": "tpot", "op": "<=", "value": 0.05, "unit": "s", "stat": "p95"},
        ),
        (
            "$1,400 a week at most",
            {"subject": "cost", "comparison": "<=", "number": "1,400", "unit": "$", "period": "a week"},
            {"metric": "cost", "op": "<=", "value": 200.0, "unit": "USD/day"},
        ),
        ("four GPUs for llama", {"subject": "gpu_count", "comparison": "==", "number": "four", "unit": "GPUs", "model": "llama"},
         {"metric": "gpu_count", "op": "==", "value": 4.0, "unit": "gpus", "model": "llama"}),
        ("squeeze every cent out of it, cost wise", {"subject": "cost", "comparison": "minimize"},
         {"metric": "cost", "op": "minimize"}),
    ],
)  # fmt: skip
def test_an_objective_has_its_values_by_the_conventions(text, slots, values, here):
    assert meant(text, here, one(text, "objective", **slots)) == values


@pytest.mark.parametrize(
    ("text", "slots", "values"),
    [
        ("cut TTFT by 20%", {"change": "by", "number": "20", "unit": "%"}, {"factor": 0.8}),
        ("cut TTFT by half", {"change": "by", "number": "half"}, {"factor": 0.5}),
        ("halve TTFT", {"change": "times", "number": "halve"}, {"factor": 0.5}),
        ("TTFT no worse than now", {"change": "to"}, {"factor": 1.0}),
        ("TTFT down to 80% of now", {"change": "to", "number": "80", "unit": "%"}, {"factor": 0.8}),
        (
            "knock 300 ms off TTFT",
            {"change": "by", "number": "300", "unit": "ms"},
            {"delta": -0.3, "unit": "s"},
        ),
    ],
)
def test_a_change_from_now_is_a_factor_or_a_delta(text, slots, values, here):
    slots = {"subject": "ttft", "comparison": "<=", **slots}
    assert meant(text, here, one(text, "relative", **slots)) == {
        "metric": "ttft",
        "op": "<=",
        "stat": "p95",
        **values,
    }


@pytest.mark.parametrize(
    ("text", "slots", "values"),
    [
        ("acme may exceed that", {"tenant": "acme"}, {}),
        ("acme may exceed it, up to 5 s", {"tenant": "acme", "change": "to", "number": "5", "unit": "s"},
         {"limit": 5.0, "unit": "s"}),
        ("acme 20 % more", {"tenant": "acme", "change": "by", "number": "20", "unit": "%"}, {"factor": 1.2}),
        ("double for acme", {"tenant": "acme", "change": "times", "number": "double"}, {"factor": 2.0}),
    ],
)  # fmt: skip
def test_an_exception_is_from_the_bound_said_before_and_in_its_window(text, slots, values, here):
    bound = one("TTFT under 2s at peak", "objective", **OBJECTIVE, window="at peak")
    said = f"TTFT under 2s at peak; {text}"
    assert meant(said, here, bound, one(text, "exception", **slots)) == {
        "tenant": "acme",
        "metric": "ttft",
        "window": "peak",
        **values,
    }


@pytest.mark.parametrize(
    ("text", "kind", "slots", "values"),
    [
        ("never use int4", "precision", {"rule": "forbid", "precision": "int4"}, {"rule": "forbid", "value": "int4"}),
        ("don't quantise", "precision", {"rule": "require", "precision": "full"}, {"rule": "require", "value": "full"}),
        ("nothing below 16 bit", "precision", {"rule": "min", "precision": "bf16"}, {"rule": "min", "value": "bf16"}),
        ("eight-bit integers are fine", "precision", {"rule": "allow", "precision": "int8"}, {"rule": "allow", "value": "int8"}),
        ("batch on the L40S boxes", "placement", {"rule": "require", "place": "L40S", "workload": "batch"},
         {"rule": "require", "selector": "gpu_type:L40S", "workload": "batch"}),
        ("free users off node-b", "placement", {"rule": "forbid", "place": "node-b", "workload": "free users"},
         {"rule": "forbid", "selector": "node:node-b", "workload": "tenant:free"}),
        ("everything else can go on L40S", "placement", {"rule": "prefer", "place": "L40S", "workload": "the rest"},
         {"rule": "prefer", "selector": "gpu_type:L40S", "workload": "rest"}),
        ("don't touch gpu-1", "placement", {"rule": "freeze", "place": "gpu-1"}, {"rule": "freeze", "selector": "gpu:gpu-1"}),
        ("latency over cost", "priority", {"higher": "latency", "lower": "cost"}, {"higher": "latency", "lower": "cost"}),
        ("acme first", "priority", {"higher": "acme"}, {"higher": "tenant:acme"}),
        ("tp=2", "config", {"subject": "tp", "comparison": "==", "number": "2"}, {"key": "tp", "op": "==", "value": 2}),
        ("change freeze", "reconfig", {"rule": "forbid"}, {"rule": "forbid"}),
        ("reconfigure at most twice a day", "reconfig", {"rule": "limit", "number": "twice", "period": "a day"},
         {"rule": "limit", "value": 2.0, "unit": "1/day"}),
        ("每 4 小时最多重配置一次", "reconfig", {"rule": "limit", "number": "一", "period": "每 4 小时"},
         {"rule": "limit", "value": 6.0, "unit": "1/day"}),
    ],
)  # fmt: skip
def test_rules_about_formats_places_order_and_shape(text, kind, slots, values, here):
    if values.get("unit") == "1/day" and "4" in text:
        values = {"rule": "limit", "value": 0.25, "unit": "1/h"}
    assert meant(text, here, one(text, kind, **slots)) == values


def test_an_ellipsis_has_the_unit_of_the_goal_before(here):
    text = "TTFT under 2s; acme 1"
    other = one("acme 1", "objective", **OBJECTIVE | {"number": "1", "tenant": "acme"})
    assert meant(text, here, TTFT, other)["value"] == 1.0
    assert read(
        "TTFT under 2s; TPOT 1",
        here,
        TTFT,
        one("TPOT 1", "objective", **OBJECTIVE | {"number": "1", "subject": "tpot"}),
    ).problems


@pytest.mark.parametrize(
    ("text", "kind", "slots", "wrong"),
    [
        ("TTFT under 2s", "objective", OBJECTIVE | {"comparison": ">="}, "comparison"),
        ("TTFT under 2s", "objective", OBJECTIVE | {"subject": "e2e"}, "subject"),
        ("p99 TTFT under 2s", "objective", OBJECTIVE | {"stat": "p50"}, "stat"),
        (
            "between 60 and 80%",
            "objective",
            {"subject": "gpu_util", "comparison": "<=", "number": "60", "unit": "%"},
            "comparison",
        ),
        ("TTFT under 2s", "objective", OBJECTIVE | {"unit": "ms"}, "unit"),
        ("TTFT under 2s", "objective", OBJECTIVE | {"higher": "latency"}, "higher"),
        ("never use int4", "precision", {"rule": "require", "precision": "int4"}, "rule"),
        ("int4 is fine", "precision", {"rule": "require", "precision": "int4"}, "rule"),
        ("use bf16", "precision", {"rule": "forbid", "precision": "bf16"}, "rule"),
        ("nothing below fp8", "precision", {"rule": "allow", "precision": "fp8"}, "rule"),
        ("never use int4", "precision", {"rule": "forbid", "precision": "int8"}, "precision"),
        ("never use int4", "precision", {"rule": "limit", "precision": "int4"}, "rule"),
        ("batch on L40S", "placement", {"rule": "freeze", "place": "L40S", "workload": "batch"}, "rule"),
        ("batch off L40S", "placement", {"rule": "require", "place": "L40S", "workload": "batch"}, "rule"),
        ("batch on L40S", "placement", {"rule": "require"}, "place"),
        ("latency over cost", "priority", {"higher": "cost", "lower": "latency"}, "higher"),
        ("latency over cost", "priority", {"higher": "happiness"}, "higher"),
        ("延迟优先", "priority", {"higher": "cost"}, "higher"),
        ("tp=2", "config", {"subject": "tp", "comparison": ">=", "number": "2"}, "comparison"),
        ("tp=2", "config", {"subject": "ttft", "comparison": "==", "number": "2"}, "subject"),
        ("reconfigure twice", "reconfig", {"rule": "limit", "number": "twice"}, "number"),
        (
            "double TTFT",
            "relative",
            {"subject": "ttft", "comparison": ">=", "change": "times", "number": "TTFT"},
            "number",
        ),
    ],
)
def test_a_choice_that_the_words_deny_is_the_models_to_put_right(text, kind, slots, wrong, here):
    found = read(text, here, one(text, kind, **slots))
    assert f"/goals/0/{wrong}" in [problem.pointer for problem in found.problems]
    assert found.draft.goals == []


@pytest.mark.parametrize(
    ("text", "kind", "slots", "code"),
    [
        ("latency under 2s", "objective", OBJECTIVE | {"subject": "latency"}, "metric_ambiguous"),
        ("TTFT under 2", "objective", OBJECTIVE | {"unit": None}, "unit_missing"),
        (
            "under $40",
            "objective",
            {"subject": "cost", "comparison": "<=", "number": "40", "unit": "$"},
            "unit_missing",
        ),
        (
            "€18 a week",
            "objective",
            {"subject": "cost", "comparison": "<=", "number": "18", "unit": "€", "period": "a week"},
            "unit_impossible",
        ),
        ("better TTFT", "objective", {"subject": "ttft"}, "bound_missing"),
        ("vibes under 2s", "objective", OBJECTIVE | {"subject": "unknown"}, "unknown_metric"),
        ("TTFT under 2s for globex", "objective", OBJECTIVE | {"tenant": "globex"}, "unknown_tenant"),
        ("TTFT under 2s at launch", "objective", OBJECTIVE | {"window": "at launch"}, "unknown_window"),
        ("TTFT under 2s from 2 to 6", "objective", OBJECTIVE | {"window": "from 2 to 6"}, "ambiguous_time"),
        (
            "batch on the big boxes",
            "placement",
            {"rule": "require", "place": "the big boxes", "workload": "batch"},
            "unknown_place",
        ),
        ("may exceed the bound", "exception", {"subject": "ttft"}, "exception_without_tenant"),
        ("acme may exceed the bound", "exception", {"tenant": "acme"}, "exception_unclear"),
    ],
)
def test_what_the_text_leaves_open_is_asked_of_the_person(text, kind, slots, code, here):
    found = read(text, here, one(text, kind, **slots))
    assert found.problems == []
    assert [finding.code for finding in found.draft.findings][:1] == [code]
    assert found.draft.questions[0].options[0] == found.draft.questions[0].default
