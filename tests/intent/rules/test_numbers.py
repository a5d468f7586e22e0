import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.rules.numbers import han_number
from tests.rows import rows


@rows(
    ("text", "number", "used"),
    [
        ("二", 2, 1),
        ("两秒", 2, 1),
        ("〇", 0, 1),
        ("百", 100, 1),
        ("十", 10, 1),
        ("十五", 15, 2),
        ("二十", 20, 2),
        ("九十九", 99, 3),
        ("一百二", 120, 3),
        ("一千五百毫秒", 1500, 4),
        ("一万", 10_000, 2),
        ("两千万", 20_000_000, 3),
        ("两点五秒", 2.5, 3),
        ("零点五", 0.5, 3),
        ("半秒", 0.5, 1),
        ("百分之四十", 0.4, 5),
        ("百分之九十九点九", 0.999, 8),
        ("千分之一", 0.001, 4),
        ("百分之5以内", 0.05, 4),
        ("三分之一", 1 / 3, 4),
        ("四分之三", 0.75, 4),
    ],
)
def test_a_han_number_is_read_with_the_words_it_takes(text, number, used):
    value, length = han_number(list(text))
    assert value == pytest.approx(number)
    assert length == used


@rows("text", ["", "秒", "点五", "分之一", "2", "高峰", "万"])
def test_what_is_no_number_gives_none(text):
    assert han_number(list(text)) is None


def test_a_share_of_nothing_readable_gives_none():
    assert han_number(list("百分之秒")) is None
    assert han_number(list("百分之")) is None


def test_digits_after_a_share_are_one_word():
    assert han_number(["百", "分", "之", "99.9", "的"]) == (pytest.approx(0.999), 4)


@given(st.lists(st.sampled_from(list("零〇一二两三四五六七八九十百千万亿点半分之秒5")), max_size=40))
def test_no_run_of_numerals_raises_or_takes_more_than_there_is(words):
    found = han_number(words)
    assert found is None or (0 < found[1] <= len(words) and found[0] >= 0)


@given(st.integers(0, 9_999))
def test_what_is_written_as_a_han_number_is_read_back(number):
    import cn2an

    assert han_number(list(cn2an.an2cn(number))) == (number, len(cn2an.an2cn(number)))
