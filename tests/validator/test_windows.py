from intent.models import Config, DatedWindow, DatesWindow, FromNowWindow, RecurringWindow
from tests.rows import rows
from validator.models import MessageWords
from validator.values import check_windows


def weekly(tz):
    return RecurringWindow(("mon",), "09:00", "17:00", tz)


@rows(
    ("window", "code", "slot"),
    [
        (weekly("Berlin/Europe"), "unknown_zone", "window/tz"),
        (DatedWindow("2026-12-01", "09:00", "17:00", "../etc/passwd"), "unknown_zone", "window/tz"),
        (DatedWindow("2026-02-30", "09:00", "17:00", "UTC"), "no_such_date", "window/date"),
        (DatedWindow("2026-11-19", "09:00", "17:00", "UTC"), "window_over", "window"),
        (DatesWindow("2026-11-10", "09:00", "17:00", "UTC", "2026-11-19"), "window_over", "window"),
        (DatesWindow("2026-12-10", "09:00", "17:00", "UTC", "2026-12-09"), "no_such_date", "window/date"),
        (DatesWindow("2026-12-10", "09:00", "17:00", "UTC", "2026-12-32"), "no_such_date", "window/date"),
        (DatedWindow("2026-11-20", "09:00", "10:00", "UTC"), "window_over", "window"),
        (DatedWindow("2026-11-20", "09:00", "17:30", "Asia/Shanghai"), "window_over", "window"),
    ],
)
@rows("language", ["en", "zh"])
def test_a_window_that_can_never_be_is_found_at_its_place(window, code, slot, language, site):
    (finding,) = check_windows(
        [Config("tp", "==", 1, "y"), Config("tp", "==", 2, "x", window)], site, MessageWords(language)
    )
    assert (finding.code, finding.pointer) == (code, f"/goals/1/{slot}")


@rows(
    "window",
    [
        "always",
        "overnight",
        weekly("Europe/Berlin"),
        DatedWindow("2026-11-20", "09:00", "10:01", "UTC"),
        DatedWindow("2026-11-19", "20:00", "11:00", "UTC"),
        FromNowWindow(60.0),
    ],
)
def test_a_window_that_can_still_be_passes(window, site, en):
    assert list(check_windows([Config("tp", "==", 2, "x", window)], site, en)) == []


def test_the_zones_that_are_meant_are_suggested(site, en):
    (finding,) = check_windows([Config("tp", "==", 2, "x", weekly("Berlin"))], site, en)
    assert "Europe/Berlin" in finding.suggestion
