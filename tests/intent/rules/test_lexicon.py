import pytest

from intent.fold import fold
from intent.models import UNITS
from intent.rules import lexicon


def words(text: str) -> list[str]:
    return [word for word, _, _ in lexicon.split(fold(text).text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p99.9 TTFT<2s.", ["p", "99.9", "ttft", "<", "2", "s", "."]),
        ("off-peak", ["off", "peak"]),
        ("tp2pp4", ["tp", "2", "pp", "4"]),
        ("1,500 tok/s", ["1,500", "tok", "/", "s"]),
        ("60-80%", ["60", "-", "80", "%"]),
        ("< -2s", ["<", lexicon.MINUS, "2", "s"]),
        ("−2 s", [lexicon.MINUS, "2", "s"]),
        ("4-way", ["4", "way"]),
        ("don’t", ["don't"]),
        ("gpu_util", ["gpu", "util"]),
        ("1e3 ms", ["1e3", "ms"]),
    ],
)
def test_text_and_phrases_are_split_the_same_way(text, expected):
    assert words(text) == expected


def test_every_metric_of_the_lexicon_is_one_of_the_model():
    vague = {lexicon.ANY_LATENCY, lexicon.ANY_THROUGHPUT}
    assert set(lexicon.METRICS) - vague <= set(UNITS)


def test_every_phrase_survives_its_own_reading():
    for phrase in lexicon.phrases():
        assert len(phrase) <= lexicon.longest_phrase()
        assert all(phrase), phrase


def test_short_words_are_never_corrected():
    assert all(len(word) >= 4 for word in lexicon.correctable())


def test_a_phrase_has_one_meaning():
    meanings = {}
    for phrase, kind, value in lexicon._entries():
        key = tuple(words(phrase))
        assert meanings.setdefault(key, (kind, value)) == (kind, value), phrase
