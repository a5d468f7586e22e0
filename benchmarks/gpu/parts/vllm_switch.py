"""Switches between two vLLM engines on one device: what is said stays the same, and what a cut costs.

TP and PP of vLLM need a device for each rank, so both engines are of one rank: an inventory of two devices that are one.
"""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.case import Case, run_case
from benchmarks.checkpoints import checkpoint
from benchmarks.engines import Demand, OwnPath, Subject
from benchmarks.gpu.heard import ChangedError, Heard, worst_logprob
from benchmarks.gpu.machine import Device, Machine
from benchmarks.gpu.parts.vllm_gates import why_not
from benchmarks.gpu.rows import Row, Rows
from benchmarks.parameters import Parameters
from benchmarks.report import run_document
from intentctl.arguments import EngineName
from runtime import grammar
from runtime.engine import GenerationRequest, SamplingParams
from runtime.errors import Reason, RuntimeFault
from runtime.models import Topology
from runtime.torch_engine.worker.checkpoint import Checkpoint
from runtime.vllm_engine.engine import VllmEngine
from runtime.vllm_engine.messages import PageDigests, ReleaseRequest, Suspend, Takeover
from runtime.vllm_engine.models import VllmSettings

BOUND = {"cuda": 0.05, "cpu": 1e-3}
"""Of a logprob's difference, as a share of what lies beyond -1: bfloat16 adds in another order with other batches."""
SAID = {"cuda": 400, "cpu": 100}
"""Tokens of a stream that is judged by what it says."""
OUTPUT = {"cuda": 400, "cpu": 180}
"""Tokens of a stream under load."""
SWITCHES = {"cuda": 5, "cpu": 1}
"""There and back."""
NEAR = 96
"""Tokens of lag at which a cut may begin."""
RECOVERY_S = 120


@dataclass(frozen=True, slots=True)
class Load:
    """One case of the cutover harness."""

    name: str
    pair: tuple[str, str]
    """Precision of the source and of the target."""
    path: OwnPath
    active: int
    context: int
    options: Mapping[str, Any]
    """Beside the usual."""


EAGER = {"enforce_eager": True}
LOADS = {
    "cuda": (
        Load("12 streams", ("bf16", "bf16"), "patch", 12, 300, EAGER),
        Load("64 streams", ("bf16", "bf16"), "patch", 64, 300, EAGER),
        Load("64 streams of 4k", ("bf16", "bf16"), "patch", 64, 4096, EAGER),
        Load("12 streams to fp8", ("bf16", "fp8"), "follow", 12, 300, EAGER),
        Load("12 streams to int4", ("bf16", "int4"), "follow", 12, 300, EAGER),
        Load("12 streams to int8", ("bf16", "int8"), "follow", 12, 300, EAGER),
        Load("12 streams, graphs", ("bf16", "bf16"), "patch", 12, 300, {}),
    ),
    "cpu": (Load("3 streams", ("fp32", "fp32"), "patch", 3, 40, {}),),
}
"""Most valuable first."""


def run(machine: Machine, rows: Rows) -> None:
    """A row for each case; what is judged by its bytes and tokens shares one pair of engines."""
    loads = {one.name: partial(cost, machine, one) for one in LOADS[machine.device]}
    rows.plan([*JUDGES, *loads])
    if reason := why_not():
        rows.skip([*JUDGES, *loads], reason)
        return
    asyncio.run(_judge(machine, rows))
    for name, run_load in loads.items():
        rows.take(name, run_load)


def made(machine: Machine) -> AbstractContextManager[Path]:
    """A small Llama with random weights; saved in float32, loaded in what is asked for."""
    return checkpoint({"cuda": "llama-150m", "cpu": "llama-tiny"}[machine.device])


def subject_of(machine: Machine, folder: Path, precision: str, options: Mapping[str, Any]) -> Subject:
    """The model on two devices that are one."""
    is_gpu = machine.device == "cuda"
    kv_bytes = 4 << 30 if is_gpu else 256 << 20
    settings = VllmSettings(
        options={**options, "max_num_seqs": 64, "max_num_batched_tokens": 2048 if is_gpu else 256},
        kv_cache_bytes=kv_bytes,
        staging_bytes=kv_bytes,
        visible="0,0" if is_gpu else "",
        spare=True,
    )
    return Subject(folder, Checkpoint(folder).spec, machine.cluster, precision, settings)


def way(machine: Machine, subject: Subject, device: int, precision: str) -> Topology:
    """All layers on one device."""
    return subject.topology(f"{machine.kind}[{device}]:0-{subject.spec.num_layers}@{precision}")


def cost(machine: Machine, load: Load) -> Row:
    """What a cut costs streams at the client, beside sham cuts."""
    with made(machine) as folder:
        subject = subject_of(machine, folder, load.pair[0], load.options)
        last = 0 if load.path == "follow" else 1  # what is quantised anew stands beside what it was made of
        ends = [way(machine, subject, device, one) for device, one in zip((0, last), load.pair, strict=True)]
        pair = (str(ends[0]), str(ends[1]))
        parameters = Parameters(
            EngineName.VLLM,
            (load.path,),
            (pair,),
            (load.active,),
            (SWITCHES[machine.device],),
            (load.context,),
            OUTPUT[machine.device],
        )
        parameters.check(subject)
        case = Case(parameters, subject, load.path, pair, load.active, load.context)
        document = run_document(asyncio.run(run_case(case)), machine.copy_bytes_s)
    lost = document["tokens_lost"], document["tokens_duplicated"]
    problem = document["error"] or (f"{lost[0]} tokens lost, {lost[1]} duplicated" if any(lost) else None)
    return {**document, "problem": problem}


Ends = tuple[Topology, Topology]


class Listened(Heard):
    """A vLLM engine that is listened to."""

    engine: VllmEngine  # type: ignore[assignment]  # the same protocol, without digests while it runs

    def __init__(self, engine: Any, machine: Machine) -> None:
        super().__init__(engine, machine.cluster)
        self.device: Device = machine.device

    async def begun(self, target: Topology, asked: Sequence[GenerationRequest]) -> Any:
        """The target of a switch, near enough for a cut, under requests that began when it was up."""
        shadow: Any = await self.engine.prepare(target)
        await shadow.ready()
        await self.submit(asked)
        await self.said(20)
        while (await shadow.lag()).tokens > NEAR:
            pass
        return shadow

    async def switched(self, target: Topology, asked: Sequence[GenerationRequest]) -> Row:
        """Switch under requests.

        Raises:
            ChangedError: none of them moved.
        """
        shadow = await self.begun(target, asked)
        self.epoch += 1
        done = await shadow.cut(self.epoch, deadline_s=60)
        await shadow.release()
        if not done.moved:
            raise ChangedError("the streams ended before the cut, so nothing moved; ask for more tokens")
        return {"paths": dict(done.paths), "stays": dict(done.stays)}


async def _judge(machine: Machine, rows: Rows) -> None:
    precision = "bf16" if machine.device == "cuda" else "fp32"
    with made(machine) as folder:
        subject = subject_of(machine, folder, precision, EAGER)
        ends = way(machine, subject, 0, precision), way(machine, subject, 1, precision)
        began_s = time.perf_counter()
        engine: Any = await subject.start(ends[0], "patch", Demand(64, 4096))
        row = {"start_s": round(time.perf_counter() - began_s, 2), "free_bytes": engine.active.started.free_bytes}
        heard = Listened(engine, machine)
        try:
            for name, judge in JUDGES.items():
                rows.say(name, row | await _found(judge(heard, ends)))
        finally:
            await engine.close()


async def _found(judged: Awaitable[Row]) -> Row:
    """What a case found, or its problem."""
    try:
        return await judged
    except (ChangedError, RuntimeFault, TimeoutError) as problem:
        return {"problem": f"{type(problem).__name__}: {problem}"}


def requests(device: Device, run_number: int) -> list[GenerationRequest]:
    """Greedy, seeded, with penalties, a document by a JSON schema; of the epoch before the switch."""
    plain = SamplingParams(SAID[device])
    warm = replace(plain, temperature=1.0)
    schema: Any = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    kinds = {
        "greedy": plain,
        "seeded": replace(warm, seed=7),
        "seeded, top p": replace(warm, seed=8, top_p=0.9),
        "presence": replace(plain, presence_penalty=1.5),
        "seeded penalties": replace(warm, seed=9, presence_penalty=0.7, frequency_penalty=0.3),
        "document": replace(warm, seed=12, grammar=grammar.json_schema(schema)),
    }  # fmt: skip
    return [
        GenerationRequest(
            f"{name}/{run_number}", tuple((7 * at + 31 * number) % 1000 for at in range(50 + 40 * number)), one, 0
        )
        for number, (name, one) in enumerate(kinds.items())
    ]


async def pages(heard: Listened, ends: Ends) -> Row:
    """Each page of KV that arrives is, by its digest, the one that was sent; the switch is given up then.

    Raises:
        ChangedError: one is not.
    """
    asked = [replace(request, sampling=SamplingParams(1000)) for request in requests(heard.device, 2)]
    shadow = await heard.begun(ends[1], asked)
    here, there = shadow._source, shadow._target  # noqa: SLF001 - what is asked is not in the protocol
    names = tuple(request.request_id for request in asked)
    await there.call(Suspend(()))  # so that the first step does not write
    state = await here.call(Suspend(names))
    sent = {name: await here.call(PageDigests(name)) for name in names}
    releases = [ReleaseRequest(name, 0, 0, state.extents[name]) for name in names]
    await there.call(Takeover(releases, shadow._news()))  # noqa: SLF001
    arrived = {name: await there.call(PageDigests(name)) for name in names}
    await shadow.abort(Reason.CANCELLED)
    for name in names:
        await heard.engine.cancel(name)
    if wrong := [name for name in names if sent[name] != arrived[name]]:
        raise ChangedError(f"pages of {', '.join(wrong)} are not what was sent")
    return {"pages": sum(map(len, sent.values()))}


async def tokens(heard: Listened, ends: Ends) -> Row:
    """Every stream says over a switch what it said without one.

    Raises:
        ChangedError: it does not.
    """
    await heard.submit(requests(heard.device, 0))
    await heard.more(SAID[heard.device])
    asked = requests(heard.device, 1)
    row = await heard.switched(ends[1], asked)
    await heard.more(SAID[heard.device])
    names = [request.request_id.partition("/")[0] for request in asked]
    worst = max(worst_logprob(heard.tokens[f"{name}/1"], heard.tokens[f"{name}/0"]) for name in names)
    if not worst <= BOUND[heard.device]:
        raise ChangedError(f"a logprob differs by {worst:.2g}, over {BOUND[heard.device]:.2g}")
    return {**row, "worst_logprob_difference": worst}


async def killed(heard: Listened, _ends: Ends) -> Row:
    """After the loss of an engine another serves by itself."""
    engine = heard.engine
    lost = engine.active
    began_s = time.perf_counter()
    os.kill(lost.pid, signal.SIGKILL)
    async with asyncio.timeout(RECOVERY_S):
        while engine.active is lost:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    await heard.submit(requests(heard.device, 3))
    await heard.said(5)
    return {"back_s": round(time.perf_counter() - began_s, 2)}


JUDGES: dict[str, Callable[[Listened, Ends], Awaitable[Row]]] = {
    "pages": pages, "tokens": tokens, "a killed engine": killed,
}  # fmt: skip
