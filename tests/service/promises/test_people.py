"""How long a person's no to a topology holds."""

from service.promises.people import Term
from tests.rows import rows

H = 3600.0


@rows(
    ("now_s", "at_s", "said_s", "holds_until_s"),
    [
        (11 * H, 10 * H, None, 12 * H),  # until the segment ends
        (12 * H, 10 * H, None, 0.0),
        (11 * H, 8 * H, None, 0.0),  # of the segment before
        (11 * H, 8 * H, 30 * H, 30 * H),  # as was said, over the segment's end
        (30 * H, 8 * H, 30 * H, 0.0),
        (11 * H, 6 * H, 30 * H, 0.0),  # `resume` came after it
    ],
)
def test_a_no_holds_as_long_as_was_said_else_in_its_segment(now_s, at_s, said_s, holds_until_s):
    term = Term(now_s=now_s, began_s=9 * H, ends_s=12 * H, resumed_s=7 * H)
    assert term.until_s(at_s, said_s) == holds_until_s


def test_a_no_in_a_segment_without_end_holds_for_four_hours():
    term = Term(now_s=13.9 * H, began_s=9 * H, ends_s=None, resumed_s=0.0)
    assert term.until_s(10 * H, None) == 14 * H
