"""Minimal pairs: one word flipped, put in or taken out, and goals that are joined otherwise.

Each edit states its relation: the goals are the same, one bound is turned round, they differ, or the words are asked about. A
pair violates it where the edited text is accepted with goals that the relation excludes.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from benchmarks.words.qualifiers import Carrier, clear
from benchmarks.words.utterances import NOW, Utterance
from intent.models import Catalogue, Goal, Intent, Outcome
from intent.tables import table
from intent.translate import translate
from service.deployment.file import Deployment
from service.planning import lifecycle

Facts = Counter[object]
Relation = Callable[[Facts, Facts], bool]


def same(before: Facts, after: Facts) -> bool:
    """Nothing changed."""
    return before == after


def differ(before: Facts, after: Facts) -> bool:
    """Something changed."""
    return before != after


def turned(before: Facts, after: Facts) -> bool:
    """What changed has the other side, and nothing else does."""
    return before != after and Counter(map(_sideless, before.elements())) == Counter(map(_sideless, after.elements()))


def asked(_: Facts, __: Facts) -> bool:
    """No goal holds the words."""
    return False


def _sideless(goal: object) -> object:
    return replace(goal, op="==") if hasattr(goal, "op") else goal  # type: ignore[type-var] # every goal is a dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of one word, where its pattern stands, and what it does to the reading."""

    name: str
    pattern: re.Pattern[str]
    words: str
    relation: Relation


RELATIONS: dict[str, Relation] = {"same": same, "turned": turned, "differ": differ, "asked": asked}
EDITS = tuple(
    Edit(name, re.compile(pattern, re.IGNORECASE), words, RELATIONS[part["relation"]])
    for name, part in table("benchmarks.words", "pairs").items()
    for pattern, words in part["words"]
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A text, the same with one edit, and what came of it."""

    edit: str
    text: str
    other: str
    holds: bool
    asks: bool
    """The edited text is asked about, or contradicts itself."""
    is_equal: bool
    """The edit changes nothing that was said."""


def pairs(deployment: Deployment, utterances: Sequence[Utterance], count: int, chance: random.Random) -> Iterator[Pair]:
    """So many pairs of clear texts and edits, each edit as often as others while it has texts."""
    catalogue = deployment.catalogue(NOW)
    carriers = clear(utterances, catalogue)
    fitting = [(edit, [one.utterance.text for one in carriers if _fits(edit, one)]) for edit in EDITS]
    queue = [(edit, text) for edit, texts in fitting for text in chance.sample(texts, len(texts))[: 1 + count // 10]]
    for edit, text in chance.sample(queue, min(count, len(queue))):
        if (pair := _pair(edit, text, deployment, catalogue)) is not None:
            yield pair


def _fits(edit: Edit, carrier: Carrier) -> bool:
    """Whether the words stand once in a text of one sentence; at an end only where a goal stands."""
    said = carrier.utterance.text.rstrip(_END)
    behind, before = "$" in edit.pattern.pattern, "^" in edit.pattern.pattern
    at_an_end = (carrier.ends or not behind) and (carrier.begins or not before)
    return at_an_end and len(edit.pattern.findall(said)) == 1 and _SENTENCES.search(said) is None


_END = " .。!！"
_SENTENCES = re.compile(r"[.;!?。；！？\n](?!\d)")


def _pair(edit: Edit, text: str, deployment: Deployment, catalogue: Catalogue) -> Pair | None:
    said = text.rstrip(_END)
    other = edit.pattern.sub(edit.words, said)
    before, after = (lifecycle.check(translate(one, catalogue), deployment, NOW) for one in (said, other))
    if before.outcome is not Outcome.OK or other == said:
        return None
    accepted = after.outcome is Outcome.OK
    holds = not accepted or edit.relation(facts(before), facts(after))
    return Pair(edit.name, said, other, holds, not accepted, edit.relation is same)


def facts(intent: Intent) -> Facts:
    """The goals, without the words they come from."""
    return Counter(_plain(goal) for goal in intent.goals)


def _plain(goal: Goal) -> object:
    return replace(goal, evidence="-")


# -- words that a goal claims to have used --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Idle:
    """A word of the ledger that a goal claims, and that the text does without."""

    text: str
    words: str
    turns: str


CARRYING = frozenset({"negation", "release", "direction of a place", "exception", "rest"})
"""Classes without whose words the reading changes; others lead to what says it or say it again: ``use only bf16``."""


def idle_words(deployment: Deployment, utterances: Sequence[Utterance]) -> Iterator[Idle | None]:
    """Each word of such a class that a goal claims; what came out the same without it, or None."""
    catalogue = deployment.catalogue(NOW)
    for one in utterances:
        intent = lifecycle.check(translate(one.text, catalogue), deployment, NOW)
        for turn in intent.ledger if intent.outcome is Outcome.OK else ():
            if turn.became.startswith("/goals/") and turn.turns in CARRYING:
                text = one.text[: turn.start] + one.text[turn.end :]
                after = lifecycle.check(translate(text, catalogue), deployment, NOW)
                is_same = after.outcome is Outcome.OK and facts(after) == facts(intent)
                is_same = is_same and after.assumptions == intent.assumptions
                yield Idle(one.text, turn.words, turn.turns) if is_same else None


# -- goals joined otherwise ----------------------------------------------------------------------------

JOINTS = (", ", "; ", " / ", " | ", " and ", "，", "；")
"""Between goals of one line."""
_LEADS = ("", "at peak ", "for enterprise ", "overnight, ", "enterprise: ", "at peak: ", "free users: ")
_HEADINGS = ("at peak", "for enterprise", "overnight", "free users")
_GOALS = (
    "p99 TTFT under 2 s", "TPOT under 50 ms", "availability 99.9%", "at least 500 tok/s", "cost under $30/h", "no int4",
    "p95 e2e below 12 s", "error rate under 0.1%", "GPU utilisation above 70%", "TTFT p50 at most 400 ms",
    "p99 首字延迟不超过 2 秒",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Joined:
    """The same goals joined in two ways."""

    text: str
    other: str
    holds: bool


def joined_otherwise(deployment: Deployment, count: int, chance: random.Random) -> Iterator[Joined]:
    """Two or three goals: on one line by each joint, or on lines and bullets under a heading."""
    catalogue = deployment.catalogue(NOW)
    for _ in range(count):
        goals = chance.sample(_GOALS, chance.choice((2, 3)))
        text, other = chance.sample(_ways(goals, chance), 2)
        first, second = (lifecycle.check(translate(one, catalogue), deployment, NOW) for one in (text, other))
        alike = first.outcome is second.outcome and facts(first) == facts(second)
        yield Joined(text, other, alike)


def _ways(goals: Sequence[str], chance: random.Random) -> list[str]:
    if chance.random() < 0.5:
        lead = chance.choice(_LEADS)
        return [lead + joint.join(goals) for joint in JOINTS]
    heading = chance.choice(_HEADINGS)
    lines = ("\n", "\n- ", "\n* ", "\n1. ")
    return [f"{heading}{colon}{line}{line.join(goals)}" for colon, line in product(("", ":"), lines)] + [
        f"{heading}: {', '.join(goals)}"
    ]
