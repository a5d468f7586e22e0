from hypothesis import given
from hypothesis import strategies as st

from intent.fold import fold, is_chinese


def test_width_case_and_invisible_characters_make_no_difference():
    assert fold("Ｐ９９\u200b ＴＴＦＴ ≤ ２ｓ").text == fold("p99 ttft ≤ 2s").text


def test_a_span_leads_back_to_the_original_words():
    text = "keep P\u200b99 ＴＴＦＴ low"
    folded = fold(text)
    start = folded.text.index("p99")
    assert text[slice(*folded.span(start, start + 8))] == "P\u200b99 ＴＴＦＴ"


@given(st.text(min_size=1))
def test_every_folded_character_comes_from_one_place_in_order(text):
    folded = fold(text)
    assert len(folded.text) == len(folded.origin)
    assert list(folded.origin) == sorted(folded.origin)
    for place in range(len(folded.text)):
        start, end = folded.span(place, place + 1)
        assert 0 <= start < end <= len(text)


def test_a_sentence_with_some_english_terms_is_still_chinese():
    assert is_chinese("把 P99 TTFT 控制在 2 秒以内")
    assert not is_chinese("keep P99 TTFT < 2s at peak")
    assert not is_chinese("2")
