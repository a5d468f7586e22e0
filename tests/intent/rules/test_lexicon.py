from collections import defaultdict
from itertools import chain
from typing import get_args

import pytest

from intent.fold import fold
from intent.models import NAMED_WINDOWS, UNITS, Config, PrecisionRule, Stat
from intent.rules import lexicon
from intent.rules.bounds import SETTINGS
from intent.rules.kinds import ANY_LATENCY, ANY_THROUGHPUT, Kind
from intent.rules.quantities import PER_USER, Quantity, normalise


def said(text: str) -> list[str]:
    return [word for word, _, _ in lexicon.split(fold(text).text)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("p99.9 TTFT<2s.", ["p", "99.9", "ttft", "<", "2", "s", "."]),
        ("off-peak", ["off", "peak"]),
        ("tp2pp4", ["tp", "2", "pp", "4"]),
        ("1,500 tok/s", ["1,500", "tok", "/", "s"]),
        (".5s", [".5", "s"]),
        ("60-80%", ["60", "-", "80", "%"]),
        ("< -2s", ["<", lexicon.MINUS, "2", "s"]),
        ("−2 s", [lexicon.MINUS, "2", "s"]),
        ("2 -3", ["2", lexicon.MINUS, "3"]),
        ("-.5", [lexicon.MINUS, ".5"]),
        ("(2)-3", ["(", "2", ")", "-", "3"]),
        ("50%-60%", ["50", "%", "-", "60", "%"]),
        ("4-way", ["4", "way"]),
        ("don’t", ["don't"]),
        ("gpu_util", ["gpu", "util"]),
        ("1e3 ms", ["1e3", "ms"]),
        ("1e400", ["1e400"]),
        ("a -> b", ["a", "->", "b"]),
        ("a - b", ["a", "-", "b"]),
        ("- a", ["-", "a"]),
        ("<= >= =< => == != = ≤", ["<=", ">=", "=<", "=>", "==", "!=", "=", "≤"]),
        ("max. 2 approx. 3", ["max", "2", "approx", "3"]),
        ("done. go", ["done", ".", "go"]),
        ("首字延迟2秒", ["首", "字", "延", "迟", "2", "秒"]),
        ("p99首字", ["p", "99", "首", "字"]),
        ("Größe", ["größe"]),
        ("a\nb", ["a", "\n", "b"]),
        ("  ", []),
    ],
)
def test_text_and_phrases_are_split_the_same_way(text, words):
    assert said(text) == words
    assert list(lexicon.words(text)) == words


def test_each_word_says_where_it_stands():
    text = "p99 ttft <= 2s, 首字"
    for word, start, end in lexicon.split(text):
        assert text[start:end] == word


def entries(language):
    data = lexicon._data(language)
    if language == "english":
        return chain(
            lexicon._fillers(data),
            lexicon._english_rates(data),
            lexicon._said(data),
            lexicon._english_compounds(data),
        )
    return chain(lexicon._fillers(data), lexicon._chinese_rates(data), lexicon._said(data))


OVERRULED = {"english": {"every user", "every customer", "than"}, "chinese": set()}  # a rate for each one
"""Phrases whose later meaning is meant to win, beside those that are fillers as long as nothing else needs them."""


@pytest.mark.parametrize("language", OVERRULED)
def test_a_phrase_has_one_meaning_in_its_language(language):
    meanings = defaultdict(list)
    for phrase, kind, value in entries(language):
        meanings[phrase].append((kind, value))
    telling = {
        phrase: {(kind, repr(value)) for kind, value in found if kind is not Kind.FILLER}
        for phrase, found in meanings.items()
    }
    doubtful = {phrase for phrase, found in telling.items() if len(found) > 1}
    assert doubtful <= OVERRULED[language]
    late = [phrase for phrase, found in meanings.items() if found[-1][0] is Kind.FILLER and telling[phrase]]
    assert late == [], "a filler hides what the phrase means"


@pytest.mark.slow
def test_what_means_something_in_both_languages_means_the_same():
    english, chinese = (
        {lexicon.words(phrase): (kind, value) for phrase, kind, value in entries(language)}
        for language in OVERRULED
    )
    differing = [words for words in english.keys() & chinese.keys() if english[words] != chinese[words]]
    assert differing == []


def test_no_phrase_is_longer_than_what_is_looked_for():
    longest = max(len(phrase) for phrase in lexicon.phrases())
    assert 7 <= longest <= lexicon.LONGEST


def test_the_vocabulary_is_every_word_of_every_phrase():
    assert {"首", "ttft", "percentile", "≤"} <= lexicon.vocabulary()
    assert "zebra" not in lexicon.vocabulary()


def test_every_metric_and_no_other_can_be_said_in_both_languages():
    for language in OVERRULED:
        named = {value for _, kind, value in entries(language) if kind is Kind.METRIC}
        assert named == {*UNITS, ANY_LATENCY, ANY_THROUGHPUT}, language


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Kind.STAT, set(get_args(Stat))),
        (Kind.SETTING, set(get_args(Config.__annotations__["key"]))),
        (Kind.COMPARISON, {"<=", ">=", "==", "better", "worse"}),
        (Kind.OPTIMISE, {"minimize", "maximize"}),
        (Kind.WINDOW, set(NAMED_WINDOWS)),
        (Kind.CHANGE, {"<=", ">=", "better", "worse"}),
        (Kind.PRIORITY, {"first", "over", "under", "sacrifice", "order", "begin", "then", "than", "last"}),
        (Kind.VAGUE, {"fast", "cheap", "good"}),
        (Kind.PERIOD, {"s", "min", "h", "day", "week", "month", "year", "Mtok"}),
        (Kind.TO, {"", "<=", ">="}),
        (Kind.THING, {"tokens", "requests"}),
        (Kind.CURRENCY, {"USD", "other"}),
        (Kind.PRECISION, set(get_args(PrecisionRule.__annotations__["value"]))),
        (Kind.COUNTED, SETTINGS | {"gpu_count"}),
    ],
)
def test_a_phrase_means_only_what_the_rules_know(kind, values):
    assert {value for found, value in lexicon.phrases().values() if found is kind} == values


def test_every_unit_is_one_that_some_metric_can_be_said_in():
    units = {value[0] for kind, value in lexicon.phrases().values() if kind is Kind.UNIT}
    useful = {unit for unit in units if any(normalise(metric, Quantity(1.5, unit)) for metric in UNITS)}
    assert units - useful == {"points"}  # only a change is said in points
    assert normalise("tpot", Quantity(1.5, PER_USER))


@pytest.mark.parametrize(
    ("phrase", "kind", "value"),
    [
        ("ms", Kind.UNIT, ("s", 1e-3)),
        ("ms per token", Kind.UNIT, ("s/token", 1e-3)),
        ("tokens per second", Kind.UNIT, ("tokens/s", 1.0)),
        ("requests a minute", Kind.UNIT, ("requests/s", 1 / 60)),
        ("req/min", Kind.UNIT, ("requests/s", 1 / 60)),
        ("rpm", Kind.UNIT, ("requests/s", 1 / 60)),
        ("毫秒", Kind.UNIT, ("s", 1e-3)),
        ("毫秒每token", Kind.UNIT, ("s/token", 1e-3)),
        ("ms/token", Kind.UNIT, ("s/token", 1e-3)),
        ("请求每秒", Kind.UNIT, ("requests/s", 1.0)),
        ("每小时", Kind.PERIOD, "h"),
        ("per hour", Kind.PERIOD, "h"),
        ("daily", Kind.PERIOD, "day"),
        ("per user", Kind.PER_USER, ""),
        ("lower than now", Kind.CHANGE, "<="),
        ("during the rush", Kind.WINDOW, "peak"),
        ("Off Peak", Kind.WINDOW, "off_peak"),
        ("percent", Kind.UNIT, ("ratio", 0.01)),
        ("成", Kind.UNIT, ("ratio", 0.1)),
        ("three nines", Kind.QUANTITY, 3),
        ("三个九", Kind.QUANTITY, 3),
        ("halve", Kind.FACTOR, 0.5),
        ("everyone", Kind.TENANT, ""),
        ("seventeen", Kind.NUMBER, 17.0),
    ],
)
def test_a_phrase_means(phrase, kind, value):
    assert lexicon.phrases()[lexicon.words(phrase)] == (kind, value)


def test_short_words_are_never_corrected_and_long_telling_ones_are():
    correctable = lexicon.correctable()
    assert all(len(word) >= 5 or word in {"ttft", "tpot"} for word in correctable)
    assert {"throughput", "latency", "ttft", "quantise"} <= set(correctable)
    assert "please" not in correctable
