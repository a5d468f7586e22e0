import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.models import UNITS
from intent.rules.quantities import LARGEST, PER_USER, Quantity, normalise, parse_number
from tests.rows import rows


@rows(
    ("word", "number"),
    [
        ("2", 2.0),
        (".5", 0.5),
        ("1,500", 1500.0),
        ("1,234,567.5", 1234567.5),
        ("1e3", 1000.0),
        ("1.5e-3", 0.0015),
        ("1e15", LARGEST),
        ("1,5", None),
        ("15,00", None),
        ("1.2.3", None),
        ("1e16", None),
        ("1e400", None),
        ("9" * 400, None),
        ("e3", None),
        ("", None),
        (".", None),
        ("nan", None),
        ("-2", None),
    ],
)
def test_a_number_is_read_or_refused_never_guessed(word, number):
    assert parse_number(word) == number


@rows(
    ("metric", "said", "value", "unit"),
    [
        ("ttft", Quantity(800, "s", 1e-3), 0.8, "s"),
        ("ttft", Quantity(1900, "s", 1e-3), 1.9, "s"),
        ("tpot", Quantity(20, PER_USER), 0.05, "s"),
        ("tpot", Quantity(1200, PER_USER, 1 / 60), 0.05, "s"),
        ("tpot", Quantity(30, "s/token", 1e-3), 0.03, "s"),
        ("gpu_util", Quantity(70, "ratio", 0.01), 0.7, "ratio"),
        ("gpu_util", Quantity(0.7), 0.7, "ratio"),
        ("gpu_util", Quantity(70), 0.7, "ratio"),
        ("gpu_util", Quantity(2), 0.02, "ratio"),
        ("availability", Quantity(99.9), 0.999, "ratio"),
        ("throughput_req", Quantity(300, "requests/s", 1 / 60), 5.0, "requests/s"),
        ("gpu_count", Quantity(4), 4.0, "gpus"),
        ("cost", Quantity(50, "USD/h", 0.01), 0.5, "USD/h"),
        ("cost", Quantity(49, "USD/week"), 7.0, "USD/day"),
        ("cost", Quantity(1200, "USD/year"), 100.0, "USD/month"),
    ],
)
def test_a_quantity_comes_to_its_metrics_unit(metric, said, value, unit):
    assert normalise(metric, said) == Quantity(value, unit)


@rows(
    ("metric", "said"),
    [
        ("ttft", Quantity(80, "ratio", 0.01)),
        ("ttft", Quantity(2)),
        ("ttft", Quantity(2, "s/token")),
        ("e2e", Quantity(2, PER_USER)),
        ("gpu_util", Quantity(2, "s")),
        ("gpu_util", Quantity(1)),
        ("gpu_util", Quantity(1.99)),
        ("cost", Quantity(5, "USD")),
        ("cost", Quantity(5, "money")),
        ("throughput_tok", Quantity(5, "requests/s")),
        ("tpot", Quantity(0, PER_USER)),
        ("tpot", Quantity(-5, PER_USER)),
        ("gpu_count", Quantity(4, "s")),
    ],
)
def test_an_impossible_or_missing_unit_gives_nothing(metric, said):
    assert normalise(metric, said) is None


@rows(("metric", "unit"), [(metric, unit) for metric, units in UNITS.items() for unit in units])
def test_a_unit_that_a_metric_may_have_is_left_as_it_is(metric, unit):
    assert normalise(metric, Quantity(3.0, unit)) == Quantity(3.0, unit)


def test_the_same_number_can_be_said_in_another_unit():
    assert Quantity(2, "s", 60).in_unit("USD/h", 1.0) == Quantity(2, "USD/h")


@given(st.integers(1, 10**9), st.sampled_from([1e-3, 1e-6, 0.01, 1.0, 60.0]))
def test_a_value_has_the_digits_that_were_said(number, factor):
    digits = 15 - len(str(number))
    assert Quantity(number, "s", factor).value == pytest.approx(number * factor, rel=10.0**-digits)
    assert len(repr(Quantity(number, "s", factor).value).replace(".", "").strip("0")) <= 17
