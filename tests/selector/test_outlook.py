"""A closer look at a topology: simulated, and at other rates."""

import itertools
from dataclasses import replace

import pytest

from runtime.capabilities import Limits
from runtime.models import uniform
from selector.models import SearchInput, Workload
from selector.prediction import candidate, frontier, simulated


@pytest.fixture
def problem(mixed, llama) -> SearchInput:
    return SearchInput(mixed, llama, Workload(1.5, 800, 250, 1), None)


@pytest.mark.slow
def test_the_simulation_is_the_same_every_time_and_near_the_estimate(problem, four, known):
    found = simulated(four, problem, known)
    assert found == simulated(four, problem, known)
    assert found.requests == 3600
    assert not found.waits_grow
    assert 0.2 < found.ttft_s["mean"] < found.ttft_s["p99"] < 1.0
    assert found.e2e_s["mean"] == pytest.approx(found.ttft_s["mean"] + 249 * found.tpot_s["mean"], rel=0.01)


@pytest.mark.slow
def test_a_batch_limit_below_the_load_makes_requests_wait(problem, four, known):
    limited = (replace(problem, limits=Limits(max_sequences=batch)) for batch in (4, 64))
    few, many = (simulated(four, one, known) for one in limited)
    assert few.ttft_s["mean"] > 10 * many.ttft_s["mean"]
    assert (few.waits_grow, many.waits_grow) == (True, False)


@pytest.mark.slow
def test_shorter_steps_cut_prompts_into_more_chunks_in_plans_and_in_the_simulator(problem, four, known):
    short = replace(problem, limits=Limits(max_sequences=64, max_step_tokens=256))
    usual, cut = (simulated(four, one, known) for one in (problem, short))
    wide = replace(problem, limits=Limits(max_sequences=64))
    planned, planned_cut = (candidate(four, one, known) for one in (wide, short))
    assert cut.ttft_s["mean"] > 1.2 * usual.ttft_s["mean"]
    assert planned_cut.prediction.batch == 64 == planned.prediction.batch
    assert planned_cut.prediction.ttft_s["mean"] > 1.2 * planned.prediction.ttft_s["mean"]


def test_what_no_request_fits_into_is_not_simulated(problem, known):
    assert simulated(uniform(problem.cluster, "A100", 1, 1, 80, "bf16"), problem, known) is None


def test_a_frontier_rises_up_to_saturation(problem, four, known):
    found = frontier(four, problem, known)
    assert found.rates_rps[0] < 0.1 * found.saturation_rps
    assert found.rates_rps[-1] < found.saturation_rps
    assert all(a < b for a, b in itertools.pairwise(found.rates_rps))
    assert found.ttft_s[-1] > 2 * found.ttft_s[0]
    assert found.tpot_s[-1] > 2 * found.tpot_s[0]


def test_what_holds_no_request_has_no_frontier(problem, known):
    found = frontier(uniform(problem.cluster, "A100", 1, 1, 80, "bf16"), problem, known)
    assert (found.rates_rps, found.saturation_rps) == ((), 0.0)
