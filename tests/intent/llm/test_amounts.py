"""Numbers with their units, wherever the unit stands."""

from intent.llm.quotes import Source, amount, number_place
from tests.intent.tables import table
from tests.rows import rows


@rows(("text", "slots", "said"), table("units.txt"))
def test_a_unit_holds_on_either_side_of_its_number_or_said_once_for_two(text, slots, said, catalogue):
    source = Source.of(text, catalogue)
    number, unit, period, *_ = (*slots.split("; "), None, None)
    place = number_place(source, number, (0, len(text)))
    found = amount(source, place, unit, period) if place else None
    assert (f"{round(found.value.value, 9):g} {found.value.unit}" if found else "none") == said


@rows("number", ["3", "99", "0"])
def test_a_number_that_is_none_of_the_evidence_has_no_place(number, catalogue):
    assert number_place(Source.of("P99 TTFT < 20s", catalogue), number, (0, 14)) is None
