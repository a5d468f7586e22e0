"""How well words become goals: the project's own utterances, through translator and validator.

Prints a table and, on request, writes everything as JSON; ``benchmarks/words/utterances.py`` says what an utterance file holds.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.provenance import provenance
from benchmarks.report import Document
from benchmarks.words import properties, replies, wrong_replies
from benchmarks.words.scores import (
    Answer,
    Scored,
    miss_documents,
    miss_lines,
    score_document,
    table,
    time_document,
)
from benchmarks.words.utterances import DEPLOYMENT, NOW, CorpusError, Utterance, load, own_files
from intent.document import goal_document
from intent.models import Catalogue, Intent
from intent.translate import translate
from service.deployment import file as deployments
from service.deployment.file import Deployment
from service.deployment.settings import llm_settings, read_settings
from service.documents.errors import ServiceError, StartError
from service.planning import lifecycle

ROUNDS = 3
"""Passes over the set that are timed, after one that is not. An LLM is asked once."""


@dataclass(frozen=True, slots=True)
class Translator:
    """A way from an utterance to an intent."""

    translate: Callable[[Utterance, Catalogue], Intent]
    model: str | None = None
    is_cheap: bool = True
    """It can be asked several times, to time it."""


@dataclass(slots=True)
class Times:
    """Seconds per call."""

    translate_s: list[float] = field(default_factory=list)
    validate_s: list[float] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status is 2 when nothing could begin."""
    options = parser().parse_args(arguments)
    files = options.set or (replies.FILES if options.translator == "replies" else own_files())
    try:
        utterances = load(files)
        deployment = deployments.load(options.deployment)
        translator = _translator(deployment, options.translator)
    except (CorpusError, ServiceError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    document = run(utterances, deployment, translator)
    document["parameters"] |= {"translator": options.translator, "set": [file.name for file in files]}
    if options.properties:
        document["properties"] = properties.run(deployment, utterances, options.properties, options.seed)
    if options.wrong:
        document["wrong_replies"] = wrong_replies.run(deployment, utterances, options.wrong, options.seed)
    _show(document, options)
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser("python -m benchmarks.intents", description=__doc__)
    found.add_argument(
        "--translator",
        choices=("rules", "llm", "replies"),
        default="rules",
        help="llm: as the deployment names it; replies: a model's answers on file",
    )
    found.add_argument("--deployment", type=Path, default=DEPLOYMENT, metavar="FILE", help="names and limits")
    found.add_argument("--set", type=Path, nargs="+", metavar="FILE", help="utterances, instead of the project's own")
    found.add_argument("--misses", action="store_true", help="print every utterance that came out otherwise")
    found.add_argument("--properties", type=int, default=0, metavar="N", help="also N read-backs and N hostile strings")
    found.add_argument(
        "--wrong",
        type=int,
        default=0,
        metavar="N",
        help="also N replies on file, each made wrong in one place",
    )
    found.add_argument("--seed", type=int, default=0, help="of the generated ones")
    found.add_argument("--json", type=Path, metavar="OUT", help="where to write everything that was measured")
    return found


def run(utterances: Sequence[Utterance], deployment: Deployment, translator: Translator) -> Document:
    """Every utterance through translator and validator."""
    times, rounds = Times(), ROUNDS if translator.is_cheap else 1
    if translator.is_cheap:
        _pass(utterances, deployment, translator, Times())  # to warm up
    for _ in range(rounds):
        scored = _pass(utterances, deployment, translator, times)
    return {
        "benchmark": "intents",
        **provenance(),
        "parameters": {
            "model": translator.model,
            "deployment": deployment.file.name,
            "utterances": len(utterances),
            "rounds": rounds,
        },
        "results": score_document(scored) | time_document(times.translate_s, times.validate_s),
        "misses": miss_documents(scored),
    }


def _pass(
    utterances: Sequence[Utterance], deployment: Deployment, translator: Translator, times: Times
) -> list[Scored]:
    return [Scored(one, _answer(one, deployment, translator, times)) for one in utterances]


def _answer(utterance: Utterance, deployment: Deployment, translator: Translator, times: Times) -> Answer:
    catalogue = deployment.catalogue(NOW)
    start_s = time.perf_counter()
    intent = translator.translate(utterance, catalogue)
    translated_s = time.perf_counter()
    checked = lifecycle.check(intent, deployment, NOW)
    times.translate_s.append(translated_s - start_s)
    times.validate_s.append(time.perf_counter() - translated_s)
    return answer_of(checked)


def answer_of(intent: Intent) -> Answer:
    """What is compared of an intent."""
    goals = list(map(goal_document, intent.goals))
    said = [one.text for one in intent.questions] or [one.message for one in intent.findings]
    return Answer(
        outcome=intent.outcome,
        goals=tuple({key: value for key, value in goal.items() if key != "evidence"} for goal in goals),
        findings=tuple(one.code for one in intent.findings),
        said=" ".join(said),
    )


def _translator(deployment: Deployment, name: str) -> Translator:
    if name == "rules":
        return Translator(lambda one, catalogue: translate(one.text, catalogue))
    if name == "replies":
        kept = replies.load()
        return Translator(lambda one, catalogue: replies.translate(one, kept, catalogue), replies.MODEL)
    if deployment.llm is None:
        raise StartError(f"{deployment.file} names no llm; give a deployment file that does with --deployment")
    llm = llm_settings(deployment.llm, read_settings())
    return Translator(lambda one, catalogue: translate(one.text, catalogue, llm), llm.model, is_cheap=False)


def _show(document: Document, options: argparse.Namespace) -> None:
    if options.misses:
        print(*miss_lines(document["misses"]), "", sep="\n")
    print(table(document["results"]))
    if "properties" in document:
        print("", properties.table(document["properties"]), sep="\n")
    if "wrong_replies" in document:
        print("", wrong_replies.table(document["wrong_replies"]), sep="\n")
    if options.json:
        options.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
