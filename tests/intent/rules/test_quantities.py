import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.models import UNITS
from intent.rules.quantities import PER_USER, Quantity, normalise, parse_number
from intent.rules.tokens import tokenize


@pytest.mark.parametrize(
    ("word", "number"),
    [
        ("2", 2.0),
        (".5", 0.5),
        ("1,500", 1500.0),
        ("1,234,567.5", 1234567.5),
        ("1e3", 1000.0),
        ("1,5", None),
        ("15,00", None),
        ("1.2.3", None),
        ("1e400", None),
        ("9" * 400, None),
        ("e3", None),
        ("", None),
        ("nan", None),
    ],
)
def test_a_number_is_read_or_refused_never_guessed(word, number):
    assert parse_number(word) == number


@pytest.mark.parametrize(
    ("metric", "said", "value", "unit"),
    [
        ("ttft", Quantity(800, "s", 1e-3), 0.8, "s"),
        ("ttft", Quantity(1900, "s", 1e-3), 1.9, "s"),
        ("tpot", Quantity(20, PER_USER), 0.05, "s"),
        ("tpot", Quantity(30, "s/token", 1e-3), 0.03, "s"),
        ("gpu_util", Quantity(70, "ratio", 0.01), 0.7, "ratio"),
        ("gpu_util", Quantity(0.7), 0.7, "ratio"),
        ("gpu_util", Quantity(70), 0.7, "ratio"),
        ("throughput_req", Quantity(300, "requests/s", 1 / 60), 5.0, "requests/s"),
        ("gpu_count", Quantity(4), 4.0, "gpus"),
    ],
)
def test_a_quantity_comes_to_its_metrics_unit(metric, said, value, unit):
    assert normalise(metric, said) == Quantity(value, unit)


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("ttft", Quantity(80, "ratio", 0.01)),
        ("ttft", Quantity(2)),
        ("gpu_util", Quantity(2, "s")),
        ("gpu_util", Quantity(1)),
        ("gpu_util", Quantity(1.2)),
        ("cost", Quantity(5, "USD")),
        ("throughput_tok", Quantity(5, "requests/s")),
        ("tpot", Quantity(0, PER_USER)),
        ("gpu_count", Quantity(4, "s")),
    ],
)
def test_an_impossible_or_missing_unit_gives_nothing(metric, said):
    assert normalise(metric, said) is None


SPOKEN = {
    "s": 1.0,
    "ms": 1e-3,
    "seconds": 1.0,
    "tokens/s": 1.0,
    "req/min": 1 / 60,
    "%": 0.01,
    "hours": 3600.0,
}


@given(st.integers(1, 10**9), st.sampled_from([1, 10, 1000]), st.sampled_from(sorted(SPOKEN)))
def test_a_number_with_its_unit_is_read_as_it_was_written(catalogue, digits, divisor, unit):
    number = digits / divisor
    (token,) = tokenize(f"{number:.12g} {unit}", catalogue)
    assert token.value.number == pytest.approx(number, rel=1e-11)
    assert token.value.value == pytest.approx(number * SPOKEN[unit], rel=1e-11)


def test_every_unit_a_metric_may_have_is_left_as_it_is():
    for metric, units in UNITS.items():
        for unit in units:
            assert normalise(metric, Quantity(3.0, unit)) == Quantity(3.0, unit)
