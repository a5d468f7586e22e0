"""Requests that cannot move, as the target draws other noise from their seeds: they end where they are, or the switch does."""

import msgspec
import pytest

from runtime.errors import Reason, SwitchError
from runtime.vllm_engine.models import Stay
from runtime.vllm_engine.switch import VllmShadow
from tests.runtime.vllm_engine.streams import RUNNING, Streams, settings, topology

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

STAYING = ("seeded 0", "seeded 1")


async def drawing_otherwise(streams: Streams) -> VllmShadow:
    """A switch to an engine that is said to draw other noise from a seed, with two seeded requests and one without."""
    await streams.be(topology("1x1"))
    shadow = await streams.engine.prepare(topology("tp2"))
    target = await shadow._starting
    target.started, kept = msgspec.structs.replace(target.started, runner="V2"), target.started
    await shadow.ready()
    target.started = kept
    for name in (*STAYING, "unseeded"):
        await streams.submit(name, *RUNNING[name])
    await streams.have(10, *STAYING, "unseeded")
    await streams.synced(shadow)
    return shadow


async def test_what_cannot_move_is_let_end_where_it_is_and_told_why(streams, unswitched):
    shadow = await drawing_otherwise(streams)
    before = streams.ledger.epoch
    done = await streams.cut(shadow)
    assert {*STAYING} <= set(done.left_to_drain)
    assert done.stays == {Stay.SEED.value: len(done.left_to_drain)}
    assert "unseeded" in done.moved
    await shadow.drain()
    await shadow.release()
    for name in STAYING:
        assert streams.epochs(name) == [before]
        assert streams.tokens(name) == unswitched.tokens(name)
    await streams.ended("unseeded")


async def test_a_deployment_may_refuse_a_switch_that_leaves_requests_behind(streams, unswitched):
    with settings(streams.engine, drain="refuse"):
        shadow = await drawing_otherwise(streams)
        with pytest.raises(SwitchError, match=r"requests cannot move to TP2 \(\d the target's model runner") as refusal:
            await streams.cut(shadow)
        await shadow.abort(refusal.value.reason)
    assert refusal.value.reason is Reason.UNSUPPORTED
    assert streams.engine.topology == topology("1x1")
    await streams.ended(*STAYING, "unseeded")
    assert streams.tokens("seeded 0") == unswitched.tokens("seeded 0")


async def test_a_deadline_of_the_deployments_ends_what_did_not_end_by_itself(streams):
    with settings(streams.engine, drain_timeout_s=1e-3):
        shadow = await drawing_otherwise(streams)
        await streams.cut(shadow)
        await shadow.drain()
        await shadow.release()
    ends = [streams.said[name][-1] for name in STAYING]
    assert all("did not end in 0.001 s; send the request again" in end.detail for end in ends)
    await streams.ended("unseeded")
