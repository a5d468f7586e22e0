"""What depends on the output beside the model - grammars, penalties, noise - in real processes and through a switch."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import pytest_asyncio

from runtime import grammar
from runtime.engine import Finish, GenerationRequest, SamplingParams, Token
from runtime.errors import RequestError
from runtime.tokenizer import Tokenizer
from runtime.torch_engine.models import EngineSettings
from tests.runtime.scripted import cluster_of
from tests.runtime.torch_engine.ears import Ears, hearing, started

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

CHECKPOINT = Path(__file__).parents[4] / "examples" / "counting"
TOKENIZER = Tokenizer.load(CHECKPOINT)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 20, "maxLength": 60},
        "sizes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9999}, "minItems": 25, "maxItems": 25},
        "more": {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"], "additionalProperties": False},
    },
    "required": ["name", "sizes", "more"],
    "additionalProperties": False,
}  # fmt: skip
PLAIN = SamplingParams(200, stop_token_ids=TOKENIZER.eos_ids)
DOCUMENT = replace(PLAIN, max_tokens=500, grammar=grammar.json_schema(SCHEMA), temperature=1.3, min_p=0.02)
WISHES = {
    "document": replace(DOCUMENT, seed=4),
    "another": replace(DOCUMENT, seed=5, presence_penalty=0.5),
    "frequency": replace(PLAIN, frequency_penalty=0.5),
    "repetition": replace(PLAIN, repetition_penalty=1.4, presence_penalty=0.3),
    "bias": replace(PLAIN, logit_bias=((19, 4.0), (20, -100.0))),
    "seeded": replace(PLAIN, temperature=1.0, seed=6, min_p=0.05, top_k=20),
}


def request(name: str, sampling: SamplingParams) -> GenerationRequest:
    prompt = TOKENIZER.encode(f"count by {len(name)} from 11: 11 ")
    return GenerationRequest(name, prompt, sampling, epoch=1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine():
    settings = EngineSettings(num_blocks=128, max_running=12)
    async with started(CHECKPOINT, "1x1", cluster_of("cpu", 2 << 30, 2), settings) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def ears(engine):
    async with hearing(engine) as made:
        yield made


@pytest.mark.parametrize(
    "ways", [("tp2",), pytest.param(("pp2", "tp2", "1x1"), marks=pytest.mark.exhaustive)], ids=["tp2", "others"]
)
async def test_a_switch_changes_nothing_of_it(ears, ways):
    await ears.be("1x1")
    wanted = [request(name, sampling) for name, sampling in WISHES.items()]
    unswitched = await ears.whole(*wanted)
    for name in ("document", "another"):
        text = TOKENIZER.decode([token.token_id for token in unswitched[name] if token.token_id is not None])
        jsonschema.validate(json.loads(text), SCHEMA)
    ids = {name: [token.token_id for token in said] for name, said in unswitched.items()}
    assert len({str(said) for said in ids.values()}) == len(WISHES)
    for target in ways:
        await is_the_same_through_a_switch(ears, wanted, unswitched, target)


async def is_the_same_through_a_switch(
    ears: Ears, wanted: list[GenerationRequest], unswitched: dict[str, list[Token]], target: str
) -> None:
    shadow = await ears.prepared(target)  # on a busy machine this takes longer than what is said
    await ears.submit(*wanted)
    for name in WISHES:
        await ears.have(name, 5)
    await shadow.lag()
    assert set((await ears.commit(shadow)).moved) == set(WISHES)
    await ears.all_ended(len(WISHES))
    for name, said in unswitched.items():
        switched = ears.tokens.pop(name)
        assert [token.token_id for token in switched] == [token.token_id for token in said], name
        assert switched[-1].finish is (Finish.STOP if WISHES[name].grammar else Finish.LENGTH)
        logprobs = [(a.logprob, b.logprob) for a, b in zip(switched, said, strict=True)]
        # penalties bring unlikely tokens, whose logprobs are large
        # The source sums in one rank and the target in two: float32 sums of another order.
        assert max(abs(a - b) / max(1.0, abs(a)) for a, b in logprobs) < 5e-4, name


async def test_a_grammar_that_passes_its_limits_ends_its_own_request_alone(engine, ears):
    ambiguous = grammar.context_free('start: e\ne: e e | e e e | "1"')
    await ears.submit(request("ambiguous", replace(PLAIN, max_tokens=300, grammar=ambiguous)))
    await ears.submit(request("plain", replace(PLAIN, max_tokens=60)))
    await ears.all_ended(2)
    end = ears.tokens["ambiguous"][-1]
    assert (end.finish, "grammar can go no further" in end.detail) == (Finish.ERROR, True)
    assert ears.tokens["plain"][-1].finish is Finish.LENGTH
    assert (await engine.stats()).free_blocks > 100


async def test_a_request_that_is_cancelled_while_its_grammar_is_compiled_never_begins(engine, ears):
    many = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(1500)}}
    wanted = request("large", replace(PLAIN, grammar=grammar.json_schema(many)))
    submitting = asyncio.create_task(engine.submit(wanted))
    await asyncio.sleep(0)
    await engine.cancel("large")
    with pytest.raises(RequestError, match="cancelled"):
        await submitting
    stats = await engine.stats()
    assert (stats.running, stats.waiting, ears.tokens) == (0, 0, {})


async def test_what_cannot_be_sampled_is_refused(ears):
    for sampling, said in (
        (replace(PLAIN, logit_bias=((98, 1.0),)), "logit_bias: token 98 is not in the vocabulary of 98"),
        (replace(PLAIN, temperature=1.0), "needs a seed"),
        (replace(PLAIN, grammar=grammar.regex("(")), "the grammar cannot be followed: .*invalid regex"),
    ):
        with pytest.raises(RequestError, match=said):
            await ears.submit(request("r", sampling))
