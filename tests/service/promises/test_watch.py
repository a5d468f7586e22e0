"""What the router tells of requests, kept for the goals that are about it."""

import random
from dataclasses import replace

from runtime.engine import Finish
from runtime.stream import Usage
from selector.models import MOST_P95, Spread, Workload
from service.promises.attainment import Tally, requests
from service.promises.recent import tenant_loads
from service.promises.watch import KEPT_S, Watch, completed, measured, percentile, rounded
from service.serving.metrics import Metrics
from tests.service.promises.world import TTFT


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def request(
    watch: Watch,
    tenant: str = "",
    finish: Finish = Finish.STOP,
    tokens: int = 30,
    prompt: int = 12,
    cached: int | None = None,
) -> None:
    seen = watch.of(tenant)
    seen.arrived(prompt)
    seen.first_token(0.5)
    seen.next_token(0.1)
    seen.finished(finish, Usage(prompt, tokens, cached), e2e_s=2.0, tpot_s=0.05)


def test_requests_are_counted_as_load_and_as_samples() -> None:
    clock = Clock()
    watch = Watch(Metrics("m"), clock)
    for tenant in ("", "free", "free"):
        request(watch, tenant)
    seen = watch.look(60, [], 2)
    assert seen.load is not None
    assert seen.load == Workload(0.05, 12, 30, 2)
    assert (seen.answered_rps, seen.answered_tok_s) == (3 / 60, 1.5)
    told = {(one.kind, one.value) for one in seen.samples}
    assert told == {("e2e", 2.0), ("error_rate", 0.0), ("tpot", 0.05), ("ttft", 0.5)}
    assert [one.tenant for one in seen.samples if one.kind == "ttft"] == ["", "free", "free"]


def test_clients_that_left_are_misses_of_the_bounds_that_had_passed_and_errors_are_failures() -> None:
    watch = Watch(Metrics("m"), Clock())
    watch.of("").finished(Finish.CANCELLED, Usage(12, 0), e2e_s=3.0, tpot_s=None)
    request(watch, finish=Finish.ERROR)
    watch.turned_away()
    samples = watch.look(60, [], 0).samples
    kinds = [(one.kind, one.value) for one in samples]
    assert kinds == [("ttft", 3.0), ("e2e", 3.0), ("ttft", 0.5), ("error_rate", 1.0), ("error_rate", 1.0)]
    assert requests(TTFT, samples) == Tally(1, 2)
    assert requests(replace(TTFT, value=4.0), samples) == Tally(1, 1)


def test_what_is_old_is_forgotten_and_a_load_is_of_the_last_seconds() -> None:
    clock = Clock()
    watch = Watch(Metrics("m"), clock)
    request(watch)
    watch.look(60, [], 5)
    clock.now_s += 61
    seen = watch.look(60, [], 1)
    assert (seen.load, len(seen.samples)) == (None, 4)
    assert list(seen.since(clock.now_s)) == []
    clock.now_s += KEPT_S
    assert watch.look(60, [], 0).samples == ()


def test_the_metrics_are_told_all_the_same() -> None:
    metrics = Metrics("m")
    request(Watch(metrics), "free")
    text = metrics.of("free")._ttft_s
    assert text._sum.get() == 0.5


def test_a_load_without_an_answer_has_no_length() -> None:
    watch = Watch(Metrics("m"), Clock())
    watch.of("").arrived(7)
    load = measured(watch.seconds(10, []))
    assert load is not None
    assert (load.rate_rps, load.output_tokens) == (0.1, 0)


def test_figures() -> None:
    assert [rounded(value) for value in (0.0, 0.1234, 987.0, 2.0)] == [0.0, 0.12, 990.0, 2.0]
    assert [percentile([3, 1, 2], share) for share in (0.5, 0.99)] == [2, 3]
    assert percentile([], 0.5) is None


def asked(count: int, gaps: list[float], prompts: list[int], cached: int | None = None) -> Workload:
    """What is measured of so many requests, which come after these gaps in turn."""
    clock = Clock()
    watch = Watch(Metrics("m"), clock)
    for number in range(count):
        clock.now_s += gaps[number % len(gaps)]
        request(watch, prompt=prompts[number % len(prompts)], cached=cached)
    load = measured(watch.seconds(60, []))
    assert load is not None
    return load


DECLARED = Workload(9.0, 9, 7, 9, Spread(2.0), Spread(3.0), burstiness=2.0, prefix_hit=0.3)


def test_spreads_bursts_and_prefix_hits_are_those_that_were_seen() -> None:
    load = asked(200, [0.2], [100] * 9 + [1000], cached=50)
    assert (load.inputs, load.outputs) == (Spread(MOST_P95), Spread(1.0))
    assert {load.inputs.source, load.outputs.source} == {"observed"}
    assert load.burstiness == 0.25, "of a clock"
    assert load.prefix_hit == 0.25, "50 of 190, by twentieths"
    assert completed(load, DECLARED) == load
    assert asked(200, [0.01] * 9 + [1.9], [12]).burstiness == 2.75
    assert asked(200, [0.2], [12]).prefix_hit == 0, "the engine does not tell"


def test_with_few_requests_spreads_are_as_declared() -> None:
    load = completed(asked(29, [0.2], [100] * 9 + [1000], cached=50), DECLARED)
    assert (load.input_tokens, load.output_tokens) == (160, 30)
    assert (load.inputs, load.outputs, load.burstiness, load.prefix_hit) == (Spread(2.0), Spread(3.0), 2.0, 0.3)


def test_chance_in_times_makes_no_bursts() -> None:
    draw = random.Random(1)
    gaps = [draw.expovariate(5.0) for _ in range(200)]
    assert asked(200, gaps, [12]).burstiness == 1.0


def test_what_is_asked_now_says_how_lengths_and_arrivals_are_spread_and_of_few_requests_nothing() -> None:
    clock = Clock()
    watch = Watch(Metrics("m"), clock)
    for number in range(40):
        clock.now_s += 0.2
        request(watch, "gold" if number % 2 else "free", prompt=100 if number % 4 else 500, cached=60)
    everybody, free, _ = tenant_loads(watch.seconds(60, []))
    assert (everybody.inputs, everybody.outputs) == (Spread(2.5), Spread(1.0))
    assert (everybody.burstiness, everybody.prefix_hit) == (0.25, 0.3)
    assert (free.inputs, free.outputs, free.burstiness, free.prefix_hit) == (None, None, None, None)
