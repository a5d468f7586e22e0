"""Replies of a language model made wrong on purpose: none may come to a goal that the text does not have.

A reply is changed in one place: a quote that is not there, another value, side, name, metric or rule, a goal for words that are
absent, two goals for one quote, keys and types of its own. What it comes to is held against the reply as it was.
"""

import copy
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.report import Document
from benchmarks.words import replies
from benchmarks.words.utterances import NOW, Utterance
from intent.errors import ExtractionError
from intent.llm.goals import read_answer
from intent.llm.quotes import filled, parse_answer, wire_schema
from intent.models import Catalogue, Goal, Objective, Priority, Relative, TenantException
from intent.rules.draft import Draft
from service.deployment.file import Deployment

Answer = dict[str, Any]
Change = Callable[[Answer, random.Random, "Sequence[Reply]"], bool]
"""Makes an answer wrong in place; False where it has nothing to change."""

_TURNED = {"<=": ">=", ">=": "<=", "minimize": "maximize", "maximize": "minimize", "==": ">="}
_RULES = {
    "precision": ("require", "forbid", "allow", "min"),
    "placement": ("require", "forbid", "freeze"),
    "reconfig": ("forbid",),
}
_METRICS = ("ttft", "tpot", "e2e", "cost", "gpu_util", "error_rate", "availability", "throughput_tok")
_STRANGE_NUMBERS = ("3", "17", "0.25", "900", "two thousand", "七", "99.95", "1e3", "-4")
_STRANGE_NAMES = ("acme", "globex", "测试租户", "gpt-9", "H200", "node z")


@dataclass(frozen=True, slots=True)
class Reply:
    """A text and what the model answered."""

    text: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a wrong reply."""

    change: str
    text: str
    outcome: str
    """``refused``, ``second try``, ``question``, ``as it was`` or ``accepted``, which is never right."""
    detail: str = ""


def run(deployment: Deployment, utterances: Sequence[Utterance], count: int, seed: int) -> Document:
    """So many wrong replies to utterances that have one on file.

    Raises:
        CorpusError: the replies on file cannot be read.
    """
    kept = replies.load()
    known = [Reply(one.text, dict(kept[one.id])) for one in utterances if one.id in kept]
    found = list(verdicts(known, count, deployment.catalogue(NOW), seed))
    accepted = [
        {"change": one.change, "text": one.text, "goals": one.detail} for one in found if one.outcome == "accepted"
    ]
    return {"count": count, "seed": seed, "ends": summary(found), "accepted": accepted}


def table(document: Document) -> str:
    """What became of each kind of wrong reply; ``accepted`` is never right."""
    ends = ("refused", "second try", "question", "as it was", "accepted")
    lines = [f"{'made wrong':14}" + "".join(f"{end:>12}" for end in ends)]
    for change, counts in document["ends"].items():
        lines.append(f"{change:14}" + "".join(f"{counts.get(end, 0):12}" for end in ends))
    return "\n".join(lines)


def verdicts(kept: Sequence[Reply], count: int, catalogue: Catalogue, seed: int = 0) -> Iterator[Verdict]:
    """So many wrong replies, each judged."""
    chance = random.Random(seed)
    while count:
        reply = chance.choice(kept)
        name = chance.choice(tuple(CHANGES))
        answer = filled(copy.deepcopy(reply.answer), wire_schema())
        if CHANGES[name](answer, chance, kept):
            count -= 1
            yield _judged(name, reply, answer, catalogue)


def summary(found: Sequence[Verdict]) -> dict[str, dict[str, int]]:
    """Change to what became of such replies."""
    counts: dict[str, Counter[str]] = {}
    for one in found:
        counts.setdefault(one.change, Counter())[one.outcome] += 1
    return {change: dict(counts[change]) for change in sorted(counts)}


def _judged(change: str, reply: Reply, wrong: Answer, catalogue: Catalogue) -> Verdict:
    try:
        read = read_answer(parse_answer(json.dumps(wrong, ensure_ascii=False), wire_schema()), reply.text, catalogue)
        draft = read.settled()
    except ExtractionError as error:
        return Verdict(change, reply.text, "refused", str(error))
    if read.problems:
        return Verdict(change, reply.text, "second try", str(read.problems[0]))
    if draft.questions:
        return Verdict(change, reply.text, "question", draft.questions[0].text)
    meant = read_answer(filled(reply.answer, wire_schema()), reply.text, catalogue).settled()
    new = _essences(draft) - _essences(meant)
    detail = "; ".join(sorted(map(str, new)))
    return Verdict(change, reply.text, "accepted" if new else "as it was", detail)


def _essences(draft: Draft) -> set[tuple[object, ...]]:
    """What of the goals must not differ: numbers, names and sides; when and how surely may."""
    return {_essence(goal) for goal in draft.goals}


def _essence(goal: Goal) -> tuple[object, ...]:
    match goal:
        case Objective() | Relative():
            amount = (goal.value,) if isinstance(goal, Objective) else (goal.factor, goal.delta)
            return goal.type, goal.metric, goal.op, *amount, goal.unit, goal.tenant, goal.model
        case TenantException():
            return goal.type, goal.tenant, goal.limit, goal.unit, goal.factor
        case Priority():
            return goal.type, goal.higher, goal.lower
        case _:
            return tuple(asdict(replace(goal, evidence="", window="always")).values())


# -- the changes -----------------------------------------------------------------------------------


def _one(answer: Answer, chance: random.Random, *slots: str) -> dict[str, Any] | None:
    """A goal that says one of these slots."""
    fitting = [goal for goal in answer["goals"] if not slots or any(goal[slot] is not None for slot in slots)]
    return chance.choice(fitting) if fitting else None


def _evidence(answer: Answer, chance: random.Random, _: Sequence[Reply]) -> bool:
    goal = _one(answer, chance)
    if goal is None:
        return False
    said = goal["evidence"]
    goal["evidence"] = chance.choice(
        [said + " really", said[::-1] + "!", said.replace(" ", "  ", 1) + "~", "p50 TTFT < 7s"]
    )
    return True


def _number(answer: Answer, chance: random.Random, _: Sequence[Reply]) -> bool:
    goal = _one(answer, chance, "number")
    if goal is None:
        return False
    others = [one["number"] for one in answer["goals"] if one["number"] not in {None, goal["number"]}]
    goal["number"] = chance.choice([one for one in (*_STRANGE_NUMBERS, *others) if one != goal["number"]])
    return True


def _unit(answer: Answer, chance: random.Random, _: Sequence[Reply]) -> bool:
    goal = _one(answer, chance, "unit")
    if goal is None:
        return False
    others = [one["unit"] for one in answer["goals"] if one["unit"] not in {None, goal["unit"]}]
    goal["unit"] = chance.choice(
        [one for one in ("ms", "s", "min", "%", "秒", "requests/s", *others) if one != goal["unit"]]
    )
    return True


def _side(answer: Answer, chance: random.Random, _: Sequence[Reply]) -> bool:
    goal = _one(answer, chance, "comparison")
    if goal is None:
        return False
    goal["comparison"] = _TURNED[goal["comparison"]]
    return True


def _name(answer: Answer, chance: random.Random, _: Sequence[Reply]) -> bool:
    goal = _one(answer, chance, "tenant", "model", "place") or _one(answer, chance)
    if goal is None:
        return False
    slot = next((one for one in ("tenant", "model", "place") if goal[one] is not None), "tenant")
    goal[slot] = chance.choice(_STRANGE_NAMES)
    return True


def _metric(answer: Answer, chance: random.Random, _: Sequence[Reply]) -> bool:
    goal = _one(answer, chance, "subject")
    if goal is None or goal["subject"] not in _METRICS:
        return False
    goal["subject"] = chance.choice([one for one in _METRICS if one != goal["subject"]])
    return True


def _rule(answer: Answer, chance: random.Random, _: Sequence[Reply]) -> bool:
    goal = _one(answer, chance, "rule")
    if goal is None:
        return False
    others = [one for one in _RULES[goal["type"]] if one != goal["rule"]]
    if not others:
        return False
    goal["rule"] = chance.choice(others)
    return True


def _order(answer: Answer, chance: random.Random, _: Sequence[Reply]) -> bool:
    goal = _one(answer, chance, "lower")
    if goal is None:
        return False
    goal["higher"], goal["lower"] = goal["lower"], goal["higher"]
    return True


def _stranger(answer: Answer, chance: random.Random, kept: Sequence[Reply]) -> bool:
    other = filled(chance.choice(kept).answer, wire_schema())["goals"]
    if not other or chance.choice(other)["evidence"] in {goal["evidence"] for goal in answer["goals"]}:
        return False
    answer["goals"].append(chance.choice(other))
    return True


def _twice(answer: Answer, chance: random.Random, _: Sequence[Reply]) -> bool:
    goal = _one(answer, chance, "comparison")
    if goal is None:
        return False
    more = {**goal, "comparison": _TURNED[goal["comparison"]]}
    if goal["subject"] in _METRICS and chance.random() < 0.5:
        more = {**goal, "subject": chance.choice([one for one in _METRICS if one != goal["subject"]])}
    answer["goals"].append(more)
    return True


def _key(answer: Answer, chance: random.Random, _: Sequence[Reply]) -> bool:
    target = chance.choice([answer, *answer["goals"]])
    target[chance.choice(("approved", "value", "priority", "note"))] = chance.choice((True, 1, "yes", None))
    return True


def _type(answer: Answer, chance: random.Random, _: Sequence[Reply]) -> bool:
    goal = _one(answer, chance)
    if goal is None:
        return False
    slot = chance.choice(wire_schema()["properties"]["goals"]["items"]["required"])
    goal[slot] = chance.choice((2, 2.5, True, [], {}, ["x"]))
    return True


CHANGES: Mapping[str, Change] = {
    "another quote": _evidence,
    "another number": _number,
    "another unit": _unit,
    "the other side": _side,
    "another name": _name,
    "another metric": _metric,
    "another rule": _rule,
    "the other order": _order,
    "a goal for absent words": _stranger,
    "two goals for one quote": _twice,
    "keys of its own": _key,
    "other types": _type,
}
