import random

from benchmarks.words.qualifiers import BEFORE, BEHIND, clear, qualified
from benchmarks.words.utterances import load, own_files
from intent.models import Outcome

CLEAR = clear(load(own_files()))


def test_only_what_is_accepted_as_it_stands_carries_a_qualifier():
    assert len(CLEAR) > 200
    assert {one.language for one in CLEAR} == {"en", "zh"}
    assert {one.outcome for one in CLEAR} == {Outcome.OK}
    assert not [one for one in CLEAR if one.also or one.findings]


def test_every_qualifier_is_used_and_in_the_language_of_the_utterance():
    chance = random.Random(0)
    texts = {one.text: [qualified(chance, [one]) for _ in range(400)] for one in (CLEAR[0], CLEAR[-1])}
    for one in (CLEAR[0], CLEAR[-1]):
        stem = one.text.rstrip("。.!！?？ ")
        rest = {text.replace(stem, "", 1) for text in texts[one.text]}
        assert rest == {*BEHIND[one.language], *BEFORE[one.language]}
