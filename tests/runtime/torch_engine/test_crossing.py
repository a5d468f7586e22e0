"""Running requests move between drivers of two hosts with their KV: no token, no byte and no logprob is another one."""

import asyncio
import contextlib
import os
import signal
from dataclasses import replace

import pytest

from runtime.capabilities import Batching
from runtime.engine import EngineState, Finish, GenerationRequest, SamplingParams, Token
from runtime.errors import Reason, SwitchError
from runtime.models import Topology
from runtime.notation import parse_topology
from runtime.router import Router
from runtime.stream import Delta, GenerationParams
from runtime.torch_engine.crossing import CrossingShadow
from runtime.torch_engine.engine import TorchEngine
from tests.runtime.scripted import cluster_of, reaches
from tests.runtime.test_lost_engines import ENGINE, LOGPROB_TOLERANCE, STREAMS, difference, said
from tests.runtime.torch_engine.driver.test_sampling_tasks import CHECKPOINT, TOKENIZER
from tests.runtime.torch_engine.ears import CUT_S, SETTINGS, all_same, requests
from tests.runtime.torch_engine.two_hosts import ALONE, PP2, TP2, TwoHosts, crossing

pytestmark = pytest.mark.slow

TOKENS = 30
"""Of a stream that is cut when it has said a few."""
ENDLESS = 1_500
"""Of one that is left."""
ONE_AT_ONCE = Batching(1, ENGINE.max_batch_tokens)


@pytest.fixture(autouse=True)
def over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    """As between hosts; UCX takes shared memory on one."""
    monkeypatch.setenv("UCX_TLS", "tcp")


async def test_the_kv_of_every_request_is_the_same_on_the_other_host_and_back(checkpoints, cluster) -> None:
    """Streams are left when their KV was compared: on no machine do they end before, and what they said is looked at."""
    async with crossing(checkpoints["qwen3-tied"], cluster, replace(SETTINGS, prefix_caching=True)) as ears:
        source, spoken = ears.engine.driver, list[dict[str, list[Token]]]()
        for target in (TP2, PP2):
            shadow = await ears.prepared(target)
            await ears.submit(*requests(ENDLESS))
            await ears.have("r3", 3)
            await shadow.lag()
            before = await ears.engine.digests()
            cut = await ears.commit(shadow)
            after = await ears.engine.digests(before.positions)
            assert {key[0] for key in before.digests} & {*cut.moved}
            assert before.digests.items() <= after.digests.items()
            assert ears.engine.topology == ears.topology(target)
            await ears.cancel(*(request.request_id for request in requests(ENDLESS)))
            said_so_far = {
                name: [token for token in tokens if not token.finish] for name, tokens in ears.tokens.items()
            }
            spoken.append({name: tokens for name, tokens in said_so_far.items() if tokens})
            ears.tokens.clear()
        assert ears.engine.driver is source
        assert ears.topology(TP2) in (await ears.engine.stats()).standby
        assert len(ears.moves) == 2
        longest = max(len(tokens) for each in spoken for tokens in each.values())
        want = await ears.whole(*requests(longest + 1))
        for each in spoken:
            all_same(each, {name: want[name][: len(tokens)] for name, tokens in each.items()})
        assert await ears.is_free()


@pytest.mark.parametrize(
    "ways",
    [(TP2,), pytest.param((TP2, PP2) * 3, marks=[pytest.mark.exhaustive, pytest.mark.timeout(1200)])],
    ids=["there", "there and back"],
)
async def test_streams_of_every_kind_go_on_over_hosts_and_no_token_is_lost(ways) -> None:
    place = cluster_of("CPU", 2 << 30, 4)
    shapes = {text: parse_topology(text.replace("5", "8"), place, 8, "fp32") for text in (PP2, TP2)}
    engine = await TorchEngine.start(CHECKPOINT, shapes[PP2], place, ENGINE, TwoHosts())
    try:
        async with Router(engine, TOKENIZER) as router:
            unbroken = await said(router)
            for target in ways:
                await are_moved(engine, router, unbroken, shapes[target])
            assert engine.capabilities.running == ONE_AT_ONCE
            params = GenerationParams(SamplingParams(200), ignore_eos=True)
            async with contextlib.aclosing(router.generate("count by 3 from 11: 11 ", params)) as first:
                await anext(first)
                second = router.generate("count by 3 from 12: 12 ", params)
                waits = asyncio.ensure_future(anext(second))
                for _ in range(60):  # beside each other both would speak by then
                    await anext(first)
                stats = await engine.stats()
                assert (stats.running, stats.waiting, waits.done()) == (1, 1, False)
            await waits
            await second.aclose()
            assert (router.counts.lost, router.counts.duplicates, router.counts.wrong_epoch) == (0, 0, 0)
    finally:
        await engine.close()


async def are_moved(engine: TorchEngine, router: Router, unbroken: dict[str, list[Delta]], target: Topology) -> None:
    """All streams, in the middle of what they say."""
    shadow = await engine.prepare(target, ONE_AT_ONCE)
    await shadow.ready()
    spoken: dict[str, list[Delta]] = {}
    all_of_it = asyncio.create_task(said(router, spoken))
    while len(spoken) < len(STREAMS) or min(map(len, spoken.values())) < 3:  # noqa: ASYNC110 - processes bring it about
        await asyncio.sleep(0.005)
    await shadow.lag()
    cut = await shadow.cut(router.announce(target), CUT_S)
    assert len(cut.moved) == len(STREAMS)
    await shadow.release()
    await all_of_it
    for name, deltas in spoken.items():
        assert [delta.index for delta in deltas] == list(range(len(deltas))), name
        assert deltas[-1].finish in {Finish.STOP, Finish.LENGTH}, name
        if "unseeded" not in name:
            assert [delta.token_id for delta in deltas] == [delta.token_id for delta in unbroken[name]], name
            assert difference(deltas, unbroken[name]) < LOGPROB_TOLERANCE, name


async def test_a_request_that_came_inside_a_cut_runs_once_where_the_source_was_lost_there(monkeypatch) -> None:
    place = cluster_of("CPU", 2 << 30, 4)
    shapes = {text: parse_topology(text.replace("5", "8"), place, 8, "fp32") for text in (PP2, TP2)}
    engine = await TorchEngine.start(CHECKPOINT, shapes[PP2], place, ENGINE, TwoHosts())
    spoken: dict[str, list[Delta]] = {}
    streams = list[asyncio.Task[None]]()

    async def listen(name: str, tokens: int = 60) -> None:
        spoken[name] = []
        params = GenerationParams(SamplingParams(tokens), ignore_eos=True)
        async for delta in router.generate("count by 3 from 11: 11 ", params):
            if not delta.is_pause:
                spoken[name].append(delta)

    async def lost_inside(shadow: CrossingShadow) -> None:
        streams.extend(asyncio.create_task(listen(f"inside {number}")) for number in range(2))
        while router.num_streams < 5:  # noqa: ASYNC110 - they come to the gate
            await asyncio.sleep(0)
        source = engine.driver
        os.kill(source.pid, signal.SIGKILL)
        await approach(shadow)
        while not source.gone:  # noqa: ASYNC110 - the end of a process brings it about
            await asyncio.sleep(0.01)

    approach = CrossingShadow._approach
    monkeypatch.setattr(CrossingShadow, "_approach", lost_inside)
    try:
        async with Router(engine, TOKENIZER) as router:
            streams.extend(asyncio.create_task(listen(f"before {number}", 400)) for number in range(3))
            while len(spoken) < 3 or not all(spoken.values()):  # noqa: ASYNC110 - a process brings it about
                await asyncio.sleep(0.005)
            shadow = await engine.prepare(shapes[TP2])
            await shadow.ready()
            with pytest.raises(SwitchError):
                await shadow.cut(router.announce(shapes[TP2]), CUT_S)
            await shadow.abort(Reason.ENGINE_LOST)
            monkeypatch.undo()
            while not all(spoken.values()):  # noqa: ASYNC110 - a process brings it about
                await asyncio.sleep(0.005)
            stats = await engine.stats()
            assert stats.running + stats.waiting <= router.num_streams
            shadow = await engine.prepare(shapes[TP2])
            await shadow.ready()
            await shadow.cut(router.announce(shapes[TP2]), CUT_S)
            await shadow.release()
            await asyncio.gather(*streams)
            assert (router.counts.lost, router.counts.duplicates, router.counts.wrong_epoch) == (0, 0, 0)
            assert {len(deltas) for name, deltas in spoken.items() if "inside" in name} == {60}
    finally:
        await engine.close()


@pytest.mark.exhaustive
async def test_what_stands_by_on_the_other_host_serves_when_the_engine_is_lost(checkpoints, cluster) -> None:
    async with crossing(checkpoints["qwen3-tied"], cluster) as ears:
        engine = ears.engine
        await ears.switch(TP2)
        standing = engine.standing[ears.topology(PP2)]
        await ears.run(GenerationRequest("lost", (5, 9), SamplingParams(1500), 1))
        os.kill(engine.driver.pid, signal.SIGKILL)
        await ears.ended("lost")
        assert ears.tokens["lost"][-1].is_lost
        await ears.run(GenerationRequest("next", (5, 9), SamplingParams(20), 1))
        assert (engine.driver, engine.topology) == (standing, ears.topology(PP2))
        await ears.ended("next")
        await ears.switch(TP2)
        await ears.whole(GenerationRequest("after", (5, 9), SamplingParams(20), 1))


@pytest.mark.exhaustive
async def test_what_stands_by_and_is_lost_is_forgotten_and_the_way_back_starts_another(checkpoints, cluster) -> None:
    async with crossing(checkpoints["qwen3-tied"], cluster) as ears:
        await ears.switch(TP2)
        (standing,) = ears.engine.standing.values()
        os.kill(standing.pid, signal.SIGKILL)
        while ears.engine.standing:  # noqa: ASYNC110 - the end of a process brings it about
            await asyncio.sleep(0.01)
        await ears.run(GenerationRequest("r", (5, 9), SamplingParams(TOKENS), 1))
        await ears.switch(PP2)
        assert ears.engine.driver is not standing
        await ears.ended("r")


async def test_a_switch_that_is_given_up_leaves_nothing_and_the_next_one_comes(checkpoints, cluster) -> None:
    async with crossing(checkpoints["qwen3-tied"], cluster) as ears:
        await ears.run(*requests(TOKENS))
        for syncs in (False, True):
            shadow = await ears.engine.prepare(ears.topology(TP2))
            with pytest.raises(SwitchError, match="another switch is under way"):
                await ears.engine.prepare(ears.topology(ALONE))
            if syncs:
                await shadow.ready()
                await shadow.lag()
            await shadow.abort(Reason.CANCELLED)
        assert ears.engine.coming is None
        await ears.cancel("r1")
        await ears.all_ended(8)
        ears.tokens.clear()
        shadow = await ears.prepared(TP2)
        await ears.run(*requests(ENDLESS)[:3])
        assert (await ears.commit(shadow)).moved
        await ears.cancel("r0", "r1", "r2")
        assert await ears.is_free()


async def test_what_the_target_cannot_hold_is_refused_before_anything_moves(checkpoints) -> None:
    """Host b has less memory than what runs needs."""
    cluster = cluster_of("CPU", 1 << 30, 4)
    small = replace(cluster.nodes[0].gpus[2], memory_bytes=1_200_000)
    gpus = tuple(small if gpu.index == 2 else gpu for gpu in cluster.nodes[0].gpus)
    cluster = replace(cluster, nodes=(replace(cluster.nodes[0], gpus=gpus),))
    async with crossing(checkpoints["qwen3-tied"], cluster) as ears:
        await ears.run(GenerationRequest("long", (5,) * 1900, SamplingParams(100), 1))
        with pytest.raises(SwitchError) as refused:
            await ears.engine.prepare(ears.topology(ALONE))
        assert refused.value.reason is Reason.NO_MEMORY
        assert await reaches(ears.engine, EngineState.SERVING) is None


async def test_what_goes_between_hosts_is_counted_and_the_link_measured(checkpoints, cluster) -> None:
    async with crossing(checkpoints["qwen3-tied"], cluster) as ears:
        shadow = await ears.prepared(TP2)
        await ears.submit(*requests(ENDLESS))
        await ears.have("r3", 3)
        lag = await shadow.lag()
        cut = await ears.commit(shadow)
        assert cut.moved
        assert (lag.transport, lag.bytes_between_hosts) == ("nixl", lag.copied_bytes)
        assert lag.link is not None
        assert min(lag.link.bytes_s, lag.link.round_trip_s) > 0
        assert cut.bytes_between_hosts >= lag.copied_bytes + cut.bytes_inside > cut.bytes_inside > 0
        within = await ears.synced(ALONE)
        assert ((await within.lag()).transport, (await ears.commit(within)).bytes_between_hosts) == ("file", 0)
