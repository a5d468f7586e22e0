"""Each phrase with the window it means, in short: ``days|date HH:MM-HH:MM [zone]``, ``+seconds`` or ``!problem``.

The words that belong to a window stand in brackets; now is Friday, 20 November 2026, 10:00 UTC.
"""

import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from zoneinfo import available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intent.fold import fold
from intent.models import NAMED_WINDOWS, Catalogue, DatedWindow, FromNowWindow, RecurringWindow
from intent.times import PROBLEMS, Said, find, spoken

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
GROUPS = {"daily": DAYS, "weekdays": DAYS[:5], "weekends": DAYS[5:]}


def window(short):
    when, *rest = short.split()
    if when.startswith("+"):
        return FromNowWindow(float(when))
    hours, zone = (rest[0] if rest else "00:00-24:00"), (rest[1] if rest[1:] else "UTC")
    if when[0].isdigit():
        return DatedWindow(when, *hours.split("-"), zone)
    return RecurringWindow(GROUPS.get(when) or tuple(when.split(",")), *hours.split("-"), zone)


def expected(marked, shorts):
    text = fold(re.sub(r"[\[\]]", "", marked)).text
    spans = re.finditer(r"\[(.+?)\]", fold(marked).text)
    places = [(m.start() - 2 * n, m.end() - 2 * n - 2) for n, m in enumerate(spans)]
    results = [(None, short[1:]) if short[0] == "!" else (window(short), None) for short in shorts]
    return text, [Said(*place, *result) for place, result in zip(places, results, strict=True)]


ENGLISH = """
[9am-9pm] = daily 09:00-21:00
[9 am to 9 pm] = daily 09:00-21:00
[9 a.m. to 5 p.m.] = daily 09:00-17:00
[from 9 to 18] = daily 09:00-18:00
[from 9 to 5] = daily 09:00-17:00
[weekdays 9 to 5] = weekdays 09:00-17:00
[between 22:00 and 06:00] = daily 22:00-06:00
[22:00–06:00] = daily 22:00-06:00
[22:00-6:00]: GPU util >= 75% = daily 22:00-06:00
[10pm until 6am] = daily 22:00-06:00
[after 18:00] = daily 18:00-24:00
[before 9am] = daily 00:00-09:00
[until 9am] = daily 00:00-09:00
[until 18:00 today] = 2026-11-20 10:00-18:00
[until tomorrow 9am] = +82800
[until midnight] = 2026-11-20 10:00-24:00
[noon to midnight] = daily 12:00-24:00
[10pm-midnight] = daily 22:00-24:00
[weekdays] = weekdays
[on weekdays 9-18] = weekdays 09:00-18:00
[Mon-Fri 9am to 9pm] = weekdays 09:00-21:00
[monday to friday] = weekdays
[fri-mon] = mon,fri,sat,sun
[on Mondays and Wednesdays] = mon,wed
[on Mondays, Wednesdays and Fridays] keep p95 TPOT under 50 ms = mon,wed,fri
TTFT at p99.9 below 6s [on weekends] = weekends
[Saturday night] = sat 22:00-06:00
[every day 8am-8pm] = daily 08:00-20:00
[nightly 1am-4am] = daily 01:00-04:00
[weekday mornings] = weekdays 06:00-12:00
[weekday evenings] = weekdays 18:00-24:00
[weekday nights] = weekdays 22:00-06:00
[9am-5pm CET] = daily 09:00-17:00 CET
[9am-5pm UTC+8] = daily 09:00-17:00 Etc/GMT-8
[9-17 Europe/Berlin] = daily 09:00-17:00 Europe/Berlin
[9am-5pm Beijing time] = daily 09:00-17:00 Asia/Shanghai
[9am-5pm PST] = daily 09:00-17:00 America/Los_Angeles
[9-5 ET] = daily 09:00-17:00 America/New_York
[on 27 November 2026] = 2026-11-27
[Nov 27] = 2026-11-27
[27/11/2026] = 2026-11-27
[on 2026-11-27] hold p99 TTFT under 1.5 s = 2026-11-27
[tomorrow] = 2026-11-21
[tonight] = 2026-11-20 18:00-24:00
[today 14:00-16:00] = 2026-11-20 14:00-16:00
[this Friday] = 2026-11-20
[next Monday] = 2026-11-23
[for the next two hours] TTFT p95 under 700ms = +7200
[next 30 min] = +1800
[for 2 hours from now] = +7200
[for 2 hours] = +7200
[outside 9-17] keep cost below $6/h = daily 17:00-09:00
[every day except Sunday] = mon,tue,wed,thu,fri,sat
"""

CHINESE = """
[早上9点到晚上9点] = daily 09:00-21:00
[9点到18点] = daily 09:00-18:00
[每天22:00到次日6:00] = daily 22:00-06:00
[晚上十点到早上六点] = daily 22:00-06:00
[工作日9:00-18:00] = weekdays 09:00-18:00
[周一到周五]吞吐不少于1000 tokens/s = weekdays
[周末]首字延迟p99不高于6秒 = weekends
[星期六] = sat
[上午] = daily 06:00-12:00
[下午两点半到四点] = daily 14:30-16:00
[接下来两小时] = +7200
[未来半小时] = +1800
[今后30分钟] = +1800
[11月27日] = 2026-11-27
[明天上午] = 2026-11-21 06:00-12:00
[本周五] = 2026-11-20
[除了9点到17点] = daily 17:00-09:00
[北京时间周一至周五09:00-18:00]，p99首字延迟2秒 = weekdays 09:00-18:00 Asia/Shanghai
[周三和周五晚上8点到11点]成本不超过每小时10美元 = wed,fri 20:00-23:00
"""

NO_WINDOW = """
keep gpu util between 60 and 80 %
use 2 to 4 GPUs
p50 to p99
9 to 5
within 2 hours
every 2 hours
under 2 hours
2 per hour
E2E under 2 min
for 2s
pause for 50 ms
for 99% of requests
keep p99 TTFT < 2s at peak
"""


def lines(table):
    return [line for line in table.strip().splitlines() if line]


@pytest.mark.parametrize("line", lines(ENGLISH) + lines(CHINESE))
def test_a_phrase_is_read_as_the_window_it_means(line, catalogue):
    marked, _, short = line.rpartition(" = ")
    text, said = expected(marked, short.split(" ; "))
    assert find(text, catalogue) == said


@pytest.mark.parametrize("line", lines(NO_WINDOW))
def test_what_is_no_window_is_left_alone(line, catalogue):
    assert find(fold(line).text, catalogue) == []


# -- there and back ----------------------------------------------------------------------------------

ZONES = sorted(available_timezones() - {"EST", "MST", "Factory", "localtime"})  # EST is New York to everybody
NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)


def clock(minutes):
    return f"{minutes // 60:02}:{minutes % 60:02}"


@st.composite
def hours(draw):
    first = draw(st.integers(0, 1439))
    last = draw(st.integers(1, 1440).filter(lambda last: last != first))
    return clock(first), clock(last)


recurring = st.builds(
    lambda days, hours, zone: RecurringWindow(tuple(sorted(days, key=DAYS.index)), *hours, zone),
    st.sets(st.sampled_from(DAYS), min_size=1),
    hours(),
    st.sampled_from(ZONES),
)
dated = st.builds(
    lambda ahead, hours, zone: DatedWindow((date(2026, 11, 22) + timedelta(ahead)).isoformat(), *hours, zone),
    st.integers(0, 3000),
    hours(),
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


@given(
    recurring | dated | from_now,
    st.sampled_from(["en", "zh"]),
    st.sampled_from(SENTENCES),
    st.sampled_from(ZONES),
)
@settings(max_examples=2000, deadline=None)
def test_what_is_spoken_of_a_window_is_read_as_that_window_wherever_it_stands(
    window, language, sentence, here
):
    phrase = fold(spoken(window, language)).text
    text = fold(sentence.format(spoken(window, language))).text
    catalogue = Catalogue(models=(), windows=NAMED_WINDOWS, now=NOW, tz=here)
    start = text.index(phrase)
    assert find(text, catalogue) == [Said(start, start + len(phrase), window, None)]


WORDS_OF_TIME = st.sampled_from(
    "9 17 9am 5pm 22:00 25:00 00:00 24:00 13pm 0900 to - until from between and on at for the next in outside every mon "
    "fri-sun weekdays weekends , ; ( ) utc cet europe/berlin mars/olympus utc+8 tomorrow today tonight 27 november 2026 "
    "2026-02-30 2 hours min week morning evenings nightly daily this before after by 早上 晚上 9点 十点半 到 周一 三 、 工作日 "
    "明天 次日 11月27日 接下来 两 小时 除了 以外 北京时间 之前 每天 % gpus 零 点 五 秒 may may 31 9999 0001-01-01 12/31/9999".split()
)


@given(
    st.lists(WORDS_OF_TIME, max_size=14).map(" ".join)
    | st.lists(WORDS_OF_TIME, max_size=14).map("".join)
    | st.text()
)
@settings(max_examples=2000, deadline=None)
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
        assert said.window is None or said.problem in {None, "past_date"}
