"""The translator of a first text by an LLM: what it is told, and what its answer comes to."""

from functools import cache

import prompts
from intent.llm.asking import Prompt, ask, names_of
from intent.llm.reading import read_answer
from intent.llm.wire import filled, wire_schema
from intent.models import Catalogue, LlmSettings, TranslatorInfo
from intent.rules.draft import Draft
from intent.tables import table

PROMPT_VERSION = "v3"


def extract(text: str, catalogue: Catalogue, settings: LlmSettings) -> Draft:
    """Ask the LLM, hold its answer against the text, and settle what it means.

    Raises:
        ExtractionError: no usable answer within ``settings.timeout_s``, for whatever reason; never shows the API key.
    """
    request = {"text": text, **names_of(catalogue)}
    return ask(request, translate_prompt(), settings, lambda answer: read_answer(answer, text, catalogue))


def translator(settings: LlmSettings) -> TranslatorInfo:
    """What is kept with every intent that this endpoint reads."""
    return TranslatorInfo(
        name="llm", model=settings.model, prompt_version=PROMPT_VERSION, prompt_hash=translate_prompt().hash
    )


@cache
def translate_prompt() -> Prompt:
    """Instructions, examples and wire schema of a first text."""
    loaded = table("prompts", f"examples.{PROMPT_VERSION}")
    shots = tuple(({"text": example["text"]}, filled(example, wire_schema())) for example in loaded)
    return Prompt(prompts.load("translate", PROMPT_VERSION), shots, wire_schema())
