"""A few values that stand for many."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.performance.work import Atoms, Lengths


@pytest.mark.slow
@given(st.lists(st.integers(1, 200_000), min_size=1, max_size=300), st.integers(1, 40))
def test_atoms_keep_the_mean_and_all_the_weight(values, count):
    atoms = Atoms.of(np.array(values, dtype=float), count, (0, 1, 2))
    assert len(atoms.values) <= count
    assert atoms.weights.sum() == pytest.approx(1)
    assert atoms.weights @ atoms.values == pytest.approx(np.mean(values))


def test_what_is_rare_and_large_stands_for_itself():
    many = np.array([100.0] * 5000 + [90_000.0, 120_000.0])
    assert {90_000.0, 120_000.0} <= set(Atoms.of(many, 20, (0, 1, 2)).values)


def test_unequal_lengths_fill_kv_in_larger_lumps():
    alike, unequal = Lengths.of([(1000, 100)] * 4), Lengths.of([(100, 100)] * 3 + [(3700, 100)])
    assert alike.lump_tokens == pytest.approx(alike.held_tokens) == alike.total
    assert unequal.held_tokens == pytest.approx(unequal.total)
    assert unequal.lump_tokens > 3 * unequal.held_tokens
