"""Windows from the words that a model copied."""

from intent.llm.quotes import Source
from intent.llm.slots import window
from intent.models import DatedWindow, FromNowWindow, RecurringWindow
from intent.rules.kinds import Kind
from tests.rows import rows

ALL = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
WORK = ALL[:5]


def read(words, catalogue, earlier=()):
    text = f"TTFT < 2s {words}"
    return window(Source.of(text, catalogue), words, (0, 9), earlier)


@rows(
    ("words", "value"),
    [
        ("at peak", "peak"),
        ("白天高峰期", "peak"),
        ("the morning peak", "peak"),
        ("晚上低谷期", "off_peak"),
        ("overnight off-peak", "off_peak"),
        ("晚上", "overnight"),
        ("on weekdays 9 to 17", RecurringWindow(WORK, "09:00", "17:00", "UTC")),
        ("in the morning between 8 and noon", RecurringWindow(ALL, "08:00", "12:00", "UTC")),
        (
            "between nine a m and six p m monday through friday",
            RecurringWindow(WORK, "09:00", "18:00", "UTC"),
        ),
        ("12/24", DatedWindow("2026-12-24", "00:00", "24:00", "UTC")),
        ("for the next two hours", FromNowWindow(7200)),
        ("工作日白天", RecurringWindow(WORK, "08:00", "20:00", "UTC")),
    ],
)
def test_words_come_to_one_window_a_part_of_the_day_beside_a_name_to_that_name(words, value, catalogue):
    assert read(words, catalogue).value == value


@rows("words", ["at peak on weekends", "overnight on weekends", "at peak from 9 to 17", "2 to 6"])
def test_two_windows_and_an_open_hour_are_asked_about(words, catalogue):
    assert read(words, catalogue).kind is Kind.BAD_TIME


@rows(
    ("words", "earlier", "value"),
    [
        ("otherwise", ["peak"], "peak"),
        ("其他时间", ["off_peak", "always"], "off_peak"),
        (
            "the rest of the time",
            [RecurringWindow(ALL, "09:00", "17:00", "UTC")],
            RecurringWindow(ALL, "17:00", "09:00", "UTC"),
        ),
        (
            "otherwise",
            [RecurringWindow(ALL, "00:00", "06:00", "UTC")],
            RecurringWindow(ALL, "06:00", "24:00", "UTC"),
        ),
        (
            "平时",
            [RecurringWindow(WORK, "00:00", "24:00", "UTC")],
            RecurringWindow(("sat", "sun"), "00:00", "24:00", "UTC"),
        ),
    ],
)
def test_the_rest_of_the_time_is_what_the_windows_before_leave_over(words, earlier, value, catalogue):
    others = {"peak": "off_peak", "off_peak": "peak"}
    assert read(words, catalogue, earlier).value == others.get(value, value)


@rows("earlier", [[], ["overnight"], ["peak", "off_peak"], [RecurringWindow(WORK, "09:00", "17:00", "UTC")]])
def test_a_rest_that_is_no_one_window_is_asked_about(earlier, catalogue):
    assert read("otherwise", catalogue, earlier).kind is Kind.BAD_TIME


def test_a_window_that_nobody_defined_keeps_its_words(catalogue):
    said = read("during the launch", catalogue)
    assert (said.kind, said.value) == (Kind.WINDOW, "during the launch")


@rows("text", ["TTFT < 2 s off-peak", "TTFT < 2 s outside peak"])
def test_a_part_of_a_name_is_the_whole_name(text, catalogue):
    source = Source.of(text, catalogue)
    assert window(source, "peak", (0, len(text)), []).value == "off_peak"


def test_a_name_that_also_stands_alone_is_itself(catalogue):
    text = "off-peak 3 s, peak 2 s"
    source = Source.of(text, catalogue)
    assert window(source, "peak", (0, len(text)), []).value == "peak"
