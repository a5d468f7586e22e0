"""A real model beside transformers: the same tokens, through switches too, and how fast.

``python -m benchmarks.real_model FOLDER`` takes a folder as ``intentctl demo --model smollm2`` keeps it
(``~/.local/share/intentctl/models/smollm2-0.1.2``); transformers has to be installed.
"""

import argparse
import asyncio
import itertools
import json
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.engines import Demand, Subject
from benchmarks.own_switch import OwnSwitch
from benchmarks.provenance import provenance, stolen_now_s
from benchmarks.strategy import running
from runtime.engine import SamplingParams
from runtime.models import Cluster, Gpu, Link, Node
from runtime.router import Router
from runtime.stream import GenerationParams
from runtime.tokenizer import Tokenizer
from runtime.torch_engine.worker.checkpoint import Checkpoint

TOKENS = 16
"""Of each answer that is compared."""
NEAR = 1e-3
"""Where the reference's two best logprobs are nearer than this, either is right."""
TOLERANCE = 5e-4
"""Of logprobs."""
SPEED_TOKENS = 64
SPEED_ROUNDS = 3
SWITCHES = 20
WORDS = (
    "Explain how {} works.",
    "def {}(values):\n    ",
    "写一个关于{}的故事。",
    "What is {}? 🙂🚀",
    "{0}, {0}:\n\n1. ",
)
THINGS = (
    "rain", "a clock", "bread", "sorting", "the moon", "a bridge", "music", "a lens", "coffee", "paper",
    "glass", "wind", "a magnet", "ice", "silk", "salt", "a kite", "light", "sand", "an engine",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answer:
    """Greedy tokens of one prompt, with their logprobs."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    leads: tuple[float, ...] = ()
    """Of the reference: by how much each leads the next best."""


def cluster_of(slots: int) -> Cluster:
    """So many CPU slots of this machine."""
    gpus = tuple(Gpu(number, "CPU", 1 << 33) for number in range(slots))
    return Cluster((Node("local", gpus, Link("shared-memory", 5e9, 3e-5)),))


def prompts(tokenizer: Tokenizer) -> list[list[int]]:
    """A hundred as token ids: chat, code, Chinese, emoji, lists, and two of 1,400 tokens."""
    texts = [words.format(thing) for words in WORDS for thing in THINGS]
    chats = [list(tokenizer.encode_chat([{"role": "user", "content": text}])) for text in texts[:20]]
    long = list(tokenizer.encode(" ".join(f"{thing} was seen on day {day}." for day, thing in enumerate(THINGS * 12))))
    return [*chats, *(list(tokenizer.encode(text)) for text in texts[20:-2]), long[:1400], long[300:1700]]


def generated(model: Any, asked: Sequence[Sequence[int]], count: int) -> Any:
    """What transformers makes of prompts of one length."""
    with torch.inference_mode():
        return model.generate(
            torch.tensor(asked), attention_mask=torch.ones(len(asked), len(asked[0]), dtype=torch.long),
            max_new_tokens=count, min_new_tokens=count, do_sample=False, use_cache=True, pad_token_id=0,
            eos_token_id=-1, output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip


def reference(model: Any, ids: Sequence[int]) -> Answer:
    """What transformers generates for a prompt."""
    found = generated(model, [ids], TOKENS)
    chances = [torch.log_softmax(step[0].float(), -1) for step in found.logits]
    tokens = found.sequences[0, len(ids) :].tolist()
    best = [chance.topk(2).values.tolist() for chance in chances]
    return Answer(
        tuple(tokens),
        tuple(float(chance[token]) for chance, token in zip(chances, tokens, strict=True)),
        tuple(first - second for first, second in best),
    )


async def served(router: Router, ids: Sequence[int], count: int = TOKENS) -> Answer:
    """What the engine generates for a prompt."""
    params = GenerationParams(SamplingParams(count, temperature=0.0), ignore_eos=True)
    deltas = [delta async for delta in router.generate(ids, params) if delta.token_id is not None]
    return Answer(tuple(delta.token_id or 0 for delta in deltas), tuple(delta.logprob for delta in deltas))


def compared(ours: Sequence[Answer], theirs: Sequence[Answer]) -> dict[str, Any]:
    """How many answers are equal, up to a token where two are as good.

    And how far logprobs lie apart up to there.
    """
    equal = near = 0
    worst = 0.0
    for mine, other in zip(ours, theirs, strict=True):
        same = sum(
            1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(mine.tokens, other.tokens, strict=True))
        )
        apart = [abs(a - b) for a, b in zip(mine.logprobs[:same], other.logprobs[:same], strict=True)]
        worst = max([worst, *apart])
        equal += same == len(other.tokens)
        near += same < len(other.tokens) and bool(other.leads) and other.leads[same] < NEAR
    return {"prompts": len(theirs), "equal": equal, "two_as_good": near, "worst_logprob": worst}


async def through_switches(
    router: Router, switch: OwnSwitch, shapes: Sequence[str], subject: Subject, asked: Sequence[Sequence[int]]
) -> list[Answer]:
    """The same answers, asked for a few at a time while the topology changes again and again."""
    found = list[Answer]()
    share = -(-len(asked) // SWITCHES)
    for number in range(SWITCHES):
        some = asked[number * share : (number + 1) * share]
        answers = asyncio.gather(*(served(router, ids) for ids in some))
        await switch.switch(subject.topology(shapes[number % len(shapes)]))
        found += await answers
    return found


async def speeds(router: Router, model: Any, ids: Sequence[int]) -> dict[str, Any]:
    """Tokens per second of one stream and of eight, by turns with transformers on one thread."""
    figures: dict[str, list[float]] = {}
    for _ in range(SPEED_ROUNDS):
        for streams in (1, 8):
            began = time.perf_counter()
            await asyncio.gather(*(served(router, [number + 5, *ids], SPEED_TOKENS) for number in range(streams)))
            figures.setdefault(f"ours_{streams}", []).append(streams * SPEED_TOKENS / (time.perf_counter() - began))
            began = time.perf_counter()
            await asyncio.to_thread(generated, model, [[number + 5, *ids] for number in range(streams)], SPEED_TOKENS)
            figures.setdefault(f"transformers_{streams}", []).append(
                streams * SPEED_TOKENS / (time.perf_counter() - began)
            )
    median = {name: statistics.median(values) for name, values in figures.items()}
    ratios = {f"ratio_{streams}": median[f"ours_{streams}"] / median[f"transformers_{streams}"] for streams in (1, 8)}
    return {"tokens_s": figures, **median, **ratios}


async def measured(folder: Path, shapes: Sequence[str]) -> dict[str, Any]:
    """Everything, as one document."""
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = Tokenizer.load(folder)
    spec = Checkpoint(folder).spec
    subject = Subject(folder, spec, cluster_of(4), "fp32")
    asked = prompts(tokenizer)
    theirs = [await asyncio.to_thread(reference, model, ids) for ids in asked]
    demand = Demand(streams=8, tokens=2_000)
    stolen_s = stolen_now_s() or 0.0
    async with running(
        lambda topology: subject.start(topology, "patch", demand), subject.topology("1x1"), tokenizer
    ) as (
        engine,
        router,
    ):
        ours = [await served(router, ids) for ids in asked]
        speed = await speeds(router, model, asked[0])
        moved = await through_switches(router, OwnSwitch(engine, router), shapes, subject, asked)
    return {
        **provenance(),
        "load_average": os.getloadavg(),
        "stolen_s": (stolen_now_s() or 0.0) - stolen_s,
        "at_rest": compared(ours, theirs),
        "through_switches": {**compared(moved, theirs), "switches": SWITCHES, "shapes": list(shapes)},
        "speed": speed,
    }


def main() -> None:
    """Measure, print, and say whether the tokens are right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shapes", nargs="+", default=["pp2", "CPU[0,1,2]:0-30@fp32", "pp4", "1x1"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = asyncio.run(measured(options.folder, options.shapes))
    text = json.dumps(found, indent=2)
    if options.json:
        options.json.write_text(text + "\n")
    print(text)
    for part in ("at_rest", "through_switches"):
        result = found[part]
        if result["equal"] + result["two_as_good"] < result["prompts"] or result["worst_logprob"] > TOLERANCE:
            raise SystemExit(f"{part}: tokens differ from transformers'")


if __name__ == "__main__":
    main()
