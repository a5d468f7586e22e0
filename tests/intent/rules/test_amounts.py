import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.rules.kinds import Kind
from intent.rules.phrasing import tokenize
from intent.rules.quantities import Quantity


def amounts(text, catalogue):
    wanted = {Kind.QUANTITY, Kind.RANGE, Kind.STAT}
    return [token.value for token in tokenize(text, catalogue) if token.kind in wanted]


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("2s", 2, "s"),
        ("2000 ms", 2, "s"),
        ("500 µs", 0.0005, "s"),
        ("2 minutes", 120, "s"),
        ("2 min", 120, "s"),
        ("one hour", 3600, "s"),
        ("a millisecond", 0.001, "s"),
        ("two seconds", 2, "s"),
        ("half a second", 0.5, "s"),
        ("under a second", 1, "s"),
        ("within a minute", 60, "s"),
        ("不超过一小时", 3600, "s"),
        ("one and a half seconds", 1.5, "s"),
        ("a quarter of a second", 0.25, "s"),
        ("twenty five ms", 0.025, "s"),
        ("twenty-five ms", 0.025, "s"),
        ("two point five s", 2.5, "s"),
        ("two point two five s", 2.25, "s"),
        ("point five seconds", 0.5, "s"),
        ("一秒二", 1.2, "s"),
        ("70好秒", 0.07, "s"),
        ("5 per thousand", 0.005, "ratio"),
        ("a hundred ms", 0.1, "s"),
        ("a hundred and eighty ms", 0.18, "s"),
        ("two hundred fifty ms", 0.25, "s"),
        ("one thousand two hundred ms", 1.2, "s"),
        ("-2s", -2, "s"),
        ("−2 s", -2, "s"),
        ("两秒", 2, "s"),
        ("半秒", 0.5, "s"),
        ("两秒半", 2.5, "s"),
        ("一分半", 90, "s"),
        ("一千五百毫秒", 1.5, "s"),
        ("1.5k tok/s", 1500, "tokens/s"),
        ("2 million tokens per hour", 2e6 / 3600, "tokens/s"),
        ("600 requests a minute", 10, "requests/s"),
        ("50 rps", 50, "requests/s"),
        ("one hundred thousand tok/s", 100_000, "tokens/s"),
        ("两千 token/s", 2000, "tokens/s"),
        ("3万 token每秒", 30_000, "tokens/s"),
        ("30 ms per token", 0.03, "s/token"),
        ("20 tokens per second per user", 20, "tokens/s/user"),
        ("40%", 0.4, "ratio"),
        ("forty percent", 0.4, "ratio"),
        ("百分之四十", 0.4, "ratio"),
        ("七成", 0.7, "ratio"),
        ("three nines", 0.999, "ratio"),
        ("两个九", 0.99, "ratio"),
        ("3 percentage points", 0.03, "points"),
        ("3 个百分点", 0.03, "points"),
        ("$40/h", 40, "USD/h"),
        ("$40 an hour", 40, "USD/h"),
        ("$40 USD per day", 40, "USD/day"),
        ("4 dollars a day", 4, "USD/day"),
        ("$5k/month", 5000, "USD/month"),
        ("50 cents per hour", 0.5, "USD/h"),
        ("2 USD per million tokens", 2, "USD/Mtok"),
        ("40 美元每小时", 40, "USD/h"),
        ("5 刀/百万token", 5, "USD/Mtok"),
        ("$5", 5, "USD"),
        ("€5 per day", 5, "money"),
        ("40 元", 40, "money"),
        ("a dozen", 12, None),
        ("7", 7, None),
    ],
)
def test_a_number_is_read_with_its_unit(text, number, unit, catalogue):
    (quantity,) = amounts(text, catalogue)
    assert quantity.value == pytest.approx(number, rel=1e-12)
    assert quantity.unit == unit


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("60-80%", 0.6, 0.8),
        ("60%-80%", 0.6, 0.8),
        ("60 to 80%", 0.6, 0.8),
        ("60~80%", 0.6, 0.8),
        ("between 60% and 80%", 0.6, 0.8),
        ("between 60 and 80%", 0.6, 0.8),
        ("from 60% to 80%", 0.6, 0.8),
        ("60%到80%", 0.6, 0.8),
        ("60 % into 80 %", 0.6, 0.8),
        ("between 1 and 2 s", 1, 2),
        ("500 ms to 2 s", 0.5, 2),
    ],
)
def test_a_range_has_two_ends_and_a_unit_said_once_holds_for_both(text, low, high, catalogue):
    ((lower, upper),) = amounts(text, catalogue)
    assert (lower.value, upper.value) == (low, high)


@pytest.mark.parametrize("text", ["60% and 80%", "2 s to 80%", "60%, 80%", "20 5", "0.2秒半"])
def test_two_numbers_that_span_nothing_stay_two(text, catalogue):
    assert len(amounts(text, catalogue)) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("min 2", [(Kind.COMPARISON, ">="), (Kind.QUANTITY, Quantity(2))]),
        ("2 min 3", [(Kind.QUANTITY, Quantity(2)), (Kind.COMPARISON, ">="), (Kind.QUANTITY, Quantity(3))]),
        ("p97", [(Kind.STAT, "p97")]),
        ("一个 TTFT", [(Kind.METRIC, "ttft")]),
        ("一个客户", [(Kind.AUDIENCE, "客户")]),
        (
            "600 or more an hour",
            [(Kind.QUANTITY, Quantity(600)), (Kind.COMPARISON, ">="), (Kind.PERIOD, "h")],
        ),
    ],
)
def test_what_looks_like_a_unit_and_is_none(text, expected, catalogue):
    told = [(one.kind, one.value) for one in tokenize(text, catalogue) if one.kind is not Kind.FILLER]
    assert told == expected


SPOKEN = {
    "s": 1.0, "ms": 1e-3, "seconds": 1.0, "tokens/s": 1.0, "req/min": 1 / 60, "%": 0.01, "minutes": 60.0, "毫秒": 1e-3, "秒": 1.0,
}  # fmt: skip


@given(st.integers(1, 10**9), st.sampled_from([1, 10, 1000]), st.sampled_from(sorted(SPOKEN)))
def test_a_number_with_its_unit_is_read_as_it_was_written(catalogue, digits, divisor, unit):
    number = digits / divisor
    (quantity,) = amounts(f"{number:.12g} {unit}", catalogue)
    assert quantity.number == pytest.approx(number, rel=1e-11)
    assert quantity.value == pytest.approx(number * SPOKEN[unit], rel=1e-11)
