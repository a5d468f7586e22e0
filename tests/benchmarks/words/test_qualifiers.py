import random

import pytest

from benchmarks.words.qualifiers import (
    BEFORE,
    BEHIND,
    UNSEEN_BEFORE,
    UNSEEN_BEHIND,
    Carrier,
    clear,
    qualified,
)
from benchmarks.words.utterances import DEPLOYMENT, NOW, load, own_files
from intent.models import Outcome
from service.deployment.file import load as load_deployment


@pytest.fixture(scope="module")
def carriers() -> list[Carrier]:
    return clear(load(own_files()), load_deployment(DEPLOYMENT).catalogue(NOW))


def test_only_what_is_accepted_as_it_stands_carries_a_qualifier(carriers):
    utterances = [carrier.utterance for carrier in carriers]
    assert len(utterances) > 200
    assert {one.language for one in utterances} == {"en", "zh"}
    assert {one.outcome for one in utterances} == {Outcome.OK}
    assert not [one for one in utterances if one.also or one.findings]


def test_every_qualifier_is_used_and_stands_only_where_the_wish_stands(carriers):
    chance = random.Random(0)
    both = [one for one in carriers if one.begins and one.ends]
    for one in (both[0], both[-1]):
        language, stem = one.utterance.language, one.utterance.text.rstrip("。.!！?？ ")
        rest = {qualified(chance, [one]).replace(stem, "", 1) for _ in range(1_500)}
        known = (BEHIND, BEFORE, UNSEEN_BEHIND, UNSEEN_BEFORE)
        assert rest == {words for lists in known for words in lists[language]}
    chance = random.Random(0)
    behind = next(one for one in carriers if not one.begins)
    before = Carrier(behind.utterance, begins=True, ends=False)
    stem = behind.utterance.text.rstrip("。.!！?？ ")
    assert all(qualified(chance, [behind]).startswith(stem) for _ in range(50))
    assert all(qualified(chance, [before]).endswith(stem) for _ in range(50))
