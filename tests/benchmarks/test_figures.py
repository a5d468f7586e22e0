"""The figures that the product keeps: wishes and replies on file, texts made on purpose, published measurements."""

import random

import pytest

from benchmarks import published
from benchmarks.intents import Translator, run
from benchmarks.predict import compare, errors, ranks
from benchmarks.provenance import ROOT
from benchmarks.words import replies
from benchmarks.words.pairs import idle_words, joined_otherwise, pairs
from benchmarks.words.properties import (
    dropped_qualifiers,
    hostile_strings,
    lost_in_changes,
    lost_in_readback,
)
from benchmarks.words.utterances import DEPLOYMENT, NOW, first_contact_files, load, own_files
from benchmarks.words.wrong_replies import CHANGES, Reply, summary, verdicts
from intent.translate import translate
from selector import profiles
from service.deployment import file as deployments
from tests.rows import rows

HURRIED = ROOT / "tests" / "data" / "hurried.jsonl"
"""Sentences of people on call, in haste: the project's own, and those in which something was once set aside unsaid."""
UNSEEN = sorted((ROOT / "tests" / "data" / "unseen").glob("*.jsonl"))
"""Each was run before code was changed for it; a to o are by authors who had seen docs/intents.md alone (docs/decisions/0057)."""
EVERY = [*own_files(), *first_contact_files(), *UNSEEN, HURRIED]
DEPLOYED = deployments.load(DEPLOYMENT)
BY_WORD_ALONE = frozenset({"another rule", "the other order"})
"""What a reply may say otherwise in words that say neither rule and neither order: there the model's word stands."""


@pytest.fixture(scope="module")
def kept():
    return replies.load()


def scored(files, translator):
    document = run(load(files), DEPLOYED, translator)
    return document["results"], [miss["id"] for miss in document["misses"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "exact", "over_asking", "accepted", "misread"),
    [
        (own_files(), 0.97, 0.02, 0, 0),
        pytest.param(first_contact_files(), 0.93, 0.04, 2, 5, marks=pytest.mark.exhaustive),
        pytest.param(replies.FILES, 0.92, 0.08, 5, 12, marks=pytest.mark.exhaustive),
        ([HURRIED], 0.98, 0.02, 0, 0),
        pytest.param(UNSEEN, 0.92, 0.07, 1, 5, marks=pytest.mark.exhaustive),
    ],
    ids=["own", "first contact", "replies", "hurried", "unseen"],
)
def test_the_rules_keep_their_figures(files, exact, over_asking, accepted, misread):
    rules = Translator(lambda one, catalogue: translate(one.text, catalogue), is_cheap=False)
    found, misses = scored(files, rules)
    assert found["exact"]["share"] >= exact, misses
    assert found["over_asking"]["share"] <= over_asking, misses
    assert found["accepted_wrongly"]["count"] <= accepted, misses
    assert found["misread"]["count"] <= misread, misses


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [pytest.param(file, marks=pytest.mark.exhaustive if number else ()) for number, file in enumerate(replies.FILES)],
    ids=[file.stem for file in replies.FILES],
)
def test_each_set_of_replies_keeps_its_figures(file, kept):
    model = Translator(lambda one, catalogue: replies.translate(one, kept, catalogue), replies.MODEL, is_cheap=False)
    found, misses = scored([file], model)
    assert found["exact"]["of"] > 400
    assert found["exact"]["share"] >= 0.96, misses
    assert found["over_asking"]["share"] <= 0.022, misses
    assert found["accepted_wrongly"]["count"] <= 2, misses
    assert found["misread"]["count"] <= 2, misses
    assert found["injection_obeyed"]["count"] == 0, misses


@pytest.mark.slow
@pytest.mark.parametrize("count", [150, pytest.param(2_000, marks=pytest.mark.exhaustive)])
def test_no_wrong_reply_comes_to_a_number_a_unit_a_metric_a_name_or_a_side_that_nobody_said(kept, count):
    known = [Reply(one.text, dict(kept[one.id])) for one in load(replies.FILES)]
    found = list(verdicts(known, count, DEPLOYED.catalogue(NOW)))
    accepted = [one for one in found if one.outcome == "accepted"]
    assert len(found) == count
    assert summary(found).keys() == CHANGES.keys()
    assert [one for one in accepted if one.change not in BY_WORD_ALONE] == []
    assert len(accepted) <= count // 1_000


# -- texts with one word changed, and goals joined otherwise -------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("count", [150, pytest.param(20_000, marks=pytest.mark.exhaustive)])
def test_no_edit_of_one_word_is_read_otherwise_than_it_says(count):
    texts = load(EVERY)
    drawn = texts if count > len(texts) else random.Random(2).sample(texts, 2 * count)
    found = list(pairs(DEPLOYED, drawn, count, random.Random(1)))
    equal = [pair for pair in found if pair.is_equal]
    assert len(found) > 0.95 * count
    assert [pair for pair in found if not pair.holds] == []
    assert sum(pair.asks for pair in equal) <= 0.02 * len(equal)


@pytest.mark.slow
@pytest.mark.parametrize("count", [30, pytest.param(2_000, marks=pytest.mark.exhaustive)])
def test_what_goals_share_does_not_depend_on_punctuation(count):
    assert [one for one in joined_otherwise(DEPLOYED, count, random.Random(1)) if not one.holds] == []


@pytest.mark.slow
@pytest.mark.parametrize("count", [150, pytest.param(10_000, marks=pytest.mark.exhaustive)])
def test_hardly_a_text_does_without_a_word_that_a_goal_claims(count):
    texts = load(EVERY)
    found = list(idle_words(DEPLOYED, random.Random(1).sample(texts, min(count, len(texts)))))
    idle = [one for one in found if one is not None]  # what was said twice: "no int8 and no int4", "not more"
    assert len(found) > count // 10
    assert len(idle) <= max(1, 0.01 * len(found)), idle


# -- texts made on purpose ---------------------------------------------------------------------------

counts = pytest.mark.parametrize("count", [25, pytest.param(2_000, marks=pytest.mark.exhaustive)])
"""Of texts."""


@pytest.mark.slow
@counts
def test_goals_that_are_read_back_are_the_same_goals(count):
    assert lost_in_readback(DEPLOYED.catalogue(NOW), count, random.Random(1)) == []


@pytest.mark.slow
@counts
def test_no_string_raises_or_gains_a_number(count):
    texts = [one.text for one in load(own_files())]
    found = hostile_strings(DEPLOYED, texts, count, random.Random(1))
    assert (found.raised, found.invented) == ([], [])


@pytest.mark.slow
@counts
def test_no_qualifier_is_dropped(count):
    assert dropped_qualifiers(DEPLOYED, load(own_files()), count, random.Random(1)) == []


@pytest.mark.slow
@pytest.mark.parametrize("count", [5, pytest.param(5_000, marks=pytest.mark.exhaustive)])
def test_no_number_name_or_window_is_lost_in_a_change(count):
    texts = load([*own_files(), *first_contact_files()])
    lost = lost_in_changes(DEPLOYED, texts, count, random.Random(1))
    assert len(lost) <= -(-count // 500), lost


# -- published measurements --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared():
    return [figure for row in published.rows() for figure in compare(row)]


def mean_errors(compared, gpu, figures, *, fitted):
    of = [one for one in errors(compared) if (one["gpu"], one["fitted"]) == (gpu, fitted)]
    return [one["mean_abs"] for one in of if one["figure"] in figures]


@pytest.mark.slow
@rows(("gpu", "bar"), [("A100", 0.10), ("L40S", 0.15)])
def test_static_latencies_are_predicted_within_the_bar_and_none_is_off_by_more_than_the_profile_says(
    compared, gpu, bar
):
    found = mean_errors(compared, gpu, {"ttft", "tpot", "throughput"}, fitted=True)
    assert len(found) == 3
    assert max(found) <= bar
    static = [one for one in compared if one.row.gpu == gpu and one.figure in {"ttft", "tpot"}]
    assert len(static) > 30
    assert max(abs(one.error) for one in static) <= profiles.load(gpu).error_band


@rows(("gpu", "bar"), [("A100", 0.15), ("L40S", 0.15), ("A100-PCIE", 0.20), ("H100", 0.20), ("H200", 0.10)])
def test_saturation_of_models_that_nothing_was_fitted_to_is_predicted(compared, gpu, bar):
    (found,) = mean_errors(compared, gpu, {"saturation"}, fitted=False)
    assert found <= bar


def test_configurations_come_in_the_order_in_which_they_were_measured(compared):
    assert ranks(compared).keys() == {"A100", "A100-PCIE", "H100", "H200", "L40S"}
    assert min(ranks(compared).values()) >= 0.85
