"""Requests whose tokens depend on more than the model move too: noise, penalties and biases go on as they were."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import jsonschema
import pytest
import torch

from runtime import grammar
from runtime.engine import Cut, Finish
from runtime.errors import SwitchError
from runtime.models import Reason
from runtime.tokenizer import Tokenizer
from runtime.vllm_engine.models import Stay
from runtime.vllm_engine.switch import VllmShadow
from tests.runtime.vllm_engine.streams import (
    CHECKPOINT,
    LOGPROB_TOLERANCE,
    SAMPLING,
    Streams,
    counting,
    prompts,
    settings,
    topology,
)

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 20, "maxLength": 40},
        "sizes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 999}, "minItems": 30, "maxItems": 30},
    },
    "required": ["name", "sizes"],
    "additionalProperties": False,
}  # fmt: skip
WARM = replace(SAMPLING, temperature=1.0)
SEEDED = {
    f"seeded {n}": replace(WARM, seed=seed, top_p=top_p, top_k=top_k, min_p=min_p)
    for n, (seed, top_p, top_k, min_p) in enumerate(
        [(7, 1, 0, 0), (-3, 0.9, 0, 0), (2**40, 1, 9, 0), (8, 1, 0, 0.05)]
    )
}
COUNTING = {
    "greedy": SAMPLING,
    "presence": replace(SAMPLING, presence_penalty=1.5),
    "frequency": replace(SAMPLING, frequency_penalty=0.4),
    "repetition": replace(SAMPLING, repetition_penalty=1.3),
    "bias": replace(SAMPLING, logit_bias=((3, -2.0), (19, 4.0))),
    "seeded penalties": replace(WARM, seed=9, presence_penalty=0.7, frequency_penalty=0.3),
    "document": replace(WARM, seed=12, grammar=grammar.json_schema(SCHEMA), stop_token_ids=(1,)),
}
UNSEEDED = {"unseeded 0": WARM}
ALL = SEEDED | COUNTING | UNSEEDED
PROMPTS = dict(zip(ALL, prompts().values(), strict=True))
TOKENIZER = Tokenizer.load(CHECKPOINT)
LONG = counting(13, 3, 800)
"""Is computed in four steps, the last of them after the switch; a draw for each but the last is undone."""


@cache
def model() -> Any:
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(CHECKPOINT, dtype=torch.float32).eval()


def forced(prompt: tuple[int, ...], output: list[int]) -> list[float]:
    """The logprob of each token of ``output`` after those before it, by a model that never was in an engine."""
    with torch.inference_mode():
        logits = model()(torch.tensor([[*prompt, *output]])).logits[0, len(prompt) - 1 : -1]
    chances = torch.log_softmax(logits.float(), dim=-1)
    return [float(chances[n, token]) for n, token in enumerate(output)]


def difference(ours: list[float], theirs: list[float]) -> float:
    """The largest, as a share of logprobs beyond -1: penalties and noise bring unlikely tokens, to -30."""
    return max(abs(a - b) / max(1.0, abs(a)) for a, b in zip(ours, theirs, strict=True))


async def switched_in_the_middle(streams: Streams, source: str, target: str) -> Cut:
    await streams.be(topology(source))
    for name, prompt in PROMPTS.items():
        await streams.submit(f"{name} unswitched", prompt, ALL[name])
    await streams.submit("long unswitched", LONG, SEEDED["seeded 0"])
    await streams.ended(*streams.said)
    shadow = await streams.prepared(topology(target))
    for name, prompt in PROMPTS.items():
        await streams.submit(name, prompt, ALL[name])
    await streams.have(20, *PROMPTS)
    await streams.synced(shadow)
    await streams.submit("long", LONG, SEEDED["seeded 0"])
    done = await streams.cut(shadow)
    await shadow.drain()
    await shadow.release()
    await streams.ended(*PROMPTS, "long")
    assert (done.left_to_drain, done.stays) == ((), {})
    assert set(done.moved) == {*PROMPTS, "long"}
    return done


def say_the_same(streams: Streams) -> None:
    for name in [*SEEDED, *COUNTING, "long"]:
        assert streams.tokens(name) == streams.tokens(f"{name} unswitched"), name
        unswitched = streams.logprobs(f"{name} unswitched")
        assert difference(streams.logprobs(name), unswitched) < LOGPROB_TOLERANCE, name
    for name in [*SEEDED, *UNSEEDED]:
        by_the_model = forced(PROMPTS[name], streams.tokens(name))
        assert difference(streams.logprobs(name), by_the_model) < LOGPROB_TOLERANCE, name
    jsonschema.validate(json.loads(TOKENIZER.decode(streams.tokens("document"))), SCHEMA)
    assert {streams.said[name][-1].finish for name in ("document", "document unswitched")} == {Finish.STOP}
    for name in UNSEEDED:
        assert streams.tokens(name) != streams.tokens(f"{name} unswitched"), (
            "it drew from the engine's own noise"
        )


@pytest.mark.parametrize(
    ("source", "target"), [("1x1", "tp2"), ("tp2", "1x1"), ("1x1", "pp2"), ("pp2", "tp2")]
)
async def test_what_depends_on_the_output_goes_on_as_without_a_switch(
    streams: Streams, source: str, target: str
) -> None:
    done = await switched_in_the_middle(streams, source, target)
    assert done.paths == {"patch": 13}
    say_the_same(streams)


async def test_it_does_so_where_the_target_computes_the_kv_itself(streams: Streams) -> None:
    with settings(streams.engine, path="follow"):
        done = await switched_in_the_middle(streams, "1x1", "tp2")
    assert done.paths == {"follow": 13}
    say_the_same(streams)


async def test_it_does_so_over_many_switches(streams: Streams) -> None:
    wanted = replace(ALL["seeded penalties"], max_tokens=900)
    await streams.be(topology("1x1"))
    await streams.submit("unswitched", PROMPTS["greedy"], wanted)
    await streams.ended("unswitched")
    await streams.submit("switched", PROMPTS["greedy"], wanted)
    moved = 0
    while not streams.has_ended("switched") and moved < 6:
        await streams.have(20 + 20 * moved, "switched")
        moved += len((await streams.switch(topology("tp2" if moved % 2 == 0 else "1x1"))).moved)
    await streams.ended("switched")
    assert moved == 6
    assert streams.tokens("switched") == streams.tokens("unswitched")


async def drawing_otherwise(streams: Streams) -> VllmShadow:
    """A switch to an engine that is said to draw other noise from a seed, with two seeded requests and one without."""
    await streams.be(topology("1x1"))
    shadow = await streams.engine.prepare(topology("tp2"))
    target = await shadow._starting
    target.started, kept = replace(target.started, runner="V2"), target.started
    await shadow.ready()
    target.started = kept
    for name in ("seeded 0", "seeded 1", "unseeded 0"):
        await streams.submit(f"{name} unswitched", PROMPTS[name], ALL[name])
        await streams.submit(name, PROMPTS[name], ALL[name])
    await streams.have(10, "seeded 0", "seeded 1", "unseeded 0")
    await streams.synced(shadow)
    return shadow


async def test_what_cannot_move_is_let_end_where_it_is_and_told_why(streams: Streams) -> None:
    shadow = await drawing_otherwise(streams)
    before = streams.ledger.epoch
    done = await streams.cut(shadow)
    assert {"seeded 0", "seeded 1"} <= set(done.left_to_drain)
    assert done.stays == {Stay.SEED.value: len(done.left_to_drain)}
    assert "unseeded 0" in done.moved
    await shadow.drain()
    await shadow.release()
    for name in ("seeded 0", "seeded 1"):
        assert streams.epochs(name) == [before]
        assert streams.tokens(name) == streams.tokens(f"{name} unswitched")
    await streams.ended("unseeded 0")


async def test_a_deployment_may_refuse_a_switch_that_leaves_requests_behind(streams: Streams) -> None:
    with settings(streams.engine, drain="refuse"):
        shadow = await drawing_otherwise(streams)
        with pytest.raises(
            SwitchError, match=r"requests cannot move to TP2 \(\d the target's model runner"
        ) as refusal:
            await streams.cut(shadow)
        await shadow.abort(refusal.value.reason)
    assert refusal.value.reason is Reason.UNSUPPORTED
    assert streams.engine.topology == topology("1x1")
    await streams.ended("seeded 0", "seeded 1", "unseeded 0")
    assert streams.tokens("seeded 0") == streams.tokens("seeded 0 unswitched")


async def test_a_deadline_of_the_deployments_ends_what_did_not_end_by_itself(streams: Streams) -> None:
    with settings(streams.engine, drain_timeout_s=1e-3):
        shadow = await drawing_otherwise(streams)
        await streams.cut(shadow)
        await shadow.drain()
        await shadow.release()
    ends = [streams.said[name][-1] for name in ("seeded 0", "seeded 1")]
    assert all("did not end in 0.001 s; send the request again" in end.detail for end in ends)
    await streams.ended("unseeded 0")
