"""From step times to a profile: what a known profile would have given, with noise, is found again."""

import random
from dataclasses import replace

import pytest

from runtime.models import uniform
from selector import profiles
from selector.models import Profile, ProfileError, SampleError, shape
from selector.performance.fit import Fit, Running, StepSample, all_figures, figure, fit
from tests.rows import rows

EIGHT = shape("llama-3-8b")
DESIGN = [(1, tokens, 0) for tokens in (64, 128, 256, 512, 1024, 2048)] + [
    (sequences, 1, context) for sequences in (1, 2, 4, 8, 16) for context in (128, 2048)
]
BETWEEN = [
    (1, 96, 0), (1, 700, 0), (1, 1700, 0), (3, 1, 600), (6, 1, 1500), (12, 1, 300), (16, 1, 1000)
]  # fmt: skip
"""Steps that nobody measured."""


@pytest.fixture(scope="module")
def running(mixed) -> Running:
    return Running(uniform(mixed, "A100", 1, 1, EIGHT.num_layers, "bf16"), EIGHT, mixed)


@pytest.fixture(scope="module")
def start(known) -> Profile:
    return known["A100"]


@pytest.fixture(scope="module")
def truth(start) -> Profile:
    """A device that is nothing like what is told of its kind."""
    return replace(
        start,
        compute_share={**start.compute_share, "bf16": 0.45},
        weight_share={**start.weight_share, "bf16": 0.9},
        kv_share=0.5,
        layer_overhead_s=30e-6,
        step_overhead_s=3e-3,
    )


def sampled(
    running: Running, profile: Profile, design: list[tuple[int, int, int]], noise: float = 0.0, seed: int = 0
) -> list[StepSample]:
    chance = random.Random(seed)
    steps = [StepSample(*step, seconds=1.0) for step in design]
    times = running.predicted_s(steps, profile)
    return [replace(step, seconds=time * (1 + chance.gauss(0, noise))) for step, time in zip(steps, times, strict=True)]


def worst_error(running: Running, found: Profile, samples: list[StepSample]) -> float:
    predicted = running.predicted_s(samples, found)
    return max(abs(time / sample.seconds - 1) for time, sample in zip(predicted, samples, strict=True))


@pytest.mark.slow
@rows("seed", range(5))
def test_a_known_profile_is_predicted_within_three_percent_from_noisy_samples(running, truth, start, seed):
    found = fit(sampled(running, truth, DESIGN, noise=0.02, seed=seed), running, start)
    unseen = sampled(running, truth, BETWEEN)
    assert worst_error(running, start, unseen) > 0.3
    assert worst_error(running, found.profile, unseen) < 0.03


@pytest.mark.slow
@rows(("tp", "pp"), [(2, 1), (1, 2), (2, 2)])
def test_every_topology_of_one_kind_can_be_fitted(mixed, truth, start, tp, pp):
    running = Running(uniform(mixed, "A100", tp, pp, EIGHT.num_layers, "bf16"), EIGHT, mixed)
    found = fit(sampled(running, truth, DESIGN, noise=0.02), running, start)
    assert worst_error(running, found.profile, sampled(running, truth, BETWEEN)) < 0.03


def test_figures_that_the_samples_tell_are_found_and_the_others_stay(running, truth, start):
    found = fit(sampled(running, truth, DESIGN), running, start)
    for name in ("compute_share.bf16", "kv_share"):
        assert figure(found.profile, name) == pytest.approx(figure(truth, name), rel=0.05)
    assert {"compute_share.bf16", "weight_share.bf16", "kv_share"} <= set(found.fitted)
    assert {"allreduce_s", "p2p_bytes_s", "expert_share", "weight_share.int4"} <= set(found.kept)
    assert set(found.fitted) | set(found.kept) == set(all_figures(start))
    assert found.profile.allreduce_s == start.allreduce_s
    for name in {*found.kept} - {"allreduce_s"}:
        assert figure(found.profile, name) == figure(start, name)


def test_two_overheads_under_one_topology_are_not_told_apart(running, truth, start):
    found = fit(sampled(running, truth, DESIGN), running, start)
    assert "layer_overhead_s" in found.kept
    assert "step_overhead_s" in found.fitted
    layers = EIGHT.num_layers
    missing_s = truth.step_overhead_s + layers * (truth.layer_overhead_s - start.layer_overhead_s)
    assert found.profile.step_overhead_s == pytest.approx(missing_s, rel=0.1)


def test_a_figure_stays_where_no_sample_depends_on_it(running, truth, start):
    short = [(sequences, new, 0) for sequences, new, _ in DESIGN]
    assert "kv_share" in fit(sampled(running, truth, short, noise=0.02), running, start).kept


@pytest.mark.slow
def test_shares_stay_below_one_and_overheads_above_nothing(running, start):
    fast = [replace(sample, seconds=sample.seconds / 20) for sample in sampled(running, start, DESIGN)]
    slow = [replace(sample, seconds=sample.seconds * 1e5) for sample in sampled(running, start, DESIGN)]
    for samples in (fast, slow):
        found = fit(samples, running, start)
        for name in found.fitted:
            assert figure(found.profile, name) >= 0
            assert name.endswith("_s") or 0 < figure(found.profile, name) <= 1


def test_a_start_without_overheads_can_be_fitted(running, truth, start):
    bare = replace(start, layer_overhead_s=0.0, step_overhead_s=0.0)
    found = fit(sampled(running, truth, DESIGN), running, bare)
    assert worst_error(running, found.profile, sampled(running, truth, BETWEEN)) < 0.03


def test_an_engine_that_is_faster_than_any_figure_allows_has_no_overhead(running, start):
    fast = [replace(sample, seconds=sample.seconds / 100) for sample in sampled(running, start, DESIGN)]
    assert fit(fast, running, start).profile.step_overhead_s == 0


@pytest.mark.slow
@rows("overhead", ["layer_overhead_s", "step_overhead_s"])
def test_an_overhead_that_was_guessed_far_too_large_is_taken_back(running, start, overhead):
    slow = replace(start, **{overhead: 20e-3})
    found = fit(sampled(running, start, DESIGN), running, slow)
    assert overhead in found.fitted
    assert worst_error(running, found.profile, sampled(running, start, BETWEEN)) < 0.05


@pytest.mark.slow
def test_the_error_band_holds_every_sample_and_has_a_floor(running, truth, start):
    exact, noisy = (sampled(running, truth, DESIGN, noise) for noise in (0.0, 0.05))
    bent = [replace(noisy[0], seconds=1.3 * noisy[0].seconds), *noisy[1:]]
    bands = []
    for samples in (exact, noisy, bent):
        found = fit(samples, running, start)
        assert worst_error(running, found.profile, samples) <= found.profile.error_band
        assert found.predicted_s == running.predicted_s(samples, found.profile)
        bands.append(found.profile.error_band)
    assert bands[0] == 0.02
    assert bands == sorted(bands)
    assert bands[-1] > 0.2


def test_the_error_band_comes_from_samples_that_were_held_out(running, truth, start):
    few = sampled(running, truth, DESIGN[:3] + DESIGN[6:11], noise=0.1)
    found = fit(few, running, start)
    assert found.profile.error_band > worst_error(running, found.profile, few) + 0.01


def test_formats_that_never_ran_are_extrapolated(running, truth, start):
    first = fit(sampled(running, truth, DESIGN), running, start).profile
    eight_bits = Running(uniform(running.cluster, "A100", 1, 1, EIGHT.num_layers, "int8"), EIGHT, running.cluster)
    second = fit(sampled(eight_bits, truth, DESIGN), eight_bits, first).profile
    assert (first.source, first.extrapolated) == ("measured", ("fp16", "int8", "fp8", "int4"))
    assert second.extrapolated == ("fp16", "fp8", "int4")


@rows("left", [DESIGN[:2] + DESIGN[6:], DESIGN[:9], []])
def test_too_few_samples_are_refused(running, start, left):
    with pytest.raises(SampleError, match="too few for a profile"):
        fit(sampled(running, start, left), running, start)


@rows("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_time_that_is_none_is_refused(running, start, seconds):
    samples = sampled(running, start, DESIGN)
    with pytest.raises(SampleError, match="no positive time"):
        fit([replace(samples[0], seconds=seconds), *samples[1:]], running, start)


def test_a_start_without_the_format_is_refused(laptop, counting, known):
    cpu = Running(uniform(laptop, "CPU", 1, 1, 8, "fp32"), counting, laptop)
    samples = sampled(cpu, known["CPU"], DESIGN)
    with pytest.raises(ProfileError, match="no figure for computing in fp32"):
        fit(samples, cpu, replace(profiles.load("A100"), kind="CPU"))


@pytest.mark.slow
def test_a_fit_is_the_same_every_time(running, truth, start):
    found: list[Fit] = [fit(sampled(running, truth, DESIGN, 0.02), running, start) for _ in range(2)]
    assert found[0] == found[1]
