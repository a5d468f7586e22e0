"""A language model's answers on file (``tests/data/replies``), so that its path is held to figures without an endpoint."""

import json
from collections.abc import Mapping
from typing import Any

from benchmarks.provenance import ROOT
from benchmarks.words.utterances import CorpusError, Utterance
from intent.llm.following import PROMPT_VERSION, translate_prompt
from intent.llm.goals import read_answer
from intent.llm.quotes import filled, wire_schema
from intent.models import Catalogue, Intent, TranslatorInfo
from intent.translate import translate_by

FOLDER = ROOT / "tests" / "data" / "replies"
FILES = sorted(FOLDER.glob("set-*.jsonl"))
"""Utterances in the order in which they were written; each set was unseen when it was first run."""
MODEL = "replies on file"

Answer = Mapping[str, Any]


def load() -> dict[str, Answer]:
    """Utterance id to the wire answer that was given to its text.

    Raises:
        CorpusError: a file is missing or damaged, or it was made with another prompt.
    """
    file = FOLDER / f"translate.{PROMPT_VERSION}.jsonl"
    try:
        head, *lines = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError) as problem:
        raise CorpusError(f"{file}: {problem}") from problem
    if head["prompt_hash"] != translate_prompt().hash:
        words = f"{file}: the replies are to the prompt {head['prompt_hash']}, not {translate_prompt().hash}"
        raise CorpusError(f"{words}; ask the model again, or go back to that prompt")
    return {line["id"]: filled(line["answer"], wire_schema()) for line in lines}


def translate(utterance: Utterance, replies: Mapping[str, Answer], catalogue: Catalogue) -> Intent:
    """What the reply to an utterance comes to; a second try would get the same reply.

    Raises:
        CorpusError: there is no reply to it.
    """
    if utterance.id not in replies:
        raise CorpusError(f"{utterance.id}: there is no reply to it in {FOLDER}")
    info = TranslatorInfo("llm", model=MODEL, prompt_version=PROMPT_VERSION, prompt_hash=translate_prompt().hash)
    answer = replies[utterance.id]
    return translate_by(
        utterance.text, catalogue, lambda: read_answer(answer, utterance.text, catalogue).settled(), info
    )
