from dataclasses import replace

from intent.followups.fragments import Fragment, put_into, same_wish
from intent.models import Intent, TranslatorInfo
from intent.readback import render
from tests.intent.followups.shared import CATALOGUE, TTFT
from tests.rows import rows


def phrase(goal):
    return render(Intent("", "en", (goal,), TranslatorInfo("rules"))).rstrip(".")


def put(text, goal=TTFT, said=phrase, **how):
    return put_into(goal, Fragment.of(text, CATALOGUE), CATALOGUE, said, **how)


@rows(
    ("text", "changes"),
    [
        ("1.5 s", {"value": 1.5}),
        ("1.5", {"value": 1.5}),
        ("p95", {"stat": "p95"}),
        ("overnight", {"window": "overnight"}),
        ("for free users", {"tenant": "free"}),
        ("for llama-70b", {"model": "llama-70b"}),
        ("p95, 800 ms, at all times", {"stat": "p95", "value": 0.8, "window": "always"}),
        ("TTFT 1.5 s", {"value": 1.5}),
        ("latency 1.5 s", {"value": 1.5}),
        ("2 s", {}),
    ],
)
def test_a_fragment_changes_the_slots_it_says(text, changes):
    assert same_wish(put(text), replace(TTFT, **changes))


@rows(
    "text", ["", "wibble", "80%", "E2E 1.5 s", "throughput 1.5 s", "1.5 s wibble", "1.5 s 3 s", "2 replicas", "by 20%"]
)  # fmt: skip
def test_what_does_not_fit_the_goal_is_no_change_of_it(text):
    assert put(text) is None


def test_what_reads_as_more_than_the_slots_said_is_no_change():
    assert put("1.5 s", said=lambda _: "P99 TTFT at most 2 s overnight") is None
    assert put("1.5 s", said=lambda _: "P95 TTFT at most 2 s at peak") is None
    assert put("1.5 s", said=lambda _: "P99 TTFT at most 2 s at peak; no int4") is None
    assert put("1.5 s", said=lambda _: "wibble") is None


def test_numbers_that_a_read_back_rounds_stay_as_they_are():
    third = replace(TTFT, value=1 / 3)
    assert put("p95", third) == replace(third, stat="p95")


def test_a_copy_may_have_another_metric():
    assert same_wish(put("for E2E, 10 s", copied=True), replace(TTFT, metric="e2e", value=10.0))
    assert put("for cost, 10 s", copied=True) is None
