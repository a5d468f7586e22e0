"""Where the words of a quote stand: whole words, whatever their case and width."""

from intent.fold import overlaps
from intent.llm.quotes import Source, distance
from tests.rows import rows


def said(text, catalogue, quote):
    return [text[start:end] for start, end in Source.of(text, catalogue).places(quote)]


@rows("quote", ["p99 ttft < 2S", "P99 TTFT < 2s", "P99 TTFT < 2s ", "Ｐ99 TTFT < 2s"])
def test_case_and_width_of_a_quote_do_not_matter(quote, catalogue):
    assert said("keep P99 TTFT < 2s", catalogue, quote) == ["P99 TTFT < 2s"]


@rows("quote", ["P99 TTFT < 1s", "TTFT P99", "", "   ", "TTF", "9 TTFT"])
def test_what_does_not_stand_there_has_no_place(quote, catalogue):
    assert said("keep P99 TTFT < 2s", catalogue, quote) == []


@rows(
    ("text", "quote", "found"),
    [
        ("a rate of 5", "at", 0),
        ("2.5 s", "2", 0),
        ("2s", "2", 1),
        ("1,500 ms", "500", 0),
        ("两百秒", "两", 0),
        ("两秒", "两", 1),
        ("at 9, at 10", "at", 2),
    ],
)
def test_a_piece_of_a_word_or_a_number_is_no_quote(text, quote, found, catalogue):
    assert len(said(text, catalogue, quote)) == found


def test_of_several_places_the_nearest_is_meant(catalogue):
    text = "at peak TTFT < 2s, at peak TPOT < 50 ms"
    second = text.index("TPOT"), len(text)
    assert Source.of(text, catalogue).place("at peak", second) == (19, 26)


def test_places_that_touch_are_no_characters_apart_and_share_none():
    assert (distance((0, 3), (3, 5)), distance((4, 6), (0, 1)), distance((0, 9), (2, 3))) == (0, 3, 0)
    assert (overlaps((0, 3), (3, 5)), overlaps((0, 4), (3, 5))) == (False, True)
