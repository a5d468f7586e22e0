"""The last minutes in steps: rates, latencies, streams and tokens as the looks saw them."""

import pytest

from runtime.engine import Finish
from runtime.stream import Usage
from service.documents.promises import MomentDocument, RecentQuery
from service.promises import watch as watches
from service.promises.recent import recent_document
from service.promises.watch import KEPT_S, Watch
from service.serving.metrics import Metrics

EPOCH_S = 1_800_000_000.0
"""Unix time when the watch's clock stands at nothing."""


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def wall(self) -> float:
        return EPOCH_S + self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> Watch:
    return Watch(Metrics("m"), clock, clock.wall)


def request(watch: Watch, ttft_s: float = 0.5, e2e_s: float = 2.0, tpot_s: float | None = 0.1) -> None:
    seen = watch.of("")
    seen.arrived(12)
    seen.first_token(ttft_s)
    seen.finished(Finish.STOP, Usage(12, 30), e2e_s=e2e_s, tpot_s=tpot_s)


def moments(watch: Watch, seconds: float = 900, step_s: float = 15) -> tuple[MomentDocument, ...]:
    found = recent_document("m", watch.minutes(), RecentQuery(seconds=seconds, step_s=step_s))
    assert (found.model, found.step_s) == ("m", step_s)
    return found.moments


def looked(watch: Watch, streams: int, tokens: int) -> None:
    watch.look(60, [], streams, tokens)


def test_steps_are_whole_ones_of_unix_time_and_the_last_is_as_long_as_it_has_been(watch: Watch, clock: Clock) -> None:
    clock.now_s = 1000.0
    found = moments(watch)
    assert len(found) == 60
    assert [one.begins_s % 15 for one in found] == [0.0] * 60
    assert [one.begins_s - EPOCH_S for one in (found[0], found[-1])] == [105.0, 990.0]
    assert [one.begins_s - EPOCH_S for one in moments(watch, 5, 300)] == [900.0]
    clock.now_s = 990.0
    assert [one.begins_s - EPOCH_S for one in moments(watch, 30)] == [960.0, 975.0]


def test_rates_and_latencies_are_those_of_a_step(watch: Watch, clock: Clock) -> None:
    clock.now_s = 300.0
    for ttft_s in (0.1, 0.2, 0.3):
        request(watch, ttft_s, tpot_s=None)
    clock.now_s = 316.0
    request(watch, 0.9)
    clock.now_s = 320.0
    before, first, last = moments(watch, 40)
    assert (before.rate_rps, before.ttft_s.p99, before.streams, before.tokens_s) == (0.0, None, None, None)
    assert (first.rate_rps, last.rate_rps) == (3 / 15, 1 / 5)
    assert (first.ttft_s.p50, first.ttft_s.p95, first.ttft_s.p99) == (0.2, 0.3, 0.3)
    assert (first.e2e_s.p99, first.tpot_s.p50, last.tpot_s.p50) == (2.0, None, 0.1)


def test_streams_and_tokens_are_as_the_looks_saw_them(watch: Watch, clock: Clock) -> None:
    looks = [(301.0, 2, 100), (306.0, 7, 150), (311.0, 3, 200), (317.0, 4, 500), (346.0, 0, 790)]
    for clock.now_s, streams, tokens in looks:
        looked(watch, streams, tokens)
    clock.now_s = 350.0
    found = moments(watch, 50)
    assert [one.streams for one in found] == [7, 4, None, 0]
    assert [one.tokens_s for one in found] == [100 / 10, 300 / 6, None, 290 / 29]


def test_a_single_look_tells_of_no_tokens(watch: Watch, clock: Clock) -> None:
    clock.now_s = 10.0
    looked(watch, 1, 5)
    (only,) = moments(watch)
    assert (only.begins_s - EPOCH_S, only.streams, only.tokens_s) == (0.0, 1, None)


def test_nothing_is_told_of_the_time_before_it_watched(clock: Clock) -> None:
    clock.now_s = 100.0
    watch = Watch(Metrics("m"), clock, clock.wall)
    request(watch)
    clock.now_s = 110.0
    found = moments(watch)
    assert [(one.begins_s - EPOCH_S, one.rate_rps) for one in found] == [(90.0, 1 / 5), (105.0, 0.0)]


def test_what_was_forgotten_in_part_is_left_out(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(watches, "MOST", 6)
    watch = Watch(Metrics("m"), clock, clock.wall)
    for clock.now_s in (10.0, 50.0, 70.0):
        request(watch)
    found = moments(watch)
    assert [one.begins_s - EPOCH_S for one in found] == [60.0]


def test_looks_are_kept_as_long_as_requests_and_a_load_is_of_its_own_seconds(watch: Watch, clock: Clock) -> None:
    looked(watch, 9, 0)
    clock.now_s = 61.0
    looked(watch, 2, 10)
    assert watch.seconds(60, []).concurrency == 2
    assert watch.seconds(300, []).concurrency == 9
    clock.now_s = 130.0
    assert watch.seconds(60, []).concurrency == 2
    clock.now_s = KEPT_S + 30
    looked(watch, 1, 20)
    assert [look.streams for look in watch.minutes().looks] == [2, 1]
