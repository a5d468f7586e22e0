"""One ``VllmEngine`` for all tests: engines take long to start, so it keeps all it ever started as standby."""

from collections.abc import AsyncIterator

import pytest_asyncio

from runtime.vllm_engine.engine import VllmEngine
from tests.runtime.vllm_engine.streams import CHECKPOINT, CLUSTER, SETTINGS, Streams, hearing, topology


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine() -> AsyncIterator[VllmEngine]:
    made = await VllmEngine.start(CHECKPOINT, topology("1x1"), CLUSTER, SETTINGS)
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="session")
async def streams(engine: VllmEngine) -> AsyncIterator[Streams]:
    async with hearing(engine) as made:
        yield made
