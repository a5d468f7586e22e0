"""Sampling: greedy, seeded without state, filtered as asked."""

import math

import pytest
import torch

from runtime.engine import SamplingParams
from runtime.torch_engine.sampler import sample

LOGITS = torch.tensor([[0.0, 1.0, 2.0, 3.0], [3.0, 2.0, 1.0, 0.0]])


def draw(count: int, **wishes: float) -> list[int]:
    params = SamplingParams(max_tokens=count, temperature=1.0, seed=7, **wishes)  # type: ignore[arg-type]
    return [sample(LOGITS[:1], [(params, index)])[0].token_id for index in range(count)]


def test_temperature_zero_takes_the_most_probable_token_with_its_logprob() -> None:
    first, second = sample(LOGITS, [(SamplingParams(1), 0)] * 2)
    assert (first.token_id, second.token_id) == (3, 0)
    assert first.logprob == pytest.approx(math.log(math.exp(3) / sum(map(math.exp, range(4)))), abs=1e-6)


def test_noise_depends_on_seed_and_index_only() -> None:
    params = SamplingParams(1, temperature=1.0, seed=3)
    alone = sample(LOGITS[1:], [(params, 5)])[0]
    beside = sample(LOGITS, [(SamplingParams(1), 0), (params, 5)])[1]
    assert alone.token_id == beside.token_id
    assert alone.logprob == pytest.approx(beside.logprob)
    assert len({sample(LOGITS[:1], [(params, index)])[0].token_id for index in range(50)}) > 1


@pytest.mark.slow
def test_frequencies_follow_the_softmax() -> None:
    drawn = draw(4000)
    want = torch.softmax(LOGITS[0], 0)
    got = torch.bincount(torch.tensor(drawn), minlength=4) / len(drawn)
    assert torch.allclose(got, want, atol=0.03)


def test_top_k_and_top_p_leave_only_the_best() -> None:
    assert set(draw(300, top_k=2)) == {2, 3}
    assert set(draw(300, top_p=0.5)) == {3}
    assert set(draw(300, top_p=0.8)) == {2, 3}


@pytest.mark.parametrize("seed", [-1, 2**200, 0])
@pytest.mark.parametrize("temperature", [1e-38, 1e-3, 1e30])
@pytest.mark.parametrize("top_p", [1.0, 1e-9])
def test_odd_but_legal_wishes_give_a_token(seed: int, temperature: float, top_p: float) -> None:
    params = SamplingParams(1, temperature=temperature, top_p=top_p, top_k=1000, seed=seed, num_logprobs=50)
    (result,) = sample(LOGITS[:1] * 1e4, [(params, 0)])
    assert 0 <= result.token_id < 4
    assert temperature > 1 or result.token_id == 3
    assert len(result.alternatives) == 4


def test_alternatives_come_best_first() -> None:
    (result,) = sample(LOGITS[:1], [(SamplingParams(1, num_logprobs=2), 0)])
    assert [token for token, _ in result.alternatives] == [3, 2]
    assert result.alternatives[0][1] == pytest.approx(result.logprob)
