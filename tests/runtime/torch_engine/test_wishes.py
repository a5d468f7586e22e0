"""What depends on the output beside the model - grammars, penalties, noise - in real processes and through a switch."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from runtime import grammar
from runtime.engine import Finish, Request, SamplingParams
from runtime.errors import RequestError
from runtime.models import Cluster, Gpu, Link, Node, Topology
from runtime.notation import parse_topology
from runtime.tokenizer import Tokenizer
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings
from tests.runtime.torch_engine.test_engine import Ears

pytestmark = pytest.mark.slow

CHECKPOINT = Path(__file__).parents[3] / "examples" / "counting"
CLUSTER = Cluster(
    (Node("here", tuple(Gpu(n, "cpu", 2 << 30) for n in range(2)), Link("shared-memory", 5e9, 1e-5)),)
)
SETTINGS = EngineSettings(num_blocks=128, max_running=12)
TOKENIZER = Tokenizer.load(CHECKPOINT)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 20, "maxLength": 60},
        "sizes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9999}, "minItems": 40, "maxItems": 40},
        "more": {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"], "additionalProperties": False},
    },
    "required": ["name", "sizes", "more"],
    "additionalProperties": False,
}  # fmt: skip
PLAIN = SamplingParams(300, stop_token_ids=TOKENIZER.eos_ids)
DOCUMENT = replace(PLAIN, max_tokens=500, grammar=grammar.json_schema(SCHEMA), temperature=1.3, min_p=0.02)
WISHES = {
    "document": replace(DOCUMENT, seed=4),
    "another": replace(DOCUMENT, seed=5, presence_penalty=0.5),
    "frequency": replace(PLAIN, frequency_penalty=0.5),
    "repetition": replace(PLAIN, repetition_penalty=1.4, presence_penalty=0.3),
    "bias": replace(PLAIN, logit_bias=((19, 4.0), (20, -100.0))),
    "seeded": replace(PLAIN, temperature=1.0, seed=6, min_p=0.05, top_k=20),
}


def topology(shape: str) -> Topology:
    return parse_topology(shape, CLUSTER, 8, "fp32")


def request(name: str, sampling: SamplingParams) -> Request:
    prompt = TOKENIZER.encode(f"count by {len(name)} from 11: 11 ")
    return Request(name, prompt, sampling, epoch=1)


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[tuple[TorchEngine, Ears]]:
    engine = await TorchEngine.start(CHECKPOINT, topology("1x1"), CLUSTER, SETTINGS)
    try:
        yield engine, Ears(engine)
    finally:
        await engine.close()


async def said_with_switches(*targets: str) -> dict[str, list[tuple[int | None, float]]]:
    async with running() as (engine, ears):
        for name, sampling in WISHES.items():
            await engine.submit(request(name, sampling))
        for epoch, target in enumerate(targets, start=2):
            for name in WISHES:
                await ears.have(name, 20 * (epoch - 1))
            shadow = await engine.prepare(topology(target))
            await shadow.ready()
            while (await shadow.lag()).tokens > 8 * len(WISHES):
                pass
            assert set((await shadow.cut(epoch, 5.0)).moved) == set(WISHES)
            await shadow.release()
        await ears.all_ended(len(WISHES))
        assert {name: tokens[-1].finish for name, tokens in ears.tokens.items()} == {
            name: Finish.STOP if sampling.grammar else Finish.LENGTH for name, sampling in WISHES.items()
        }
        return ears.said()


async def test_a_switch_changes_nothing_of_it() -> None:
    unswitched = await said_with_switches()
    for name in ("document", "another"):
        text = TOKENIZER.decode([token for token, _ in unswitched[name] if token is not None])
        jsonschema.validate(json.loads(text), SCHEMA)
    assert len({str(said) for said in unswitched.values()}) == len(WISHES)
    switched = await said_with_switches("tp2", "1x1", "pp2")
    for name, said in unswitched.items():
        assert [token for token, _ in switched[name]] == [token for token, _ in said], name
        logprobs = zip(
            [logprob for _, logprob in switched[name]], [logprob for _, logprob in said], strict=True
        )
        # penalties bring unlikely tokens, whose logprobs are large
        # The source sums in one rank and the target in two: float32 sums of another order.
        assert max(abs(a - b) / max(1.0, abs(a)) for a, b in logprobs) < 5e-4, name


async def test_a_grammar_that_passes_its_limits_ends_its_own_request_alone() -> None:
    ambiguous = grammar.context_free('start: e\ne: e e | e e e | "1"')
    async with running() as (engine, ears):
        await engine.submit(request("ambiguous", replace(PLAIN, grammar=ambiguous)))
        await engine.submit(request("plain", replace(PLAIN, max_tokens=60)))
        await ears.all_ended(2)
        end = ears.tokens["ambiguous"][-1]
        assert (end.finish, "grammar can go no further" in end.detail) == (Finish.ERROR, True)
        assert ears.tokens["plain"][-1].finish is Finish.LENGTH
        assert (await engine.stats()).free_blocks > 100


async def test_a_request_that_is_cancelled_while_its_grammar_is_compiled_never_begins() -> None:
    many = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(1500)}}
    async with running() as (engine, ears):
        wanted = request("large", replace(PLAIN, grammar=grammar.json_schema(many)))
        submitting = asyncio.create_task(engine.submit(wanted))
        await asyncio.sleep(0)
        await engine.cancel("large")
        with pytest.raises(RequestError, match="cancelled"):
            await submitting
        stats = await engine.stats()
        assert (stats.running, stats.waiting, ears.tokens) == (0, 0, {})


@pytest.mark.parametrize(
    ("sampling", "said"),
    [
        (replace(PLAIN, logit_bias=((98, 1.0),)), "logit_bias: token 98 is not in the vocabulary of 98"),
        (replace(PLAIN, temperature=1.0), "needs a seed"),
        (replace(PLAIN, grammar=grammar.regex("(")), "the grammar cannot be followed: .*invalid regex"),
    ],
)
async def test_what_cannot_be_sampled_is_refused(sampling: SamplingParams, said: str) -> None:
    async with running() as (engine, _):
        with pytest.raises(RequestError, match=said):
            await engine.submit(request("r", sampling))
