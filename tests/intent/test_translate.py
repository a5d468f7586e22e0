import subprocess
import sys
from dataclasses import replace

import pytest

import intent.llm
from intent.errors import ExtractionError, Failure
from intent.models import API_VERSION, MAX_CHARACTERS, LlmSettings, Outcome
from intent.rules import read
from intent.translate import translate
from tests.rows import rows

LLM = LlmSettings("http://127.0.0.1:9", "model", "key")


@rows("text", ["", "   \n", "\t"])
def test_empty_text_is_refused_by_name(text, catalogue):
    intent = translate(text, catalogue)
    assert (intent.outcome, intent.findings[0].code) == (Outcome.OUT_OF_SCOPE, "text_empty")
    assert "P99 TTFT" in intent.findings[0].message


@rows("text", ["keep P99 TTFT < 2s ", "首字延迟不超过 2 秒。"])
def test_a_text_that_is_too_long_is_refused_by_name_and_kept_short(text, catalogue):
    intent = translate(text * 6_000, catalogue)
    assert (intent.outcome, intent.findings[0].code) == (Outcome.OUT_OF_SCOPE, "text_too_long")
    assert len(intent.text) == MAX_CHARACTERS
    assert intent.findings[0].suggestion
    assert f"{len(text) * 6_000:,}" in intent.findings[0].message


def test_a_text_of_exactly_the_limit_is_read(catalogue):
    text = "keep P99 TTFT < 2s at peak".ljust(MAX_CHARACTERS)
    assert translate(text, catalogue).outcome is Outcome.OK
    assert translate(f"{text} ", catalogue).findings[0].code == "text_too_long"


@rows(
    ("text", "named"),
    [("TTFT < 2s \ud800", "U+D800"), ("TTFT < 2s \U0003fffe", "U+3FFFE"), ("TTFT \ue000 < 2s", "U+E000")],
)
def test_characters_that_cannot_be_read_are_named(text, named, catalogue):
    intent = translate(text, catalogue)
    assert (intent.outcome, intent.findings[0].code) == (Outcome.OUT_OF_SCOPE, "text_unreadable")
    assert named in intent.findings[0].message
    intent.text.encode("utf-8")


@rows(
    ("text", "named"),
    [
        ("TTFT < \u202e2s", "U+202E"),
        ("TTFT\x07 < 2s", "U+0007"),
        ("TTFT < 2s\u2066", "U+2066"),
        ("首字延迟\x00不超过 2 秒", "U+0000"),
    ],
)
def test_a_text_that_may_look_like_another_is_shown_as_it_is_read(text, named, catalogue):
    intent = translate(text, catalogue)
    assert intent.outcome is Outcome.CLARIFY
    assert named in intent.questions[0].text
    assert intent.findings[0].code == "hidden_characters"
    assert intent.questions[0].default == intent.questions[0].options[0]
    assert translate(intent.questions[0].stands_for(0), catalogue).outcome is Outcome.OK
    assert translate(intent.questions[0].stands_for(0), catalogue).findings == ()


@rows("text", ["P99 \u200bTTFT < 2s", "\ufeffP99 TTFT < 2s", "P99 TTFT\u200d < 2s"])
def test_a_character_without_width_is_only_mentioned(text, catalogue):
    intent = translate(text, catalogue)
    assert (intent.outcome, [finding.code for finding in intent.findings]) == (
        Outcome.OK,
        ["hidden_characters"],
    )


@rows("text", ["P99 TTFT < 2s\r\nP99 TPOT < 50 ms", "P99\tTTFT < 2s"])
def test_lines_and_tabs_are_nothing_hidden(text, catalogue):
    assert translate(text, catalogue).findings == ()


@rows(
    ("text", "outcome"),
    [
        ("keep P99 TTFT < 2s", Outcome.OK),
        ("TTFT < 2", Outcome.CLARIFY),
        ("TTFT < 2s for gold customers", Outcome.CLARIFY),
        ("hello", Outcome.OUT_OF_SCOPE),
        ("首字延迟不超过 2 秒", Outcome.OK),
        ("延迟不超过 2 秒", Outcome.CLARIFY),
        ("你好", Outcome.OUT_OF_SCOPE),
    ],
)
def test_the_outcome_is_what_the_words_come_to(text, outcome, catalogue):
    assert translate(text, catalogue).outcome is outcome


def test_an_intent_holds_what_the_draft_holds(catalogue):
    draft, intent = read("TTFT 2s, TPOT < 50", catalogue), translate("TTFT 2s, TPOT < 50", catalogue)
    assert intent.goals == tuple(draft.goals)
    assert intent.assumptions == tuple(draft.assumptions)
    assert intent.findings == tuple(draft.findings)
    assert intent.text == draft.text


def test_the_rules_say_that_they_answered(catalogue):
    translator = translate("run it with tp=2", catalogue).translator
    assert (translator.name, translator.reason, translator.schema_version) == ("rules", None, API_VERSION)


def test_at_most_one_question_is_asked(catalogue):
    intent = translate("latency under 2s, TTFT < 3, GPU utilisation 80%", catalogue)
    assert len(intent.questions) == 1
    assert [one.code for one in intent.findings] == ["metric_ambiguous", "unit_missing", "comparison_missing"]


@rows(
    ("text", "language"),
    [("keep P99 TTFT < 2s", "en"), ("把 P99 TTFT 控制在 2 秒以内", "zh"), ("延迟", "zh"), ("", "en")],
)
def test_an_operator_is_answered_in_the_language_of_the_words(text, language, catalogue):
    intent = translate(text, catalogue)
    assert intent.language == language
    said = "".join([*(one.text for one in intent.assumptions), *(one.message for one in intent.findings)])
    assert any("\u4e00" <= character <= "\u9fff" for character in said) is (language == "zh")


def test_a_language_model_that_fails_gives_way_to_the_rules_and_the_reason_is_told(catalogue, monkeypatch):
    def fail(text, catalogue, settings):
        raise ExtractionError(Failure.EMPTY, "nothing came back")

    monkeypatch.setattr(intent.llm, "extract", fail)
    found = translate("keep P99 TTFT < 2s", catalogue, LLM)
    assert (found.translator.name, found.translator.reason) == ("rules", "llm_empty: nothing came back")
    assert found.goals == translate("keep P99 TTFT < 2s", catalogue).goals


def test_a_language_model_that_answers_is_the_translator(catalogue, monkeypatch):
    monkeypatch.setattr(
        intent.llm, "extract", lambda text, catalogue, settings: replace(read("tp=4", catalogue), text=text)
    )
    found = translate("tensor parallel four", catalogue, LLM)
    assert (found.translator.name, found.translator.model) == ("llm", "model")
    assert [goal.value for goal in found.goals] == [4]


def test_bad_words_never_reach_a_language_model(catalogue, monkeypatch):
    monkeypatch.setattr(intent.llm, "extract", lambda *_: pytest.fail("it was asked"))
    assert translate(" ", catalogue, LLM).findings[0].code == "text_empty"


@pytest.mark.slow
def test_the_rules_load_neither_langchain_nor_pydantic():
    """They cost seconds, and `intentctl parse` has 700 ms."""
    script = (
        "import sys, intent.translate, validator.validate;"
        "slow = {'langchain_openai', 'langchain_core', 'openai', 'pydantic', 'httpx', 'torch'} & set(sys.modules);"
        "assert not slow, slow"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
