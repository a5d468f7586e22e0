from hypothesis import given
from hypothesis import strategies as st

from intent.rules.kinds import Kind
from intent.rules.spelling import corrected, doubtful, heard, parted
from intent.rules.tokens import scan
from tests.rows import rows

NAMES = frozenset({"counting"})


@rows(
    ("written", "taken", "kind"),
    [
        ("thoughput", "throughput", Kind.METRIC),
        ("latnecy", "latency", Kind.METRIC),
        ("mimimise", "minimise", Kind.OPTIMISE),
        ("overngiht", "overnight", Kind.WINDOW),
        ("beloy", "below", Kind.COMPARISON),
        ("quantze", "quantize", Kind.QUANTISE),
        ("countng", "counting", Kind.MODEL),
    ],
)
def test_a_misspelt_word_is_taken_for_the_nearest_and_says_so(written, taken, kind, catalogue):
    (token,) = scan(written, catalogue)
    assert (token.kind, token.misspelt) == (kind, (written, taken))


@rows("word", ["vibes", "throat", "cot", "latnxcq", "x" * 21])
def test_a_word_far_from_all_known_ones_is_unknown(word, catalogue):
    assert scan(word, catalogue)[0].kind is Kind.UNKNOWN
    assert all(token.misspelt is None for token in scan(word, catalogue))


@rows(
    ("written", "meant"),
    [("onweekdays", "weekdays"), ("coun", "counting"), ("pak", "peak"), ("tuesdya", "tuesday")],
)
def test_what_is_glued_or_cut_short_or_no_time_is_left_in_doubt(written, meant):
    assert doubtful(written, NAMES) == meant


@rows(("written", "place"), [("atpeak", 2), ("peruser", 3), ("ahundred", 1), ("thoughput", 0), ("overload", 0)])
def test_two_words_that_nothing_parts_are_parted(written, place):
    assert parted(written, NAMES) == place


def test_a_known_word_is_never_corrected(catalogue):
    assert all(token.misspelt is None for token in scan("please keep latency low, thanks", catalogue))


@rows(
    ("written", "meant"),
    [
        ("thoughput", "throughput"),
        ("beloy", "below"),
        ("leest", "least"),
        ("countng", "counting"),
        ("tuoch", "touch"),
        ("forbiden", "forbidden"),
    ],
)
def test_a_slip_of_the_keyboard_is_taken_for_the_nearest_word(written, meant):
    assert corrected([written], NAMES) == [meant]


@rows("word", ["vibes", "throat", "cot", "ttf", "latency", "counting", "x" * 21, "größe", "99"])
def test_what_is_known_or_far_from_all_known_words_stays(word):
    assert corrected([word], NAMES) == [word]


@rows(
    ("written", "kind", "value"),
    [
        ("高锋期", Kind.WINDOW, "peak"),
        ("高封期", Kind.WINDOW, "peak"),  # 封 stands in other phrases (封顶)
        ("利用律", Kind.METRIC, "gpu_util"),
        ("城本", Kind.METRIC, "cost"),
        ("付本数", Kind.SETTING, "replicas"),
        ("全经度", Kind.PRECISION, "full"),
    ],
)
def test_a_homophone_is_taken_for_the_character_that_makes_a_phrase_and_says_so(written, kind, value, catalogue):
    (token,) = scan(written, catalogue)
    assert (token.kind, token.value) == (kind, value)
    assert token.misspelt is not None
    assert token.misspelt[0] in written


@rows("text", ["高风险", "高兴期待", "利用它", "风"])
def test_a_character_that_is_no_homophone_there_stays(text, catalogue):
    assert all(token.misspelt is None for token in scan(text, catalogue))


def test_only_the_places_asked_for_are_heard():
    assert heard(list("高锋期"), [1]) == {1: "峰"}
    assert heard(list("高锋期"), [0, 2]) == {}
    assert heard(["peak", "x"], [0, 1]) == {}


@given(st.text(alphabet="高封锋期利用律率成城本首字延迟吞吐abc 0", max_size=12))
def test_places_are_kept_whatever_is_corrected(text):
    words = list(text)
    meant = heard(words, range(len(words)))
    assert all(len(one) == 1 and words[place] != one for place, one in meant.items())
