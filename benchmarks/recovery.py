"""What a lost engine costs its streams: ``python -m benchmarks.recovery [--kills N] [--chaos-s S] [--json FILE]``.

The built-in engine on the counting checkpoint, twelve greedy streams. A driver or a rank is killed again and again: from the
moment it is noticed to an engine that serves, and from there to the next token. Then chaos: 32 streams that begin anew,
a switch every five seconds and a kill every twenty; each finished stream is compared with the same request before it.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.provenance import ROOT, provenance, stolen_now_s
from runtime.coordinator import Coordinator
from runtime.engine import EngineState, SamplingParams
from runtime.errors import EngineLostError, RuntimeFault
from runtime.machine import SwitchSettings
from runtime.models import Cluster, Gpu, Link, Node
from runtime.notation import parse_topology
from runtime.router import Router
from runtime.stream import Delta, GenerationParams
from runtime.tokenizer import Tokenizer
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings

Document = dict[str, Any]
CHECKPOINT = ROOT / "examples" / "counting"
STREAMS, TOKENS = 12, 600
CLIENTS, CHAOS_TOKENS, SWITCH_EVERY_S, KILL_EVERY_S = 32, 200, 5.0, 20.0
SHAPES = ("pp2", "tp2", "1x1")
BAR_S = 3.0
"""Noticed to the next token, in the median."""


class _Forgetful:
    """A journal for switches that nobody looks up."""

    async def write(self, *_: object) -> None:
        """Nothing is kept."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; the exit status is 1 where a bar is missed."""
    parser = argparse.ArgumentParser("python -m benchmarks.recovery", description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--chaos-s", type=float, default=600)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    document: Document = {"benchmark": "recovery", **provenance()}
    document |= asyncio.run(_measured(options.kills, options.chaos_s))
    document |= {"bar_s": BAR_S, "stolen_after_s": stolen_now_s()}
    print(json.dumps({key: document[key] for key in ("kills", "chaos", "missed")}, indent=1))
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(bool(document["missed"]))


async def _measured(kills: int, chaos_s: float) -> Document:
    node = Node(
        "here", tuple(Gpu(number, "cpu", 2 << 30) for number in range(2)), Link("shared-memory", 1e10, 1e-6)
    )
    cluster = Cluster((node,))
    start = parse_topology("pp2", cluster, 8, "fp32")
    settings = EngineSettings(num_blocks=512, max_running=CLIENTS)
    engine = await TorchEngine.start(CHECKPOINT, start, cluster, settings)
    try:
        async with Router(engine, Tokenizer.load(CHECKPOINT)) as router:
            rounds = [await _killed(engine, router, number) for number in range(kills)]
            chaos = await _chaos(engine, router, cluster, chaos_s) if chaos_s else {}
    finally:
        await engine.close()
    together = median([one["ready_s"] + one["token_s"] for one in rounds])
    missed = [f"{together:.2f} s from noticed to the next token"] if together > BAR_S else []
    failed = [one for one in (*rounds, chaos) if one and (one["wrong"] or one["errors"])]
    missed += [f"{one['wrong']} wrong, {one['errors']} errors" for one in failed]
    kinds = {name: median([one[name] for one in rounds]) for name in ("ready_s", "token_s")}
    return {"kills": kinds | {"together_s": together, "rounds": rounds}, "chaos": chaos, "missed": missed}


async def _said(router: Router, number: int, tokens: int, heard: list[Delta]) -> list[int]:
    """The token ids of one greedy stream."""
    params = GenerationParams(SamplingParams(tokens), ignore_eos=True)
    async for delta in router.generate(f"count by {number % 7 + 1} from {number}: ", params):
        if not delta.is_pause:
            heard.append(delta)  # noqa: PERF401 - others look at it while it grows
    return [delta.token_id or 0 for delta in heard]


async def _killed(engine: TorchEngine, router: Router, number: int) -> Document:
    """One kill under streams: how long each part of the pause took, and whether all said what they say unbroken."""
    heard: list[list[Delta]] = [[] for _ in range(STREAMS)]
    tasks = [asyncio.create_task(_said(router, place, TOKENS, one)) for place, one in enumerate(heard)]
    while min(map(len, heard)) < 50:  # noqa: ASYNC110 - processes bring it about
        await asyncio.sleep(0.01)
    victim = engine._driver.pid if number % 2 else (await engine.stats()).worker_pids[1]  # noqa: SLF001
    os.kill(victim, signal.SIGKILL)
    noticed_s = await _until(engine, EngineState.RESTARTING)
    ready_s = await _until(engine, EngineState.SERVING)
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    next_s = min(one.arrived_at_s for one in itertools.chain(*heard) if one.arrived_at_s > noticed_s)
    whole = [await _said(router, place, TOKENS, []) for place in range(STREAMS)]
    return {
        "victim": "driver" if number % 2 else "rank",
        "ready_s": ready_s - noticed_s,
        "token_s": next_s - ready_s,
        "wrong": sum(isinstance(one, list) and one != other for one, other in zip(ends, whole, strict=True)),
        "errors": sum(isinstance(one, BaseException) for one in ends),
    }


async def _until(engine: TorchEngine, state: EngineState) -> float:
    while engine.state is not state:  # noqa: ASYNC110 - processes bring it about
        await asyncio.sleep(0.002)
    return time.monotonic()


async def _chaos(engine: TorchEngine, router: Router, cluster: Cluster, lasts_s: float) -> Document:
    """Switches and kills under streams that begin anew."""
    want = [await _said(router, number, CHAOS_TOKENS, []) for number in range(CLIENTS)]
    ends_s = time.monotonic() + lasts_s
    found: Document = {
        "streams": 0,
        "wrong": 0,
        "errors": 0,
        "switches": 0,
        "given_up": 0,
        "kills": 0,
        "why": [],
    }

    async def client(number: int) -> None:
        while time.monotonic() < ends_s:
            try:
                said = await _said(router, number, CHAOS_TOKENS, [])
                found["wrong"] += said != want[number]
            except RuntimeFault as error:
                found["errors"] += 1
                found["why"].append(str(error))
            found["streams"] += 1

    async def switches() -> None:
        coordinator = Coordinator(engine, router, _Forgetful(), SwitchSettings())
        for shape in itertools.cycle(SHAPES):
            await asyncio.sleep(SWITCH_EVERY_S)
            with contextlib.suppress(RuntimeFault):
                target = parse_topology(shape, cluster, 8, "fp32")
                report = await coordinator.switch(target, f"to {shape}", lambda _: None)
                found["switches" if report.reason is None else "given_up"] += 1

    async def kills() -> None:
        dice = random.Random(1)
        while True:
            await asyncio.sleep(KILL_EVERY_S)
            with contextlib.suppress(EngineLostError, ProcessLookupError, IndexError):
                pids = [engine._driver.pid, *(await engine.stats()).worker_pids.values()]  # noqa: SLF001
                os.kill(dice.choice(pids), signal.SIGKILL)
                found["kills"] += 1

    trouble = [asyncio.create_task(switches()), asyncio.create_task(kills())]
    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    for task in trouble:
        task.cancel()
    await asyncio.gather(*trouble, return_exceptions=True)
    return found | {"seconds": lasts_s, "why": found["why"][:5]}


if __name__ == "__main__":
    sys.exit(main())
