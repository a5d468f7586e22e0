"""What a lost engine costs its streams: ``python -m benchmarks.recovery [--kills N] [--chaos-s S] [--json FILE]``.

The built-in engine on the counting checkpoint, twelve greedy streams. A driver or a rank is killed again and again, each time as
after a minute of service: from the moment it is noticed to an engine that serves, and from there to the next token. The same
from the kill of a rank to the next token, where a topology stands by. Then chaos in the whole service on
``examples/local-cpu.yaml``: 32 streams that begin anew, a switch every five seconds and a kill every twenty; each finished
stream is compared with the same request before it. Then the same service with a device whose worker dies at each start.
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
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, cast

from benchmarks.provenance import ROOT, provenance, stolen_now_s
from runtime.coordinator import Coordinator
from runtime.engine import EngineState, SamplingParams
from runtime.errors import EngineLostError, RuntimeFault
from runtime.machine import SwitchSettings
from runtime.models import Cluster, Gpu, Link, Node
from runtime.notation import parse_topology
from runtime.process.liveness import Pauses
from runtime.router import Router
from runtime.stream import Delta, GenerationParams
from runtime.tokenizer import Tokenizer
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings
from service.control.composition import Composition, compose
from service.deployment.file import load
from service.deployment.settings import Settings

Document = dict[str, Any]
CHECKPOINT = ROOT / "examples" / "counting"
STREAMS, TOKENS = 12, 600
CLIENTS, CHAOS_TOKENS, SWITCH_EVERY_S, KILL_EVERY_S = 32, 200, 5.0, 20.0
HELD_EVERY_S = 30.0
SHAPES = ("pp2", "tp2", "1x1")
BAR_S, STANDBY_BAR_S, SICK_BAR_S = 3.0, 1.0, 15.0
"""Noticed to the next token, in the median; the same from the kill where a topology stands by; to service without a device."""
IMPORTED_S = 8.0
"""After which a spare driver process has imported what it needs."""


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
    print(json.dumps({key: document[key] for key in ("kills", "standby", "sick", "chaos", "missed")}, indent=1))
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(bool(document["missed"]))


async def _measured(kills: int, chaos_s: float) -> Document:
    node = Node("here", tuple(Gpu(number, "cpu", 2 << 30) for number in range(3)), Link("shared-memory", 1e10, 1e-6))
    cluster = Cluster((node,))
    start = parse_topology("pp2", cluster, 8, "fp32")
    settings = EngineSettings(num_blocks=512, max_running=CLIENTS, spare=True)
    engine = await TorchEngine.start(CHECKPOINT, start, cluster, settings)
    try:
        async with Router(engine, Tokenizer.load(CHECKPOINT)) as router:
            whole = [await _said(router, place, TOKENS, []) for place in range(STREAMS)]
            rounds = [await _killed(engine, router, number, whole) for number in range(kills)]
            stood_s = [await _stood_in(engine, router, cluster) for _ in range(max(1, kills // 2))]
    finally:
        await engine.close()
    chaos = await _chaos(chaos_s) if chaos_s else {}
    sick = await _sick()
    together = median([one["ready_s"] + one["token_s"] for one in rounds])
    missed = [f"{together:.2f} s from noticed to the next token"] if together > BAR_S else []
    if median(stood_s) > STANDBY_BAR_S:
        missed.append(f"{median(stood_s):.2f} s to the next token though a topology stood by")
    if sick["ready_s"] > SICK_BAR_S:
        missed.append(f"{sick['ready_s']:.1f} s until the rest served without a device")
    failed = [one for one in (*rounds, sick, chaos) if one and (one["wrong"] or one["errors"])]
    missed += ["chaos took devices out"] if chaos.get("out") else []
    missed += [f"{one['wrong']} wrong, {one['errors']} errors" for one in failed]
    kinds = {name: median([one[name] for one in rounds]) for name in ("ready_s", "token_s")}
    found = kinds | {"together_s": together, "rounds": rounds}
    standby = {"token_s": median(stood_s), "rounds": stood_s}
    return {"kills": found, "standby": standby, "sick": sick, "chaos": chaos, "missed": missed}


async def _said(router: Router, number: int, tokens: int, heard: list[Delta]) -> list[int]:
    """The token ids of one greedy stream."""
    params = GenerationParams(SamplingParams(tokens), ignore_eos=True)
    async for delta in router.generate(f"count by {number % 7 + 1} from {number}: ", params):
        if not delta.is_pause:
            heard.append(delta)  # noqa: PERF401 - others look at it while it grows
    return [delta.token_id or 0 for delta in heard]


async def _killed(engine: TorchEngine, router: Router, number: int, whole: list[list[int]]) -> Document:
    """One kill under streams: how long each part of the pause took, and what went wrong."""
    await asyncio.sleep(IMPORTED_S)
    engine._pauses = Pauses()  # noqa: SLF001 - as after a steady minute
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
    return {
        "victim": "driver" if number % 2 else "rank",
        "ready_s": ready_s - noticed_s,
        "token_s": next_s - ready_s,
        "wrong": sum(isinstance(one, list) and one != other for one, other in zip(ends, whole, strict=True)),
        "errors": sum(isinstance(one, BaseException) for one in ends),
    }


async def _stood_in(engine: TorchEngine, router: Router, cluster: Cluster) -> float:
    """Seconds from the kill of a rank to the next token, where what served before stands by."""
    coordinator = Coordinator(engine, router, _Forgetful(), SwitchSettings())
    for shape in ("pp2", "cpu[2]:0-8"):
        target = parse_topology(shape, cluster, 8, "fp32")
        if engine.topology != target:
            await coordinator.switch(target, f"to {shape}", lambda _: None)
    heard: list[Delta] = []
    task = asyncio.create_task(_said(router, 0, CHAOS_TOKENS, heard))
    while len(heard) < 50:  # noqa: ASYNC110 - processes bring it about
        await asyncio.sleep(0.01)
    pid, before = (await engine.stats()).worker_pids[2], len(heard)
    killed_s = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    await task
    assert str(engine.topology) == str(parse_topology("pp2", cluster, 8, "fp32")), "it stood in"
    new = next(one for one in heard[before:] if one.fingerprint != heard[0].fingerprint)
    return new.arrived_at_s - killed_s


async def _sick() -> Document:
    """The whole service, when a device's worker is killed and dies at each start from then on."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sick = folder / "sick"
        sick.write_text("", encoding="utf-8")
        os.environ["SICK"], TorchEngine.driver_module = str(sick), "benchmarks.sick_driver"
        async with compose(load(ROOT / "examples" / "local-cpu.yaml"), Settings(data_dir=folder)) as parts:
            serving = parts.servings["counting"]
            router, engine = serving.router, cast("TorchEngine", serving.engine)
            want = [await _said(router, number, CHAOS_TOKENS, []) for number in range(4)]
            heard: list[list[Delta]] = [[] for _ in want]
            tasks = [asyncio.create_task(_said(router, place, CHAOS_TOKENS, one)) for place, one in enumerate(heard)]
            while min(map(len, heard)) < 30:  # noqa: ASYNC110 - processes bring it about
                await asyncio.sleep(0.01)
            pid = (await engine.stats()).worker_pids[1]
            sick.write_text("1", encoding="utf-8")
            killed_s = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            while not parts.devices.why(1):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
            ready_s = await _until(engine, EngineState.SERVING)
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            return {
                "ready_s": ready_s - killed_s,
                "runs": str(engine.topology),
                "out": {str(device): out.why for device, out in parts.devices.all.items()},
                "wrong": sum(isinstance(one, list) and one != other for one, other in zip(ends, want, strict=True)),
                "errors": sum(isinstance(one, BaseException) for one in ends),
            }


async def _until(engine: TorchEngine, state: EngineState) -> float:
    while engine.state is not state:  # noqa: ASYNC110 - processes bring it about
        await asyncio.sleep(0.002)
    return time.monotonic()


async def _chaos(lasts_s: float) -> Document:
    """Switches and kills in the whole service, under streams that begin anew."""
    with tempfile.TemporaryDirectory() as name:
        async with compose(load(ROOT / "examples" / "local-cpu.yaml"), Settings(data_dir=Path(name))) as parts:
            serving = parts.servings["counting"]
            want = [await _said(serving.router, number, CHAOS_TOKENS, []) for number in range(CLIENTS)]
            found = dict.fromkeys(("streams", "wrong", "errors", "switches", "given_up", "kills"), 0)
            reasons, ends_s = list[str](), time.monotonic() + lasts_s
            held = [_held()]

            async def client(number: int) -> None:
                while time.monotonic() < ends_s:
                    try:
                        found["wrong"] += await _said(serving.router, number, CHAOS_TOKENS, []) != want[number]
                    except RuntimeFault as error:
                        found["errors"] += 1
                        reasons.append(str(error))
                    found["streams"] += 1

            trouble = [_switches(parts, found), _kills(cast("TorchEngine", serving.engine), found), _watched(held)]
            tasks = [asyncio.create_task(one) for one in trouble]
            await asyncio.gather(*(client(number) for number in range(CLIENTS)))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await serving.settled()
            out = {str(device): one.why for device, one in parts.devices.all.items()}
            return found | {"seconds": lasts_s, "why": reasons[:5], "out": out, "held": held}


async def _switches(parts: Composition, found: Document) -> None:
    serving, cluster = parts.servings["counting"], parts.deployment.cluster
    coordinator = Coordinator(serving.engine, serving.router, _Forgetful(), SwitchSettings())
    for shape in itertools.cycle(SHAPES):
        await asyncio.sleep(SWITCH_EVERY_S)
        with contextlib.suppress(RuntimeFault):
            target = parse_topology(shape, cluster, 8, "fp32")
            report = await coordinator.switch(target, f"to {shape}", lambda _: None)
            found["switches" if report.reason is None else "given_up"] += 1


async def _kills(engine: TorchEngine, found: Document) -> None:
    dice = random.Random(1)
    while True:
        await asyncio.sleep(KILL_EVERY_S)
        with contextlib.suppress(EngineLostError, ProcessLookupError, IndexError):
            pids = [engine._driver.pid, *(await engine.stats()).worker_pids.values()]  # noqa: SLF001
            os.kill(dice.choice(pids), signal.SIGKILL)
            found["kills"] += 1


async def _watched(held: list[Document]) -> None:
    """What this process holds, every half minute."""
    while True:
        await asyncio.sleep(HELD_EVERY_S)
        held.append(_held())


def _held() -> Document:
    """Resident bytes and open files of this process, and how many processes run below it."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    children = Path("/proc/self/task").glob("*/children")
    return {
        "rss_mb": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "children": sum(len(one.read_text(encoding="utf-8").split()) for one in children),
    }


if __name__ == "__main__":
    sys.exit(main())
