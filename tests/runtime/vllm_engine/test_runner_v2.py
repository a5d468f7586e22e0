"""vLLM's model runner V2, which GPUs have, on a CPU: its Triton kernels are interpreted."""

from dataclasses import replace
from pathlib import Path

import pytest

from runtime.engine import Cut
from runtime.vllm_engine.engine import VllmEngine
from tests.runtime.vllm_engine.streams import (
    CHECKPOINT,
    CLUSTER,
    KINDS,
    LOGPROB_TOLERANCE,
    SETTINGS,
    Streams,
    counting,
    difference,
    hearing,
    settings,
    topology,
)

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.asyncio]

INTERPRETED = Path(__file__).parent / "interpreted"
NOT_INTERPRETED = ("seeded 1", "seeded 2", "document")
"""The interpreter does not know all that the kernels of top-p, top-k and grammars use."""
ASKED = {
    name: replace(sampling, max_tokens=60)
    for name, sampling in KINDS.items()
    if name not in (*NOT_INTERPRETED, "unseeded")
}


async def submit(streams: Streams, run: str) -> list[str]:
    names = [f"{name}, {run}" for name in ASKED]
    for number, (name, sampling) in enumerate(zip(names, ASKED.values(), strict=True)):
        await streams.submit(name, counting(4 + number, number, 40), sampling)
    return names


async def switched(streams: Streams, target: str, run: str) -> Cut:
    shadow = await streams.prepared(topology(target))
    names = await submit(streams, run)
    await streams.have(20, *names)
    await streams.synced(shadow)
    done = await streams.cut(shadow)
    await shadow.release()
    await streams.ended(*names)
    return done


async def test_seeds_and_penalties_go_on_where_they_were(monkeypatch):
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("PYTHONPATH", str(INTERPRETED), prepend=":")
    engine = await VllmEngine.start(CHECKPOINT, topology("1x1"), CLUSTER, SETTINGS)
    try:
        assert engine.active.started.runner == "V2"
        async with hearing(engine) as streams:
            await streams.ended(*await submit(streams, "unswitched"))
            for path, target in (("patch", "tp2"), ("follow", "1x1")):
                with settings(engine, path=path):
                    done = await switched(streams, target, path)
                assert done.paths == {path: len(ASKED)}
                for name in ASKED:
                    own, unswitched = f"{name}, {path}", f"{name}, unswitched"
                    assert streams.tokens(own) == streams.tokens(unswitched), own
                    worst = difference(streams.logprobs(own), streams.logprobs(unswitched))
                    assert worst < LOGPROB_TOLERANCE, own
    finally:
        await engine.close()
