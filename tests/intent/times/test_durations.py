from intent.times.pieces import LONGEST_S, find_durations
from tests.rows import rows


@rows(
    ("text", "seconds"),
    [
        ("for the next 2 hours", 7200),
        ("for an hour and a half", 5400),
        ("next forty-five minutes", 2700),
        ("for the next 0.1 h", 360),
        ("for the next 366 days", LONGEST_S),
        ("接下来一个半小时", 5400),
        ("未来两天", 172800),
        ("持续二十分钟", 1200),
    ],
)
def test_a_stretch_from_now_is_read_in_seconds(text, seconds):
    (found,) = find_durations(f"p99 ttft < 2 s {text}, please")
    assert (found.start, found.end, found.seconds) == (15, 15 + len(text), seconds)


@rows(
    "text",
    [
        "for the next 367 days",
        "for the next 3 months",
        "接下来一个月",
        f"next {'9' * 9} weeks",
        "within the next hour",
    ],
)
def test_a_stretch_without_a_clear_end_is_asked_about(text):
    assert [found.seconds for found in find_durations(text)] == ["ambiguous_time"]


@rows(
    "text",
    [
        "within 2 hours", "every 2 hours", "e2e under 2 min", "for 2s", "pause for 2 minutes", "for 2 hours a day",
        "for 5 minutes at most", "for at least 2 hours", "for 99% of requests", "for 2 tenants", "next friday", "next week",
        "两小时内完成", "每两小时", "2小时内不要超过2次", "最近两小时",
    ],
)  # fmt: skip
def test_durations_of_other_things_are_left_alone(text):
    assert list(find_durations(text)) == []
