import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.rules.lexicon import Kind
from intent.rules.quantities import Quantity
from intent.rules.tokens import tokenize


def told(text, catalogue):
    silent = {Kind.FILLER}
    return [
        (token.kind.value, token.value) for token in tokenize(text, catalogue) if token.kind not in silent
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("99% of requests", [("stat", "p99")]),
        ("99.9% of all the requests", [("stat", "p99.9")]),
        ("99th percentile", [("stat", "p99")]),
        ("p97", [("stat", "p97")]),
        ("median", [("stat", "p50")]),
        ("99%", [("quantity", Quantity(99, "ratio", 0.01))]),
        ("$4/h", [("quantity", Quantity(4, "USD/h"))]),
        ("4 dollars a day", [("quantity", Quantity(4, "USD/day"))]),
        ("$5", [("quantity", Quantity(5, "USD"))]),
        ("1.5k tok/s", [("quantity", Quantity(1500, "tokens/s"))]),
        ("20 tokens per second per user", [("quantity", Quantity(20, "tokens/s/user"))]),
        ("half a second", [("quantity", Quantity(0.5, "s"))]),
        ("a second", [("quantity", Quantity(1, "s"))]),
        ("2 min", [("quantity", Quantity(2, "s", 60))]),
        ("min 2", [("comparison", ">="), ("quantity", Quantity(2))]),
        ("-2s", [("quantity", Quantity(-2, "s"))]),
        ("60-80%", [("range", (Quantity(60, "ratio", 0.01), Quantity(80, "ratio", 0.01)))]),
        ("between 1 and 2 s", [("range", (Quantity(1, "s"), Quantity(2, "s")))]),
        ("not above", [("comparison", "<=")]),
        ("no less than", [("comparison", ">=")]),
        ("must never let TTFT exceed", [("comparison", "<="), ("metric", "ttft")]),
        ("no worse than", [("comparison", "better")]),
        ("don't minimise", [("negation", None), ("optimise", "minimize")]),
        ("by 20%", [("relative", "by"), ("quantity", Quantity(20, "ratio", 0.01))]),
        ("by friday", [("unknown", "by"), ("unknown", "friday")]),
        ("the counter", [("model", "counting")]),
        ("ACME corp", [("tenant", "acme")]),
        ("month-end", [("window", "month_end")]),
    ],
)
def test_words_become_what_they_do(text, expected, catalogue):
    assert told(text, catalogue) == expected


def test_a_misspelt_word_is_taken_for_the_nearest_and_says_so(catalogue):
    (token,) = tokenize("thoughput", catalogue)
    assert (token.kind, token.misspelt) == (Kind.METRIC, ("thoughput", "throughput"))


def test_a_word_far_from_all_known_ones_is_unknown(catalogue):
    (token,) = tokenize("vibes", catalogue)
    assert token.kind is Kind.UNKNOWN


@given(st.text(max_size=60))
def test_every_token_stands_in_the_text_and_the_order_is_kept(catalogue, text):
    tokens = tokenize(text, catalogue)
    assert all(0 <= token.start < token.end <= len(text) for token in tokens)
    assert [token.end for token in tokens] == sorted(token.end for token in tokens)
