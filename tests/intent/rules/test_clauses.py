import pytest

from intent.rules.clauses import clauses
from intent.rules.kinds import Kind
from intent.rules.phrasing import tokenize


def cut(text, catalogue):
    """Each clause as its words, with the names and windows that cover it."""
    found = []
    for clause in clauses(tokenize(text, catalogue)):
        words = " ".join(text[token.start : token.end] for token in clause.tokens)
        found.append((words, *(token.value for covering in clause.scope.values() for token in covering)))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TTFT < 2s and TPOT < 50ms", [("TTFT < 2s",), ("TPOT < 50ms",)]),
        ("TTFT < 2s TPOT < 50ms", [("TTFT < 2s",), ("TPOT < 50ms",)]),
        ("TTFT < 2s p50 TPOT < 50ms", [("TTFT < 2s",), ("p50 TPOT < 50ms",)]),
        ("TTFT < 2s at most 4 GPUs", [("TTFT < 2s",), ("at most 4 GPUs",)]),
        ("TTFT 2s or less", [("TTFT 2s or less",)]),
        ("TTFT and TPOT under 2s", [("TTFT and TPOT under 2s",)]),
        ("TTFT, TPOT, E2E under 2s", [("TTFT , TPOT , E2E under 2s",)]),
        ("tp2pp4", [("tp 2",), ("pp 4",)]),
        ("500 tok/s throughput", [("500 tok/s throughput",)]),
        ("$4/h cost", [("$4/h cost",)]),
        ("run it, please", []),
        ("首字延迟不超过 2 秒，TPOT 不超过 50 毫秒", [("首字延迟 不超过 2 秒",), ("TPOT 不超过 50 毫秒",)]),
        ("首字延迟不超过2秒吞吐不低于500 tok/s", [("首字延迟 不超过 2秒",), ("吞吐 不低于 500 tok/s",)]),
        ("no int4 no fp8", [("no int4",), ("no fp8",)]),
        ("int4 is off the table", [("int4 is off the table",)]),
        ("minimise cost under $5/h", [("minimise cost under $5/h",)]),
        ("cut TTFT by 20%", [("cut TTFT by 20%",)]),
        ("TTFT 2s ideally 1s", [("TTFT 2s",), ("ideally 1s",)]),
        ("1. TTFT < 2s\n2. TPOT < 50 ms", [("TTFT < 2s",), ("TPOT < 50 ms",)]),
        ("- TTFT < 2s\n- TPOT < 50 ms", [("TTFT < 2s",), ("TPOT < 50 ms",)]),
    ],
)
def test_a_text_is_cut_where_a_goal_ends(text, expected, catalogue):
    assert cut(text, catalogue) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TTFT: under 2s", ["TTFT under 2s"]),
        ("TTFT, p99, under 2s", ["TTFT p99 under 2s"]),
        ("TTFT < 2s, p95", ["TTFT < 2s p95"]),
        ("three requests per second, minimum", ["three requests per second minimum"]),
        ("TTFT < 2s, if possible", ["TTFT < 2s if possible"]),
        ("Ideally, TTFT < 2s", ["Ideally TTFT < 2s"]),
        ("when reconfiguring, a pause of 50 ms at most", ["when reconfiguring pause 50 ms at most"]),
        ("acme is exempt, up to 5 s", ["acme is exempt up to 5 s"]),
        ("首字延迟，不超过 2 秒", ["首字延迟 不超过 2 秒"]),
        ("TTFT < 2s. p95 TPOT < 50 ms", ["TTFT < 2s", "p95 TPOT < 50 ms"]),
        ("TTFT < 2s. p95", ["TTFT < 2s", "p95"]),
    ],
)
def test_what_waits_for_its_bound_or_comes_late_is_one_clause(text, expected, catalogue):
    assert [words for words, *_ in cut(text, catalogue)] == expected


@pytest.mark.parametrize(
    ("text", "windows"),
    [
        ("at peak, TTFT < 2s and TPOT < 50ms", ["peak", "peak"]),
        ("at peak TTFT < 2s and TPOT < 50ms", ["peak", "peak"]),
        ("at peak: TTFT < 2s, TPOT < 50ms", ["peak", "peak"]),
        ("高峰期首字延迟不超过 2 秒，TPOT 不超过 50 毫秒", ["peak", "peak"]),
        ("TTFT < 2s and TPOT < 50ms at peak", [None, "peak"]),
        ("TTFT < 2s, at peak", ["peak"]),
        ("at peak, TTFT < 2s. TPOT < 50ms", ["peak", None]),
        ("at peak, TTFT < 2s; TPOT < 50ms", ["peak", "peak"]),
        ("at peak, TTFT < 2s; overnight, TTFT < 5s", ["peak", "overnight"]),
        ("at peak, TTFT < 2s, at all times TPOT < 50ms", ["peak", "always"]),
        ("TTFT < 2s at peak, overnight, TTFT < 5s", ["peak", "overnight"]),
        ("tp 2 pp 2 at peak", ["peak", "peak"]),
        ("tp=2 and pp=2 at peak", ["peak", "peak"]),
        ("TTFT < 2s and tp=2 at peak", [None, "peak"]),
    ],
)
def test_a_window_that_leads_covers_the_sentence_and_one_behind_covers_its_goal(text, windows, catalogue):
    found = [clause.covered_by(Kind.WINDOW) for clause in clauses(tokenize(text, catalogue))]
    assert [covering[0].value if covering else None for covering in found] == windows


@pytest.mark.parametrize(
    ("text", "tenants"),
    [
        ("for acme TTFT < 2s and TPOT < 50 ms", ["acme", "acme"]),
        ("acme: TTFT < 1s; free: 4 s", ["acme", "free"]),
        ("acme TTFT < 1s; TPOT < 50 ms", ["acme", None]),
        ("for acme: TTFT < 1s; TPOT < 50 ms", ["acme", "acme"]),
        ("acme is exempt, TTFT < 2s", ["acme", None]),
        ("put free users on L40S, TTFT < 2s", ["free", "free"]),
        ("put free on L40S, acme on A100, TTFT < 2s", ["free", "acme", None]),
    ],
)
def test_a_tenant_reaches_as_far_as_a_window(text, tenants, catalogue):
    found = [clause.covered_by(Kind.TENANT) for clause in clauses(tokenize(text, catalogue))]
    assert [covering[0].value if covering else None for covering in found] == tenants


def test_a_second_window_alone_repeats_the_goal(catalogue):
    first, second = clauses(tokenize("TTFT < 2s at peak, and overnight", catalogue))
    assert (first.repeats, second.repeats) == (False, True)


@pytest.mark.parametrize(
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
