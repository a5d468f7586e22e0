from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.models import DAYS, DatedWindow, DatesWindow, FromNowWindow, RecurringWindow
from tests.rows import rows
from tests.tries import tries
from tests.validator.goals import clocks, recurring
from validator.intervals import defined, overlap

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)  # a Friday
NIGHT = RecurringWindow(("fri",), "22:00", "06:00", "UTC")
NAMED = {
    "peak": RecurringWindow(DAYS, "09:00", "21:00", "UTC"),
    "rush": "peak",
    "odd": "odder",
    "odder": "odd",
}


def weekly(days, start, end, tz="UTC"):
    return RecurringWindow(tuple(days.split()), start, end, tz)


def dated(date, start="00:00", end="24:00", tz="UTC"):
    return DatedWindow(date, start, end, tz)


@rows(
    ("a", "b"),
    [
        ("always", "anything"),
        ("overnight", "overnight"),
        ("rush", "peak"),
        ("peak", weekly("mon", "20:00", "23:00")),
        (NIGHT, weekly("sat", "05:00", "07:00")),
        (weekly("sun", "22:00", "06:00"), weekly("mon", "00:00", "01:00")),
        (weekly("mon", "09:00", "09:00"), weekly("tue", "08:00", "08:30")),
        (weekly("mon", "00:00", "24:00"), weekly("mon", "23:00", "23:30")),
        (weekly("mon", "09:00", "10:00", "Asia/Shanghai"), weekly("mon", "01:30", "02:00")),
        (weekly("mon", "03:00", "04:00", "Asia/Shanghai"), weekly("sun", "19:00", "20:00")),
        (weekly("mon", "10:00", "10:30", "Europe/Berlin"), weekly("mon", "08:00", "08:30")),
        (weekly("mon", "10:00", "10:30", "Europe/Berlin"), weekly("mon", "09:00", "09:30")),
        (NIGHT, dated("2026-11-21", "05:00", "06:00")),
        (NIGHT, FromNowWindow(13 * 3600.0)),
        (NIGHT, FromNowWindow(1e300)),
        (dated("2026-11-20", "22:00", "02:00"), dated("2026-11-21", "01:00", "03:00")),
        (dated("2026-11-21", "07:00", "08:00", "Asia/Shanghai"), dated("2026-11-20", "23:00", "23:30")),
        (dated("2026-11-20"), FromNowWindow(60.0)),
        (DatesWindow("2026-11-24", "18:00", "09:00", "UTC", "2026-11-30"), dated("2026-11-28")),
        (DatesWindow("2026-11-24", "18:00", "09:00", "UTC", "2026-11-30"), NIGHT),
        (FromNowWindow(60.0), FromNowWindow(3600.0)),
        ("peak", dated("2026-11-20", "20:00", "22:00")),
    ],
)
def test_windows_that_share_a_moment_overlap_either_way_round(a, b):
    assert overlap(a, b, NAMED, NOW)
    assert overlap(b, a, NAMED, NOW)


@rows(
    ("a", "b"),
    [
        ("overnight", "peak"),
        ("overnight", NIGHT),
        ("odd", "peak"),
        ("peak", weekly("mon", "21:00", "09:00")),
        (NIGHT, weekly("fri", "05:00", "06:00")),
        (weekly("mon", "09:00", "10:00"), weekly("tue", "09:00", "10:00")),
        (weekly("mon", "09:00", "10:00"), weekly("mon", "10:00", "11:00")),
        (weekly("mon", "09:00", "10:00", "Asia/Shanghai"), weekly("mon", "09:00", "10:00")),
        (weekly("mon", "10:00", "10:30", "Europe/Berlin"), weekly("mon", "07:00", "08:00")),
        (weekly("mon", "09:00", "10:00", "Nowhere/At all"), weekly("mon", "09:00", "10:00")),
        (NIGHT, dated("2026-11-21", "06:00", "07:00")),
        (NIGHT, dated("2026-11-20", "05:00", "06:00")),
        (NIGHT, FromNowWindow(12 * 3600.0)),
        (dated("2026-11-20"), dated("2026-11-21")),
        (dated("2026-11-31"), FromNowWindow(1e9)),
        (dated("2026-11-31"), NIGHT),
        (dated("2026-11-19"), FromNowWindow(60.0)),
        (dated("2026-11-20", "09:00", "09:30"), weekly("fri", "09:00", "10:00")),
        (dated("2026-11-20", "12:00", "13:00"), FromNowWindow(2 * 3600.0)),
        ("peak", dated("2026-11-20", "21:00", "23:00")),
    ],
)
def test_windows_that_share_none_do_not(a, b):
    assert not overlap(a, b, NAMED, NOW)
    assert not overlap(b, a, NAMED, NOW)


def test_a_name_leads_to_its_hours_through_other_names():
    assert defined("rush", NAMED) == NAMED["peak"]
    assert defined("overnight", NAMED) == "overnight"
    assert isinstance(defined("odd", NAMED), str)


def test_two_zones_overlap_if_they_do_in_any_season():
    lunch, early = weekly("wed", "12:00", "12:30", "Europe/Berlin"), weekly("wed", "10:00", "10:30")
    assert overlap(lunch, early, {}, NOW)  # in summer
    assert not overlap(lunch, weekly("wed", "09:00", "10:00"), {}, NOW)


# -- minute by minute ------------------------------------------------------------------------------

STEP = timedelta(minutes=5)
MOMENTS = [NOW + STEP * n for n in range(7 * 24 * 12)]
SUMMERLESS = st.sampled_from(["UTC", "Asia/Shanghai", "Asia/Kolkata", "America/Bogota"])


def holds(window, moment):
    """Whether a window holds at a moment, by the clock on the wall."""
    if isinstance(window, FromNowWindow):
        return moment < NOW + timedelta(seconds=window.duration_s)
    local = moment.astimezone(ZoneInfo(window.tz))
    today, eve = local.date(), local.date() - timedelta(days=1)
    clock = f"{local:%H:%M}"

    def on(day):
        return (
            DAYS[day.weekday()] in window.days
            if isinstance(window, RecurringWindow)
            else day.isoformat() == window.date
        )

    if window.start < window.end:
        return on(today) and window.start <= clock < window.end
    return (on(today) and clock >= window.start) or (on(eve) and clock < window.end)


def this_week(zones):
    days = st.integers(0, 6).map(lambda n: (NOW + timedelta(days=n)).date().isoformat())
    return st.one_of(
        recurring(st.tuples(clocks, clocks), zones),
        st.builds(DatedWindow, days, clocks, clocks, zones),
        st.builds(FromNowWindow, st.integers(1, 6 * 24 * 12).map(lambda n: n * 300.0)),
    )


@pytest.mark.slow
@tries(200)
@given(this_week(SUMMERLESS), this_week(SUMMERLESS))
def test_two_windows_overlap_exactly_when_a_moment_of_the_week_is_in_both(a, b):
    shared = any(holds(a, moment) and holds(b, moment) for moment in MOMENTS)
    past_the_week = any(isinstance(one, DatedWindow) and one.date >= "2026-11-26" for one in (a, b))
    if shared or not past_the_week:
        assert overlap(a, b, {}, NOW) is (shared or a == b)
    assert overlap(a, b, {}, NOW) is overlap(b, a, {}, NOW)
