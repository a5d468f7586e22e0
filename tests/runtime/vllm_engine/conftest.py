"""One ``VllmEngine`` for all tests: engines take long to start, so it keeps all it ever started as standby."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from runtime.vllm_engine import instance
from runtime.vllm_engine.engine import VllmEngine
from tests.runtime.vllm_engine.streams import (
    CHECKPOINT,
    CLUSTER,
    SETTINGS,
    WANTED,
    Streams,
    hearing,
    topology,
)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine() -> AsyncIterator[VllmEngine]:
    made = await VllmEngine.start(CHECKPOINT, topology("1x1"), CLUSTER, SETTINGS)
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="session")
async def streams(engine: VllmEngine) -> AsyncIterator[Streams]:
    async with hearing(engine) as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def unswitched(engine: VllmEngine) -> Streams:
    """What every request says without a switch."""
    async with hearing(engine) as made:
        await made.be(topology("1x1"))
        for name, (prompt, sampling) in WANTED.items():
            await made.submit(name, prompt, sampling)
        await made.ended(*WANTED)
    return made


@pytest.fixture
def scripted_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Driver processes compute nothing; all else of them is real."""
    monkeypatch.setattr(instance, "MODULE", "tests.runtime.vllm_engine.scripted_driver")
