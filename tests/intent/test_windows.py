from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.models import DAYS, DatedWindow, DatesWindow, RecurringWindow
from intent.windows import holds, in_force, in_words, moment, span
from tests.rows import rows

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
CLOCK = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59))


def at(hour: float, day: int = 0) -> datetime:
    return MONDAY + timedelta(days=day, hours=hour)


def test_office_hours_hold_on_their_days_only():
    window = RecurringWindow(DAYS[:5], "09:00", "17:00", "UTC")
    assert holds(window, at(9))
    assert not holds(window, at(8.99))
    assert not holds(window, at(17))
    assert not holds(window, at(12, day=5))


def test_a_night_that_begins_on_a_day_runs_into_the_next():
    window = RecurringWindow(("mon",), "22:00", "06:00", "UTC")
    assert holds(window, at(23))
    assert holds(window, at(5, day=1))
    assert not holds(window, at(5))
    assert not holds(window, at(23, day=1))


def test_hours_are_those_of_the_windows_own_zone():
    window = RecurringWindow(("mon",), "00:00", "01:00", "Asia/Tokyo")
    assert holds(window, at(15.5, day=-1))
    assert not holds(window, at(0.5))


def test_a_dated_window_holds_on_its_date():
    window = DatedWindow("2026-01-05", "10:00", "24:00", "UTC")
    assert holds(window, at(23.9))
    assert not holds(window, at(12, day=1))


def test_dates_hold_from_the_first_hour_of_the_one_to_the_last_of_the_other():
    window = DatesWindow("2026-01-05", "18:00", "09:00", "UTC", "2026-01-07")
    assert [holds(window, at(hour)) for hour in (17.9, 18, 24 + 12, 48 + 8.9, 48 + 9)] == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert in_words(window) == "from 2026-01-05 18:00 to 2026-01-07 09:00"


def test_the_first_declared_window_that_holds_is_in_force():
    windows = {"night": RecurringWindow(DAYS, "22:00", "06:00", "UTC"), "peak": "always"}
    assert in_force(windows, at(23)) == "night"
    assert in_force(windows, at(12)) == "peak"
    assert in_force({}, at(12)) == "always"


@given(CLOCK, CLOCK, st.integers(0, 7 * 24 * 60 - 1))
def test_a_window_and_its_complement_share_out_every_minute(start, end, minute):
    now = MONDAY + timedelta(minutes=minute)
    one, other = (RecurringWindow(DAYS, *hours, "UTC") for hours in ((start, end), (end, start)))
    if start != end:
        assert holds(one, now) != holds(other, now)
    else:
        assert holds(one, now)


def test_a_moment_without_an_offset_is_in_the_deployments_zone():
    assert moment("2026-01-05T09:30", "Asia/Tokyo") == at(0.5)
    assert moment("2026-01-05T09:30+08:00", "Asia/Tokyo") == at(1.5)
    assert moment("2026-01-05T09:30Z", "Asia/Tokyo") == at(9.5)
    assert moment(" 2026-01-05 ", "UTC") == MONDAY


@rows("said", ["", "noon", "2026-02-30", "1969-12-31", "9999-12-31T23:59Z", "2026-01-05T25:00"])
def test_what_is_no_moment_is_refused_with_the_form(said):
    with pytest.raises(ValueError, match=r"2026-01-05T09:30\+08:00"):
        moment(said, "UTC")


@given(CLOCK, CLOCK, st.integers(0, 7 * 24 * 60 - 1))
def test_hours_of_a_day_are_the_moments_at_which_its_window_holds(start, end, minute):
    window = DatedWindow("2026-01-07", start, end, "Asia/Tokyo")
    now = MONDAY + timedelta(minutes=minute)
    first, last = span(window, date(2026, 1, 7))
    assert holds(window, now) == (first <= now < last)


def test_hours_over_a_change_of_the_clocks_end_when_the_clock_says_so():
    night = RecurringWindow(("sat",), "22:00", "06:00", "Europe/Berlin")
    first, last = span(night, date(2026, 3, 28))
    assert last - first == timedelta(hours=7)
    assert holds(night, last - timedelta(minutes=1))
    assert not holds(night, last)
