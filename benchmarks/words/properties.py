"""What must hold for every text: goals read back unchanged, no text raises or gains a number, no qualifier is dropped."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import get_args

from benchmarks.report import Document
from benchmarks.words.mutations import changed, hostile
from benchmarks.words.qualifiers import clear, qualified
from benchmarks.words.readable import unsaid
from benchmarks.words.scores import comparable
from benchmarks.words.utterances import NOW, GoalDocument, Utterance
from benchmarks.words.wishes import EVIDENCE, wish
from intent.document import goal_document
from intent.messages import Language
from intent.models import Catalogue, Goal, Intent, Outcome, TranslatorInfo
from intent.readback import in_words
from intent.rules.phrasing import tokenize
from intent.translate import translate
from service.deployment.file import Deployment
from service.planning import lifecycle

LANGUAGES: tuple[Language, ...] = get_args(Language)
EXAMPLES = 20
"""Failures that are kept to look at."""


@dataclass(slots=True)
class Hostile:
    """What hostile strings did."""

    raised: list[Document] = field(default_factory=list)
    invented: list[Document] = field(default_factory=list)
    slowest_s: float = 0.0
    slowest: str = ""


def run(deployment: Deployment, utterances: Sequence[Utterance], count: int, seed: int) -> Document:
    """As many goal sets, strings and qualified utterances as asked for."""
    catalogue = deployment.catalogue(NOW)
    lost = lost_in_readback(catalogue, count, random.Random(seed))
    found = hostile_strings(deployment, [one.text for one in utterances], count, random.Random(seed))
    dropped = dropped_qualifiers(deployment, utterances, count, random.Random(seed))
    return {
        "count": count,
        "seed": seed,
        "lost": len(lost),
        "raised": len(found.raised),
        "invented": len(found.invented),
        "dropped": len(dropped),
        "slowest_ms": round(found.slowest_s * 1000, 2),
        "slowest": found.slowest,
        "examples": [
            *lost[:EXAMPLES],
            *found.raised[:EXAMPLES],
            *found.invented[:EXAMPLES],
            *dropped[:EXAMPLES],
        ],
    }


def lost_in_readback(catalogue: Catalogue, count: int, chance: random.Random) -> list[Document]:
    """Goal sets that come back otherwise, in either language in turn."""
    lost = []
    for number in range(count):
        goals = wish(chance, catalogue)
        text = in_words(goals, LANGUAGES[number % len(LANGUAGES)])
        back = translate(text, catalogue)
        if back.questions or _facts(back.goals) != _facts(goals):
            lost.append({"text": text, "said": _documents(goals), "read": _documents(back.goals)})
    return lost


def hostile_strings(deployment: Deployment, texts: Sequence[str], count: int, chance: random.Random) -> Hostile:
    """Translate and check strings that nobody planned for."""
    found, catalogue = Hostile(), deployment.catalogue(NOW)
    for _ in range(count):
        _try(hostile(chance, texts), deployment, catalogue, found)
    return found


def dropped_qualifiers(
    deployment: Deployment, utterances: Sequence[Utterance], count: int, chance: random.Random
) -> list[Document]:
    """Clear utterances with words that change them and that no goal can hold, accepted all the same."""
    catalogue = deployment.catalogue(NOW)
    carriers = clear(utterances, catalogue)
    dropped: list[Document] = []
    for _ in range(count if carriers else 0):
        text = qualified(chance, carriers)
        intent = _checked(text, deployment, catalogue)
        if isinstance(intent, Exception):
            dropped.append({"text": text, "raised": repr(intent)})
        elif intent.outcome is Outcome.OK:
            dropped.append({"text": text, "accepted": _documents(intent.goals)})
    return dropped


def lost_in_changes(
    deployment: Deployment, utterances: Sequence[Utterance], count: int, chance: random.Random
) -> list[Document]:
    """Clear utterances that were changed and accepted without a number, a name or a window of them, or with what takes back."""
    catalogue = deployment.catalogue(NOW)
    carriers = [one.text for one in utterances if one.outcome is Outcome.OK and not one.also]
    carriers = [text for text in carriers if corrected(text, catalogue) == text]
    lost: list[Document] = []
    for _ in range(count if carriers else 0):
        text = chance.choice(carriers)
        name, other = changed(text, chance)
        before, after = (_checked(one, deployment, catalogue) for one in (text, other))
        if isinstance(before, Exception) or isinstance(after, Exception):
            lost.append({"change": name, "text": other, "raised": repr(after)})
        elif before.outcome is after.outcome is Outcome.OK:
            missing = _said(before.goals) - _said(after.goals)
            if name == "moved":  # a window that leads covers less where it stands later
                missing = Counter(set(_said(before.goals)) - set(_said(after.goals)))
            if missing or name == "released":
                lost.append({"change": name, "text": other, "from": text, "missing": sorted(map(str, missing))})
    return lost


_SLOTS = ("value", "factor", "delta", "limit", "tenant", "model", "selector", "window", "metric")


def _said(goals: Sequence[Goal]) -> Counter[tuple[str, object]]:
    """The numbers, names and windows of goals."""
    slots = ((slot, getattr(goal, slot, None)) for goal in goals for slot in _SLOTS)
    return Counter((slot, said) for slot, said in slots if said not in {None, "always"})


def _try(text: str, deployment: Deployment, catalogue: Catalogue, found: Hostile) -> None:
    start_s = time.perf_counter()
    intent = _checked(text, deployment, catalogue)
    if isinstance(intent, Exception):
        found.raised.append({"text": text, "raised": repr(intent)})
        return
    if time.perf_counter() - start_s > found.slowest_s:
        _note_slow(text, catalogue, found)
    heard = corrected(text, catalogue)
    for goal in _documents(intent.goals):
        if keys := unsaid(goal, heard):
            found.invented.append({"text": text, "unsaid": keys, "goal": goal})


def _checked(text: str, deployment: Deployment, catalogue: Catalogue) -> Intent | Exception:
    try:
        return lifecycle.check(translate(text, catalogue), deployment, NOW)
    except Exception as problem:  # noqa: BLE001 - that nothing raises is what is measured
        return problem


def corrected(text: str, catalogue: Catalogue) -> str:
    """A text, and behind it the words that its misspelt ones were taken for; the read-back says them."""
    return " ".join([text, *(one.misspelt[1] for one in tokenize(text, catalogue) if one.misspelt)])


def _note_slow(text: str, catalogue: Catalogue, found: Hostile) -> None:
    """The best of three, so that another process's turn is not held against the text."""
    best_s = min(_translate_s(text, catalogue) for _ in range(3))
    if best_s > found.slowest_s:
        found.slowest_s, found.slowest = best_s, text


def _translate_s(text: str, catalogue: Catalogue) -> float:
    start_s = time.perf_counter()
    translate(text, catalogue)
    return time.perf_counter() - start_s


def _documents(goals: Sequence[Goal]) -> list[GoalDocument]:
    intent = Intent(text=EVIDENCE, language="en", goals=tuple(goals), translator=TranslatorInfo("rules"))
    found = map(goal_document, intent.goals)
    return [{key: value for key, value in goal.items() if key != "evidence"} for goal in found]


def _facts(goals: Sequence[Goal]) -> set[object]:
    return set(map(comparable, _documents(goals)))


def table(found: Document) -> str:
    """The figures for people."""
    lines = [
        f"read back otherwise     {found['lost']} of {found['count']}",
        f"strings that raised     {found['raised']} of {found['count']}",
        f"numbers nobody said     {found['invented']} of {found['count']}",
        f"qualifiers dropped      {found['dropped']} of {found['count']}",
        f"slowest string          {found['slowest_ms']} ms: {found['slowest']!r}",
    ]
    return "\n".join([*lines, *(f"  {example}" for example in found["examples"])])
