"""Edits of one word and what they have to do to a reading."""

from collections import Counter
from dataclasses import replace

from benchmarks.words import pairs as edits
from benchmarks.words.pairs import differ, facts, same, turned
from benchmarks.words.qualifiers import Carrier
from benchmarks.words.utterances import DEPLOYMENT, NOW, Utterance
from intent.models import Objective, Outcome
from intent.translate import translate
from service.deployment import file as deployments
from tests.rows import rows

BOUND = Objective("ttft", "<=", "-", stat="p99", value=2.0, unit="s")
OTHER = Objective("cost", "<=", "-", value=40.0, unit="USD/h")


@rows(
    ("after", "held"),
    [
        ([BOUND, OTHER], {same}),
        ([replace(BOUND, op=">="), OTHER], {turned, differ}),
        ([replace(BOUND, op=">=")], {differ}),
        ([replace(BOUND, op=">=", value=3.0), OTHER], {differ}),
        ([BOUND], {differ}),
    ],
)
def test_a_relation_holds_of_what_it_says(after, held):
    before = Counter([BOUND, OTHER])
    assert {relation for relation in (same, turned, differ) if relation(before, Counter(after))} == held


@rows(
    ("name", "text", "fits"),
    [
        ("the other side", "p99 TTFT under 2s", True),
        ("the other side", "p99 TTFT under 2s, cost under 40 USD/h", False),
        ("a condition put in", "p99 TTFT under 2s", True),
        ("a condition put in", "p99 TTFT under 2s. see you", False),
    ],
)
def test_an_edit_fits_where_its_word_stands_once_in_a_sentence(name, text, fits):
    carrier = Carrier(Utterance("x", text, "en", Outcome.OK, (), ()), begins=True, ends=True)
    assert any(edit.name == name and edits._fits(edit, carrier) for edit in edits.EDITS) is fits


def test_a_reader_that_passes_over_a_word_is_found_out(monkeypatch):
    deployed = deployments.load(DEPLOYMENT)

    def deaf(text, catalogue):
        return translate(text.replace(" unless the queue is long", "").replace("over", "under"), catalogue)

    said = [Utterance("x", "p99 TTFT under 2s", "en", Outcome.OK, (), ())]
    monkeypatch.setattr(edits, "translate", deaf)
    found = {pair.edit for pair in edits.pairs(deployed, said, 50, edits.random.Random(1)) if not pair.holds}
    assert found == {"the other side", "a condition put in"}
    assert facts(translate("p99 TTFT under 2s", deployed.catalogue(NOW))) == Counter([replace(BOUND)])
