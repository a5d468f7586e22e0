from hypothesis import given
from hypothesis import strategies as st

from intent.fold import fold, is_chinese
from tests.rows import rows


@rows(
    ("written", "folded"),
    [
        ("Ｐ９９\u200b ＴＴＦＴ ≤ ２ｓ", "p99 ttft ≤ 2s"),
        ("don’t “do” it", 'don\'t "do" it'),
        ("−2 – 3 — 4", "-2 - 3 - 4"),
        ("①½ﬁ", "11⁄2fi"),
        ("\u202eTTFT\u2069", "ttft"),
        ("首字，延迟：２秒；", "首字,延迟:2秒;"),
        ("İ", "i̇"),
        ("ΣΑΣ", "σασ"),
        ("a\tb\nc", "a\tb\nc"),
        ("a\u3000b", "a b"),
        ("", ""),
    ],
)
def test_width_case_quotes_and_invisible_characters_make_no_difference(written, folded):
    assert fold(written).text == folded


def test_a_control_parts_words():
    assert fold("a\x07b\x00c").text == "a b c"


def test_a_span_leads_back_to_the_original_words():
    text = "keep P\u200b99 ＴＴＦＴ low"
    folded = fold(text)
    start = folded.text.index("p99")
    assert text[slice(*folded.span(start, start + 8))] == "P\u200b99 ＴＴＦＴ"


def test_a_character_that_becomes_several_is_one_place():
    folded = fold("½s")
    assert [folded.span(place, place + 1) for place in range(4)] == [(0, 1), (0, 1), (0, 1), (1, 2)]


@given(st.text(min_size=1))
def test_every_folded_character_comes_from_one_place_in_order(text):
    folded = fold(text)
    assert len(folded.text) == len(folded.origin)
    assert list(folded.origin) == sorted(folded.origin)
    for place in range(len(folded.text)):
        start, end = folded.span(place, place + 1)
        assert 0 <= start < end <= len(text)


@rows(
    ("text", "chinese"),
    [
        ("把 P99 TTFT 控制在 2 秒以内", True),
        ("keep P99 TTFT < 2s at peak", False),
        ("2", False),
        ("", False),
        ("abcd一", True),
        ("abcde一", False),
        ("abcd,. 12一", True),
        ("ひらがなabc", False),
    ],
)
def test_a_fifth_of_han_letters_makes_a_text_chinese(text, chinese):
    assert is_chinese(text) is chinese
