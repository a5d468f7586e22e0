from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.words import replies
from benchmarks.words.utterances import DEPLOYMENT, NOW, first_contact_files, load, own_files
from intent.rules.kinds import Kind
from intent.rules.lexicon import phrases
from intent.rules.phrasing import passes, tokenize
from intent.rules.rewriting import rewritten
from intent.rules.tokens import scan
from service.deployment.file import load as load_deployment
from tests.intent.tables import table
from tests.rows import rows


def told(text, catalogue):
    return [(token.kind, token.value) for token in tokenize(text, catalogue) if token.kind is not Kind.FILLER]


@rows(("text", "said"), table("phrases.txt"))
def test_tokens_are_joined_to_what_they_say_together(text, said, catalogue):
    assert " | ".join(f"{kind} {value!r}" for kind, value in told(text, catalogue)) == said


def test_hours_of_every_day_are_one_window(catalogue):
    ((kind, window),) = told("every day 14:30 to 19:00", catalogue)
    assert (kind, window.start, window.end) == (Kind.WINDOW, "14:30", "19:00")


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
        after = list(rewritten(tokens, rule))
        if after != tokens:
            name = getattr(rule, "__name__", None) or rule.func.__name__
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
@pytest.mark.parametrize("each", [5, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_no_pass_loses_a_word_with_a_meaning_of_any_utterance(each):
    texts = sorted({one.text for one in load([*own_files(), *first_contact_files(), *replies.FILES])})
    assert [one for text in texts[::each] for one in broken(text, NAMES)] == []


@given(st.lists(st.sampled_from(sorted(" ".join(one) for one in phrases() if one[0].isascii())), max_size=8))
def test_no_pass_loses_a_word_with_a_meaning_of_any_row_of_phrases(said):
    assert broken(" ".join(said), NAMES) == []


def test_what_is_tried_keeps_its_amount(catalogue):
    text = "Try not to go over $200 a day"
    assert [text[one.start : one.end] for one in tokenize(text, catalogue) if one.kind is Kind.QUANTITY] == [
        "$200 a day"
    ]


@rows(
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
