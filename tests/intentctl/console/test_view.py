"""Documents as HTML: everything is escaped, and what would steer the reader is shown."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from intentctl.console.facts import OperationView
from intentctl.console.view import Viewer, moment, page, short, zone_of
from runtime.models import MeasuredLink
from service.documents.problems import Code, Problem
from tests.rows import rows
from tests.service.examples import operation as planned
from tests.service.examples import report

HOSTILE = "<script>alert(1)</script>\u202egnp.exe\x00\x1b[31m\x07{{ 7*7 }}&quot;"


def test_a_text_of_others_is_no_markup_and_a_very_long_one_is_cut():
    html = page("problem.html", Viewer(), status=409, problem=Problem.of(Code.CONFLICT, HOSTILE))
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202egnp.exe\\x00\\x1b[31m\\x07{{ 7*7 }}&amp;quot;" in html
    html = page("problem.html", Viewer(), status=409, problem=Problem.of(Code.CONFLICT, "x" * 50_000))
    assert len(html) < 20_000
    assert "[…]" in html


def test_a_moment_is_said_in_the_zone_with_the_exact_one_behind_it():
    at = datetime(2026, 1, 5, 12, tzinfo=UTC)
    said = moment(at.timestamp(), ZoneInfo("Asia/Shanghai"))
    assert said == moment(at, ZoneInfo("Asia/Shanghai"))
    assert ">Mon 05 Jan 20:00:00</time>" in said
    assert 'datetime="2026-01-05T12:00:00Z"' in said
    assert "2026-01-05 20:00:00 CST" in said


@rows("name", ["Nowhere/Land", "../../etc/passwd", "", "\x00"])
def test_a_zone_that_is_none_is_utc(name):
    assert zone_of(name) is UTC


@rows(
    ("facts", "said"),
    [
        ({"transport": "nixl", "bytes_between_hosts": 5_000_000}, "5 MB nixl</dd>"),
        ({"transport": "nixl", "link": MeasuredLink(1.2e8, 0.0004)}, "(120 MB/s, round trip 0.4 ms)"),
        ({"transport": "none"}, "no KV: the target computed it anew"),
        ({}, ""),
    ],
)
def test_a_switch_between_hosts_says_what_went_over_which_link(facts, said):
    operation = planned(end_s=2.0).model_copy(update={"result": report(**facts)})
    seen = OperationView(operation, None, None, (), 3.0)
    html = page("parts/operation.html", Viewer(), seen=seen, may=lambda _: False)
    assert said in html
    assert ("between hosts" in html) is bool(facts)


@rows(("value", "said"), [(1069.6, "1,070"), (0.01234, "0.0123"), (12, "12"), (None, "–"), (2e7, "20,000,000")])
def test_numbers_are_short_and_written_out(value, said):
    assert short(value) == said
