import re
import sys
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from zoneinfo import available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.fold import fold
from intent.models import NAMED_WINDOWS, Catalogue, DatedWindow, DatesWindow, FromNowWindow, RecurringWindow
from intent.times import PROBLEMS, TimeMatch, find, spoken
from tests.intent.tables import lines
from tests.rows import rows
from tests.tries import tries

LINES = lines("windows.txt")
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
GROUPS = {"daily": DAYS, "weekdays": DAYS[:5], "weekends": DAYS[5:]}


def window(short):
    when, *rest = short.split()
    if when.startswith("+"):
        return FromNowWindow(float(when))
    hours, zone = (rest[0] if rest else "00:00-24:00"), (rest[1] if rest[1:] else "UTC")
    if ".." in when:
        first, last = when.split("..")
        return DatesWindow(first, *hours.split("-"), zone, last)
    if when[0].isdigit():
        return DatedWindow(when, *hours.split("-"), zone)
    return RecurringWindow(GROUPS.get(when) or tuple(when.split(",")), *hours.split("-"), zone)


def result(short):
    if not short.startswith("!"):
        return window(short), None
    code, _, known = short[1:].partition(" ")
    return (window(known) if known else None), code


def expected(marked, shorts):
    text = fold(re.sub(r"[\[\]]", "", marked)).text
    spans = re.finditer(r"\[(.+?)\]", fold(marked).text)
    places = [(m.start() - 2 * n, m.end() - 2 * n - 2) for n, m in enumerate(spans)]
    return text, [TimeMatch(*place, *result(short)) for place, short in zip(places, shorts, strict=True)]


@rows("line", LINES)
def test_a_phrase_is_read_as_the_windows_it_means_and_nothing_else_is(line, catalogue):
    marked, _, shorts = line.rpartition(" = ") if " = " in line else (line, "", "")
    text, said = expected(marked, shorts.split(" ; ") if shorts else [])
    assert find(text, catalogue) == said


def test_the_phrases_name_every_problem():
    assert set(PROBLEMS) == {short.split()[0] for line in LINES for short in line.split("!")[1:]}


@rows("name", ["friday batch", "Tonight", "9am"])
def test_a_name_of_the_deployment_keeps_its_meaning(name, catalogue):
    named = replace(catalogue, tenants=(name,))
    assert find(fold(f"{name}: p99 ttft < 2s").text, catalogue)
    assert find(fold(f"{name}: p99 ttft < 2s").text, named) == []


@rows(
    ("now", "phrase", "short"),
    [
        ("2026-11-20T23:30", "tonight 1am-4am", "2026-11-21 01:00-04:00"),
        ("2026-11-20T00:30", "tonight 1am-4am", "2026-11-20 01:00-04:00"),
        ("2026-11-20T19:00", "until Friday 18:00", "+601200"),
        ("2026-11-16T10:00", "next Friday", "!ambiguous_time"),
        ("2026-11-16T10:00", "next Monday", "2026-11-23"),
        ("2026-11-18T10:00", "本周一", "!past_date 2026-11-16"),
        ("2026-11-18T10:00", "下周三", "2026-11-25"),
        ("2026-11-20T18:30", "today 14:00-16:00", "!past_date 2026-11-20 14:00-16:00"),
        ("2026-11-20T01:30", "today 22:00-02:00", "2026-11-20 22:00-02:00"),
        ("2026-12-28T10:00", "Nov 27", "2027-11-27"),
        ("2026-11-20T20:00", "tomorrow 9am-5pm Asia/Tokyo", "2026-11-22 09:00-17:00 Asia/Tokyo"),
        (
            "2026-10-24T12:00",
            "until tomorrow 12:00 Europe/Berlin",
            "+82800",
        ),  # the day the clocks go back, 14:00 there
    ],
)
def test_days_are_counted_from_now_in_the_zone_of_the_window(now, phrase, short, catalogue):
    clock = datetime.fromisoformat(now).replace(tzinfo=UTC)
    text, said = expected(f"[{phrase}]", [short])
    assert find(text, replace(catalogue, now=clock)) == said


HOSTILE = (
    "1", "12 ", ":", "12:", "to ", "点", "一点", "on ", "mon ", "mon, ", "from ", "9 to ", "周", "周一", "一", "for the next ",
    "the ", "a/", "(", "9am-5pm (a", "9-17 ", "9-17, ", "until ", "1 nov ", "接下来", "1.", "1,", "9 in the ", "utc+", "-", "a",
    "周一 ", "周一  ", "mon and on ", "half an ", "every ", "2026-", "11月", "半", "0900-", " ",
)  # fmt: skip


@pytest.mark.slow
@rows("piece", HOSTILE)
def test_a_hostile_text_takes_steps_in_proportion_to_its_length(piece, catalogue):
    def steps(text):
        count = 0

        def counted(frame, event, _):
            nonlocal count
            count += event == "call"

        sys.setprofile(counted)
        try:
            find(text, catalogue)
        finally:
            sys.setprofile(None)
        return count

    text = fold(piece * 2000).text
    assert steps(text[:2000]) < 2.5 * steps(text[:1000]) + 1000


# -- there and back ----------------------------------------------------------------------------------

ZONES = sorted(available_timezones() - {"EST", "MST", "Factory", "localtime"})  # EST is New York to everybody
NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)


def clock(minutes):
    return f"{minutes // 60:02}:{minutes % 60:02}"


hours = (
    st.tuples(st.integers(0, 1439), st.integers(1, 1440))
    .filter(lambda ends: ends[0] != ends[1])
    .map(lambda ends: tuple(map(clock, ends)))
)
recurring = st.builds(
    lambda days, hours, zone: RecurringWindow(tuple(sorted(days, key=DAYS.index)), *hours, zone),
    st.sets(st.sampled_from(DAYS), min_size=1),
    hours,
    st.sampled_from(ZONES),
)
dated = st.builds(
    lambda ahead, hours, zone: DatedWindow((date(2026, 11, 22) + timedelta(ahead)).isoformat(), *hours, zone),
    st.integers(0, 3000),
    hours,
    st.sampled_from(ZONES),
)
dates = st.builds(
    lambda ahead, lasts, hours, zone: DatesWindow(
        (date(2026, 11, 22) + timedelta(ahead)).isoformat(),
        *hours,
        zone,
        (date(2026, 11, 24) + timedelta(ahead + lasts)).isoformat(),
    ),
    st.integers(0, 300),
    st.integers(0, 300),
    hours,
    st.sampled_from(ZONES),
)
from_now = st.builds(
    lambda seconds: FromNowWindow(float(seconds)),
    st.integers(1, 366 * 86400)
    | st.integers(1, 8784).map(lambda hours: hours * 3600)
    | st.integers(1, 99).map(lambda n: n / 4),
)
SENTENCES = (
    "{}",
    "p99 ttft at most 2 s {}",
    "{}: p99 ttft < 2 s",
    "首字延迟 p99 不超过 2 秒，{}",
    "{}，吞吐至少 500 tok/s",
    "2 {} 3",
)


@pytest.mark.slow
@given(recurring | dated | dates | from_now, st.sampled_from(SENTENCES), st.sampled_from(ZONES))
@tries(1000)
def test_what_is_spoken_of_a_window_is_read_as_that_window_wherever_it_stands(window, sentence, here):
    catalogue = Catalogue(models=(), windows=NAMED_WINDOWS, now=NOW, tz=here)
    for language in ("en", "zh"):
        phrase = fold(spoken(window, language)).text
        text = fold(sentence.format(spoken(window, language))).text
        start = text.index(phrase)
        assert find(text, catalogue) == [TimeMatch(start, start + len(phrase), window, None)]


WORDS_OF_TIME = st.sampled_from([word for line in LINES for word in re.findall(r"[^\s=\[\]]+", line)] + list(",;()、"))


@pytest.mark.slow
@given(
    st.lists(WORDS_OF_TIME, max_size=14).map(" ".join) | st.lists(WORDS_OF_TIME, max_size=14).map("".join) | st.text()
)
@tries(2000)
def test_any_words_come_to_windows_or_known_problems_in_order(text):
    folded = fold(text).text
    catalogue = Catalogue(models=(), windows=NAMED_WINDOWS, now=NOW, tz="Europe/Berlin")
    found = find(folded, catalogue)
    places = [place for said in found for place in (said.start, said.end)]
    assert places == sorted(places)
    for said in found:
        assert 0 <= said.start < said.end <= len(folded)
        assert folded[said.start : said.end] == folded[said.start : said.end].strip()
        assert said.problem in PROBLEMS or (said.problem is None and said.window is not None)
        once = isinstance(said.window, DatesWindow) and said.problem == "ambiguous_time"  # the next one, or each week
        assert said.window is None or once or said.problem in {None, "past_date"}
