"""Real replicas, routed, switched and killed: ``python -m benchmarks.replicas_live``.

Three engines of the counting model, as one set behind the service's router, under Poisson arrivals at a share of what they are
measured to sustain. Each way to route has the same arrivals, by turns. Times are those of who asks, in this process.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.counting import prompt_tokens
from benchmarks.engines import Subject
from benchmarks.provenance import ROOT, provenance, stolen_now_s
from intentctl.arguments import EngineName
from runtime.capabilities import Batching
from runtime.coordinator import Coordinator
from runtime.engine import Engine, GenerationRequest, SamplingParams
from runtime.machine import SwitchSettings
from runtime.models import Phase, Topology
from runtime.replicas.choice import Bounds
from runtime.replicas.engine import ReplicaSet
from runtime.replicas.replica import InFlight, Policy, Replica
from runtime.replicas.transition import Transition
from runtime.router import Router
from runtime.stream import GenerationParams
from runtime.tokenizer import Tokenizer
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings
from service.control.drains import LEAD_S

SET = "CPU[0]@fp32 | CPU[1]:0-4@fp32 > CPU[2]:4-8@fp32 | CPU[3]@fp32"
"""One alone, one as a pipeline over two processes, and one that is slowed down by small steps."""
SLOW = EngineSettings(num_blocks=2000, max_running=8, max_batch_tokens=16, closing_batch_tokens=8)
USUAL = EngineSettings(num_blocks=2000, max_running=32, max_batch_tokens=256)
PROMPTS = (32, 400)
ANSWERS = (8, 96)
LATE_S = 2.0
"""A goal: no first token comes later."""
RESULT = ROOT / "benchmarks" / "results" / "replicas-live-cpu.json"


class LeastOutstanding(ReplicaSet):
    """Routes to the replica with the fewest requests in flight."""

    def _chosen(self, request: GenerationRequest, tried: Sequence[Replica]) -> InFlight:
        able = self._open(request.tenant, tried)
        least = min(able, key=lambda each: len(each.requests))
        return least.in_flight(request, least.forecast(len(request.prompt), 1.0), len(request.prompt))


@dataclass(slots=True)
class Answer:
    """What who asked saw of one request."""

    at_s: float
    ttft_s: float = 0.0
    longest_s: float = 0.0
    """Between two tokens."""
    tokens: list[int] = field(default_factory=list)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """Requests with their times: the same ones for each that serves them."""

    at_s: tuple[float, ...]
    prompts: tuple[tuple[int, ...], ...]
    answers: tuple[int, ...]

    @classmethod
    def drawn(cls, checkpoint: Path, number: int, rate_rps: float, seed: int) -> "Load":
        """So many, Poisson at a rate; their lengths are uniform."""
        draw = random.Random(seed)
        at_s = np.cumsum([draw.expovariate(rate_rps) for _ in range(number)]).tolist()
        prompts = [tuple(prompt_tokens(checkpoint, draw.randrange(10**6), draw.randint(*PROMPTS))) for _ in at_s]
        return cls(tuple(at_s), tuple(prompts), tuple(draw.randint(*ANSWERS) for _ in at_s))


def five_slots() -> Subject:
    """The counting model on five devices: one is free beside the set."""
    subject = Subject.example(EngineName.TORCH)
    (node,) = subject.cluster.nodes
    gpus = (*node.gpus, replace(node.gpus[0], index=4))
    return replace(subject, cluster=replace(subject.cluster, nodes=(replace(node, gpus=gpus),)))


@asynccontextmanager
async def served(kind: type[ReplicaSet], subject: Subject) -> AsyncIterator[tuple[ReplicaSet, Router]]:
    """The set, behind a router."""
    topology = subject.topology(SET)

    async def start(replica: Topology, batching: Batching | None) -> Engine:
        settings = SLOW if 3 in replica.devices else USUAL
        return await TorchEngine.start(subject.checkpoint, replica, subject.cluster, settings, batching=batching)

    engines = [await start(replica, None) for replica in topology.replicas]
    replicas = kind(engines, start)
    replicas.policy = Policy(bounds=Bounds(ttft_s=LATE_S))
    async with Router(replicas, Tokenizer.load(subject.checkpoint)) as router:
        try:
            yield replicas, router
        finally:
            await replicas.close()


async def asked(router: Router, load: Load, number: int, began_s: float) -> Answer:
    """One request at its time."""
    await asyncio.sleep(max(0.0, began_s + load.at_s[number] - time.monotonic()))
    answer = Answer(time.monotonic() - began_s)
    last_s = begun_s = time.monotonic()
    params = GenerationParams(SamplingParams(load.answers[number]), ignore_eos=True)
    try:
        async for delta in router.generate(load.prompts[number], params):
            if delta.token_id is None:
                continue
            now_s = time.monotonic()
            if answer.tokens:
                answer.longest_s = max(answer.longest_s, now_s - last_s)
            else:
                answer.ttft_s = now_s - begun_s
            answer.tokens.append(delta.token_id)
            last_s = now_s
    except Exception as error:  # noqa: BLE001 - what breaks a stream is what is measured
        answer.error = str(error)
    return answer


async def all_asked(router: Router, load: Load) -> list[Answer]:
    """Every request of a load."""
    began_s = time.monotonic()
    return await asyncio.gather(*(asked(router, load, number, began_s) for number in range(len(load.at_s))))


def figures(load: Load, answers: Sequence[Answer]) -> dict[str, Any]:
    """What the load saw."""
    ttft_s = [answer.ttft_s for answer in answers if answer.tokens]
    return {
        "requests": len(answers),
        "ttft_p50_s": float(np.quantile(ttft_s, 0.5)),
        "ttft_p95_s": float(np.quantile(ttft_s, 0.95)),
        "gap_max_s": max(answer.longest_s for answer in answers),
        "errors": sum(bool(answer.error) for answer in answers),
        "tokens_missing": sum(wanted - len(a.tokens) for wanted, a in zip(load.answers, answers, strict=True)),
    }


async def capacity_rps(subject: Subject, number: int, clients: int) -> float:
    """Requests per second with so many clients that each ask again when they are answered."""
    load = Load.drawn(subject.checkpoint, number, 1e9, 0)
    async with served(ReplicaSet, subject) as (_, router):
        places = asyncio.Semaphore(clients)

        async def next_asked(place: int) -> Answer:
            async with places:
                return await asked(router, load, place, 0.0)

        began_s = time.monotonic()
        await asyncio.gather(*map(next_asked, range(number)))
        return number / (time.monotonic() - began_s)


async def routed(subject: Subject, load: Load) -> dict[str, Any]:
    """By predicted finish, and by requests in flight."""
    found = dict[str, Any]()
    for kind in (ReplicaSet, LeastOutstanding):
        async with served(kind, subject) as (replicas, router):
            await all_asked(router, Load.drawn(subject.checkpoint, 48, 8.0, 99))  # nobody has measured anything before
            answers = await all_asked(router, load)
            found[kind.__name__] = figures(load, answers)
            taken = {str(each.engine.topology): each.num_taken for each in replicas.replicas}
            found[kind.__name__]["taken"] = taken
    return found


class Journal:
    """Of switches that nobody restarts from."""

    async def write(self, switch_id: str, phase: Phase, detail: str) -> None:
        """Kept nowhere."""


async def switched(subject: Subject, load: Load, times: int) -> dict[str, Any]:
    """One replica switches so often, evenly over the load, while it is served; with 0 it is the sham."""
    async with served(ReplicaSet, subject) as (replicas, router):
        coordinator = Coordinator(replicas, router, Journal(), SwitchSettings())
        sides = [
            subject.topology(SET),
            subject.topology(SET.replace("CPU[1]:0-4@fp32 > CPU[2]:4-8@fp32", "CPU[1,2]@fp32")),
        ]
        under_way = asyncio.create_task(all_asked(router, load))
        began_s = time.monotonic()
        outcomes = list[str]()
        for number in range(times):
            due_s = began_s + load.at_s[-1] * number / times
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            report = await coordinator.switch(sides[(number + 1) % 2], f"switch-{number}", lambda _: None)
            outcomes.append(report.phase.value)
        answers = await under_way
        found = figures(load, answers)
        found |= {
            "switches": outcomes.count("done"),
            "lost": router.counts.lost,
            "duplicates": router.counts.duplicates,
        }
        found["late"] = sum(answer.ttft_s > LATE_S for answer in answers)
        return found


async def killed(subject: Subject, load: Load) -> dict[str, Any]:
    """One replica is killed in the middle of a load."""
    async with served(ReplicaSet, subject) as (replicas, router):
        under_way = asyncio.create_task(all_asked(router, load))
        await asyncio.sleep(load.at_s[len(load.at_s) // 2])
        victim = replicas.replicas[0]
        had = len(victim.requests)
        os.kill(victim.engine._driver.pid, signal.SIGKILL)  # type: ignore[attr-defined] # noqa: SLF001
        answers = await under_way
        return {**figures(load, answers), "in_flight_at_kill": had, "lost": router.counts.lost}


async def drained(subject: Subject, target: str, number: int, by_s: float) -> dict[str, Any]:
    """So many streams are open when a set leaves devices; what has not ended in time moves."""
    load = Load((0.0,) * number, Load.drawn(subject.checkpoint, number, 1.0, 5).prompts, (400,) * number)
    async with served(ReplicaSet, subject) as (replicas, router):
        under_way = asyncio.create_task(all_asked(router, load))
        while sum(len(each.requests) for each in replicas.replicas) < number:  # noqa: ASYNC110 - processes bring it about
            await asyncio.sleep(0.01)

        def hurry() -> None:
            replicas.be_patient(0.0)

        began_s = time.monotonic()
        asyncio.get_running_loop().call_later(by_s - LEAD_S, replicas.be_patient, 0.0)
        way = Transition(Coordinator(replicas, router, Journal(), SwitchSettings()), replicas, "drain", lambda _: None)
        report = await way.run(subject.topology(target), None)
        empty_s = time.monotonic() - began_s
        answers = await under_way
        found = {**figures(load, answers), "empty_after_s": empty_s, "by_s": by_s, "ended": report.phase.value}
        return {
            **found,
            "lost": router.counts.lost,
            "duplicates": router.counts.duplicates,
            "left": report.left_to_drain,
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all of it."""
    options = parser().parse_args(arguments)
    subject = five_slots()
    stolen_s = stolen_now_s()
    capacity = asyncio.run(capacity_rps(subject, options.requests, 64))
    rate_rps = options.share * capacity
    print(f"capacity {capacity:.2f} requests/s", file=sys.stderr)
    loads = [Load.drawn(subject.checkpoint, options.requests, rate_rps, seed) for seed in range(1, options.turns + 1)]
    long = Load.drawn(subject.checkpoint, 3 * options.requests, rate_rps, 0)
    turns = [asyncio.run(routed(subject, load)) for load in loads]
    ratios = [turn["ReplicaSet"]["ttft_p95_s"] / turn["LeastOutstanding"]["ttft_p95_s"] for turn in turns]
    document = {
        "benchmark": "replicas_live",
        **provenance(),
        "parameters": {
            "set": SET,
            "requests": options.requests,
            "share": options.share,
            "prompts": PROMPTS,
            "answers": ANSWERS,
        },
        "capacity_rps": capacity,
        "routing": turns,
        "ttft_p95_by_least_outstanding": ratios,
        "sham": asyncio.run(switched(subject, long, 0)),
        "switched": asyncio.run(switched(subject, long, options.switches)),
        "killed": asyncio.run(killed(subject, loads[0])),
        "drained_by_other_replicas": asyncio.run(drained(subject, "CPU[0]@fp32", 32, 5.0)),
        "drained_by_switch": asyncio.run(drained(subject, SET.replace("CPU[0]@", "CPU[4]@"), 32, 5.0)),
        "stolen_s": (stolen_now_s() or 0.0) - (stolen_s or 0.0),
    }
    options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document, indent=1))
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser("python -m benchmarks.replicas_live", description=__doc__)
    found.add_argument("--requests", type=int, default=400)
    found.add_argument("--share", type=float, default=0.85, help="of the capacity, that arrives")
    found.add_argument("--turns", type=int, default=2)
    found.add_argument("--switches", type=int, default=20)
    found.add_argument("--json", type=Path, default=RESULT)
    return found


if __name__ == "__main__":
    sys.exit(main())
