from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.models import (
    HIGHER_IS_BETTER,
    LATENCIES,
    UNITS,
    Assumption,
    Config,
    DatedWindow,
    FromNowWindow,
    Intent,
    Objective,
    Priority,
    RecurringWindow,
    TranslatorInfo,
)
from intent.translate import translate
from validator.readback import render


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("keep P99 TTFT < 2s at peak", "P99 TTFT at most 2 s at peak."),
        ("keep P99 TTFT < 2000 ms at peak", "P99 TTFT at most 2000 ms at peak."),
        ("P99 TTFT under 1,500 ms at peak", "P99 TTFT at most 1500 ms at peak."),
        ("P99 E2E within 2 minutes overnight", "P99 E2E at most 2 min overnight."),
        ("TTFT under half a second at peak", "P95 (assumed) TTFT at most 500 ms at peak."),
        ("P99 TTFT 0.099 s", "P99 TTFT at most (assumed) 0.099 s at all times (assumed)."),
        ("run it with tp=2", "Run with TP 2 at all times (assumed)."),
        ("tp at most 4 off-peak", "Run with TP at most 4 off-peak."),
        ("use at most 4 GPUs", "GPU count at most 4 at all times (assumed)."),
        (
            "serve 300 requests per minute",
            "Request throughput at least (assumed) 300 requests/min at all times (assumed).",
        ),
        ("GPU utilisation above 80", "GPU utilisation at least 80 % (assumed) at all times (assumed)."),
        ("cost under $4/h overnight", "Cost at most 4 USD/h overnight."),
        ("maximise throughput at peak", "Maximise token throughput (assumed) at peak."),
        (
            "mean TPOT < 40ms at peak, minimise cost at month end",
            "Mean TPOT at most 40 ms at peak; minimise cost in window month_end.",
        ),
        ("P99 TTFT < 2s at peak for tenant acme", "P99 TTFT at most 2 s for tenant acme at peak."),
        (
            "thoughput > 5 tok/s at peak",
            "Token throughput at least 5 tokens/s at peak [understood 'thoughput' as 'throughput'].",
        ),
        ("20 tokens/s per user", "P95 (assumed) TPOT at most (assumed) 50 ms at all times (assumed)."),
        ("hello", ""),
    ],
)
def test_the_sentence_speaks_the_operators_units_and_marks_defaults(text, sentence, catalogue):
    assert render(translate(text, catalogue)) == sentence


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (RecurringWindow(("mon", "fri"), "09:00", "17:00", "UTC"), "mon, fri 09:00 to 17:00 (UTC)"),
        (DatedWindow("2026-11-27", "00:00", "24:00", "UTC"), "on 2026-11-27 00:00 to 24:00 (UTC)"),
        (FromNowWindow(7200.0), "for the next 7200 s"),
    ],
)
def test_a_window_said_in_the_text_is_spelt_out(window, words):
    goal = Config("tp", "==", 2, "tp=2", window=window)
    intent = Intent("x", "en", (goal,), TranslatorInfo(name="rules"))
    assert render(intent) == f"Run with TP 2 {words}."


def test_a_goal_without_a_sentence_yet_is_quoted():
    intent = Intent("x", "en", (Priority("latency", "latency over cost"),), TranslatorInfo(name="rules"))
    assert render(intent) == "Priority: 'latency over cost'."


WINDOWS = st.sampled_from(["always", "peak", "off_peak", "overnight", "business_hours", "month_end"])
NUMBERS = st.one_of(st.integers(1, 100_000).map(float), st.integers(1, 999_999).map(lambda n: n / 1000))
EVIDENCE = st.sampled_from(["x", "2 s", "300 ms", "1,500", "p99", "60", "0.5"])


@st.composite
def objectives(draw):
    metric = draw(
        st.sampled_from(
            ["ttft", "tpot", "e2e", "reconfig_pause", "throughput_tok", "throughput_req", "gpu_util", "cost"]
        )
    )
    stat = draw(
        st.sampled_from(
            ["p50", "p90", "p95", "p99", "p99.9", "mean"] if metric in LATENCIES else [None, "mean"]
        )
    )
    good = [">="] if metric in HIGHER_IS_BETTER else ["<="]
    op = draw(st.sampled_from([">=", "<="] if metric == "gpu_util" else good))
    value = draw(NUMBERS) / (100_000 if metric == "gpu_util" else 1)
    said = {
        "window": draw(WINDOWS),
        "tenant": draw(st.sampled_from([None, "acme"])),
        "model": draw(st.sampled_from([None, "counting"])),
    }
    if draw(st.booleans()):
        best = "maximize" if metric in HIGHER_IS_BETTER or metric == "gpu_util" else "minimize"
        return Objective(metric, best, draw(EVIDENCE), stat, **said)
    return Objective(metric, op, draw(EVIDENCE), stat, value, draw(st.sampled_from(UNITS[metric])), **said)


SETTINGS = st.builds(
    Config,
    key=st.sampled_from(["tp", "pp", "replicas"]),
    op=st.sampled_from(["==", "<=", ">="]),
    value=st.integers(1, 128),
    evidence=EVIDENCE,
    window=WINDOWS,
    model=st.sampled_from([None, "counting"]),
)
COUNTS = st.builds(
    Objective,
    metric=st.just("gpu_count"),
    op=st.sampled_from(["==", "<=", ">="]),
    evidence=EVIDENCE,
    value=st.integers(1, 64).map(float),
    unit=st.just("gpus"),
    window=WINDOWS,
)


def bare(goal):
    """A goal as it was meant: without its evidence, its number to the twelve digits that are printed."""
    value = goal.value if goal.value is None else float(f"{goal.value:.11g}")
    return replace(goal, evidence="", value=value)


@given(
    goals=st.lists(st.one_of(objectives(), SETTINGS, COUNTS), min_size=1, max_size=4),
    assumed=st.sets(
        st.tuples(st.integers(0, 3), st.sampled_from(["stat", "window", "op", "metric", "unit"]))
    ),
)
def test_the_sentence_read_again_gives_the_same_goals(goals, assumed, catalogue):
    assumptions = tuple(Assumption(f"/goals/{number}/{slot}", "x") for number, slot in assumed)
    intent = Intent("x", "en", tuple(goals), TranslatorInfo(name="rules"), assumptions=assumptions)
    again = translate(render(intent), catalogue)
    assert list(map(bare, again.goals)) == list(dict.fromkeys(map(bare, goals)))
    assert not again.questions
    assert {one.pointer.rsplit("/", 1)[1] for one in again.assumptions} <= set()
