"""Shapes by name."""

import pytest

from runtime.errors import UnsupportedModelError
from selector.models import available, shape
from tests.rows import rows

BILLIONS = {
    "llama-2-7b": 6.74, "llama-2-13b": 13.0, "llama-2-70b": 69.0, "llama-3-8b": 8.03, "llama-3-70b": 70.6, "llama-3.1-8b": 8.03,
    "llama-3.1-70b": 70.6, "qwen2.5-7b": 7.62, "qwen2.5-32b": 32.8, "qwen3-8b": 8.19, "qwen3-32b": 32.8, "qwen3-30b-a3b": 30.5,
    "mixtral-8x7b": 46.7,
}  # fmt: skip
"""Parameters as their model cards give them."""


@rows(("name", "billions"), BILLIONS.items())
def test_a_known_shape_has_the_parameters_of_its_model(name, billions):
    assert shape(name).parameters / 1e9 == pytest.approx(billions, rel=0.01)


def test_every_known_shape_is_checked_here():
    assert set(available()) == BILLIONS.keys()


def test_case_and_organisation_do_not_matter():
    assert shape("Qwen/Qwen3-8B") == shape("qwen3-8b")


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(
        UnsupportedModelError, match=r"'gpt-5'; known are llama-2-13b, .* or give the path of a config\.json"
    ):
        shape("gpt-5")
