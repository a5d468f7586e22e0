"""Series worth drawing: what they hold, and that the model says of mixed pipelines what measurements say."""

import math

import pytest

from benchmarks.pictures import Pair, SplitCurve, split_curve, within
from intentctl.plots import GuideLine, bounds
from intentctl.predict import case
from intentctl.status import CommandError
from selector.models import ALIKE, Margin, Workload
from selector.performance.judge import sustained_rps
from tests.rows import rows
from tests.service.examples import plan

KINDS = ("A100", "L40S")


def test_the_rate_and_the_p99_goals_are_lines_to_compare_with():
    said = {"p99 TTFT <= 2 s": 2.0, "p99 TPOT <= 50 ms": 0.05, "p95 TTFT <= 1 s": 1.0, "cost <= 8 USD/h": 8.0}
    margins = tuple(Margin(goal=goal, predicted=0.0, bound=bound, unit="", margin=1.0) for goal, bound in said.items())
    assert bounds(plan(margins=margins), 2.0) == [
        GuideLine("rate_rps", 2.0, "the workload: 2 requests/s"),
        GuideLine("ttft_s", 2.0, "p99 TTFT <= 2 s"),
        GuideLine("tpot_s", 0.05, "p99 TPOT <= 50 ms"),
    ]


@pytest.fixture(scope="module")
def splits():
    return {
        name: split_curve(name, KINDS, "qwen2.5-32b", Workload(1, *tokens, 1, ALIKE, ALIKE))
        for name, tokens in (("prefill", (512, 16)), ("decode", (128, 512)))
    }


@pytest.mark.slow
def test_prompts_want_more_layers_on_the_device_with_little_memory_than_answers_do(splits):
    """PipeLive (arXiv 2604.12171) measures that the best split moves with the workload."""
    prefill, decode = splits["prefill"], splits["decode"]
    assert prefill.best > decode.best
    assert prefill.lead(decode) >= 0.15
    assert decode.lead(prefill) >= 0.15


def test_splits_whose_weights_leave_no_room_are_left_out_and_tokens_counted_in_and_out(splits):
    """64 layers of 0.98 GB in bf16 beside embedding and head: some 45 fill an L40S, all of them an A100 almost."""
    assert min(splits["decode"].tokens_s) == 1
    assert 40 < max(splits["decode"].tokens_s) < 50
    assert splits["decode"].num_layers == 64
    one = case("A100x1:0-33@bf16 > L40Sx1:33-64@bf16", "qwen2.5-32b").server
    rps = sustained_rps(one, Workload(1, 512, 16, 1, ALIKE, ALIKE), 528)
    assert splits["prefill"].tokens_s[31] == pytest.approx(528 * rps)


def test_a_lead_over_a_split_without_room_is_infinite_and_both_sides_of_the_band_count():
    mine = SplitCurve("mine", KINDS, 4, {1: 10.0, 2: 20.0})
    assert mine.lead(SplitCurve("other", KINDS, 4, {1: 2.0})) == 1.0
    assert mine.lead(SplitCurve("other", KINDS, 4, {3: 2.0})) == math.inf
    pairs = [Pair("A100", "TTFT (ms)", 100.0, predicted, fitted=True) for predicted in (84, 86, 114, 116)]
    assert within(pairs, 0.15) == 0.5


@rows(
    ("kinds", "model", "tokens", "reason"),
    [
        (KINDS, "nope", (1, 1), "no shape for 'nope'"),
        (("A100", "T4"), "qwen2.5-32b", (1, 1), "no profile for 'T4'"),
        (KINDS, "qwen2.5-32b", (500_000, 500_000), "has room for a request of 1e\\+06 tokens"),
    ],
)
def test_splits_that_are_none_are_refused_by_name(kinds, model, tokens, reason):
    with pytest.raises(CommandError, match=reason):
        split_curve("x", kinds, model, Workload(1, *tokens, 1, ALIKE, ALIKE))
