"""One built-in engine that generates when told to and says how long it took: a side of ``benchmarks.engine``.

Reads lines ``FIRST COUNT`` from stdin: generate for the prompts of these numbers. Answers each with a line of JSON
``{"tokens": ..., "seconds": ...}``, after one ``{}`` when the engine is up. Ends with stdin.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.counting import prompt_tokens
from runtime.engine import GenerationRequest, Output, SamplingParams, Token
from runtime.models import Cluster, Gpu, Link, Node, uniform
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.worker.checkpoint import Checkpoint

_MEMORY_BYTES = 1 << 36  # of the one device: what is not used is never touched


def main() -> None:
    """Start the engine and answer until stdin ends."""
    asyncio.run(serve(parser().parse_args()))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__)
    found.add_argument("checkpoint", type=Path)
    found.add_argument("--context", type=int, required=True)
    found.add_argument("--output", type=int, required=True)
    found.add_argument("--temperature", type=float, default=0.0)
    return found


async def serve(options: argparse.Namespace) -> None:
    """Answer until stdin ends."""
    cluster = Cluster((Node("local", (Gpu(0, "CPU", _MEMORY_BYTES),), Link("shared-memory", 5e9, 3e-5)),))
    topology = uniform(cluster, "CPU", 1, 1, Checkpoint(options.checkpoint).spec.num_layers, "fp32")
    engine = await TorchEngine.start(options.checkpoint, topology, cluster)
    try:
        print("{}", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            first, count = map(int, line.split())
            found = await generate(engine, list(requests(options, range(first, first + count))))
            print(json.dumps(found), flush=True)
    finally:
        await engine.close()


def requests(options: argparse.Namespace, numbers: range) -> Iterator[GenerationRequest]:
    """What is asked of the engine, past every end token."""
    for number in numbers:
        prompt = tuple(prompt_tokens(options.checkpoint, number, options.context))
        sampling = SamplingParams(options.output, temperature=options.temperature, seed=number)
        yield GenerationRequest(str(number), prompt, sampling, 0)


async def generate(engine: TorchEngine, wanted: list[GenerationRequest]) -> dict[str, float]:
    """Generate for these at once, to the end.

    Raises:
        RuntimeFault: the engine refuses one.
    """
    started_s = time.perf_counter()
    await asyncio.gather(*(engine.submit(request) for request in wanted))
    tokens, left = 0, len(wanted)
    async for batch in engine.outputs():
        tokens += sum(map(_is_token, batch))
        left -= sum(isinstance(item, Token) and item.finish is not None for item in batch)
        if not left:
            break
    return {"tokens": tokens, "seconds": time.perf_counter() - started_s}


def _is_token(item: Output) -> bool:
    return isinstance(item, Token) and item.token_id is not None


if __name__ == "__main__":
    main()
