"""The time ahead in segments: every window, clocks that are put forward and back, times from now on."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from intent.models import DAYS, DatedWindow, DatesWindow, FromNowWindow, Objective, RecurringWindow, Window
from service.promises.agenda import ActiveGoal, Segment, cut, in_force
from tests.rows import rows

NOW = datetime(2026, 1, 5, 3, tzinfo=UTC)  # a Monday
BERLIN = "Europe/Berlin"
WORKDAYS = RecurringWindow(("mon", "tue", "wed", "thu", "fri"), "09:00", "21:00", "UTC")
NIGHTS = RecurringWindow(("mon", "tue", "wed", "thu", "fri"), "21:00", "09:00", "UTC")
NAMED: dict[str, Window] = {"peak": WORKDAYS, "off_peak": NIGHTS}


def promised(window: Window, said: datetime = NOW, value: float = 2.0) -> ActiveGoal:
    return ActiveGoal("intent-1", Objective("ttft", "<=", "2s", "p99", value, "s", window), said)


def hours(segments: list[Segment], zone: str = "UTC") -> list[str]:
    return [f"{one.begins.astimezone(ZoneInfo(zone)):%a %H:%M}" for one in segments]


def test_a_day_is_cut_where_named_windows_begin_and_end() -> None:
    goals = [promised("peak"), promised("off_peak", value=9), promised("always", value=20)]
    segments = cut(goals, NAMED, NOW, NOW + timedelta(days=1))
    assert hours(segments) == ["Mon 03:00", "Mon 09:00", "Mon 21:00"]
    assert [one.windows for one in segments] == [(), ("peak",), ("off_peak",)]
    assert [[goal.value for goal in one.goals] for one in segments] == [[20], [2, 20], [9, 20]]  # type: ignore[union-attr]


def test_a_night_that_began_the_evening_before_ends_in_the_morning() -> None:
    late = NOW - timedelta(hours=1)  # after midnight
    segments = cut(
        [promised(RecurringWindow(tuple(DAYS), "22:00", "06:00", "UTC"))], {}, late, NOW + timedelta(hours=6)
    )
    assert hours(segments) == ["Mon 02:00", "Mon 06:00"]
    assert [len(one.goals) for one in segments] == [1, 0]


def test_hours_that_overlap_a_named_window_are_segments_of_their_own() -> None:
    lunch = RecurringWindow(tuple(DAYS), "12:00", "13:30", "UTC")
    segments = cut([promised("peak"), promised(lunch)], NAMED, NOW, NOW + timedelta(hours=12))
    assert hours(segments) == ["Mon 03:00", "Mon 09:00", "Mon 12:00", "Mon 13:30"]
    assert [len(one.goals) for one in segments] == [0, 1, 2, 1]


def test_a_time_from_now_on_ends_and_is_not_begun_anew() -> None:
    goal = promised(FromNowWindow(duration_s=5400), NOW - timedelta(minutes=30))
    segments = cut([goal], {}, NOW, NOW + timedelta(hours=3))
    assert [(one.ends - one.begins, len(one.goals)) for one in segments] == [
        (timedelta(hours=1), 1),
        (timedelta(hours=2), 0),
    ]


def test_a_time_from_now_on_that_is_longer_than_the_calendar() -> None:
    (segment,) = cut([promised(FromNowWindow(duration_s=1e11))], {}, NOW, NOW + timedelta(days=1))
    assert segment.goals


def test_a_date_holds_once() -> None:
    goal = promised(DatedWindow("2026-01-05", "22:00", "02:00", "UTC"))
    segments = cut([goal], {}, NOW, NOW + timedelta(days=2))
    assert hours(segments) == ["Mon 03:00", "Mon 22:00", "Tue 02:00"]


@rows(
    ("day", "begins", "ends"),
    [
        (datetime(2026, 3, 28, 12, tzinfo=UTC), "Sun 03:00", "Sun 03:30"),  # 02:30 is skipped
        (datetime(2026, 10, 24, 12, tzinfo=UTC), "Sun 02:30", "Sun 03:30"),
    ],
)
def test_hours_in_the_night_on_which_clocks_change(day: datetime, begins: str, ends: str) -> None:
    goal = promised(RecurringWindow(("sun",), "02:30", "03:30", BERLIN))
    segments = cut([goal], {}, day, day + timedelta(days=1))
    held = [one for one in segments if one.goals]
    assert hours(held, BERLIN)[0] == begins
    assert f"{held[-1].ends.astimezone(ZoneInfo(BERLIN)):%a %H:%M}" == ends


CLOCK = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.sampled_from([0, 15, 30, 59]))
ZONES = st.sampled_from(["UTC", BERLIN, "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"])
WINDOWS = st.one_of(
    st.builds(RecurringWindow, st.sets(st.sampled_from(DAYS), min_size=1).map(tuple), CLOCK, CLOCK, ZONES),
    st.builds(DatedWindow, st.dates(NOW.date(), NOW.date() + timedelta(days=365)).map(str), CLOCK, CLOCK, ZONES),
    st.builds(
        DatesWindow, st.just("2026-03-01"), CLOCK, CLOCK, ZONES, st.dates(date(2026, 3, 3), date(2026, 12, 1)).map(str)
    ),
    st.builds(FromNowWindow, duration_s=st.floats(1, 1e6)),
)


@given(
    windows=st.lists(WINDOWS, min_size=1, max_size=4),
    named=st.lists(WINDOWS.filter(lambda one: not isinstance(one, FromNowWindow)), max_size=2),
    days=st.floats(1, 350),
    minute=st.integers(0, 7 * 1440 - 1),
)
def test_every_moment_of_a_week_has_the_goals_that_hold_then(
    windows: list[Window], named: list[Window], days: float, minute: int
) -> None:
    begins = NOW + timedelta(days=days)
    defined = {f"w{number}": window for number, window in enumerate(named)}
    goals = [promised(one, begins - timedelta(hours=1)) for one in (*windows, *defined)]
    segments = cut(goals, defined, begins, begins + timedelta(days=7))
    assert segments[0].begins == begins
    assert segments[-1].ends == begins + timedelta(days=7)
    assert all(a.ends == b.begins and a.begins < a.ends for a, b in pairwise(segments))
    at = begins + timedelta(minutes=minute)
    (here,) = [one for one in segments if one.begins <= at < one.ends]
    assert list(here.promised) == in_force(goals, defined, at)
