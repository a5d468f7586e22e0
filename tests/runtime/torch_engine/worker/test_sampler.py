"""Sampling: greedy, seeded without state, filtered as asked."""

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runtime.engine import GenerationRequest, SamplingParams
from runtime.torch_engine.driver.scheduler import Sequence
from runtime.torch_engine.sampling_tasks import SamplingTask
from runtime.torch_engine.worker.sampler import sample
from tests.rows import rows

LOGITS = torch.tensor([[0.0, 1.0, 2.0, 3.0], [3.0, 2.0, 1.0, 0.0]])


def test_temperature_zero_takes_the_most_probable_token_with_its_logprob():
    first, second = sample(LOGITS, [SamplingTask(SamplingParams(1), 0)] * 2)
    assert (first.token_id, second.token_id) == (3, 0)
    assert first.logprob == pytest.approx(math.log(math.exp(3) / sum(map(math.exp, range(4)))), abs=1e-6)


def test_noise_depends_on_seed_and_index_only():
    params = SamplingParams(1, temperature=1.0, seed=3)
    alone = sample(LOGITS[1:], [SamplingTask(params, 5)])[0]
    beside = sample(LOGITS, [SamplingTask(SamplingParams(1), 0), SamplingTask(params, 5)])[1]
    assert alone.token_id == beside.token_id
    assert alone.logprob == pytest.approx(beside.logprob)
    assert len({sample(LOGITS[:1], [SamplingTask(params, index)])[0].token_id for index in range(50)}) > 1


IDS, CLASSES, LAGS = 1000, 16, range(1, 9)
FLAT = torch.zeros(IDS)
ZIPF = -torch.arange(1, IDS + 1).log()
STREAMS: dict[str, Callable[[int], list[tuple[int, int]]]] = {
    "one request": lambda draws: [(7, index) for index in range(draws)],
    "first tokens of one request after the other": lambda draws: [(seed, 0) for seed in range(draws)],
    "requests of 100 tokens": lambda draws: [(seed, index) for seed in range(draws // 100) for index in range(100)],
    "rows of a step": lambda draws: [(seed, index) for index in range(draws // 64) for seed in range(64)],
}
"""(Seed, output index) of so many successive draws that have nothing to do with each other."""
many = pytest.mark.parametrize("draws", [8_000, pytest.param(50_000, marks=pytest.mark.exhaustive)])
"""Nine times of ten, 8,000 show that one of the classes is drawn 30 % too often, or that draws of a lag depend on each other with
an effect (Cohen's w) of 0.13; 50,000 show 12 %, and 0.05."""


def classes_of(probabilities: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """A class for each id, all of about the same mass, and their masses."""
    classes, masses = np.zeros(len(probabilities), dtype=int), np.zeros(CLASSES)
    for token in probabilities.argsort(descending=True).tolist():
        classes[token] = masses.argmin()
        masses[classes[token]] += probabilities[token]
    return classes, masses


def chance(counts: np.ndarray, masses: np.ndarray) -> float:
    """How likely draws from ``masses`` are at least so far from them: chi-square, as Wilson and Hilferty approximate it."""
    expected, freedom = masses * counts.sum(), counts.size - 1
    squares = float(((counts - expected) ** 2 / expected).sum())
    spread = 2 / (9 * freedom)
    return NormalDist().cdf(-((squares / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))


def chances(drawn: np.ndarray, classes: np.ndarray, masses: np.ndarray) -> dict[str, float]:
    """Of the classes of all draws, and of the pairs that lie some draws apart."""
    kinds = classes[drawn]
    found = {"marginal": chance(np.bincount(kinds, minlength=CLASSES), masses)}
    for lag in LAGS:
        pairs = np.bincount(kinds[:-lag] * CLASSES + kinds[lag:], minlength=CLASSES**2)
        found[f"lag {lag}"] = chance(pairs, np.outer(masses, masses).ravel())
    return found


def drawn_of(logits: torch.Tensor, stream: list[tuple[int, int]], **asked: Any) -> np.ndarray:
    params = SamplingParams(1, **{"temperature": 1.0, **asked})
    tasks = [SamplingTask(replace(params, seed=seed), index) for seed, index in stream]
    return np.array([one.token_id for one in sample(logits.expand(len(tasks), -1), tasks)])


@pytest.mark.slow
@many
@rows("stream", STREAMS)
@rows("logits", [FLAT, ZIPF], ids=["flat", "Zipf"])
def test_draws_follow_the_softmax_and_not_each_other(logits, stream, draws):
    classes, masses = classes_of(logits.softmax(0))
    found = chances(drawn_of(logits, STREAMS[stream](draws)), classes, masses)
    assert min(found.values()) > 1e-4, found


FILTERS: dict[str, tuple[dict[str, float], Any]] = {
    "temperature": ({"temperature": 0.5}, lambda p: p**2),
    "top-k": ({"top_k": 100}, lambda p: p * (p >= p.sort(descending=True).values[99])),
    "top-p": ({"top_p": 0.8}, lambda p: p * (p.cumsum(0) - p < 0.8)),
    "min-p": ({"min_p": 0.0095}, lambda p: p * (p >= 0.0095 * p.max())),
    "all": ({"temperature": 2.0, "top_k": 500, "top_p": 0.9, "min_p": 0.05}, None),
}


@pytest.mark.slow
@many
@rows("name", FILTERS)
def test_draws_follow_what_filters_leave(name, draws):
    asked, left = FILTERS[name]
    probabilities = ZIPF.double().softmax(0)
    if left is None:  # min-p, top-k, then top-p of what these leave
        hot = probabilities.sqrt()
        some = (hot * (hot >= 0.05 * hot.max()))[:500]
        some = some / some.sum()
        weights = torch.zeros(IDS, dtype=torch.float64)
        weights[:500] = some * (some.cumsum(0) - some < 0.9)
    else:
        weights = left(probabilities)
    drawn = drawn_of(ZIPF, STREAMS["requests of 100 tokens"](draws), **asked)
    assert weights[drawn].min() > 0
    classes, masses = classes_of(weights / weights.sum())
    found = chances(drawn, classes, masses)
    assert min(found.values()) > 1e-4, found


def test_a_filter_that_keeps_more_than_the_sorted_ids_draws_from_all_it_keeps():
    logits = torch.zeros(10_000)
    drawn = drawn_of(logits, STREAMS["rows of a step"](1024)[:1000], top_p=0.9)
    assert len({*drawn.tolist()}) > 920, "946 of 9,000 are expected, and 887 of the 4,096 that are sorted first"
    greedy, drawn_one = sample(
        logits.expand(2, -1),
        [SamplingTask(SamplingParams(1), 0), SamplingTask(SamplingParams(1, 1.0, 0.9, seed=1), 4)],
    )
    assert greedy.token_id == 0
    assert drawn_one.token_id == drawn_of(logits, [(1, 4)], top_p=0.9)[0]


@rows("seed", [-1, 2**200, 0])
@rows("temperature", [1e-38, 1e-3, 1e30])
@rows("top_p", [1.0, 1e-9])
def test_odd_but_legal_wishes_give_a_token(seed, temperature, top_p):
    params = SamplingParams(1, temperature=temperature, top_p=top_p, top_k=1000, seed=seed, num_logprobs=50)
    (result,) = sample(LOGITS[:1] * 1e4, [SamplingTask(params, 0)])
    assert 0 <= result.token_id < 4
    assert temperature > 1 or result.token_id == 3
    assert len(result.alternatives) == 4


def test_alternatives_come_best_first():
    (result,) = sample(LOGITS[:1], [SamplingTask(SamplingParams(1, num_logprobs=2), 0)])
    assert [token for token, _ in result.alternatives] == [3, 2]
    assert result.alternatives[0][1] == pytest.approx(result.logprob)


BIASES = st.lists(
    st.tuples(st.integers(0, 39), st.floats(-100, 100, width=32)), unique_by=lambda bias: bias[0], max_size=3
)
WISHES = st.fixed_dictionaries(
    {
        "repetition_penalty": st.sampled_from([1.0, 1.3, 0.6]),
        "presence_penalty": st.sampled_from([0.0, 1.5, -0.5]),
        "frequency_penalty": st.sampled_from([0.0, 0.4, -2.0]),
        "logit_bias": BIASES.map(tuple),
    }
)


def wish_of(
    prompt: list[int], output: list[int], params: SamplingParams, mask: list[int] | None = None
) -> SamplingTask:
    """As the scheduler makes it."""
    sequence = Sequence(GenerationRequest("r", tuple(prompt), params, 0), 0, [*prompt, *output])
    if mask is not None:
        bits = np.zeros(64, dtype=np.uint8)
        bits[mask] = 1
        sequence.mask = np.packbits(bits, bitorder="little").view(np.int32)
    return sequence.sampling_task()


def by_the_book(logits: np.ndarray, prompt: list[int], output: list[int], params: SamplingParams) -> np.ndarray:
    """Logits after bias, repetition, frequency and presence, one token after the other."""
    changed = logits.astype(np.float64).copy()
    for token, bias in params.logit_bias:
        changed[token] += bias
    for token in {*prompt, *output}:
        changed[token] *= params.repetition_penalty if changed[token] <= 0 else 1 / params.repetition_penalty
    for token in set(output):
        changed[token] -= params.frequency_penalty * output.count(token) + params.presence_penalty
    return changed


@given(
    st.lists(st.integers(0, 39), min_size=1, max_size=30),
    st.lists(st.integers(0, 39), max_size=30),
    WISHES,
    st.integers(0, 2**31),
)
def test_penalties_and_biases_are_those_of_the_book(prompt, output, tasks, noise):
    logits = torch.randn(40, generator=torch.Generator().manual_seed(noise)) * 5
    params = SamplingParams(1, **tasks)
    wanted = by_the_book(logits.numpy(), prompt, output, params)
    plain = SamplingTask(SamplingParams(1), 0)
    changed, untouched = sample(torch.stack([logits, logits]), [wish_of(prompt, output, params), plain])
    assert wanted[changed.token_id] >= wanted.max() - 1e-3
    assert untouched.token_id == int(logits.argmax())
    assert changed.logprob == pytest.approx(float(torch.log_softmax(logits, 0)[changed.token_id]), abs=1e-5)


def test_a_mask_leaves_what_it_allows_whatever_a_bias_says():
    params = SamplingParams(1, temperature=2.0, logit_bias=((3, 100.0),))
    drawn = {
        sample(LOGITS[:1], [wish_of([0], [], replace(params, seed=seed), mask=[0, 2])])[0].token_id
        for seed in range(60)
    }
    assert drawn == {0, 2}


def test_rows_that_ask_for_nothing_send_nothing_along():
    asked = wish_of([1, 2], [3, 3], SamplingParams(1, top_p=0.5, min_p=0.1, num_logprobs=3))
    assert asked[2:] == (None, None, None)
    assert not asked.changes_logits
