import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.rules.kinds import Kind
from intent.rules.phrasing import tokenize
from tests.intent.tables import table
from tests.rows import rows


def amounts(text, catalogue):
    wanted = {Kind.QUANTITY, Kind.RANGE, Kind.STAT}
    return [token.value for token in tokenize(text, catalogue) if token.kind in wanted]


@rows(("text", "said"), table("amounts.txt"))
def test_a_number_is_read_with_its_unit_a_range_with_both_ends_and_a_share_as_one(text, said, catalogue):
    (amount,) = amounts(text, catalogue)
    low, between, high = said.partition(" .. ")
    number, _, unit = low.partition(" ")
    if between:
        assert [end.value for end in amount] == [float(low), float(high)]
    elif number.startswith("p"):
        assert amount == number
        assert Kind.COMPARISON not in {token.kind for token in tokenize(text, catalogue)}
    elif unit == "%":
        assert f"{amount.value * 100:g}" == number
    else:
        assert amount.value == pytest.approx(float(number), rel=1e-12)
        assert amount.unit == (unit or None)


@rows("text", ["60% and 80%", "2 s to 80%", "60%, 80%", "20 5", "0.2秒半"])
def test_two_numbers_that_span_nothing_stay_two(text, catalogue):
    assert len(amounts(text, catalogue)) == 2


SPOKEN = {
    "s": 1.0, "ms": 1e-3, "seconds": 1.0, "tokens/s": 1.0, "req/min": 1 / 60, "%": 0.01, "minutes": 60.0, "毫秒": 1e-3, "秒": 1.0,
}  # fmt: skip


@given(st.integers(1, 10**9), st.sampled_from([1, 10, 1000]), st.sampled_from(sorted(SPOKEN)))
def test_a_number_with_its_unit_is_read_as_it_was_written(catalogue, digits, divisor, unit):
    number = digits / divisor
    (quantity,) = amounts(f"{number:.12g} {unit}", catalogue)
    assert quantity.number == pytest.approx(number, rel=1e-11)
    assert quantity.value == pytest.approx(number * SPOKEN[unit], rel=1e-11)
