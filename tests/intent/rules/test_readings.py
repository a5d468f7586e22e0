import pytest

from intent.rules.clauses import clauses
from intent.rules.readings import bind
from intent.rules.tokens import tokenize


def bound(text, catalogue):
    readings, leftovers, previous = [], [], ()
    for clause in clauses(tokenize(text, catalogue)):
        result = bind(clause, previous)
        previous = result.readings
        readings += result.readings
        leftovers += [text[token.start : token.end] for token in result.leftovers]
    return readings, leftovers


def slots(reading):
    tokens = (reading.head, reading.stat, reading.comparison, reading.quantity, reading.window)
    return tuple(
        token and (token.value.number if token is reading.quantity else token.value) for token in tokens
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P99 TTFT < 2s at peak", [("ttft", "p99", "<=", 2, "peak")]),
        ("under 2s P99 TTFT", [("ttft", "p99", "<=", 2, None)]),
        ("2s > P99 TTFT", [("ttft", "p99", "<=", 2, None)]),
        ("TTFT and TPOT p99 under 2s", [("ttft", "p99", "<=", 2, None), ("tpot", "p99", "<=", 2, None)]),
        ("P50 TTFT and P99 TPOT under 2s", [("ttft", "p50", "<=", 2, None), ("tpot", "p99", "<=", 2, None)]),
        ("P50 and P99 TTFT under 2s", [("ttft", "p50", "<=", 2, None), ("ttft", "p99", "<=", 2, None)]),
        (
            "P99 TTFT < 2s at peak and 5s overnight",
            [("ttft", "p99", "<=", 2, "peak"), ("ttft", "p99", "<=", 5, "overnight")],
        ),
        ("p50 TTFT < 1s and p99 < 2s", [("ttft", "p50", "<=", 1, None), ("ttft", "p99", "<=", 2, None)]),
        ("GPU util 60-80%", [("gpu_util", None, ">=", 60, None), ("gpu_util", None, "<=", 80, None)]),
        ("at least 500 tok/s", [("throughput_tok", None, ">=", 500, None)]),
        ("under $4/h", [("cost", None, "<=", 4, None)]),
        ("4-way tensor parallel", [("tp", None, None, 4, None)]),
        (
            "minimise cost and TTFT",
            [("cost", None, "minimize", None, None), ("ttft", None, "minimize", None, None)],
        ),
        ("reduce TTFT by 20%", [("ttft", None, None, None, None)]),
        ("the vibes under 2s", [("vibes", None, "<=", 2, None)]),
    ],
)
def test_every_word_finds_its_slot(text, expected, catalogue):
    readings, leftovers = bound(text, catalogue)
    assert [slots(reading) for reading in readings] == expected
    assert leftovers == []


@pytest.mark.parametrize(
    ("text", "leftover"),
    [
        ("TTFT < 2s for gold customers", ["gold", "customers"]),
        ("TTFT < 2s at peak business hours", ["business hours"]),
        ("don't minimise cost", ["don't"]),
        ("tp=2 or tp=4", ["or"]),
        ("TTFT < 2s unless cost > $4/h", ["unless"]),
    ],
)
def test_what_finds_no_slot_is_left_over(text, leftover, catalogue):
    assert bound(text, catalogue)[1] == leftover


def test_evidence_leaves_out_what_was_left_over(catalogue):
    text = "keep P99 TTFT < 2s at peak for gold customers"
    (reading,), _ = bound(text, catalogue)
    assert text[reading.start : reading.end] == "P99 TTFT < 2s at peak"
