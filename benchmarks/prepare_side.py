"""One engine that prepares targets beside its streams when told to: a side of ``benchmarks.prepare``.

Prints ``{}`` when it is up. Reads lines with a topology from stdin: prepare it, nothing of it being there, and give it up.
Answers each with a line of JSON: seconds, and the gaps between tokens of the streams before, meanwhile, and while the next
spare is made. Runs in a checkout of an older commit too, so it uses what both have.
"""

import argparse
import asyncio
import json
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.counting import prompt_tokens
from benchmarks.engines import Subject
from benchmarks.load import Load, Recording, listen, until
from intentctl.arguments import EngineName
from runtime.errors import Reason
from runtime.router import Router
from runtime.tokenizer import Tokenizer
from runtime.vllm_engine.engine import VllmEngine

OUTPUT_TOKENS = 600
WARM_TOKENS = 30
BEFORE_S = 5.0
SPARE_TIMEOUT_S = 300.0


async def serve(options: argparse.Namespace) -> None:
    """Start the engine, and answer until stdin ends."""
    subject = Subject.example(EngineName.VLLM)
    assert subject.vllm is not None, "the example is one of vLLM"
    vllm = replace(subject.vllm, num_standby=0, **json.loads(options.settings))
    engine = await VllmEngine.start(subject.checkpoint, subject.topology("1x1"), subject.cluster, vllm)
    async with Router(engine, Tokenizer.load(subject.checkpoint)) as router:
        print("{}", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await measured(engine, router, subject, (line.strip(), options))), flush=True)
    await engine.close()


async def measured(
    engine: VllmEngine, router: Router, subject: Subject, asked: tuple[str, argparse.Namespace]
) -> dict[str, Any]:
    """One target, prepared beside streams and given up."""
    target, options = asked
    if options.has_spare:
        await asyncio.wait_for(until(lambda: engine.spare is not None and engine.spare.is_ready), SPARE_TIMEOUT_S)

    def make(number: int, max_tokens: int) -> Recording:
        prompt = prompt_tokens(Path(subject.checkpoint), number, options.context)
        return Recording(tuple(prompt), max_tokens)

    async with Load(options.streams, OUTPUT_TOKENS, make, lambda one: listen(router, one)) as load:
        await load.grow(WARM_TOKENS, time.time())
        moments = [time.time()]
        await load.watch(asyncio.sleep(BEFORE_S))
        moments.append(time.time())
        shadow = await engine.prepare(subject.topology(target))
        await load.watch(shadow.ready())
        moments.append(time.time())
        await shadow.abort(Reason.CANCELLED)
        if options.has_spare:
            began_s = time.time()
            await load.watch(
                asyncio.wait_for(until(lambda: engine.spare is not None and engine.spare.is_ready), SPARE_TIMEOUT_S)
            )
            moments += [began_s, time.time()]
    spans = dict(zip(("before", "meanwhile"), pairwise(moments[:3]), strict=True))
    if options.has_spare:
        spans["importing"] = (moments[3], moments[4])
    gaps = {name: gaps_ms(load.recordings, span) for name, span in spans.items()}
    return {"prepare_s": moments[2] - moments[1], "gaps_ms": gaps}


def gaps_ms(recordings: list[Recording], span: tuple[float, float]) -> list[float]:
    """Between two tokens of one stream that both came in a span."""
    start_s, end_s = span
    return [
        round((later - earlier) * 1e3, 2)
        for recording in recordings
        for earlier, later in pairwise(recording.arrivals_s)
        if start_s <= earlier and later <= end_s
    ]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__)
    found.add_argument("--settings", default="{}", help="fields of VllmSettings, as JSON")
    found.add_argument("--has-spare", action="store_true", help="wait until a spare is ready")
    found.add_argument("--streams", type=int, required=True)
    found.add_argument("--context", type=int, required=True)
    return found


if __name__ == "__main__":
    asyncio.run(serve(parser().parse_args()))
