"""The one entry: words to an Intent, by an LLM where one is named and by the rules otherwise or when it fails."""

from dataclasses import replace

from intent.draft import EXAMPLES, Draft
from intent.errors import ExtractionError
from intent.fold import is_chinese
from intent.injection import orders
from intent.models import Catalogue, Finding, Intent, LlmSettings, Outcome, TranslatorInfo
from intent.rules import read

MAX_CHARACTERS = 2_000
"""Longest text that is read; an intent is a sentence or two."""


def translate(text: str, catalogue: Catalogue, llm: LlmSettings | None = None) -> Intent:
    """What the operator wants, as goals with evidence, assumptions, findings and at most one question.

    Never raises for bad words: they are outcomes. With ``llm`` that endpoint is asked; if it fails for any reason the
    rules answer, and ``translator.reason`` says why.
    """
    if refusal := _refused(text):
        return _refusal(text, refusal)
    draft, translator = _draft(text, catalogue, llm)
    return _intent(draft, translator)


def _draft(text: str, catalogue: Catalogue, llm: LlmSettings | None) -> tuple[Draft, TranslatorInfo]:
    if llm is None:
        return read(text, catalogue), TranslatorInfo(name="rules")
    from intent.llm import PROMPT_VERSION, extract  # langchain costs 1.5 s to import

    try:
        draft = extract(text, catalogue, llm)
    except ExtractionError as failure:
        return read(text, catalogue), TranslatorInfo(name="rules", reason=str(failure))
    return draft, TranslatorInfo(name="llm", model=llm.model, prompt_version=PROMPT_VERSION)


def _refused(text: str) -> Finding | None:
    if not text.strip():
        return Finding("text_empty", "/text", f"There is no text. {EXAMPLES}")
    if len(text) > MAX_CHARACTERS:
        words = f"The text has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read."
        return Finding("text_too_long", "/text", words, suggestion="Say the goals in a sentence or two.")
    return None


def _refusal(text: str, finding: Finding) -> Intent:
    return Intent(
        text=text[:MAX_CHARACTERS],
        language="en",
        goals=(),
        translator=TranslatorInfo(name="rules"),
        outcome=Outcome.OUT_OF_SCOPE,
        findings=(finding,),
    )


def _intent(draft: Draft, translator: TranslatorInfo) -> Intent:
    findings = tuple(draft.findings)
    if places := orders(draft.text):
        said = draft.text[places[0][0] : places[0][1]]
        words = "These words give the system an order; no text can move a limit or approve itself. A person must approve."
        findings = (Finding("injection_suspected", "/text", words, evidence=said), *findings)
    intent = Intent(
        text=draft.text,
        language="zh" if is_chinese(draft.text) else "en",
        goals=tuple(draft.goals),
        translator=translator,
        assumptions=tuple(draft.assumptions),
        findings=findings,
        questions=tuple(draft.questions[:1]),
    )
    return replace(intent, outcome=intent.understood)
