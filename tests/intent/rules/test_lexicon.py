from collections import defaultdict
from itertools import chain
from typing import get_args

import pytest

from intent.fold import fold
from intent.models import NAMED_WINDOWS, UNITS, Config, PrecisionRule, Stat
from intent.rules import lexicon
from intent.rules.bounds import LOSSES, SETTINGS
from intent.rules.kinds import ANY_LATENCY, ANY_THROUGHPUT, Kind
from intent.rules.quantities import PER_USER, Quantity, normalise
from tests.intent.tables import table
from tests.rows import rows


def said(text: str) -> list[str]:
    return [word for word, _, _ in lexicon.split(fold(text).text)]


UNUSUAL = [("a\nb", "a|\n|b"), ("  ", ""), ("<= >= =< => == != = ≤", "<=|>=|=<|=>|==|!=|=|≤")]


@rows(("text", "words"), [*((text, words.replace(" ", "|")) for text, words in table("words.txt")), *UNUSUAL])
def test_text_and_phrases_are_split_the_same_way(text, words):
    assert "|".join(said(text)) == "|".join(lexicon.words(text)) == words


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


@rows("language", OVERRULED)
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
        {lexicon.words(phrase): (kind, value) for phrase, kind, value in entries(language)} for language in OVERRULED
    )
    differing = [words for words in english.keys() & chinese.keys() if english[words] != chinese[words]]
    assert differing == []


MADE = {
    Kind.QUANTITY, Kind.RANGE, Kind.WINDOW, Kind.BAD_TIME, Kind.TENANT, Kind.MODEL, Kind.SELECTOR, Kind.ORDER, Kind.UNKNOWN,
    Kind.LIST, Kind.TURNED, Kind.OVER, Kind.LAYERS,
}  # fmt: skip
"""Kinds that come from the deployment, from numbers and times, or from where a word stands."""


def test_every_kind_but_those_that_are_made_has_phrases():
    assert set(Kind) - MADE <= {found for found, _ in lexicon.phrases().values()}


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


@rows(
    ("kind", "values"),
    [
        (Kind.STAT, set(get_args(Stat))),
        (Kind.SETTING, set(get_args(Config.__annotations__["key"]))),
        (Kind.COMPARISON, {"<=", ">=", "==", "better", "worse"}),
        (Kind.OPTIMISE, {"minimize", "maximize"}),
        (Kind.WINDOW, set(NAMED_WINDOWS)),
        (Kind.CHANGE, {"<=", ">=", "better", "worse"}),
        (Kind.PRIORITY, {"first", "over", "under", "sacrifice", "order", "begin", "then", "than", "last"}),
        (Kind.VAGUE, {"fast", "slow", "cheap", "dear", "good"}),
        (Kind.PERIOD, {"s", "min", "h", "day", "week", "month", "year", "Mtok"}),
        (Kind.TO, {"", "<=", ">="}),
        (Kind.THING, {"tokens", "requests"}),
        (Kind.CURRENCY, {"USD", "other"}),
        (Kind.PRECISION, set(get_args(PrecisionRule.__annotations__["value"]))),
        (Kind.COUNTED, SETTINGS - LOSSES | {"gpu_count"}),
    ],
)
def test_a_phrase_means_only_what_the_rules_know(kind, values):
    assert {value for found, value in lexicon.phrases().values() if found is kind} == values


def test_every_unit_is_one_that_some_metric_can_be_said_in():
    units = {value[0] for kind, value in lexicon.phrases().values() if kind is Kind.UNIT}
    useful = {unit for unit in units if any(normalise(metric, Quantity(1.5, unit)) for metric in UNITS)}
    assert units - useful == {"points"}  # only a change is said in points
    assert normalise("tpot", Quantity(1.5, PER_USER))


def test_short_words_are_never_corrected_and_long_telling_ones_are():
    correctable = lexicon.correctable()
    assert all(len(word) >= 5 or word in lexicon.short() for word in correctable)
    assert {"throughput", "latency", "ttft", "quantise", "peak", "unless"} <= set(correctable)
    assert "please" not in correctable
