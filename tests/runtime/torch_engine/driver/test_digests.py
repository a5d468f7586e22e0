"""Copied KV is compared before a cut commits: wrong bytes never serve. Real processes, one of which writes wrong bytes."""

import dataclasses

import pytest

from runtime.errors import Reason, SwitchError
from runtime.torch_engine.engine import TorchEngine
from tests.runtime.torch_engine.ears import SETTINGS, all_same, hearing, requests, started

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]

CHECKING = dataclasses.replace(SETTINGS, check_copies=True)
ALONE, BOTH = "CPU[0]:0-5", "CPU[0,1]:0-5"


class FaultyEngine(TorchEngine):
    driver_module = "tests.runtime.torch_engine.driver.faulty_driver"


async def test_wrong_bytes_end_a_switch_wherever_they_are_and_right_ones_do_not(
    checkpoints, cluster, tmp_path, monkeypatch
):
    """In the last patch behind the fence, and in what a sample is taken of before it."""
    fault = tmp_path / "fault"
    monkeypatch.setenv("INTENTCTL_TEST_FAULT", str(fault))
    started_engine = started(checkpoints["qwen3-tied"], ALONE, cluster, CHECKING, FaultyEngine)
    async with started_engine as engine, hearing(engine) as ears:
        right = await ears.whole(*requests())
        for kind in ("flip 1", "flip 0", None):
            ears.tokens.clear()
            shadow = await ears.prepared(BOTH)  # before them: they may end while a busy machine starts it
            await ears.run(*requests())
            if kind is None:
                fault.unlink()
                assert (await ears.commit(shadow)).moved
            else:
                fault.write_text(kind)
                ears.epoch += 1
                with pytest.raises(SwitchError, match="KV has other bytes on device 1 than on device 0") as refused:
                    await shadow.cut(ears.epoch, deadline_s=5)
                assert refused.value.reason is Reason.LOAD_FAILED
                await shadow.abort(refused.value.reason)
            await ears.all_ended(len(right))
            all_same(ears.tokens, right)
