"""A model's answers on file: each set keeps its figures, and answers made wrong on purpose come to no wrong goal."""

import json
from dataclasses import replace

import pytest

from benchmarks.intents import Translator, run
from benchmarks.words import replies
from benchmarks.words.utterances import DEPLOYMENT, NOW, CorpusError, load
from benchmarks.words.wrong_replies import CHANGES, Reply, summary, verdicts
from intent.llm.extraction import translate_prompt
from intent.models import Outcome
from service import deployment as deployments

EXACT, OVER_ASKING, ACCEPTED_WRONGLY, MISREAD = 0.96, 0.021, 2, 2
WRONG = 2_000
BY_WORD_ALONE = frozenset({"another rule", "the other order"})
"""What a reply may say otherwise in words that say neither rule and neither order: there the model's word stands."""


@pytest.fixture(scope="module")
def deployment():
    return deployments.load(DEPLOYMENT)


@pytest.fixture(scope="module")
def kept():
    return replies.load()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(replies, "FOLDER", tmp_path)
    return tmp_path


def written(folder, *lines):
    file = folder / f"translate.{replies.PROMPT_VERSION}.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def test_there_are_four_sets_and_each_utterance_has_one_reply(kept):
    utterances = load(replies.FILES)
    assert [file.name for file in replies.FILES] == [f"set-{number}.jsonl" for number in (1, 2, 3, 4)]
    assert len({one.id for one in utterances}) == len(utterances)
    assert {one.id for one in utterances} <= kept.keys()


@pytest.mark.slow
@pytest.mark.parametrize("file", replies.FILES, ids=[file.stem for file in replies.FILES])
def test_each_set_keeps_its_figures(file, deployment, kept):
    translator = Translator(
        lambda one, catalogue: replies.translate(one, kept, catalogue), replies.MODEL, is_cheap=False
    )
    document = run(load([file]), deployment, translator)
    found, misses = document["results"], [miss["id"] for miss in document["misses"]]
    assert found["exact"]["of"] > 400
    assert found["exact"]["share"] >= EXACT, misses
    assert found["over_asking"]["share"] <= OVER_ASKING, misses
    assert found["accepted_wrongly"]["count"] <= ACCEPTED_WRONGLY, misses
    assert found["misread"]["count"] <= MISREAD, misses
    assert found["injection_obeyed"]["count"] == 0, misses


def test_a_reply_comes_to_goals_and_names_the_model_and_its_prompt(deployment, kept):
    utterance = next(one for one in load(replies.FILES[:1]) if one.outcome is Outcome.OK)
    intent = replies.translate(utterance, kept, deployment.catalogue(NOW))
    assert len(intent.goals) == len(utterance.goals)
    assert (intent.translator.name, intent.translator.model) == ("llm", replies.MODEL)
    assert intent.translator.prompt_hash == translate_prompt().hash


# -- files that are wrong ----------------------------------------------------------------------------


def test_replies_to_another_prompt_are_refused_by_its_hash(folder):
    written(folder, {"prompt_version": "v3", "prompt_hash": "0123456789abcdef"})
    with pytest.raises(CorpusError, match=f"0123456789abcdef, not {translate_prompt().hash}"):
        replies.load()


def test_a_file_with_this_hash_is_read_with_all_slots(folder):
    head = {"prompt_version": "v3", "prompt_hash": translate_prompt().hash}
    written(folder, head, {"id": "a-1", "answer": {"goals": [{"evidence": "x"}]}})
    assert replies.load()["a-1"]["told"] == []
    assert replies.load()["a-1"]["goals"][0]["number"] is None


def test_a_missing_and_a_damaged_file_are_refused_by_name(folder):
    with pytest.raises(CorpusError, match=r"translate\.v3\.jsonl"):
        replies.load()
    (folder / "translate.v3.jsonl").write_text('{"prompt_version": ', encoding="utf-8")
    with pytest.raises(CorpusError, match=r"translate\.v3\.jsonl"):
        replies.load()


def test_an_utterance_without_a_reply_is_named(deployment, kept):
    (utterance, *_) = load(replies.FILES[:1])
    with pytest.raises(CorpusError, match="nobody-1: there is no reply"):
        replies.translate(replace(utterance, id="nobody-1"), kept, deployment.catalogue(NOW))


# -- answers made wrong on purpose -------------------------------------------------------------------


@pytest.mark.slow
def test_no_wrong_reply_comes_to_a_number_a_unit_a_metric_a_name_or_a_side_that_nobody_said(deployment, kept):
    known = [Reply(one.text, dict(kept[one.id])) for one in load(replies.FILES)]
    found = list(verdicts(known, WRONG, deployment.catalogue(NOW)))
    accepted = [one for one in found if one.outcome == "accepted"]
    assert len(found) == WRONG
    assert summary(found).keys() == CHANGES.keys()
    assert [one for one in accepted if one.change not in BY_WORD_ALONE] == []
    assert len(accepted) <= WRONG // 1_000


def test_the_same_seed_makes_the_same_wrong_replies_and_another_makes_others(deployment, kept):
    known = [Reply(one.text, dict(kept[one.id])) for one in load(replies.FILES[:1])[:40]]
    first, again, other = (list(verdicts(known, 20, deployment.catalogue(NOW), seed)) for seed in (1, 1, 2))
    assert first == again != other
