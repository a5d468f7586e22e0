from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from intent.models import RecurringWindow
from intent.rules.kinds import Kind
from intent.rules.tokens import scan
from tests.intent.tables import table
from tests.rows import rows


def scanned(text, catalogue):
    return [(token.kind, token.value) for token in scan(text, catalogue) if token.kind is not Kind.FILLER]


@rows(("text", "said"), table("tokens.txt"))
def test_the_longest_phrase_at_a_place_is_what_is_said(text, said, catalogue):
    kind, value = scanned(text, catalogue)[0]
    assert f"{kind} {value!r}" == said


def test_a_number_of_more_characters_goes_before_a_phrase(catalogue):
    assert scanned("十一", catalogue) == [(Kind.NUMBER, 11.0)]
    assert scanned("千分之一", catalogue) == [(Kind.QUANTITY, 0.001)]


def test_a_han_number_ends_where_a_space_stands(catalogue):
    assert scanned("二 十", catalogue) == [(Kind.NUMBER, 2.0), (Kind.NUMBER, 10.0)]


@rows("text", ["JIRA-1234", "ops-77123", "https://wiki.x/y?z=2", "bob@acme.com", "@bob", "#1234"])
def test_what_is_only_mentioned_says_nothing(text, catalogue):
    assert scanned(f"TTFT {text}", catalogue) == [(Kind.METRIC, "ttft")]


def test_a_number_with_a_dash_and_a_unit_is_no_ticket(catalogue):
    assert (Kind.NUMBER, 500.0) in scanned("ttft-500 ms", catalogue)


def test_the_letter_of_a_node_begins_no_time(catalogue):
    assert scanned("node a from 9:00 to 17:00", catalogue)[0] == (Kind.SELECTOR, "node:a")


def test_a_time_is_one_token_where_it_stands(catalogue):
    text = "TTFT 9:00-17:00 < 2s"
    (window,) = [token for token in scan(text, catalogue) if token.kind is Kind.WINDOW]
    assert text[window.start : window.end] == "9:00-17:00"
    assert isinstance(window.value, RecurringWindow)


@rows("text", ["4090 tok/s", "3090 ms"])
def test_a_number_with_a_unit_is_no_gpu(text, catalogue):
    assert scanned(text, catalogue)[0][0] is Kind.NUMBER


def test_another_deployment_has_other_names(catalogue):
    renamed = replace(catalogue, tenants=("zebra",), aliases={"stripes": "zebra", "horse": "counting"})
    assert scanned("acme stripes horse", renamed) == [
        (Kind.UNKNOWN, "acme"),
        (Kind.TENANT, "zebra"),
        (Kind.MODEL, "counting"),
    ]
    assert scanned("acme", catalogue) == [(Kind.TENANT, "acme")]


def test_a_deployments_own_gpu_and_node_are_known(catalogue):
    own = replace(catalogue, devices={"Q7": 1}, nodes=("rack-9",))
    assert scanned("Q7s, rack-9 node", own)[::2] == [
        (Kind.SELECTOR, "gpu_type:Q7"),
        (Kind.SELECTOR, "node:rack-9"),
    ]


def test_a_name_of_the_deployment_goes_before_the_lexicon(catalogue):
    own = replace(catalogue, tenants=("batch",))
    assert scanned("batch", own) == [(Kind.TENANT, "batch")]
    assert scanned("batch", catalogue) == [(Kind.WORKLOAD, "batch")]


@given(st.text(max_size=60))
def test_every_token_stands_in_the_text_and_the_order_is_kept(catalogue, text):
    tokens = scan(text, catalogue)
    assert all(0 <= token.start < token.end <= len(text) for token in tokens)
    assert [token.start for token in tokens] == sorted(token.start for token in tokens)
