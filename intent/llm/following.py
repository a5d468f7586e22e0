"""The two entries: a first text, and a follow-up."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import prompts
from intent.errors import AnswerProblem
from intent.fold import fold
from intent.llm.asking import Prompt, ask, names_of
from intent.llm.goals import Read, read_answer, refusal
from intent.llm.quotes import filled, schema_of, wire_schema
from intent.models import Catalogue, Goal, Intent, LlmSettings, TranslatorInfo
from intent.readback import in_words
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


_OLD = re.compile(
    r"(?:\b(?:not|rather than|instead of)\s+(?:just\s+)?|而?不是(?:正好)?)(?P<old>[^,.;!，。；！]*[^,.;!，。；！\s])",
    re.IGNORECASE,
)
"""A value that is corrected."""


@dataclass(frozen=True, slots=True)
class Followed:
    """What a follow-up makes of some goals."""

    draft: Draft
    """Of all that was said: its goals are those that are new or different."""
    replaced: tuple[int | None, ...]
    """For each of them the place of the goal before whose place it takes."""
    removed: frozenset[int]
    """Places of goals that are no longer wanted."""


def follow(previous: Intent, text: str, catalogue: Catalogue, settings: LlmSettings) -> Followed:
    """Ask the LLM what a follow-up changes.

    Raises:
        ExtractionError: no usable answer within ``settings.timeout_s``, for whatever reason; never shows the API key.
    """
    request = {
        "before": previous.text,
        "goals": _numbered(previous),
        **({"question": _question(previous)} if previous.questions else {}),
        "text": text,
        **names_of(catalogue),
    }

    def read(answer: Mapping[str, Any]) -> _Following:
        return _Following(previous, read_follow_up(answer, previous, text, catalogue), answer)

    return ask(request, amend_prompt(), settings, read)


def read_follow_up(answer: Mapping[str, Any], previous: Intent, words: str, catalogue: Catalogue) -> Read:
    """The goals of a wire answer to a follow-up, and what of it the text does not bear."""
    text = f"{previous.text}\n{words}"
    bases = [_base(previous.goals, goal) for goal in answer["goals"]]
    answer = {**answer, "told": [*answer["told"], *_corrected(answer, bases, words)]}
    read = read_answer(answer, text, catalogue, said_from=len(text) - len(words), bases=bases)
    known = range(1, len(previous.goals) + 1)
    numbers = [(f"/removed/{n}", number) for n, number in enumerate(answer["removed"])]
    numbers += [(f"/goals/{n}/changes", goal["changes"]) for n, goal in enumerate(answer["goals"])]
    read.problems += [
        AnswerProblem(pointer, f"there is no goal {number}")
        for pointer, number in numbers
        if number is not None and number not in known
    ]
    return read


@dataclass(frozen=True, slots=True)
class _Following:
    """An answer held against what was said."""

    previous: Intent
    read: Read
    answer: Mapping[str, Any]

    @property
    def problems(self) -> list[AnswerProblem]:
        """What the model has to put right."""
        return self.read.problems

    def settled(self) -> Followed:
        """What it comes to.

        Raises:
            ExtractionError: the text does not bear all of it; a follow-up is not half applied.
        """
        if self.problems:
            raise refusal(self.problems)
        places = [*(goal["changes"] - 1 if goal["changes"] else None for goal in self.answer["goals"]), None]
        draft = self.read.settled()
        removed = frozenset(number - 1 for number in self.answer["removed"])
        return Followed(draft, tuple(places[n] for n in self.read.built), removed)


def _base(goals: tuple[Goal, ...], slots: Mapping[str, Any]) -> Goal | None:
    """The goal that these slots change; without one, the goal whose number they repeat."""
    number = slots["changes"]
    repeated = slots["number"]
    if number is not None:
        return goals[number - 1] if 1 <= number <= len(goals) else None
    if repeated is None or repeated in (slots["evidence"] or ""):
        return None
    alike = (goal for goal in goals if goal.type == slots["type"] and _about(goal) == slots["subject"])
    return next((goal for goal in alike if repeated in goal.evidence), None)


def _corrected(answer: Mapping[str, Any], bases: Sequence[Goal | None], text: str) -> list[str]:
    """Old values that a follow-up only names to correct them: ``not free users``.

    None that the answer keeps.
    """
    kept = {fold(str(words)).text for goal in answer["goals"] for slot, words in goal.items() if slot != "evidence"}
    before = [fold(base.evidence).text for base in bases if base is not None]
    found = ((match[0], fold(match["old"]).text) for match in _OLD.finditer(text))
    return [words for words, old in found if old not in kept and any(old in earlier for earlier in before)]


def _about(goal: Goal) -> str | None:
    """What a goal bounds or sets."""
    return getattr(goal, "metric", None) or getattr(goal, "key", None)


def _numbered(previous: Intent) -> list[dict[str, Any]]:
    return [
        {"goal": number, "says": in_words([goal], previous.language).rstrip(".。")}
        for number, goal in enumerate(previous.goals, start=1)
    ]


def _question(previous: Intent) -> dict[str, Any]:
    (question, *_) = previous.questions
    return {"asked": question.text, "options": list(question.texts or question.options)}


# -- what the model is told --------------------------------------------------------------------------


@cache
def amend_schema() -> dict[str, Any]:
    """The wire schema with what a follow-up adds to it: whose place a goal takes, and what is gone."""
    base = wire_schema()
    goal = base["properties"]["goals"]["items"]
    number = {"type": ["integer", "null"], "description": "The present goal whose place this one takes."}
    gone = {"type": "array", "items": {"type": "integer"}, "description": "Present goals no longer wanted."}
    goals = {
        **goal,
        "properties": {**goal["properties"], "changes": number},
        "required": [*goal["required"], "changes"],
    }
    properties = {**base["properties"], "goals": {"type": "array", "items": goals}, "removed": gone}
    return schema_of("amendment", properties)


@cache
def amend_prompt() -> Prompt:
    """Instructions, examples and schema of a follow-up."""
    words = prompts.load("translate", PROMPT_VERSION) + prompts.load("amend", PROMPT_VERSION)
    shots = []
    for example in table("prompts", f"amend-examples.{PROMPT_VERSION}"):
        numbered = [{"goal": n, "says": says} for n, says in enumerate(example["goals"], start=1)]
        request = {"before": example["before"], "goals": numbered, "text": example["text"]}
        shots.append((request, filled(example["answer"], amend_schema())))
    return Prompt(words, tuple(shots), amend_schema())
