"""Every topology to every other, one switch after the other on living workers under load: no byte, logprob or token changes."""

import asyncio
import dataclasses
import itertools
import statistics
from collections.abc import Sequence

import pytest
import pytest_asyncio

from runtime.engine import GenerationRequest, Output, SamplingParams, Token
from runtime.errors import Reason, SwitchError, TopologyError
from runtime.notation import parse_topology
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings
from tests.runtime.torch_engine.ears import CUT_S, LAYERS, Ears, hearing, same, started

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

TOPOLOGIES = (
    "CPU[0]:0-5",
    "CPU[0,1]:0-5",
    "CPU[3]:0-5",
    "CPU[0,1,2,3]:0-5",
    "CPU[0]:0-2 > CPU[1]:2-5",
    "CPU[2]:0-4 > CPU[0]:4-5",
    "CPU[0]:0-1 > CPU[1]:1-3 > CPU[2]:3-4 > CPU[3]:4-5",
    "CPU[1]:0-2 > CPU[2]:2-3 > CPU[0]:3-5",
    "CPU[0,1]:0-3 > CPU[2,3]:3-5",
    "CPU[2,3,0]:0-1 > CPU[1]:1-5",
    "CPU[0]:0-3 > CPU[1,3]:3-5",
    "CPU[3]:0-1 > CPU[0,1]:1-4 > CPU[2]:4-5",
)
"""On every number of devices, grown, shrunk and moved: uneven splits and a TP degree of its own for each stage among them.
Of three ranks one has two of the four KV heads."""
STACKED = (
    "CPU[0]:0-5",
    "CPU[0,1]:0-5",
    "CPU[3,2,1,0]:0-5",
    "CPU[0]:0-2 > CPU[1]:2-5",
    "CPU[2]:0-4 > CPU[0]:4-5",
    "CPU[2,3]:0-2 > CPU[0,1]:2-5",
    "CPU[0]:0-2 > CPU[3]:2-4 > CPU[1,2]:4-5",
)
"""Where two layers share a slab, stages begin at even ones."""
APART = (
    "CPU[0,1,2,3]:0-5",
    "CPU[0]:0-2 > CPU[1,3]:2-5",
    "CPU[2,3]:0-3 > CPU[0,1]:3-5",
    "CPU[1]:0-1 > CPU[2]:1-3 > CPU[3]:3-4 > CPU[0]:4-5",
)
"""Of ranks that share no memory."""
RUNNING = 16
SETTINGS = EngineSettings(
    block_size=8,
    num_blocks=768,  # fewer than all that was ever said: cached blocks are taken by others
    max_running=RUNNING,
    max_batch_tokens=48,
    closing_batch_tokens=32,
    num_standby=4,  # so that some switches find their target on standby
)


def circuit(count: int) -> list[int]:
    """A round trip over all ordered pairs of so many nodes, each once (Hierholzer's algorithm), back to the first."""
    left = {node: [other for other in range(count) if other != node] for node in range(count)}
    path, found = [0], list[int]()
    while path:
        if onward := left[path[-1]]:
            path.append(onward.pop())
        else:
            found.append(path.pop())
    return found[::-1]


COMMON = tuple(11 * j % 101 for j in range(43))
"""How some prompts begin: five blocks and a part of one."""


def prompts() -> dict[str, GenerationRequest]:
    """More than run at once, from 1 to 443 tokens; a third of them sampled, each with a seed of its own.

    A quarter of them share a prefix. What they generate differs in length as well, so that they do not end together.
    """
    lengths = [1, 5, 8, 13, 17, 23, 30, 40, 64, 90, 150, 400]
    found = {}
    for number in range(2 * len(lengths)):
        length = lengths[number % len(lengths)]
        own = tuple((31 * number + 7 * j) % 101 for j in range(length))
        temperature = 0.8 if number % 3 == 0 else 0.0
        params = SamplingParams(40 + 5 * number, temperature=temperature, top_p=0.95, seed=number)
        found[f"r{number}"] = GenerationRequest(f"r{number}", COMMON + own if number % 4 == 0 else own, params, 1)
    return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def reference(engine: TorchEngine) -> dict[str, list[Token]]:
    """What every stream says in an engine that neither switches nor caches prefixes."""
    async with hearing(engine) as ears:
        return await ears.whole(*prompts().values())


class Streams(Ears):
    """Streams that never end: each begins anew when it is over. Every run of it must say the same.

    When it begins anew what it said before is in the cache, as far as nobody took the blocks and the target had them.
    """

    def __init__(self, engine: TorchEngine, reference: dict[str, list[Token]]) -> None:
        super().__init__(engine)
        self._prompts, self._reference = {name: prompts()[name] for name in reference}, reference
        self._cycle = itertools.count()
        self._checked = 0

    async def begin(self) -> None:
        """Submit every stream."""
        for wanted in self._prompts.values():
            await self._begin(wanted)

    async def _begin(self, wanted: GenerationRequest) -> None:
        await self.submit(dataclasses.replace(wanted, request_id=f"{wanted.request_id}/{next(self._cycle)}"))

    async def hear(self, batch: Sequence[Output]) -> None:
        await super().hear(batch)
        for token in batch:
            if isinstance(token, Token) and token.finish is not None:
                name = token.request_id.partition("/")[0]
                same(self.tokens.pop(token.request_id), self._reference[name])
                self._checked += 1
                await self._begin(self._prompts[name])

    async def checked(self, more: int) -> None:
        """Wait until so many more streams have ended and were found right."""
        wanted = self._checked + more
        await self.until(lambda: self.task.done() or self._checked >= wanted)
        self.raise_failure()

    async def end(self) -> None:
        """Begin none anew, as the engine is about to close."""
        self.raise_failure()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def raise_failure(self) -> None:
        """What was wrong with a stream."""
        if self.task.done():
            self.task.result()


async def move(streams: Streams, text: str) -> int:
    """One switch; what the cache held at the cut is there after it, byte for byte: the number of streams compared."""
    engine, shadow = streams.engine, await streams.prepared(text)
    while (await shadow.lag()).tokens > RUNNING * SETTINGS.block_size:
        pass
    before = await engine.digests()
    streams.epoch += 1
    cut = await shadow.cut(streams.epoch, deadline_s=CUT_S)
    kept = {name: count for name, count in before.positions.items() if name in cut.moved}
    after = await engine.digests(kept)
    still = (await engine.digests()).positions  # what ended meanwhile gave its blocks to others
    changed = {key for key, digest in after.digests.items() if before.digests[key] != digest}
    assert not [key for key in changed if key[0] in still]
    await shadow.release()
    return len({key[0] for key in after.digests} & set(still))


async def test_a_circuit_takes_every_ordered_pair_once():
    taken = list(itertools.pairwise(circuit(5)))
    assert sorted(taken) == [(a, b) for a in range(5) for b in range(5) if a != b]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("names", "layers_per_slab", "switches"),
    [
        (TOPOLOGIES, 1, 4),
        pytest.param(STACKED, 2, 8, marks=pytest.mark.exhaustive),
        pytest.param(TOPOLOGIES, 1, len(TOPOLOGIES) * (len(TOPOLOGIES) - 1), marks=pytest.mark.exhaustive),
        pytest.param(STACKED, 2, len(STACKED) * (len(STACKED) - 1), marks=pytest.mark.exhaustive),
    ],
    ids=lambda value: str(len(value) if isinstance(value, tuple) else value),
)
async def test_a_walk_over_topologies_changes_no_byte_no_logprob_and_no_token(
    checkpoints, cluster, reference, names, layers_per_slab, switches
):
    settings = dataclasses.replace(SETTINGS, layers_per_slab=layers_per_slab)
    async with started(checkpoints["qwen3-tied"], names[0], cluster, settings) as engine:
        streams = Streams(engine, reference)
        await streams.begin()
        await streams.checked(len(reference))
        crowds, hits, compared = [], [], []
        for node in circuit(len(names))[1 : switches + 1]:
            stats = await engine.stats()
            crowds.append((stats.running, stats.waiting))
            hits.append(stats.prefix_cache_hits)
            compared.append(await move(streams, names[node]))
            streams.raise_failure()
        await streams.checked(len(reference))
        assert engine.topology == streams.topology(names[node])
        assert min(running for running, _ in crowds) >= RUNNING - 2, "one may just have ended"
        assert statistics.median(compared) >= RUNNING // 4
        assert sum(waiting > 0 for _, waiting in crowds) > len(crowds) / 2
        assert sum(after > before for before, after in itertools.pairwise(hits)) > len(hits) / 4
        if layers_per_slab == 2:
            divided = streams.topology("CPU[0]:0-3 > CPU[1]:3-5")
            with pytest.raises(SwitchError, match=r"stage 1 .* in the middle of a slab of 2 layers") as refused:
                await engine.prepare(divided)
            assert refused.value.reason is Reason.UNSUPPORTED
        await streams.end()


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
async def test_ranks_that_share_no_memory_go_every_way_and_say_what_those_say_that_do(
    checkpoints, cluster, engine, reference
):
    settings = dataclasses.replace(SETTINGS, rank_transport="torch_distributed")
    few = {name: reference[name] for name in ("r0", "r1", "r2", "r3", "r8")}
    alike = [dataclasses.replace(prompts()[name], sampling=SamplingParams(24)) for name in few]
    async with started(checkpoints["qwen3-tied"], APART[0], cluster, settings) as apart:
        async with hearing(apart) as ears:
            said = await ears.whole(*alike)
        streams, compared = Streams(apart, few), list[int]()
        await streams.begin()
        for node in circuit(len(APART))[1:]:
            compared.append(await move(streams, APART[node]))
            streams.raise_failure()
        await streams.checked(len(few))
        await streams.end()
    assert (len(compared), min(compared) > 0) == (12, True)
    async with hearing(engine) as ears:
        await ears.be(APART[0])
        shared = await ears.whole(*alike)
    for name, tokens in shared.items():
        same(said[name], tokens)
        off = [abs(one.logprob - other.logprob) for one, other in zip(said[name], tokens, strict=True)]
        assert max(off) < 1e-5


async def test_an_engine_does_not_start_with_stages_that_divide_a_slab(checkpoints, cluster):
    divided = parse_topology("CPU[0]:0-3 > CPU[1]:3-5", cluster, LAYERS, "fp32")
    pairs = dataclasses.replace(SETTINGS, layers_per_slab=2)
    with pytest.raises(TopologyError, match="start at a multiple of 2"):
        await TorchEngine.start(checkpoints["qwen3-tied"], divided, cluster, pairs)
