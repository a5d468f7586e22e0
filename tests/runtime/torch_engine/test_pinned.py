"""Other weights or other code under the same name: each way to load them is refused by name, and what serves goes on."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from runtime.engine import EngineState, GenerationRequest, SamplingParams
from runtime.errors import CheckpointError, EngineLostError, EngineStartError, Reason, SwitchError
from runtime.models import Cluster
from runtime.process import content
from runtime.process.content import PinnedCheckpoint
from runtime.torch_engine.driver.grammars import Compiler
from runtime.torch_engine.engine import TorchEngine
from tests.runtime.scripted import reaches, train
from tests.runtime.torch_engine.ears import SETTINGS, Ears, all_same, hearing, requests, started
from tests.runtime.torch_engine.two_hosts import ALONE, PP2, crossing

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

COUNTING = Path(__file__).parents[3] / "examples" / "counting"
CHANGED = r"the checkpoint at .* changed at .* \(model\.safetensors\); restart the service"
OTHER_CODE = r"the code on disk is not the one that serves \(intentctl .*\); restart the service"
LONG = GenerationRequest("long", (1, 2, 3), SamplingParams(1500), 1)
"""Lives as long as its test."""


@pytest.fixture(scope="module")
def folder(checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that tests change and put back."""
    return Path(shutil.copytree(checkpoints["qwen3-tied"], tmp_path_factory.mktemp("pinned") / "model"))


@pytest.fixture
def weights(folder: Path, tmp_path: Path) -> AsyncIterator[Path]:
    """Its weights; what was there is there again afterwards, as another file of the same content."""
    before = shutil.copy2(folder / "model.safetensors", tmp_path)
    yield folder / "model.safetensors"
    shutil.copy2(before, folder / "back.safetensors")
    (folder / "back.safetensors").rename(folder / "model.safetensors")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def engine(folder: Path, cluster: Cluster) -> AsyncIterator[TorchEngine]:
    """Workers are on the first device alone until a switch is done."""
    async with started(folder, "1x1", cluster, SETTINGS) as made:
        yield made


async def refused(ears: Ears, text: str) -> str:
    """How a switch is given up."""
    with pytest.raises(SwitchError) as error:
        await ears.prepared(text)
    assert error.value.reason is Reason.LOAD_FAILED
    await ears.engine._shadow.abort(error.value.reason)
    return str(error.value)


@pytest.mark.parametrize("change", [train, lambda weights: weights.unlink()], ids=["moved over", "gone"])
@pytest.mark.parametrize("target", ["CPU[1]:0-5", "tp2", "pp2"], ids=["new worker", "old and new", "two stages"])
async def test_a_switch_does_not_load_what_was_put_in_the_place_of_a_checkpoint(engine, weights, target, change):
    async with hearing(engine) as ears:
        want = await ears.whole(*requests(20))
        await ears.submit(LONG)
        change(weights)
        told = await refused(ears, target)
        assert "changed" in told
        assert "(model.safetensors)" in told
        await ears.goes_on("long")
        assert engine.topology.shape == "1x1"
        all_same(await ears.whole(*requests(20)), want)


async def test_nothing_is_loaded_from_what_was_written_over_in_place(engine, weights):
    """The file that serves is mapped, so it goes on with what is left of it; nothing more is made of it."""
    original = weights.read_bytes()
    async with hearing(engine) as ears:
        shadow = await engine.prepare(ears.topology("tp2"))
        with weights.open("r+b") as file:
            file.seek(len(original) - 4096)
            file.write(bytes(4096))
        with pytest.raises(SwitchError, match=CHANGED):
            await shadow.ready()
        await shadow.abort(Reason.LOAD_FAILED)
        with weights.open("r+b") as file:
            file.write(original)
        await ears.switch("tp2")  # it is what it was
        await ears.switch("1x1")


async def test_an_engine_comes_back_with_what_it_served_or_not_at_all(engine, weights):
    away = weights.with_name("away")
    shutil.copy2(weights, away)
    async with hearing(engine) as ears:
        want = await ears.whole(*requests(10))
        train(weights)
        os.kill(engine._driver.pid, signal.SIGKILL)
        await reaches(engine, EngineState.FAILED)
        with pytest.raises(EngineLostError, match=f"could not be started again: {CHANGED}"):
            await ears.submit(LONG)
        away.rename(weights)  # another file with the same content
        await reaches(engine, EngineState.SERVING)
        all_same(await ears.whole(*requests(10)), want)


async def test_a_spare_driver_is_held_to_it_too(folder, weights, cluster):
    async with started(folder, "1x1", cluster, replace(SETTINGS, spare=True)) as engine:
        while not (engine._spare and engine._spare.is_prepared):  # noqa: ASYNC110 - it says so to nobody else
            await asyncio.sleep(0.01)
        spare = engine._spare
        train(weights)
        os.kill(engine._driver.pid, signal.SIGKILL)
        await reaches(engine, EngineState.FAILED)
        assert engine._driver is not spare or spare.gone
        assert "changed" in str(engine._down)


async def test_another_host_that_has_other_files_is_refused_and_the_way_back_needs_none(folder, weights, cluster):
    away = weights.with_name("away")
    shutil.copy2(weights, away)
    async with crossing(folder, cluster, replace(SETTINGS, num_standby=1)) as ears:
        await ears.submit(LONG)
        train(weights)
        with pytest.raises(SwitchError, match=f"host b: {CHANGED}"):
            await ears.prepared(ALONE)
        await ears.engine._shadow.abort(Reason.LOAD_FAILED)
        await ears.goes_on("long")
        away.rename(weights)
        await ears.switch(ALONE)
        train(weights)
        await ears.switch(PP2)  # its driver stands by, with what it has loaded
        await ears.goes_on("long")
        await ears.cancel("long")


async def test_the_tokenizer_that_a_driver_reads_for_its_first_grammar_is_the_same_too(tmp_path):
    folder = Path(shutil.copytree(COUNTING, tmp_path / "counting"))
    compiler = Compiler(PinnedCheckpoint.of(folder), 98)
    request = replace(LONG, sampling=SamplingParams(5, grammar='start: "1"'))
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text + " ")
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"changed at .* \(tokenizer\.json\)"):
            await compiler.matcher(request)
    (folder / "tokenizer.json").write_text(text)
    assert not (await compiler.matcher(request)).error


@pytest.fixture
def other_code(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The service has imported what is no more on disk."""
    return lambda: monkeypatch.setattr(content, "CODE", {**content.CODE, "intentctl": "0.1.0+00000000"})


async def test_a_driver_of_other_code_is_refused_and_the_reason_is_said(folder, cluster, other_code, monkeypatch):
    async with started(folder, "1x1", cluster, SETTINGS) as engine:
        other_code()
        with pytest.raises(EngineStartError, match=OTHER_CODE):
            await TorchEngine.start(folder, engine.topology, cluster, SETTINGS)
        ears = Ears(engine)
        os.kill(engine._driver.pid, signal.SIGKILL)
        await reaches(engine, EngineState.FAILED)
        with pytest.raises(EngineLostError, match=OTHER_CODE):
            await ears.submit(LONG)
        monkeypatch.undo()  # it was put back
        await reaches(engine, EngineState.SERVING)
        await ears.whole(*requests(5))
