"""What the router tells of requests, kept for the goals that are about it."""

from dataclasses import replace

from runtime.engine import Finish
from runtime.stream import Usage
from selector.models import Workload
from service.metrics import Metrics
from service.promises.attainment import Tally, requests
from service.promises.watch import KEPT_S, Watch, measured, percentile, rounded
from tests.service.promises.world import TTFT


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def request(watch: Watch, tenant: str = "", finish: Finish = Finish.STOP, tokens: int = 30) -> None:
    seen = watch.of(tenant)
    seen.arrived(12)
    seen.first_token(0.5)
    seen.next_token(0.1)
    seen.finished(finish, Usage(12, tokens), e2e_s=2.0, tpot_s=0.05)


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
