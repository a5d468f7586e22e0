from intent.rules.kinds import Kind
from intent.rules.rewriting import REACH, joined, kinds, rewritten, skip, spanning
from intent.rules.tokens import TextToken
from tests.rows import rows


def row(*of, misspelt=()):
    return [TextToken(kind, n, n, n + 1, ("w", "v") if n in misspelt else None) for n, kind in enumerate(of)]


def test_a_rule_replaces_what_it_takes_and_passes_over_the_rest():
    def pairs(tokens):
        return joined(tokens[:2], Kind.RANGE, "two") if kinds(tokens, Kind.NUMBER, Kind.NUMBER) else None

    tokens = row(Kind.UNIT, Kind.NUMBER, Kind.NUMBER, Kind.NUMBER, Kind.UNIT)
    found = [(token.kind, token.start, token.end) for token in rewritten(tokens, pairs)]
    assert found == [(Kind.UNIT, 0, 1), (Kind.RANGE, 1, 3), (Kind.NUMBER, 3, 4), (Kind.UNIT, 4, 5)]


def test_a_rule_looks_no_further_than_its_reach():
    seen = []
    list(rewritten(row(*[Kind.NUMBER] * 40), lambda tokens: seen.append(len(tokens))))
    assert max(seen) == REACH
    assert len(seen) == 40


def test_a_rewrite_may_leave_nothing():
    assert list(rewritten(row(Kind.NUMBER, Kind.UNIT), lambda tokens: ([], 1))) == []


@rows(
    ("asked", "is_so"),
    [
        ((), True),
        ((Kind.NUMBER,), True),
        ((Kind.NUMBER, Kind.UNIT), True),
        ((Kind.UNIT,), False),
        ((Kind.NUMBER, Kind.UNIT, Kind.UNIT), False),
    ],
)
def test_a_list_begins_with_these_kinds(asked, is_so):
    assert kinds(row(Kind.NUMBER, Kind.UNIT), *asked) is is_so


def test_one_token_for_several_spans_them_and_keeps_the_first_correction():
    token = spanning(row(Kind.NUMBER, Kind.UNIT, Kind.UNIT, misspelt=(1, 2)), Kind.QUANTITY, "x")
    assert (token.kind, token.value, token.start, token.end) == (Kind.QUANTITY, "x", 0, 3)
    assert token.misspelt == ("w", "v")


def test_skipping_stops_at_another_kind_and_at_the_end():
    tokens = row(Kind.FILLER, Kind.MAY, Kind.UNIT, Kind.FILLER)
    assert skip(tokens, 0, Kind.FILLER, Kind.MAY) == 2
    assert skip(tokens, 2, Kind.FILLER) == 2
    assert skip(tokens, 3, Kind.FILLER) == 4
