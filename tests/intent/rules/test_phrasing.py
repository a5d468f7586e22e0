from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.words import replies
from benchmarks.words.utterances import DEPLOYMENT, NOW, first_contact_files, load, own_files
from intent.rules.kinds import Kind
from intent.rules.lexicon import phrases
from intent.rules.phrasing import FALL, passes, tokenize
from intent.rules.quantities import Quantity
from intent.rules.rewriting import rewritten
from intent.rules.tokens import scan
from service.deployment import load as load_deployment


def told(text, catalogue):
    return [(token.kind, token.value) for token in tokenize(text, catalogue) if token.kind is not Kind.FILLER]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("not above 2", [(Kind.COMPARISON, "<="), (Kind.QUANTITY, Quantity(2))]),
        ("no less than 2", [(Kind.COMPARISON, ">="), (Kind.QUANTITY, Quantity(2))]),
        ("no worse than", [(Kind.COMPARISON, "better")]),
        ("no better than", [(Kind.COMPARISON, "worse")]),
        ("must never see TTFT exceed", [(Kind.COMPARISON, "<="), (Kind.METRIC, "ttft")]),
        ("不要让首字延迟超过", [(Kind.COMPARISON, "<="), (Kind.METRIC, "ttft")]),
        ("别掉到 2 以下", [(Kind.QUANTITY, Quantity(2)), (Kind.COMPARISON, ">=")]),
        ("不低于", [(Kind.COMPARISON, ">=")]),
        (
            "below 2 is unacceptable",
            [(Kind.COMPARISON, ">="), (Kind.QUANTITY, Quantity(2))],
        ),
        ("掉到 2 以下是不可接受的", [(Kind.QUANTITY, Quantity(2)), (Kind.COMPARISON, ">=")]),
    ],
)
def test_a_negation_turns_the_comparison_round_and_is_used_up(text, expected, catalogue):
    assert told(text, catalogue) == expected


@pytest.mark.parametrize("text", ["don't minimise", "not int4 under 2s", "no gpu-1 above 2"])
def test_a_negation_of_something_else_stays(text, catalogue):
    assert told(text, catalogue)[0][0] is Kind.NEGATION


def test_exactly_has_no_opposite(catalogue):
    assert told("not exactly 2", catalogue)[:2] == [(Kind.NEGATION, "not"), (Kind.COMPARISON, "==")]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("may exceed", "exceed"),
        ("are allowed to go over", "exceed"),
        ("can be above", "exceed"),
        ("可高于", "exceed"),
        ("可低于", FALL),
        ("may fall below", FALL),
        ("may drop under", FALL),
    ],
)
def test_a_bound_that_may_be_passed_is_an_exception(text, value, catalogue):
    assert told(text, catalogue) == [(Kind.EXCEPT, value)]


def test_an_amount_between_the_permission_and_over_is_kept(catalogue):
    found = told("may go 30% over", catalogue)
    assert found == [(Kind.EXCEPT, "exceed"), (Kind.QUANTITY, Quantity(30, "ratio", 0.01))]


def test_a_permission_to_stay_below_is_none(catalogue):
    assert told("may be under", catalogue) == [(Kind.MAY, "may"), (Kind.COMPARISON, "<=")]


@pytest.mark.parametrize(
    ("text", "selector"),
    [
        ("gpu-1", "gpu:gpu-1"),
        ("GPU 0", "gpu:gpu-0"),
        ("gpu#3", "gpu:gpu-3"),
        ("gpu7", "gpu:gpu-7"),
        ("1 号卡", "gpu:gpu-1"),
        ("node c", "node:c"),
    ],
)
def test_a_device_is_called_by_its_number_and_a_node_by_any_name(text, selector, catalogue):
    assert told(text, catalogue) == [(Kind.SELECTOR, selector)]


@pytest.mark.parametrize(
    "text", ["gpu 70%", "gpu 2 s", "gpu $4", "gpu 2 gpus", "gpu 1.5", "gpu 2x", "gpus: 4"]
)
def test_a_number_behind_gpu_that_counts_something_is_no_device(text, catalogue):
    assert Kind.SELECTOR not in {kind for kind, _ in told(text, catalogue)}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gold customers", [None]),
        ("tenant zeta", [None]),
        ("tenant acme", ["acme"]),
        ("租户 zeta", [None]),
        ("very golden plated users", [None]),
        ("acme customers", ["acme"]),
        ("customers", []),
    ],
)
def test_a_name_that_nobody_has_stands_before_customers_or_behind_tenant(text, names, catalogue):
    assert [value for kind, value in told(text, catalogue) if kind is Kind.TENANT] == names


@pytest.mark.parametrize(
    ("text", "metric"),
    [("latency (TTFT)", "ttft"), ("首字延迟（TTFT）", "ttft"), ("TTFT (first token)", "ttft")],
)
def test_a_metric_explained_in_brackets_is_one(text, metric, catalogue):
    assert told(text, catalogue) == [(Kind.METRIC, metric)]


def test_hours_of_every_day_are_one_window(catalogue):
    ((kind, window),) = told("every day 14:30 to 19:00", catalogue)
    assert (kind, window.start, window.end) == (Kind.WINDOW, "14:30", "19:00")


@pytest.mark.parametrize(
    ("text", "kind"),
    [("TTFT and TPOT", Kind.LIST), ("TTFT and minimise", Kind.JOIN), ("TTFT < 2s, TPOT", Kind.JOIN)],
)
def test_what_joins_two_of_a_kind_is_a_list(text, kind, catalogue):
    assert [one for one, _ in told(text, catalogue) if one in {Kind.LIST, Kind.JOIN}] == [kind]


@given(st.text(alphabet="p99 ttft<2s不超过一二秒,and at least 5%$/h()gpu-1#", max_size=60))
def test_every_token_stands_in_the_text_and_the_order_is_kept(catalogue, text):
    tokens = tokenize(text, catalogue)
    assert all(0 <= token.start < token.end <= len(text) for token in tokens)
    assert [token.start for token in tokens] == sorted(token.start for token in tokens)


USED_UP = {
    "ratios": {Kind.QUANTITY, Kind.THING},  # "out of a thousand, two": the two are a share
    "_negations": {Kind.NEGATION},  # the comparison behind the amount turns round
    "_unacceptable": {Kind.AVOID},
    "_permissions": {Kind.COMPARISON},  # "may go 30% over the limit" is an exception
    "_strangers": {Kind.AUDIENCE},
}
"""Kinds whose words a pass may use up, as what they mean stands in a token elsewhere."""
NAMES = load_deployment(DEPLOYMENT).catalogue(NOW)
IDLE = {Kind.FILLER, Kind.JOIN, Kind.UNKNOWN, Kind.STOP, Kind.LIST}


def broken(text, catalogue):
    """Passes that lose a word with a meaning, or the order, of a text."""
    tokens, found = scan(text, catalogue), []
    for rule in passes(text):
        name = getattr(rule, "__name__", None) or rule.func.__name__
        after = list(rewritten(tokens, rule))
        kept = IDLE | USED_UP.get(name, set())
        for token in tokens:
            within = any(one.start <= token.start and token.end <= one.end for one in after)
            if token.kind not in kept and not within:
                found.append((name, text, text[token.start : token.end]))
        if any(one.start > other.start for one, other in pairwise(after)):
            found.append((name, text, "order"))
        tokens = after
    return found


@pytest.mark.slow
def test_no_pass_loses_a_word_with_a_meaning_of_any_utterance():
    texts = [one.text for one in load([*own_files(), *first_contact_files(), *replies.FILES])]
    assert [one for text in texts for one in broken(text, NAMES)] == []


@given(st.lists(st.sampled_from(sorted(" ".join(one) for one in phrases() if one[0].isascii())), max_size=8))
def test_no_pass_loses_a_word_with_a_meaning_of_any_row_of_phrases(said):
    assert broken(" ".join(said), NAMES) == []


def test_what_is_tried_keeps_its_amount(catalogue):
    text = "Try not to go over $200 a day"
    assert [text[one.start : one.end] for one in tokenize(text, catalogue) if one.kind is Kind.QUANTITY] == [
        "$200 a day"
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("keep node b free", Kind.AVOID),
        ("leave the L40S free", Kind.AVOID),
        ("keep gpu-1 free at night", Kind.AVOID),
        ("run free on the L40S", Kind.TENANT),
        ("keep free users on node b", Kind.TENANT),
    ],
)
def test_what_is_kept_free_is_no_tenant_of_that_name(text, kind, catalogue):
    tokens = tokenize(text, catalogue)
    (said,) = [one for one in tokens if text[one.start : one.end].startswith("free")]
    assert said.kind is kind
