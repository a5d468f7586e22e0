"""The engine's memory gives way, with real processes: pools shrink and grow under load, and a switch makes its own room."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from runtime.engine import Finish, Moved, Request, SamplingParams, Token
from runtime.errors import EngineLostError, RequestError, SwitchError
from runtime.models import Cluster, Gpu, Link, Node, Reason
from runtime.notation import parse_topology
from runtime.torch_engine.engine import TorchEngine, TorchShadow
from runtime.torch_engine.models import EngineSettings

pytestmark = pytest.mark.slow

SETTINGS = EngineSettings(
    block_size=64, num_blocks=129, max_running=10, max_batch_tokens=256, closing_batch_tokens=16
)
PAGE = 4096
"""A block of one piece is a page of K and a page of V."""
LAYERS, HEADS = 5, 4
BLOCK = 2 * PAGE * LAYERS * HEADS
SMALL = Cluster(
    (
        Node(
            "local",
            tuple(Gpu(index, "CPU", 16 << 20) for index in range(4)),
            Link("shared-memory", 5e9, 1e-5),
        ),
    )
)
"""Devices that hold 128 blocks of three of five layers, and fewer of all five."""
LONG = 1900
"""Tokens in 30 blocks."""


class Heard:
    """An engine and all it said."""

    def __init__(self, engine: TorchEngine) -> None:
        self.engine = engine
        self.tokens: dict[str, list[Token]] = {}
        self._news = asyncio.Condition()
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for batch in self.engine.outputs():
            for item in batch:
                if not isinstance(item, Moved):
                    self.tokens.setdefault(item.request_id, []).append(item)
            async with self._news:
                self._news.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self._news:
            await self._news.wait_for(condition)

    async def ended(self, names: list[str]) -> None:
        await self.until(lambda: all(name in self.tokens and self.tokens[name][-1].finish for name in names))

    async def run(self, wanted: list[Request]) -> None:
        """Submit and wait until each speaks."""
        for request in wanted:
            await self.engine.submit(request)
        await self.until(lambda: all(request.request_id in self.tokens for request in wanted))

    async def cancel(self, names: list[str]) -> None:
        for name in names:
            await self.engine.cancel(name)
        await self.ended(names)

    async def warm(self) -> None:
        """Write to nearly every block once."""
        long = [request(f"long{i}", LONG, 100) for i in range(4)]
        await self.run(long)
        await self.cancel([one.request_id for one in long])
        for one in long:
            del self.tokens[one.request_id]

    async def held(self) -> dict[int, int]:
        """Device to the bytes behind its KV memory."""
        pids = (await self.engine.stats()).worker_pids
        return {device: kv_bytes(pid) for device, pid in pids.items()}


def kv_bytes(pid: int) -> int:
    """Behind the worker's memory file, of which it holds two descriptors."""
    files = [path for path in Path(f"/proc/{pid}/fd").iterdir() if "intentctl-kv" in str(path.readlink())]
    return files[0].stat().st_blocks * 512


def request(name: str, prompt: int, tokens: int) -> Request:
    seed = sum(name.encode())
    return Request(
        name, tuple((31 * seed + 7 * j) % 101 for j in range(prompt)), SamplingParams(tokens), epoch=1
    )


STREAMS = [request(f"r{i}", 40 + 60 * i, 150) for i in range(5)]
NAMES = [one.request_id for one in STREAMS]

Serve = Callable[..., contextlib.AbstractAsyncContextManager[Heard]]


@pytest.fixture
def serve(checkpoints: dict[str, Path]) -> Serve:
    @contextlib.asynccontextmanager
    async def start(shape: str, settings: EngineSettings = SETTINGS) -> AsyncIterator[Heard]:
        topology = parse_topology(shape, SMALL, LAYERS, "fp32")
        engine = await TorchEngine.start(checkpoints["qwen3-tied"], topology, SMALL, settings)
        try:
            yield Heard(engine)
        finally:
            await engine.close()

    return start


@pytest.fixture
async def unswitched(serve: Serve) -> dict[str, list[Token]]:
    async with serve("pp2") as heard:
        await heard.run(STREAMS)
        await heard.ended(NAMES)
        return heard.tokens


def same(got: dict[str, list[Token]], want: dict[str, list[Token]]) -> None:
    for name, tokens in want.items():
        assert [one.token_id for one in got[name]] == [one.token_id for one in tokens]
        pairs = zip(got[name], tokens, strict=True)
        assert max(abs(a.logprob - b.logprob) for a, b in pairs) < 1e-4


async def prepared(heard: Heard, shape: str) -> TorchShadow:
    shadow = await heard.engine.prepare(parse_topology(shape, SMALL, LAYERS, "fp32"))
    await shadow.ready()
    return shadow


async def switched(heard: Heard, shape: str, epoch: int) -> None:
    shadow = await prepared(heard, shape)
    while (await shadow.lag()).tokens > 6 * 8:
        pass
    await shadow.cut(epoch, deadline_s=5)
    await shadow.release()


async def settles(heard: Heard, num_blocks: int) -> None:
    async with asyncio.timeout(60):
        while (await heard.engine.stats()).total_blocks != num_blocks:
            pass


async def test_a_pool_shrinks_and_grows_under_streams_that_notice_nothing(
    serve: Serve, unswitched: dict[str, list[Token]]
) -> None:
    async with serve("pp2") as heard:
        await heard.warm()
        await heard.run(STREAMS)
        before, was = await heard.engine.digests(), await heard.held()
        shrunk = await heard.engine.resize(40)
        after, now = await heard.engine.digests(before.positions), await heard.held()
        assert (shrunk.num_blocks, shrunk.owed) == (40, 0)
        assert shrunk.returned_bytes == sum(was.values()) - sum(now.values()) >= 70 * BLOCK
        assert sum(now.values()) <= 42 * BLOCK  # and the scratch block, and what peers page in
        assert after.digests == before.digests
        assert {at: after.blocks[at] for at in before.blocks} == before.blocks
        assert (await heard.engine.stats()).total_blocks == 40
        grown = await heard.engine.resize(128)
        assert (grown.num_blocks, grown.owed, grown.returned_bytes) == (128, 0, 0)
        await heard.warm()
        await heard.ended(NAMES)
        same(heard.tokens, unswitched)
        stats = await heard.engine.stats()
        assert stats.free_blocks == stats.total_blocks == 128


async def test_blocks_in_use_retire_as_they_come_free_and_their_memory_follows(
    serve: Serve, unswitched: dict[str, list[Token]]
) -> None:
    async with serve("pp2") as heard:
        long = [request(f"long{i}", LONG, 100) for i in range(3)]
        await heard.run([*long, *STREAMS[:3]])
        shrunk = await heard.engine.resize(35)
        assert shrunk.owed > 0
        assert shrunk.num_blocks == 35 + shrunk.owed
        await heard.cancel([one.request_id for one in long])
        await settles(heard, 35)
        await heard.ended(NAMES[:3])
        same(heard.tokens, {name: unswitched[name] for name in NAMES[:3]})
        async with asyncio.timeout(60):
            while sum((await heard.held()).values()) > 37 * BLOCK:
                pass


async def test_sizes_that_cannot_be_are_refused_with_the_figures(serve: Serve) -> None:
    async with serve("pp2") as heard:
        await heard.run([request("long", 1000, 500)])
        for size in (23, 129, 0):
            with pytest.raises(SwitchError, match=rf"{size} KV blocks: PP2 holds .* may come to need 24"):
                await heard.engine.resize(size)
        await heard.engine.resize(25)
        with pytest.raises(RequestError, match="do not fit the KV cache of 1600 tokens"):
            await heard.engine.submit(request("longer", 1000, 601))
        shadow = await prepared(heard, "tp2")
        with pytest.raises(SwitchError, match="busy"):
            await heard.engine.resize(64)
        await shadow.abort(Reason.CANCELLED)
        assert (await heard.engine.stats()).total_blocks == 25


async def test_the_target_has_memory_for_what_will_be_copied_before_it_is(serve: Serve) -> None:
    async with serve("pp2") as heard:
        await heard.run(STREAMS[:3])
        stats, before = await heard.engine.stats(), await heard.held()
        shadow = await prepared(heard, "tp2")
        gained = (await heard.held())[1] - before[1]
        # of the layers of the first stage, three of five, half the heads
        assert gained >= (stats.total_blocks - stats.free_blocks) * BLOCK * 3 // 10 > 0
        await shadow.abort(Reason.CANCELLED)
        stats, after = await heard.engine.stats(), await heard.held()
        assert after[1] - before[1] <= (stats.total_blocks - stats.free_blocks + 1) * BLOCK * 2 // 5


async def test_a_switch_makes_its_own_room_and_the_pool_grows_to_what_the_target_holds(
    serve: Serve, unswitched: dict[str, list[Token]]
) -> None:
    async with serve("pp2") as heard:
        await heard.warm()
        await heard.run(STREAMS)
        was = (await heard.held())[0]
        shadow = await prepared(heard, "1x1")
        stats = await heard.engine.stats()
        beside = stats.total_blocks
        warm = (beside - stats.free_blocks + 4 * len(STREAMS)) * BLOCK * 2 // 5  # of the target, at most
        assert was - (await heard.held())[0] + warm >= (115 - beside) * BLOCK * 3 // 5
        while (await shadow.lag()).tokens > 6 * 8:
            pass
        await shadow.cut(2, deadline_s=5)
        await shadow.release()
        alone = (await heard.engine.stats()).total_blocks
        assert 60 < beside == alone < 100  # the weights that stay are there once
        assert (await heard.held())[1] <= 3 * BLOCK  # what a standby worker still has: its scratch block
        shadow = await prepared(heard, "tp2")
        assert 40 < (await heard.engine.stats()).total_blocks < alone  # slices of other shape are new weights
        await shadow.cut(3, deadline_s=5)
        await shadow.release()
        assert (await heard.engine.stats()).total_blocks == 128
        await heard.ended(NAMES)
        same(heard.tokens, unswitched)


async def test_an_aborted_switch_gives_the_blocks_back(
    serve: Serve, unswitched: dict[str, list[Token]]
) -> None:
    async with serve("pp2") as heard:
        await heard.warm()
        await heard.run(STREAMS)
        for is_up in (True, False):
            shadow = await heard.engine.prepare(parse_topology("1x1", SMALL, LAYERS, "fp32"))
            assert (await heard.engine.stats()).total_blocks < 100
            if is_up:
                await shadow.ready()
                await shadow.lag()
            await shadow.abort(Reason.CANCELLED)
            assert (await heard.engine.stats()).total_blocks == 128
        await heard.warm()
        await heard.ended(NAMES)
        same(heard.tokens, unswitched)


async def test_what_cannot_fit_even_so_is_refused_before_anything_is_touched(serve: Serve) -> None:
    async with serve("pp2") as heard:
        long = [request(f"long{i}", LONG, 60) for i in range(3)]
        await heard.run(long)
        held, stats = await heard.held(), await heard.engine.stats()
        figures = r"device 0 has 15,099,494 bytes to use but going from PP2 to 1x1, even layer by layer, with \d+ KV blocks"
        with pytest.raises(SwitchError, match=figures) as refused:
            await heard.engine.prepare(parse_topology("1x1", SMALL, LAYERS, "fp32"))
        assert refused.value.reason is Reason.NO_MEMORY
        assert (await heard.engine.stats()).total_blocks == stats.total_blocks == 128
        assert {device: size for device, size in (await heard.held()).items() if size < held[device]} == {}
        await heard.ended([one.request_id for one in long])
        await switched(heard, "1x1", 2)


async def test_a_size_that_was_asked_for_outlives_a_switch(serve: Serve) -> None:
    async with serve("pp2") as heard:
        await heard.engine.resize(30)
        shadow = await prepared(heard, "1x1")
        await shadow.cut(2, deadline_s=5)
        await shadow.release()
        with pytest.raises(RequestError, match="do not fit the KV cache of 1920 tokens"):
            await heard.engine.submit(request("longest", LONG, 21))
        await heard.run([request("long", LONG, 20)])
        await heard.ended(["long"])


async def test_a_topology_that_holds_fewer_blocks_starts_anew_with_these(serve: Serve) -> None:
    async with serve("pp2") as heard:
        await switched(heard, "1x1", 2)
        alone = (await heard.engine.stats()).total_blocks
        os.kill(heard.engine.driver_pid, signal.SIGKILL)
        again = request("again", 100, 5)
        while "again" not in heard.tokens or heard.tokens["again"][-1].finish is not Finish.LENGTH:
            with contextlib.suppress(EngineLostError):
                await heard.run([again])
                await heard.ended(["again"])
        assert heard.engine.topology.shape == "1x1"
        assert (await heard.engine.stats()).total_blocks == alone
