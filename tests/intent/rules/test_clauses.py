from intent.rules.clauses import clauses
from intent.rules.kinds import Kind
from intent.rules.phrasing import tokenize
from tests.intent.tables import table
from tests.rows import rows


def told(clause, text):
    """A clause as its words, with the window, tenant and model that cover it."""
    words = " ".join(text[token.start : token.end] for token in clause.tokens)
    covering = filter(None, map(clause.covered_by, (Kind.WINDOW, Kind.TENANT, Kind.MODEL)))
    return words + "".join(f" [{first.value}]" for first, *_ in covering)


@rows(("text", "expected"), table("clauses.txt"))
def test_a_text_is_cut_where_a_goal_ends_and_what_leads_covers_the_sentence(text, expected, catalogue):
    assert " | ".join(told(clause, text) for clause in clauses(tokenize(text, catalogue))) == expected


def test_what_says_nothing_has_no_clause(catalogue):
    assert clauses(tokenize("run it, please", catalogue)) == []


def test_a_second_window_alone_repeats_the_goal(catalogue):
    first, second = clauses(tokenize("TTFT < 2s at peak, and overnight", catalogue))
    assert (first.repeats, second.repeats) == (False, True)


@rows(
    ("text", "joints"),
    [
        ("TTFT < 2s and TPOT < 1s", [".", "and"]),
        ("TTFT < 2s, TPOT < 1s; E2E < 9s", [".", ",", ";"]),
        ("TTFT < 2s. TPOT < 1s E2E < 9s", [".", ".", None]),
    ],
)
def test_a_clause_knows_what_stands_before_it(text, joints, catalogue):
    assert [clause.joint for clause in clauses(tokenize(text, catalogue))] == joints


def test_a_clause_opens_a_sentence_behind_a_stop_alone(catalogue):
    found = clauses(tokenize("Well, TTFT < 2s, TPOT < 1s. E2E < 9s", catalogue))
    assert [clause.opens_sentence for clause in found] == [True, False, True]


def test_windows_that_nothing_joins_are_told_apart_from_a_list(catalogue):
    (clause,) = clauses(tokenize("TTFT < 2s at peak during business hours", catalogue))
    assert [token.value for token in clause.unlisted(Kind.WINDOW)] == ["business_hours"]
    (clause,) = clauses(tokenize("TTFT < 2s at peak and overnight", catalogue))
    assert clause.unlisted(Kind.WINDOW) == []


def test_a_clause_without_end_is_cut(catalogue):
    longest = max(len(clause.tokens) for clause in clauses(tokenize("users " * 300, catalogue)))
    assert longest <= 60
