"""Translate words to an Intent: the only entry.

By an LLM where one is named; by the rules otherwise, or when it fails.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace

from intent.errors import ExtractionError
from intent.fold import is_chinese
from intent.injection import suspicious
from intent.messages import Language, say
from intent.models import (
    MAX_CHARACTERS,
    Catalogue,
    Finding,
    Intent,
    LlmSettings,
    Outcome,
    Question,
    TranslatorInfo,
)
from intent.rules import read
from intent.rules.draft import Draft
from intent.rules.expectations import expectations

INJECTION = "injection_suspected"
"""The finding of orders to the system; a plan for such an intent is applied only once somebody has seen it."""


_MIXED = re.compile(
    r"\b(?=[^\W\d_]*[a-zA-Z])(?=[^\W\d_]*[\u0370-\u03bb\u03bd-\u03ff\u0400-\u04ff])[^\W\d_\u3400-\u9fff]+"
)
"""A word of Latin and of Greek or Cyrillic letters; the µ of microseconds is none."""


def translate(text: str, catalogue: Catalogue, llm: LlmSettings | None = None) -> Intent:
    """What the operator wants, as goals with evidence, assumptions, findings and at most one question.

    Never raises for bad words: they are outcomes. With ``llm`` that endpoint is asked; if it fails for any reason the
    rules answer, and ``translator.reason`` says why.
    """
    if llm is None:
        return translate_by(text, catalogue, lambda: read(text, catalogue), TranslatorInfo(name="rules"))
    from intent.llm import extract, translator  # langchain costs 1.5 s to import

    return translate_by(text, catalogue, lambda: extract(text, catalogue, llm), translator(llm))


def translate_by(text: str, catalogue: Catalogue, reader: Callable[[], Draft], translator: TranslatorInfo) -> Intent:
    """The same by any reader of the text; where it raises an ``ExtractionError`` the rules answer."""
    if refusal := _refused(text):
        return _refusal(text, refusal)
    try:
        return _intent(reader(), translator)
    except ExtractionError as failure:
        return _intent(read(text, catalogue), TranslatorInfo(name="rules", reason=str(failure)))


def _refused(text: str) -> Finding | None:
    language: Language = "zh" if is_chinese(text[:MAX_CHARACTERS]) else "en"
    if not text.strip():
        return Finding(
            "text_empty",
            "/text",
            say("intent", language, "text_empty", examples=say("intent", language, "examples")),
        )
    if len(text) > MAX_CHARACTERS:
        words = say("intent", language, "text_too_long", length=len(text), most=MAX_CHARACTERS)
        return Finding("text_too_long", "/text", words, suggestion=say("intent", language, "text_too_long_hint"))
    if unreadable := _named(text, {"Cs", "Cn", "Co"}):
        return Finding("text_unreadable", "/text", say("intent", language, "text_unreadable", which=unreadable))
    return None


def _named(text: str, categories: set[str]) -> str:
    """The characters of these Unicode categories, by their code points."""
    found = dict.fromkeys(
        character for character in text if unicodedata.category(character) in categories and character not in "\n\r\t"
    )
    return ", ".join(f"U+{ord(character):04X}" for character in list(found)[:5])


def _refusal(text: str, finding: Finding) -> Intent:
    readable = text[:MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
    return Intent(
        text=readable,
        language="zh" if is_chinese(readable) else "en",
        goals=(),
        translator=TranslatorInfo(name="rules"),
        outcome=Outcome.OUT_OF_SCOPE,
        findings=(finding,),
    )


def _intent(draft: Draft, translator: TranslatorInfo) -> Intent:
    findings = tuple(draft.findings)
    if mixed := _MIXED.search(draft.text):
        findings = (
            Finding("mixed_scripts", "/text", draft.say("mixed_scripts", said=repr(mixed[0])), mixed[0]),
            *findings,
        )
    questions = tuple(draft.questions[:1])
    if hidden := _named(draft.text, {"Cc", "Cf"}):
        disguised = _disguises(draft.text)
        words = draft.say("hidden_characters" if disguised else "hidden_characters_left_out", which=hidden)
        findings = (*findings, Finding("hidden_characters", "/text", words))
        if draft.goals and not questions and disguised:
            visible = draft.say("visible_only")
            nothing = draft.say("nothing")
            questions = (Question(words, (visible, nothing), visible, (_visible(draft.text), nothing)),)
    intent = Intent(
        text=draft.text,
        language=draft.language,
        goals=tuple(draft.goals),
        translator=translator,
        assumptions=tuple(draft.assumptions),
        set_aside=draft.set_aside,
        ledger=draft.ledger,
        expectations=expectations(draft.text, draft.catalogue),
        findings=findings,
        questions=questions,
    )
    return flagged(replace(intent, outcome=intent.understood))


def flagged(intent: Intent) -> Intent:
    """The intent with the finding of orders to the system, where its text gives some."""
    places = suspicious(intent.text)
    if not places or any(finding.code == INJECTION for finding in intent.findings):
        return intent
    quoted = intent.text[places[0][0] : places[0][1]]
    found = Finding(INJECTION, "/text", say("intent", intent.language, INJECTION), evidence=quoted)
    return replace(intent, findings=(found, *intent.findings))


def _disguises(text: str) -> bool:
    """Whether the text holds controls, or marks that turn its reading direction: it may look like another."""
    return any(unicodedata.category(character) == "Cc" and character not in "\n\r\t" for character in text) or any(
        unicodedata.bidirectional(character) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
        for character in text
    )


def _visible(text: str) -> str:
    shown = (
        " " if unicodedata.category(character) == "Cc" else character
        for character in text
        if unicodedata.category(character) != "Cf"
    )
    return " ".join("".join(shown).split())
