import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intentctl.measure import (
    MIN_GAPS,
    ClientStream,
    TimeInterval,
    cut_index,
    difference,
    gaps_within,
    percentiles,
    sham_stops,
    stop_of,
)

GAPS = st.lists(st.floats(0.001, 0.05), min_size=60, max_size=120)


def stream(gaps, *, cut=None, start_s=100.0) -> ClientStream:
    """A stream whose ``gaps`` follow a first token; ``cut`` is the index of the first token after the cut."""
    arrivals = tuple(itertools.accumulate(gaps, initial=start_s))
    marks = tuple("1-1x1" if cut is not None and index >= cut else "0-PP2" for index in range(len(arrivals)))
    return ClientStream(arrivals, tuple("x" * len(arrivals)), (0.0,) * len(arrivals), marks)


def around(one: ClientStream, cut: int) -> tuple[TimeInterval, tuple[TimeInterval, TimeInterval]]:
    """A switch planned between the tokens before its gap, done between those after it."""
    switch = TimeInterval(one.arrivals_s[cut - 1] - 1e-6, one.arrivals_s[cut] + 1e-6)
    return switch, (TimeInterval(0.0, switch.start_s), TimeInterval(switch.end_s, math.inf))


@pytest.mark.slow
@given(GAPS, GAPS, st.floats(0.0, 1.0))
def test_the_gap_is_the_longer_of_those_before_the_last_old_token_and_the_first_new_one(before, after, pause_s):
    one = stream([*before, pause_s, *after], cut=len(before) + 1)
    stop = stop_of(one, *around(one, len(before) + 1))
    assert stop is not None
    assert stop.gap_ms == pytest.approx(max(before[-1], pause_s) * 1000, abs=1e-6)
    assert stop.stop_ms <= stop.gap_ms
    assert stop.worst_gap_ms >= stop.gap_ms


@given(st.floats(0.001, 0.02), st.floats(0.001, 0.02), st.floats(0.0, 0.5))
def test_the_stop_is_what_the_gap_has_beyond_the_slower_side(before_s, after_s, pause_s):
    one = stream([before_s] * 60 + [max(before_s, after_s) + pause_s] + [after_s] * 60, cut=61)
    stop = stop_of(one, *around(one, 61))
    assert stop is not None
    assert stop.stop_ms == pytest.approx(pause_s * 1000, abs=1e-3)


def test_a_pause_counts_with_tokens_held_back_from_planned_to_done():
    """As the torch engine does it: 58 ms of copying once read as a stop of 16."""
    one = stream([0.01] * 60 + [0.068, 0.012] + [0.01] * 60, cut=62)
    stop = stop_of(one, *around(one, 62))
    assert stop is not None
    assert stop.stop_ms == pytest.approx(58)
    one = stream([0.01] * 60 + [0.09, 0.02, 0.03, 0.08] + [0.01] * 60, cut=63)
    switch = TimeInterval(one.arrivals_s[60], one.arrivals_s[64])
    stop = stop_of(one, switch, (TimeInterval(0.0, switch.start_s), TimeInterval(switch.end_s, math.inf)))
    assert stop is not None
    assert stop.gap_ms == pytest.approx(30)
    assert stop.worst_gap_ms == pytest.approx(90)


@given(st.integers(0, MIN_GAPS - 1), st.booleans())
def test_too_few_gaps_on_either_side_are_never_measured(short, is_before):
    sides = (short, 80) if is_before else (80, short)
    one = stream([0.01] * sides[0] + [0.2] + [0.01] * sides[1], cut=sides[0] + 1)
    assert stop_of(one, *around(one, sides[0] + 1)) is None


def test_a_cut_before_the_switch_or_of_the_next_one_is_not_taken_for_this_one():
    one = stream([0.01] * 200, cut=80)
    later = TimeInterval(one.arrivals_s[120], one.arrivals_s[125])
    assert cut_index(one, later) is None
    assert stop_of(one, later, (TimeInterval(0.0, later.start_s), TimeInterval(later.end_s, math.inf))) is None
    one = stream([0.01] * 400, cut=300)
    switch = TimeInterval(one.arrivals_s[100], one.arrivals_s[110])
    quiet = (TimeInterval(0.0, switch.start_s), TimeInterval(switch.end_s, one.arrivals_s[250]))
    assert stop_of(one, switch, quiet) is None


@pytest.mark.slow
@given(GAPS)
def test_gaps_within_an_interval_are_those_that_lie_wholly_inside(gaps):
    one = stream(gaps)
    inside = TimeInterval(one.arrivals_s[10], one.arrivals_s[20])
    assert gaps_within(one, inside) == pytest.approx(gaps[10:20])
    assert gaps_within(one, TimeInterval(0.0, math.inf)) == pytest.approx(gaps)


ALWAYS = TimeInterval(0.0, math.inf)


@given(st.integers(0, 50), st.integers(1, 40))
def test_sham_cuts_of_an_even_stream_stop_nothing_and_a_short_one_has_none(seed, count):
    stops = sham_stops(stream([0.01] * 150), [ALWAYS], count, seed)
    assert len(stops) == count
    assert stops == pytest.approx([0.0] * count, abs=1e-6)
    assert sham_stops(stream([0.01] * 2 * MIN_GAPS), [ALWAYS], count, seed) == []


def test_sham_cuts_see_the_noise_in_two_gaps_as_stops_do_and_keep_away_from_the_ends():
    noisy = stream([0.5] + [0.01] * 70 + [0.05] + [0.01] * 70 + [0.5])
    assert max(sham_stops(noisy, [ALWAYS], 2000, seed=1)) == pytest.approx(40, abs=1e-3)
    stops = sham_stops(stream([0.01] * 70 + [0.011] + [0.01] * 70), [ALWAYS], 2000, seed=1)
    assert sum(stop > 0.5 for stop in stops) / 2000 == pytest.approx(0.021 / 0.411, rel=0.25)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=300))
def test_percentiles_are_values_that_occurred_in_order(values):
    found = percentiles(values)
    assert found is not None
    assert {found.p50, found.p99, found.max} <= set(values)
    assert found.p50 <= found.p99 <= found.max == max(values)
    assert sum(value <= found.p50 for value in values) >= len(values) / 2
    assert sum(value <= found.p99 for value in values) >= len(values) * 0.99
    assert percentiles([]) is None


WORDS = st.lists(st.sampled_from("0123456789 "), min_size=1, max_size=60)


def counted(tokens, logprobs=None) -> ClientStream:
    return ClientStream(
        (0.0,) * len(tokens), tuple(tokens), tuple(logprobs or [0.0] * len(tokens)), ("0-PP2",) * len(tokens)
    )


@given(WORDS)
def test_a_stream_does_not_differ_from_itself(tokens):
    found = difference(counted(tokens), counted(tokens))
    assert found.tokens_equal
    assert (found.lost, found.duplicated, found.changed, found.worst_logprob) == (0, 0, 0, 0.0)


@given(WORDS, st.data())
def test_a_missing_token_is_lost_and_an_extra_one_duplicated(tokens, data):
    index = data.draw(st.integers(0, len(tokens) - 1))
    fewer = [*tokens[:index], *tokens[index + 1 :]]

    lost, doubled = difference(counted(fewer), counted(tokens)), difference(counted(tokens), counted(fewer))
    assert (lost.lost, lost.duplicated, lost.tokens_equal) == (1, 0, False)
    assert (doubled.lost, doubled.duplicated, doubled.tokens_equal) == (0, 1, False)


def test_one_lost_and_one_doubled_do_not_cancel_out_and_another_is_changed():
    found = difference(counted("12334567"), counted("12345678"))
    assert found.lost >= 1
    assert found.duplicated >= 1
    found = difference(counted("12x4", [0, 0, -3.0, 0]), counted("1234", [0, 0, -0.5, 0]))
    assert (found.lost, found.duplicated, found.changed) == (0, 0, 1)
    assert found.worst_logprob == pytest.approx(2.5)
