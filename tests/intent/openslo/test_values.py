import pytest

from intent.openslo import reader
from intent.openslo.reader import OpenSloError
from tests.rows import rows


@rows(("objective", "share"), [({"target": 0.99}, 0.99), ({"targetPercent": 99.9}, 0.999)])
def test_a_target_is_a_share_or_a_percentage(objective, share):
    assert reader.share_of(objective, "/o") == share


@rows(
    "objective",
    [
        {},
        {"target": 0.9, "targetPercent": 90},
        {"target": 1},
        {"target": 0},
        {"targetPercent": 100},
        {"target": "x"},
    ],
)
def test_a_target_that_is_none_is_refused(objective):
    with pytest.raises(OpenSloError, match=r"^/o/target"):
        reader.share_of(objective, "/o")


@rows("data", [True, "1", None, float("nan"), float("inf"), 1e300, [1]])
def test_a_number_is_one(data):
    with pytest.raises(OpenSloError, match=r"^/n: must be a number"):
        reader.number_of(data, "/n")


@rows("data", ["", "  ", 3, None, "\ud800"])
def test_a_text_has_words(data):
    with pytest.raises(OpenSloError, match=r"^/t: must be a text"):
        reader.text_of(data, "/t")


def test_keys_that_are_missing_or_too_many_are_named():
    with pytest.raises(OpenSloError, match=r"^/a/c: has no place"):
        reader.refuse_other_keys({"b": 1, "c": 2}, "/a", {"b"})
    with pytest.raises(OpenSloError, match=r"^/a/b: is missing"):
        reader.refuse_other_keys({}, "/a", {"b"})
    with pytest.raises(OpenSloError, match=r"^/a: must be an object"):
        reader.refuse_other_keys([], "/a", {"b"})


def test_long_values_are_cut_in_messages():
    assert len(reader.shown("x" * 500)) == 60
