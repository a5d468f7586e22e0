"""The engine's memory gives way, with real processes: pools shrink and grow under load, and a switch makes its own room."""

import asyncio
import contextlib
import itertools
import os
import signal
from pathlib import Path

import pytest
import pytest_asyncio

from runtime.engine import Finish, GenerationRequest, SamplingParams
from runtime.errors import EngineLostError, Reason, RequestError, SwitchError
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings
from tests.runtime.scripted import cluster_of
from tests.runtime.torch_engine.ears import Ears, all_same, hearing, started

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SETTINGS = EngineSettings(block_size=64, num_blocks=129, max_running=10, max_batch_tokens=256, closing_batch_tokens=16)
PAGE = 4096
"""A block of one piece is a page of K and a page of V."""
LAYERS, HEADS = 5, 4
BLOCK = 2 * PAGE * LAYERS * HEADS
SMALL = cluster_of(memory_bytes=16 << 20)
"""Devices that hold 128 blocks of three of five layers, and fewer of all five."""
LONG = 1900
"""Tokens in 30 blocks."""
COUNTER = itertools.count(1000)


def request(name: str, prompt: int, tokens: int) -> GenerationRequest:
    seed = sum(name.encode())
    tokens_of = tuple((31 * seed + 7 * j) % 101 for j in range(prompt))
    return GenerationRequest(name, tokens_of, SamplingParams(tokens), epoch=1)


STREAMS = [request(f"r{i}", 40 + 60 * i, 60) for i in range(5)]
NAMES = [one.request_id for one in STREAMS]
BLOCKS_OF_STREAMS = sum(-(-(40 + 60 * i + 60) // SETTINGS.block_size) for i in range(5))
"""When each has said its 60 tokens."""


class Heard(Ears):
    """An engine whose memory is looked at."""

    async def long(self, count: int, tokens: int = 100) -> list[str]:
        """So many that take 30 blocks each and begin as no other before; and wait until each speaks."""
        wanted = []
        for number in itertools.islice(COUNTER, count):
            prompt = (*divmod(number, 101), *range(98)) * (LONG // 100)
            wanted.append(GenerationRequest(f"long{number}", prompt, SamplingParams(tokens), epoch=1))
        await self.run(*wanted)
        return [one.request_id for one in wanted]

    async def warm(self) -> None:
        """Write to nearly every block once."""
        names = await self.long(4)
        await self.cancel(*names)
        for name in names:
            del self.tokens[name]

    async def held(self) -> dict[int, int]:
        """Device to the bytes behind its KV memory."""
        pids = (await self.engine.stats()).worker_pids
        return {device: kv_bytes(pid) for device, pid in pids.items()}

    async def blocks(self) -> int:
        return (await self.engine.stats()).total_blocks

    async def used(self) -> int:
        stats = await self.engine.stats()
        return stats.total_blocks - stats.free_blocks


def kv_bytes(pid: int) -> int:
    """Behind the worker's memory file, of which it holds two descriptors."""
    files = [path for path in Path(f"/proc/{pid}/fd").iterdir() if "intentctl-kv" in str(path.readlink())]
    return files[0].stat().st_blocks * 512


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(checkpoints):
    async with started(checkpoints["qwen3-tied"], "pp2", SMALL, SETTINGS) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def heard(engine):
    """In two stages, with all its blocks and no prefix cached."""
    async with hearing(engine, Heard) as made:
        await made.be("pp2")
        await engine.resize(128)
        await made.forget_prefixes()
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def unswitched(engine: TorchEngine):
    async with hearing(engine) as ears:
        await ears.be("pp2")
        return await ears.whole(*STREAMS)


async def test_a_pool_shrinks_and_grows_under_streams_that_notice_nothing(unswitched, heard):
    await heard.warm()
    await heard.run(request("stays", 100, 700), *STREAMS)
    before, was = await heard.engine.digests(), await heard.held()
    shrunk = await heard.engine.resize(40)
    after, now = await heard.engine.digests(before.positions), await heard.held()
    still = (await heard.engine.digests()).positions  # others may have ended, on a busy machine
    assert (shrunk.num_blocks, shrunk.owed) == (40, 0)
    assert shrunk.returned_bytes == sum(was.values()) - sum(now.values()) >= 70 * BLOCK
    assert sum(now.values()) <= 42 * BLOCK  # and the scratch block, and what peers page in
    kept = {key: digest for key, digest in before.digests.items() if key[0] in still}
    assert "stays" in {key[0] for key in kept}
    assert {key: after.digests[key] for key in kept} == kept
    blocks = {at: block for at, block in before.blocks.items() if at[0] in still}
    assert {at: after.blocks[at] for at in blocks} == blocks
    await heard.cancel("stays")
    del heard.tokens["stays"]
    assert await heard.blocks() == 40
    grown = await heard.engine.resize(128)
    assert (grown.num_blocks, grown.owed, grown.returned_bytes) == (128, 0, 0)
    await heard.warm()
    await heard.ended(*NAMES)
    all_same(heard.tokens, unswitched)
    assert await heard.is_free()


async def test_blocks_in_use_retire_as_they_come_free_and_their_memory_follows(unswitched, heard):
    await heard.run(*STREAMS[:3])
    names = await heard.long(3, tokens=140)
    resizing = asyncio.create_task(heard.engine.resize(35))
    async with asyncio.timeout(150):
        while (at_first := await heard.blocks()) == 128:
            pass
    shrunk = await resizing
    assert at_first > 35, "what streams hold stays theirs"
    assert shrunk.num_blocks == 35 + shrunk.owed <= at_first
    await heard.cancel(*names)
    async with asyncio.timeout(150):
        while await heard.blocks() != 35:
            pass
    await heard.ended(*NAMES[:3])
    all_same({name: heard.tokens[name] for name in NAMES[:3]}, {name: unswitched[name] for name in NAMES[:3]})
    async with asyncio.timeout(150):
        while sum((await heard.held()).values()) > 37 * BLOCK:
            pass


async def test_sizes_that_cannot_be_are_refused_with_the_figures(heard):
    await heard.run(request("long", 1000, 500))
    for size in (23, 129, 0):
        with pytest.raises(SwitchError, match=rf"{size} KV blocks: PP2 holds .* may come to need 24"):
            await heard.engine.resize(size)
    await heard.engine.resize(25)
    with pytest.raises(RequestError, match="do not fit the KV cache of 1600 tokens"):
        await heard.submit(request("longer", 1000, 601))
    shadow = await heard.prepared("tp2")
    with pytest.raises(SwitchError, match="busy"):
        await heard.engine.resize(64)
    await shadow.abort(Reason.CANCELLED)
    assert await heard.blocks() == 25


async def test_the_target_has_memory_for_what_will_be_copied_before_it_is(heard):
    await heard.run(*(request(f"stays{i}", 40 + 60 * i, 900) for i in range(3)))
    used, before = await heard.used(), await heard.held()
    shadow = await heard.prepared("tp2")
    gained = (await heard.held())[1] - before[1]
    # of the layers of the first stage, three of five, half the heads
    assert gained >= used * BLOCK * 3 // 10 > 0
    await shadow.abort(Reason.CANCELLED)
    used, after = await heard.used(), await heard.held()
    assert after[1] - before[1] <= (used + 1) * BLOCK * 2 // 5


async def test_a_switch_makes_its_own_room_and_the_pool_grows_to_what_the_target_holds(unswitched, heard):
    await heard.warm()
    await heard.run(*STREAMS)
    shadow = await heard.prepared("1x1")
    beside = await heard.blocks()
    # the source's three layers of what stays, and what the streams come to need in all of the target's, each with a scratch block
    assert (await heard.held())[0] <= (beside + 1) * BLOCK * 3 // 5 + (BLOCKS_OF_STREAMS + 2) * BLOCK
    while (await shadow.lag()).tokens > 6 * 8:
        pass
    await heard.commit(shadow)
    alone = await heard.blocks()
    assert 60 < beside == alone < 100  # the weights that stay are there once
    assert (await heard.held())[1] <= 3 * BLOCK  # what a standby worker still has: its scratch block
    shadow = await heard.prepared("tp2")
    assert 40 < await heard.blocks() < alone  # slices of other shape are new weights
    await heard.commit(shadow)
    assert await heard.blocks() == 128
    await heard.ended(*NAMES)
    all_same(heard.tokens, unswitched)


async def test_an_aborted_switch_gives_the_blocks_back(unswitched, heard):
    await heard.run(*STREAMS)
    for is_up in (True, False):
        shadow = await heard.engine.prepare(heard.topology("1x1"))
        assert await heard.blocks() < 100
        if is_up:
            await shadow.ready()
            await shadow.lag()
        await shadow.abort(Reason.CANCELLED)
        assert await heard.blocks() == 128
    await heard.warm()
    await heard.ended(*NAMES)
    all_same(heard.tokens, unswitched)


async def test_what_cannot_fit_even_so_is_refused_before_anything_is_touched(heard):
    names = await heard.long(3, 60)
    held = await heard.held()
    figures = r"device 0 has 15,099,494 bytes to use but going from PP2 to 1x1, even layer by layer, with \d+ KV blocks"
    with pytest.raises(SwitchError, match=figures) as refused:
        await heard.engine.prepare(heard.topology("1x1"))
    assert refused.value.reason is Reason.NO_MEMORY
    assert await heard.blocks() == 128
    assert {device: size for device, size in (await heard.held()).items() if size < held[device]} == {}
    await heard.ended(*names)
    await heard.switch("1x1")


async def test_a_size_that_was_asked_for_outlives_a_switch(heard):
    await heard.engine.resize(30)
    await heard.commit(await heard.prepared("1x1"))
    with pytest.raises(RequestError, match="do not fit the KV cache of 1920 tokens"):
        await heard.submit(request("longest", LONG, 21))
    await heard.whole(request("long", LONG, 20))


async def test_a_topology_that_holds_fewer_blocks_starts_anew_with_these(heard):
    await heard.switch("1x1")
    alone = await heard.blocks()
    os.kill(heard.engine._driver.pid, signal.SIGKILL)
    again = request("again", 100, 5)
    while "again" not in heard.tokens or heard.tokens["again"][-1].finish is not Finish.LENGTH:
        with contextlib.suppress(EngineLostError):
            await heard.run(again)
            await heard.ended("again")
    assert heard.engine.topology.shape == "1x1"
    assert await heard.blocks() == alone
