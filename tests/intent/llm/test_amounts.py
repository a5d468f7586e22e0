"""Numbers with their units, wherever the unit stands."""

import pytest

from intent.llm.amounts import amount, number_place
from intent.llm.quotes import Source


def read(text, catalogue, number, unit=None, period=None):
    source = Source.of(text, catalogue)
    place = number_place(source, number, (0, len(text)))
    found = amount(source, place, unit, period) if place else None
    return (round(found.value.value, 9), found.value.unit) if found else None


@pytest.mark.parametrize(
    ("text", "slots", "value"),
    [
        ("TTFT < 2s", ("2", "s"), (2, "s")),
        ("TTFT 不超过 半秒", ("半", "秒"), (0.5, "s")),
        ("at most a fifth of a second", ("a fifth", "second"), (0.2, "s")),
        ("between 60 and 80%", ("60", "%"), (0.6, "ratio")),
        ("between 60 and 80%", ("80", "%"), (0.8, "ratio")),
        ("p95 and p99 under 1 and 2 s", ("1", "s"), (1, "s")),
        ("one in two hundred", ("one in two hundred",), (0.005, "ratio")),
        ("错误率低于千分之五", ("千分之五",), (0.005, "ratio")),
        ("three nines", ("three nines",), (0.999, "ratio")),
        ("$9 an hour", ("9", "$", "an hour"), (9, "USD/h")),
        ("每小时不超过 12 美元", ("12", "美元", "每小时"), (12, "USD/h")),
        ("每周不超过 1400 美金", ("1400", "美金", "每周"), (1400, "USD/week")),
        ("$18 a week", ("18", "$", "a week"), (18, "USD/week")),
        ("every user sees at least 20 tokens/s", ("20", "tokens/s", "every user"), (20, "tokens/s/user")),
        ("每秒 25 个 token", ("25", "个 token"), (25, "tokens/s")),
        ("40 ms per token", ("40", "ms", "per token"), (0.04, "s/token")),
    ],
)
def test_a_unit_holds_on_either_side_of_its_number_or_said_once_for_two(text, slots, value, catalogue):
    assert read(text, catalogue, *slots) == value


@pytest.mark.parametrize(
    ("text", "slots"),
    [("每周不超过九百欧元", ("九百", "欧元", "每周")), ("€18 a week", ("18", "€", "a week"))],
)
def test_a_currency_without_a_rate_stays_one(text, slots, catalogue):
    assert read(text, catalogue, *slots)[1] == "money"


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("TTFT < 2s, TPOT < 50 ms", ("2", "ms")),
        ("TTFT < 2, TPOT < 50 ms", ("2", "ms")),
        ("TTFT < 2s", ("2", "min")),
        ("300 tokens/s per GPU", ("300", "tokens/s", "per GPU")),
        ("p99 under 2 s", ("99", "s")),
    ],
)
def test_another_unit_or_a_period_that_no_amount_has_is_refused(text, slots, catalogue):
    assert read(text, catalogue, *slots) is None


@pytest.mark.parametrize("number", ["3", "99", "0"])
def test_a_number_that_is_none_of_the_evidence_has_no_place(number, catalogue):
    assert number_place(Source.of("P99 TTFT < 20s", catalogue), number, (0, 14)) is None
