"""A model's answers on file: each set keeps its figures, and answers made wrong on purpose come to no wrong goal."""

import json
from dataclasses import replace

import pytest

from benchmarks.words import replies
from benchmarks.words.utterances import DEPLOYMENT, NOW, CorpusError, load
from benchmarks.words.wrong_replies import Reply, verdicts
from intent.llm.following import translate_prompt
from intent.models import Outcome
from service.deployment import file as deployments


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


def test_each_utterance_has_one_reply_that_comes_to_goals_and_names_the_model(kept, deployment):
    utterances = load(replies.FILES)
    assert [file.name for file in replies.FILES] == [f"set-{number}.jsonl" for number in (1, 2, 3, 4)]
    assert len({one.id for one in utterances}) == len(utterances)
    assert {one.id for one in utterances} <= kept.keys()
    utterance = next(one for one in load(replies.FILES[:1]) if one.outcome is Outcome.OK)
    intent = replies.translate(utterance, kept, deployment.catalogue(NOW))
    assert len(intent.goals) == len(utterance.goals)
    assert (intent.translator.name, intent.translator.model) == ("llm", replies.MODEL)
    assert intent.translator.prompt_hash == translate_prompt().hash
    (utterance, *_) = load(replies.FILES[:1])
    with pytest.raises(CorpusError, match="nobody-1: there is no reply"):
        replies.translate(replace(utterance, id="nobody-1"), kept, deployment.catalogue(NOW))


# -- files that are wrong ----------------------------------------------------------------------------


def test_replies_to_another_prompt_and_missing_or_damaged_files_are_refused(folder):
    with pytest.raises(CorpusError, match=r"translate\.v3\.jsonl"):
        replies.load()
    written(folder, {"prompt_version": "v3", "prompt_hash": "0123456789abcdef"})
    with pytest.raises(CorpusError, match=f"0123456789abcdef, not {translate_prompt().hash}"):
        replies.load()
    head = {"prompt_version": "v3", "prompt_hash": translate_prompt().hash}
    written(folder, head, {"id": "a-1", "answer": {"goals": [{"evidence": "x"}]}})
    assert replies.load()["a-1"]["told"] == []
    assert replies.load()["a-1"]["goals"][0]["number"] is None
    (folder / "translate.v3.jsonl").write_text('{"prompt_version": ', encoding="utf-8")
    with pytest.raises(CorpusError, match=r"translate\.v3\.jsonl"):
        replies.load()


# -- answers made wrong on purpose -------------------------------------------------------------------


def test_the_same_seed_makes_the_same_wrong_replies_and_another_makes_others(deployment, kept):
    known = [Reply(one.text, dict(kept[one.id])) for one in load(replies.FILES[:1])[:40]]
    first, again, other = (list(verdicts(known, 20, deployment.catalogue(NOW), seed)) for seed in (1, 1, 2))
    assert first == again != other
