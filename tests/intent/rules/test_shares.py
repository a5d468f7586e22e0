import pytest

from intent.rules.kinds import Kind
from intent.rules.phrasing import tokenize


def shares(text, catalogue):
    """Percentiles and percentages, each as ``p99`` or ``0.1 %``."""
    return [
        token.value if token.kind is Kind.STAT else f"{token.value.value * 100:g} %"
        for token in tokenize(text, catalogue)
        if token.kind in {Kind.STAT, Kind.QUANTITY}
    ]


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("99% of requests", "p99"),
        ("99.9% of all the requests", "p99.9"),
        ("at least 95 percent of requests", "p95"),
        ("90% of our users", "p90"),
        ("99% 的请求", "p99"),
        ("百分之九十九的请求", "p99"),
        ("至少 95% 的请求", "p95"),
        ("19 out of 20", "p95"),
        ("nineteen out of twenty requests", "p95"),
        ("nine in ten requests", "p90"),
        ("99 of every 100 requests", "p99"),
        ("99/100 requests", "p99"),
        ("999 out of 1000 requests", "p99.9"),
        ("十个请求里至少九个", "p90"),
        ("一百个请求中九十九个", "p99"),
        ("50% of requests", "p50"),
        ("每一百个请求里，至少要有九十九个", "p99"),
        ("二十个请求里要有十九个", "p95"),
    ],
)
def test_a_share_of_requests_is_a_percentile(text, share, catalogue):
    assert shares(text, catalogue) == [share]
    assert Kind.COMPARISON not in {token.kind for token in tokenize(text, catalogue)}


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("no more than 1% of requests above", "p99"),
        ("at most 5% of requests may take more than", "p95"),
        ("only 1% of requests may exceed", "p99"),
        ("不超过 1% 的请求超过", "p99"),
        ("at most 0.1% of requests slower than", "p99.9"),
    ],
)
def test_the_rest_of_a_share_that_may_be_above_is_below(text, share, catalogue):
    tokens = tokenize(text, catalogue)
    assert [token.value for token in tokens if token.kind is Kind.STAT] == [share]
    assert [token.value for token in tokens if token.kind is Kind.COMPARISON] == ["<="]


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("99% of requests succeed", "99 %"),
        ("no more than 1 in 1000 requests fail", "0.1 %"),
        ("one request in two hundred fails", "0.5 %"),
        ("at most 1% of requests fail", "1 %"),
        ("at most 1% of requests may fail above", "1 %"),
        ("一千个请求里失败不超过一个", "0.1 %"),
        ("99% 的请求成功率", "99 %"),
    ],
)
def test_a_share_of_failures_is_an_amount(text, share, catalogue):
    assert shares(text, catalogue) == [share]


@pytest.mark.parametrize("text", ["80%", "80% of the budget", "80% busy", "by 20% of requests per second"])
def test_a_percentage_of_anything_else_is_one(text, catalogue):
    assert shares(text, catalogue) in (["80 %"], ["20 %"])


@pytest.mark.parametrize("text", ["20 out of 19 requests", "0 out of 20 requests", "20 in 20 requests"])
def test_no_part_is_larger_than_the_whole_or_nothing(text, catalogue):
    assert len(shares(text, catalogue)) == 2


def test_numbers_with_units_are_no_share(catalogue):
    assert len(shares("2 s in 20 s", catalogue)) == 2
