import pytest

from intent.rules.clauses import clauses
from intent.rules.tokens import tokenize


def cut(text, catalogue):
    """Each clause as its words, with the window that covers it."""
    found = []
    for clause in clauses(tokenize(text, catalogue)):
        words = " ".join(text[token.start : token.end] for token in clause.tokens)
        found.append((words, clause.scope.value if clause.scope else None))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TTFT < 2s and TPOT < 50ms", [("TTFT < 2s", None), ("TPOT < 50ms", None)]),
        ("TTFT < 2s TPOT < 50ms", [("TTFT < 2s", None), ("TPOT < 50ms", None)]),
        ("TTFT and TPOT under 2s", [("TTFT TPOT under 2s", None)]),
        ("TTFT, TPOT, E2E under 2s", [("TTFT TPOT E2E under 2s", None)]),
        ("tp2pp4", [("tp 2", None), ("pp 4", None)]),
        ("at peak, TTFT < 2s and TPOT < 50ms", [("TTFT < 2s", "peak"), ("TPOT < 50ms", "peak")]),
        ("at peak TTFT < 2s and TPOT < 50ms", [("at peak TTFT < 2s", "peak"), ("TPOT < 50ms", "peak")]),
        ("TTFT < 2s and TPOT < 50ms at peak", [("TTFT < 2s", None), ("TPOT < 50ms at peak", None)]),
        ("TTFT < 2s, at peak", [("TTFT < 2s at peak", None)]),
        ("at peak, TTFT < 2s. TPOT < 50ms", [("TTFT < 2s", "peak"), ("TPOT < 50ms", None)]),
        ("at peak, TTFT < 2s; overnight, TTFT < 5s", [("TTFT < 2s", "peak"), ("TTFT < 5s", "overnight")]),
        (
            "TTFT < 2s at peak, overnight, TTFT < 5s",
            [("TTFT < 2s at peak", None), ("TTFT < 5s", "overnight")],
        ),
        ("tp 2 pp 2 at peak", [("tp 2", "peak"), ("pp 2 at peak", None)]),
        ("tp=2 and pp=2 at peak", [("tp = 2", "peak"), ("pp = 2 at peak", None)]),
        ("run it, please", []),
    ],
)
def test_a_text_is_cut_where_a_goal_ends(text, expected, catalogue):
    assert cut(text, catalogue) == expected


def test_a_second_window_alone_repeats_the_goal(catalogue):
    first, second = clauses(tokenize("TTFT < 2s at peak and overnight", catalogue))
    assert (first.repeats, second.repeats) == (False, True)
