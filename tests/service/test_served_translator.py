"""A model that is served here may translate: the ordinary LLM path, against the service's own inference API."""

import json

import pytest

from benchmarks.misbehaving_llm import GOOD, TEXT
from intentctl.client import Client
from service import api
from service import documents as docs
from service.deployment.file import load
from service.documents.errors import DeploymentError
from tests.rows import rows
from tests.runtime.scripted import Script
from tests.service.scripted import DEPLOYMENT, ScriptedService, character_tokenizer, refused, write_deployment

pytestmark = pytest.mark.slow

SERVED = DEPLOYMENT + "llm: {served: counting, timeout_s: 60}\n"
ROOM = 40_000
"""Characters for the prompt with its examples and for the answer; a token is a character here."""


def saying(answer):
    return Script(says=(*character_tokenizer().encode(json.dumps(answer)), 0))


def test_what_the_served_model_says_becomes_the_goals(tmp_path):
    with ScriptedService(tmp_path, SERVED, saying(GOOD), max_tokens=ROOM) as service:
        intent = Client(service.url)(api.intents.translate, docs.TranslateRequest(text=TEXT))
        asked = service.engine.heard[0]

    assert (intent.translator.name, intent.translator.model) == ("llm", "counting")
    assert [goal.metric for goal in intent.goals] == ["ttft", "tpot"]
    assert asked.sampling.grammar, "the answer is held to the wire schema"
    assert asked.sampling.temperature == 0


def test_a_model_that_finds_nothing_leaves_it_to_the_rules(tmp_path):
    with ScriptedService(tmp_path, SERVED, saying("no object"), max_tokens=ROOM) as service:
        intent = Client(service.url)(api.intents.translate, docs.TranslateRequest(text=TEXT))

    assert (intent.translator.name, intent.outcome) == ("rules", "ok")
    assert intent.translator.reason


@rows(
    ("llm", "said"),
    [
        ("{served: other}", ":14: llm.served: no model 'other' in this deployment; it has counting"),
        ("{timeout_s: 3}", ":14: llm: write base_url and model of an endpoint, or served"),
        ("{served: counting, base_url: 'http://a', model: m}", ":14: llm: write base_url and model"),
        ("{base_url: 'http://a'}", "llm: 'model' is a dependency of 'base_url'"),
    ],
)
def test_a_translator_that_cannot_be_is_refused_by_line(tmp_path, llm, said):
    assert said in refused(tmp_path, DEPLOYMENT + f"llm: {llm}\n")


def test_a_model_that_speaks_no_language_is_refused_by_name(tmp_path):
    file = write_deployment(tmp_path, SERVED)
    config = tmp_path / "counting" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"speaks_language": False}))
    with pytest.raises(DeploymentError, match=r"llm.served: counting speaks no language, as its config.json says"):
        load(file)
