"""JSON documents through switches: each has a nested schema of its own, and every switch comes while all are being written.

Each round runs twice, without a switch and with one. Documents must be valid, and the same tokens both times.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema

from benchmarks.counting import counting_text
from benchmarks.engines import Demand, Subject
from benchmarks.load import until
from benchmarks.own_switch import OwnSwitch
from benchmarks.parameters import UsageError, parse_pair
from benchmarks.provenance import provenance, stolen_now_s
from benchmarks.strategy import Switched, running
from intentctl.arguments import EngineName
from runtime import grammar
from runtime.engine import Finish, SamplingParams
from runtime.errors import RuntimeFault
from runtime.models import Topology
from runtime.router import Router
from runtime.stream import GenerationParams
from runtime.tokenizer import Tokenizer

Document = dict[str, Any]

PROMPT_TOKENS = 40
MAX_TOKENS = 3000
"""Of a document; the longest that the schemas allow has about 2,500."""
BEGUN_TOKENS = 20
"""That every stream has when the switch begins."""


def nested_schema(number: int) -> Document:
    """A schema whose documents have 250 to 2,500 characters; every number has one of its own. Pure."""
    dice = random.Random(number)
    row = _object(dice, depth=2)
    properties = {
        "id": _integer(0, 999 + number),
        "about": _string(20, 60),
        "rows": {"type": "array", "items": row, "minItems": 6, "maxItems": 8},
        "readings": {"type": "array", "items": _integer(0, 9999), "minItems": 20, "maxItems": 30},
    }
    return _closed(properties, [*properties])


def _closed(properties: Document, required: Sequence[str]) -> Document:
    rest = {"required": [*required], "additionalProperties": False}
    return {"type": "object", "properties": properties, **rest}


def _object(dice: random.Random, depth: int) -> Document:
    names = dice.sample(["name", "size", "is_on", "kind", "parts", "owner", "note"], k=dice.randint(2, 4))
    kinds = [*_leaves(dice), *([_object(dice, depth - 1)] if depth else [])]
    return _closed({name: dice.choice(kinds) for name in names}, names[: dice.randint(1, len(names))])


def _leaves(dice: random.Random) -> Sequence[Document]:
    return (
        _integer(-dice.randint(0, 9), dice.randint(1, 9999)),
        _string(3, 15),
        {"type": "boolean"},
        {"enum": ["small", "middle", "large", 7, None]},
        {"anyOf": [{"type": "null"}, _string(0, 10)]},
        {"type": "array", "items": _integer(0, 99), "maxItems": 4},
    )


def _integer(least: int, most: int) -> Document:
    return {"type": "integer", "minimum": least, "maximum": most}


def _string(least: int, most: int) -> Document:
    return {"type": "string", "minLength": least, "maxLength": most}


@dataclass(slots=True)
class Written:
    """A document as it came."""

    number: int
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: str = ""
    fingerprints: dict[str, int] = field(default_factory=dict)
    """Who made its tokens, and how many."""
    finish: Finish | None = None

    def is_valid(self) -> bool:
        """Whether it is whole and what its schema asks for."""
        if self.finish is not Finish.STOP:
            return False
        try:
            jsonschema.validate(json.loads(self.text), nested_schema(self.number))
        except (ValueError, jsonschema.ValidationError):
            return False
        return True


async def write(router: Router, document: Written) -> None:
    """Let a served model write one document; every third greedily, the others each with a seed."""
    number = document.number
    prompt = router.tokenizer.encode(counting_text(number, PROMPT_TOKENS))
    temperature = 0.0 if number % 3 == 0 else 0.9
    asked = grammar.json_schema(nested_schema(number))
    sampling = SamplingParams(MAX_TOKENS, temperature, seed=number, grammar=asked)
    async with aclosing(router.generate(prompt, GenerationParams(sampling))) as deltas:
        async for delta in deltas:
            document.text += delta.text
            document.finish = delta.finish
            if delta.token_id is not None:
                document.token_ids.append(delta.token_id)
                document.logprobs.append(delta.logprob)
                made_by = delta.fingerprint
                document.fingerprints[made_by] = document.fingerprints.get(made_by, 0) + 1


async def write_all(router: Router, numbers: Sequence[int]) -> list[Written]:
    """Documents written together."""
    documents = [Written(number) for number in numbers]
    await asyncio.gather(*(write(router, document) for document in documents))
    return documents


async def write_through(
    own: OwnSwitch, router: Router, numbers: Sequence[int], target: Topology
) -> tuple[list[Written], Switched]:
    """The same, with a switch that begins when each has begun."""
    documents = [Written(number) for number in numbers]
    async with asyncio.TaskGroup() as group:
        for document in documents:
            group.create_task(write(router, document))
        await until(lambda: all(len(document.token_ids) >= BEGUN_TOKENS for document in documents))
        switched = await own.switch(target)
    return documents, switched


def round_document(plain: Sequence[Written], through: Sequence[Written], switched: Switched) -> Document:
    """What one round showed. Pure."""
    pairs = list(zip(plain, through, strict=True))
    equal = [one.token_ids == other.token_ids for one, other in pairs]
    apart = [
        abs(a - b) / max(1.0, abs(a))
        for (one, other), is_equal in zip(pairs, equal, strict=True)
        if is_equal
        for a, b in zip(one.logprobs, other.logprobs, strict=True)
    ]
    return {
        "documents": len(through),
        "valid": sum(document.is_valid() for document in through),
        "valid_unswitched": sum(document.is_valid() for document in plain),
        "equal": sum(equal),
        "cut_inside": sum(len(document.fingerprints) > 1 for document in through),
        "moved": sum(count for path, count in switched.paths.items() if path != "drain"),
        "left_to_drain": switched.left_to_drain,
        "worst_logprob_difference": max(apart, default=None),
        "tokens": [len(document.token_ids) for document in through],
    }


async def run_pair(subject: Subject, pair: tuple[str, str], switches: int, together: int) -> list[Document]:
    """Rounds between two topologies, there and back."""
    demand = Demand(together, PROMPT_TOKENS + MAX_TOKENS)
    start = lambda topology: subject.start(topology, "patch", demand)  # noqa: E731
    tokenizer = Tokenizer.load(subject.checkpoint)
    rounds = []
    async with running(start, subject.topology(pair[0]), tokenizer) as (engine, router):
        own = OwnSwitch(engine, router)
        for text in reversed(pair):  # both are warm from here on
            await own.switch(subject.topology(text))
        for turn in range(switches):
            target = pair[(turn + 1) % 2]
            numbers = range(turn * together, (turn + 1) * together)
            plain = await write_all(router, numbers)
            through, switched = await write_through(own, router, numbers, subject.topology(target))
            found = {"pair": "-".join(pair), "target": target, **round_document(plain, through, switched)}
            print({name: found[name] for name in found if name != "tokens"}, file=sys.stderr, flush=True)
            rounds.append(found)
    return rounds


def summary(rounds: Sequence[Document]) -> list[Document]:
    """A row for each pair. Pure."""
    summed = ("documents", "valid", "equal", "cut_inside", "moved", "left_to_drain")
    rows = []
    for pair in dict.fromkeys(one["pair"] for one in rounds):
        mine = [one for one in rounds if one["pair"] == pair]
        counts: Counter[str] = Counter()
        for one in mine:
            counts.update({name: one[name] for name in summed})
        tokens = [count for one in mine for count in one["tokens"]]
        apart = [one["worst_logprob_difference"] for one in mine if one["worst_logprob_difference"] is not None]
        row = {"pair": pair, "switches": len(mine), **{name: counts[name] for name in summed}}
        rows.append(
            row
            | {
                "fewest_tokens": min(tokens),
                "most_tokens": max(tokens),
                "worst_logprob_difference": max(apart, default=None),
            }
        )
    return rows


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser("python -m benchmarks.documents", description=__doc__)
    found.add_argument("--engine", choices=[*map(str, EngineName)], default="torch")
    found.add_argument("--pairs", default="1x1-tp2,1x1-pp2", help="topologies to switch between")
    found.add_argument("--switches", type=int, default=10, help="for each pair")
    found.add_argument("--together", type=int, default=20, help="documents that each switch cuts")
    found.add_argument("--json", type=Path, metavar="FILE", help="where to write everything that was measured")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status is 1 when a document was wrong, 2 when nothing could begin."""
    options = parser().parse_args(arguments)
    try:
        pairs = [parse_pair(text) for text in options.pairs.split(",")]
        subject = Subject.example(options.engine)
        document = asyncio.run(run_all(subject, pairs, options))
    except (UsageError, RuntimeFault) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    for row in document["rows"]:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    wanted = ("valid", "equal", "cut_inside", "moved")
    return int(any(row[name] != row["documents"] for row in document["rows"] for name in wanted))


async def run_all(subject: Subject, pairs: Sequence[tuple[str, str]], options: argparse.Namespace) -> Document:
    """Every pair, one after the other."""
    document: Document = {"benchmark": "documents", **provenance()}
    document["parameters"] = {name: str(value) for name, value in vars(options).items() if name != "json"}
    rounds = [one for pair in pairs for one in await run_pair(subject, pair, options.switches, options.together)]
    document["rows"], document["rounds"] = summary(rounds), rounds
    return document | {"stolen_after_s": stolen_now_s(), "load_average_after": os.getloadavg()[0]}


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
