"""The wait of a prompt against a queue played through, and the inverse."""

import itertools
import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.pipelines.optimum import STATISTICS, UTILISATIONS, first_tokens_s, most_first_s, waits
from tests.rows import rows


def played(busy: float, prompts: int = 200_000) -> list[float]:
    """Waits in a queue of services of 1 under Poisson arrivals (Lindley's recursion)."""
    draw, wait, found = random.Random(1), 0.0, []
    for _ in range(prompts):
        wait = max(0.0, wait + 1 - draw.expovariate(busy))
        found.append(wait)
    return found


@pytest.mark.slow
@rows("busy", [0.3, 0.6, 0.85])
def test_waits_are_those_of_a_queue(busy):
    found = played(busy)
    assert float(np.interp(busy, UTILISATIONS, waits("mean"))) == pytest.approx(statistics.fmean(found), rel=0.04)
    for stat in ("p90", "p99"):
        expected = float(np.quantile(found, float(stat[1:]) / 100))
        assert float(np.interp(busy, UTILISATIONS, waits(stat))) == pytest.approx(expected, rel=0.05, abs=0.02)


def test_most_prompts_of_an_idle_server_do_not_wait():
    assert waits("p50")[0] == waits("p99.9")[0] == 0.0
    assert float(np.interp(0.4, UTILISATIONS, waits("p50"))) == 0.0


@rows("stat", STATISTICS)
def test_waits_grow_with_utilisation(stat):
    assert all(a <= b for a, b in itertools.pairwise(waits(stat)))


@given(
    ttft_s=st.floats(0.01, 30.0),
    rate=st.floats(0.1, 50.0),
    overlap=st.floats(0.05, 2.0),
    stat=st.sampled_from(STATISTICS),
)
def test_the_longest_prompt_for_a_ttft_just_has_it(ttft_s, rate, overlap, stat):
    shares = np.array([overlap])
    most_s = most_first_s(np.array([ttft_s]), shares[None], rate, stat)[0]
    assert first_tokens_s(most_s * (1 - 1e-9), shares, rate, stat)[0] <= ttft_s * (1 + 1e-6)
    longer = first_tokens_s(most_s * (1 + 1e-6), shares, rate, stat)[0]
    assert longer >= ttft_s * (1 - 1e-6)


def test_where_prompts_pile_up_there_is_no_end():
    assert first_tokens_s(np.array([1.0]), np.array([1.0]), 1.0, "mean")[0] == np.inf
