"""Series worth drawing: what they hold, and that the model says of mixed pipelines what measurements say."""

import math

import pytest

from intentctl.curves import Pair, SplitCurve, frontier, split_curve, within
from intentctl.predict import case
from intentctl.status import CommandError
from selector.load import Lengths, open_loop, saturation_tok_s

LENGTHS = Lengths.fixed(512, 128)
KINDS = ("A100", "L40S")


def server(topology, model):
    return case(topology, model).server


@pytest.fixture(scope="module")
def curve():
    return frontier("four", server("A100x4@fp16", "llama-2-70b"), LENGTHS)


def test_a_frontier_goes_from_next_to_nothing_up_to_saturation(curve):
    assert list(curve.rates_rps) == sorted(set(curve.rates_rps))
    assert curve.rates_rps[0] < 0.05 * curve.saturation_rps
    assert curve.rates_rps[-1] == pytest.approx(0.99 * curve.saturation_rps)


def test_a_frontier_holds_the_p99_at_each_rate(curve):
    middle = len(curve.rates_rps) // 2
    slis = open_loop(server("A100x4@fp16", "llama-2-70b"), curve.rates_rps[middle], LENGTHS)
    assert (curve.ttft_s[middle], curve.tpot_s[middle]) == (slis.ttft_s["p99"], slis.tpot_s["p99"])
    assert len(curve.ttft_s) == len(curve.tpot_s) == len(curve.rates_rps)


def test_beyond_saturation_there_is_no_steady_state(curve):
    just = [
        open_loop(server("A100x4@fp16", "llama-2-70b"), share * curve.saturation_rps, LENGTHS).saturated
        for share in (0.999, 1.001)
    ]
    assert just == [False, True]


def test_a_server_that_holds_no_request_has_no_frontier():
    none = frontier("too small", server("A100x1@bf16", "llama-2-70b"), LENGTHS)
    assert (none.rates_rps, none.ttft_s, none.tpot_s, none.saturation_rps) == ((), (), (), 0.0)


def test_answers_of_one_token_have_no_time_between_tokens():
    found = frontier("short", server("H100x1@fp16", "llama-3-8b"), Lengths.fixed(100, 1))
    assert set(found.tpot_s) == {0.0}
    assert min(found.ttft_s) > 0


@pytest.fixture(scope="module")
def splits():
    return {
        name: split_curve(name, KINDS, "qwen2.5-32b", Lengths.fixed(*tokens))
        for name, tokens in (("prefill", (512, 16)), ("decode", (128, 512)))
    }


def test_prompts_want_more_layers_on_the_device_with_little_memory_than_answers_do(splits):
    """PipeLive (arXiv 2604.12171) measures that the best split moves with the workload."""
    prefill, decode = splits["prefill"], splits["decode"]
    assert prefill.best > decode.best
    assert prefill.lead(decode) >= 0.15
    assert decode.lead(prefill) >= 0.15


def test_splits_whose_weights_leave_no_room_are_left_out(splits):
    """64 layers of 0.98 GB in bf16 beside embedding and head: some 45 fill an L40S, all of them an A100 almost."""
    assert min(splits["decode"].tokens_s) == 1
    assert 40 < max(splits["decode"].tokens_s) < 50
    assert splits["decode"].num_layers == 64


def test_tokens_are_counted_in_and_out(splits):
    one = server("A100x1:0-33@bf16 > L40Sx1:33-64@bf16", "qwen2.5-32b")
    out = saturation_tok_s(one, Lengths.fixed(512, 16))
    assert splits["prefill"].tokens_s[31] == pytest.approx(33 * out)


def test_a_lead_over_a_split_without_room_is_infinite():
    mine = SplitCurve("mine", KINDS, 4, {1: 10.0, 2: 20.0})
    assert mine.lead(SplitCurve("other", KINDS, 4, {1: 2.0})) == 1.0
    assert mine.lead(SplitCurve("other", KINDS, 4, {3: 2.0})) == math.inf


@pytest.mark.parametrize(
    ("kinds", "model", "tokens", "reason"),
    [
        (KINDS, "nope", (1, 1), "no shape for 'nope'"),
        (("A100", "T4"), "qwen2.5-32b", (1, 1), "no profile for 'T4'"),
        (KINDS, "qwen2.5-32b", (500_000, 500_000), "has room for a request of 1e\\+06 tokens"),
    ],
)
def test_splits_that_are_none_are_refused_by_name(kinds, model, tokens, reason):
    with pytest.raises(CommandError, match=reason):
        split_curve("x", kinds, model, Lengths.fixed(*tokens))


def test_within_counts_both_sides_of_the_band():
    pairs = [Pair("A100", "TTFT (ms)", 100.0, predicted, fitted=True) for predicted in (84, 86, 114, 116)]
    assert within(pairs, 0.15) == 0.5
