from intent.times.clock import HALVES, PARTS, Clock, span, spelled, time_of
from tests.rows import rows


def bare(hour):
    return Clock(hour * 60, "bare")


def half(hour):
    return Clock(hour * 60, "half")


@rows(
    ("start", "end", "hours"),
    [
        (bare(9), bare(5), (9, 17)),
        (bare(8), bare(6), (8, 18)),
        (bare(9), bare(12), (9, 12)),
        (bare(9), half(17), (9, 17)),
        (bare(8), half(22), (20, 22)),
        (bare(10), half(6), (22, 6)),
        (half(9), bare(5), (9, 17)),
        (half(22), bare(6), (22, 6)),
        (half(9), bare(9), (9, 21)),
        (Clock(1320), Clock(0), (22, 24)),
        (Clock(1440), Clock(360), (0, 6)),
        (Clock(0), Clock(1440), (0, 24)),
    ],
)
def test_what_one_end_leaves_open_follows_from_the_other(start, end, hours):
    assert span(start, end) == (hours[0] * 60, hours[1] * 60)


@rows(("start", "end"), [(bare(10), bare(6)), (bare(2), bare(6)), (bare(9), bare(9)), (bare(6), Clock(1440))])
def test_hours_that_could_be_twelve_hours_apart_are_asked_about(start, end):
    assert span(start, end) == "ambiguous_time"


@rows(("hour", "minute"), [(25, 0), (24, 1), (9, 60), (-1, 0)])
def test_a_time_that_no_clock_shows_is_impossible(hour, minute):
    assert span(time_of(hour, minute, "sure"), Clock(600)) == "impossible_time"


def test_a_range_that_ends_where_it_begins_is_empty():
    assert span(Clock(540), Clock(540)) == "zero_length"


@rows(
    ("hour", "part", "meant"),
    [(11, "noon", 11), (12, "noon", 12), (1, "noon", 13), (9, "night", 21), (2, "night", 2)],
)
def test_a_part_of_the_day_says_which_half_is_meant(hour, part, meant):
    assert bare(hour).in_half(HALVES[part]).minutes == meant * 60


def test_every_part_of_the_day_has_hours_and_a_half():
    assert set(PARTS) == set(HALVES)
    assert [spelled(minutes) for minutes in PARTS["evening"]] == ["18:00", "24:00"]
