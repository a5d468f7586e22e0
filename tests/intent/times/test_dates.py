from datetime import date, timedelta

from hypothesis import given
from hypothesis import strategies as st

from intent.times.clock import coming, days_between, in_week, next_named, on_date, on_day_of_month
from tests.rows import rows

days = st.dates(date(2020, 1, 1), date(2100, 1, 1))
weekdays = st.integers(0, 6)


@given(days, weekdays)
def test_the_coming_day_is_today_or_one_of_the_six_after(today, weekday):
    ahead = coming(weekday)(today) - today
    assert timedelta(0) <= ahead < timedelta(7)
    assert coming(weekday)(today).weekday() == weekday


@given(days, weekdays)
def test_next_friday_is_a_date_only_where_both_of_its_meanings_are_the_same(today, weekday):
    meant = next_named(weekday)(today)
    if weekday <= today.weekday():
        assert meant == in_week(1, weekday)(today)
    else:
        assert meant == "ambiguous_time"


@given(days, st.integers(1, 12), st.integers(1, 31))
def test_a_date_without_a_year_is_the_first_that_is_not_over(today, month, day):
    meant = on_date(month, day)(today)
    if day > (29 if month == 2 else 30 if month in {4, 6, 9, 11} else 31):
        assert meant == "impossible_date"
    else:
        assert meant >= today
        assert (meant.month, meant.day) == (month, day)


@rows(("month", "day", "year"), [(2, 29, 2027), (13, 1, 2026), (0, 1, 2026), (11, 31, 2026), (1, 1, 0)])
def test_a_day_that_no_calendar_has_is_impossible(month, day, year):
    assert on_date(month, day, year)(date(2026, 11, 20)) == "impossible_date"


@given(days, st.integers(1, 31))
def test_a_day_of_the_month_is_the_next_with_that_number(today, day):
    meant = on_day_of_month(day)(today)
    assert meant.day == day
    assert timedelta(0) <= meant - today < timedelta(63)


def test_days_run_over_sunday():
    assert days_between(4, 0) == (4, 5, 6, 0)
    assert days_between(2, 2) == (2,)
