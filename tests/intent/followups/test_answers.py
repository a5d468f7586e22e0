from datetime import UTC, datetime

import pytest

from intent.followups.answers import number_said, option_said
from intent.models import NAMED_WINDOWS, Catalogue

CATALOGUE = Catalogue(models=(), windows=NAMED_WINDOWS, now=datetime(2026, 1, 5, tzinfo=UTC), tz="UTC")
METRICS = ("keep TTFT under 2 s", "keep TPOT under 2 s", "keep E2E under 2 s")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2", 2), ("option 2", 2), ("#1", 1), ("the 2nd one", 2), ("2)", 2), ("first", 1), ("the last one", 3), ("第二个", 2),
        ("选三", 3), ("选择第1项", 1), ("9", 9), ("2 s", None), ("12", None), ("0", None), ("", None), ("p99", None),
    ],
)  # fmt: skip
def test_a_number_is_one_alone_or_an_ordinal(text, number):
    assert number_said(text, 3) == number


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("TTFT", METRICS, METRICS[0]),
        ("首字延迟", METRICS, METRICS[0]),
        ("keep tpot under 2 s!", METRICS, METRICS[1]),
        ("2 s", METRICS, None),
        ("wibble", METRICS, None),
        ("", METRICS, None),
        ("TTFT TPOT", METRICS, None),
        ("ms", ("TTFT < 2 s", "TTFT < 2 ms"), "TTFT < 2 ms"),
        ("milliseconds", ("TTFT < 2 s", "TTFT < 2 ms"), "TTFT < 2 ms"),
        ("at peak", ("TTFT < 2 s at peak", "TTFT < 2 s overnight"), "TTFT < 2 s at peak"),
        ("夜间", ("TTFT < 2 s at peak", "TTFT < 2 s overnight"), "TTFT < 2 s overnight"),
        ("leave it", ("TTFT < 2 s", "leave everything as it is"), "leave everything as it is"),
        ("保持现状", ("TTFT < 2 s", "保持现状"), "保持现状"),
    ],
)
def test_an_option_is_picked_by_what_only_it_says(text, options, expected):
    assert option_said(text, options, CATALOGUE) == expected
