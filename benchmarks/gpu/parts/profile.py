"""Step times of the engine on this device, the profile that they make, and how far the shipped one of its kind is off."""

import asyncio
import random
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from statistics import fmean

from benchmarks.engines import Demand, Subject
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.random_weights import random_engine_of
from benchmarks.gpu.room import standing_bytes, too_little
from benchmarks.gpu.rows import Row, Rows, SkippedError
from benchmarks.gpu.shapes import folder_of, spec_of
from benchmarks.gpu.sizes import SIZES, Sizes
from benchmarks.provenance import ROOT
from benchmarks.strategy import running
from intentctl.profile import Subject as Fitted
from intentctl.profile import report
from intentctl.steps import GAPS, PREFILLS, Design, Point, Readings, RequestLimits, read, reading_of
from intentctl.streams import Recording
from runtime.engine import SamplingParams
from runtime.errors import RuntimeFault
from runtime.router import Router
from runtime.stream import GenerationParams
from runtime.tokenizer import Tokenizer
from runtime.torch_engine.calibrate import measure
from selector.models import CpuSamples, Profile, ProfileError
from selector.performance.fit import Running
from selector.profiles import fit_cpu, load

POLL_S = 0.005
"""How often streams are looked at."""
MARGIN_TOKENS = 64
"""A decode may go on for so many tokens before all its streams speak, for each stream."""


def run(machine: Machine, rows: Rows) -> None:
    """A row for each point and round, and one for the fit."""
    sizes = SIZES[machine.device]
    with folder_of(sizes.profile_shape, "profile") as folder:
        subject = Subject(
            folder,
            spec_of(sizes.profile_shape, "profile"),
            machine.cluster,
            sizes.precision,
            torch_engine=random_engine_of,
        )
        names = {point: str(point) for point in sizes.profile.points()}
        rows.plan([*names.values(), "profile"])
        if reason := too_little(sizes.limits(machine), needed_bytes(subject, sizes.profile)):
            rows.skip([*names.values(), "profile"], reason)
            return
        readings = asyncio.run(_measured(subject, sizes, rows))
        for point, why in readings.left_out.items():
            rows.say(names[point], {"skipped": why})
        rows.take("profile", lambda: fitted(machine, subject, readings))


def needed_bytes(subject: Subject, design: Design) -> int:
    """Device memory of one rank."""
    settings = subject.settings(demand_of(design))
    assert settings.num_blocks is not None, "it follows from the demand"
    return standing_bytes(subject.spec, [subject.topology("1x1")], settings.num_blocks, settings.block_size)


async def _measured(subject: Subject, sizes: Sizes, rows: Rows) -> Readings:
    demand = demand_of(sizes.profile)
    async with running(
        lambda topology: subject.start(topology, "patch", demand),
        subject.topology("1x1"),
        Tokenizer.load(subject.checkpoint),
    ) as (_, router):
        room = RequestLimits(subject.spec.max_position_embeddings, demand.streams * demand.tokens)
        bench = Bench(router, subject.spec.vocab_size, demand.tokens)
        rounds = Counter[Point]()

        async def record(point: Point) -> list[Recording]:
            recordings = await bench.recorded(point)
            said = reading_of(point, recordings)
            row = {"skipped": said} if isinstance(said, str) else asdict(said)
            rows.say(str(point), {"round": rounds[point], **row})  # round 0 warms up
            rounds[point] += 1
            return recordings

        return await read(sizes.profile, room, record)


def demand_of(design: Design) -> Demand:
    """RequestLimits for the largest point."""
    streams = max(design.batches)
    longest = max(*design.input_tokens, *design.contexts)
    return Demand(streams, longest + 2 * GAPS + MARGIN_TOKENS * streams)


class Bench:
    """An engine's router that is asked for steps."""

    def __init__(self, router: Router, vocab_size: int, most_tokens: int) -> None:
        """``most_tokens`` are those of a request, prompt and output."""
        self._router, self._vocab_size, self._most_tokens = router, vocab_size, most_tokens
        self._chance = random.Random(0)

    async def recorded(self, point: Point) -> list[Recording]:
        """The recordings of a point's requests, when nothing of them runs any more."""
        if not point.is_decode:
            recordings = [self._made(point) for _ in range(PREFILLS)]
            for recording in recordings:
                await self._listen(recording, 1)
            return recordings
        recordings = [self._made(point) for _ in range(point.sequences)]
        tasks = [asyncio.create_task(self._listen(one, self._most_tokens - point.tokens)) for one in recordings]
        while not (are_enough(recordings) or all(task.done() for task in tasks)):  # noqa: ASYNC110 - see below
            await asyncio.sleep(POLL_S)  # polled, so that stamping a token costs nothing more
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return recordings

    def _made(self, point: Point) -> Recording:
        """With a prompt that nobody has sent before."""
        return Recording([self._chance.randrange(self._vocab_size) for _ in range(point.tokens)])

    async def _listen(self, recording: Recording, max_tokens: int) -> None:
        params = GenerationParams(SamplingParams(max_tokens), ignore_eos=True)
        recording.asked_s = time.time()
        try:
            async with aclosing(self._router.generate(tuple(map(int, recording.prompt)), params)) as deltas:
                async for delta in deltas:
                    if delta.token_id is not None:
                        recording.arrivals_s.append(time.time())
        except RuntimeFault as problem:
            recording.error = str(problem)


def are_enough(recordings: Sequence[Recording]) -> bool:
    """Every stream has gone on for long enough since the last of them began to speak."""
    if not all(one.arrivals_s for one in recordings):
        return False
    since_s = max(one.arrivals_s[0] for one in recordings)
    return all(len(one.arrivals_s) - bisect_right(one.arrivals_s, since_s) > GAPS for one in recordings)


def fitted(machine: Machine, subject: Subject, readings: Readings) -> Row:
    """The profile that the readings make, beside the shipped one.

    Raises:
        SkippedError: there is no profile of this kind.
        CommandError: the readings are too few.
    """
    before = shipped(machine)
    running_now = Running(subject.topology("1x1"), subject.spec, subject.cluster)
    document = report(Fitted(running_now, before), readings)
    samples = readings.samples()
    said_s = running_now.predicted_s(samples, before)
    off = [said / sample.seconds - 1 for said, sample in zip(said_s, samples, strict=True)]
    return {
        **document,
        "shipped_source": before.source,
        "shipped_error_band": before.error_band,
        "shipped_residuals": off,
        "shipped_error_mean": fmean(map(abs, off)),
        "shipped_error_worst": max(map(abs, off)),
    }


def shipped(machine: Machine) -> Profile:
    """What predictions for such a device are made from; on a CPU that is calibrated.

    Raises:
        SkippedError: there is none.
    """
    if machine.device == "cpu":
        return fit_cpu(CpuSamples(**measure(ROOT / "examples" / "counting").figures))
    try:
        return replace(load(machine.kind), kind=machine.kind)
    except ProfileError as problem:
        raise SkippedError(f"{problem}: the step times stand in the rows above") from None
