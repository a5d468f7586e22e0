"""The baselines inside the torch engine: slower, but as right as its own switch."""

import pytest

from benchmarks.engines import Demand
from benchmarks.gather_scatter import held
from runtime.engine import GenerationRequest, SamplingParams
from runtime.footprint import owned


def test_boxes_are_what_each_device_holds(subject):
    for text in ("1x1", "tp2", "tp2pp2"):
        topology = subject.topology(text)
        boxes = held(topology, subject.spec, target=-1)
        assert {box.source: frozenset(box.pieces) for box in boxes} == owned(topology, subject.spec)
        assert {box.target for box in boxes} == {-1}
        scattered = held(topology, subject.spec, source=-1)
        assert [(box.target, box.pieces) for box in scattered] == [(box.source, box.pieces) for box in boxes]


@pytest.mark.parametrize("path", ["patch", "stop-and-copy", "gather-scatter"])
@pytest.mark.parametrize(("now", "target"), [("1x1", "tp2"), ("tp2", "pp2")])
async def test_the_target_has_every_byte_of_the_source(subject, path, now, target):
    engine = await subject.start(subject.topology(now), path, Demand(4, 600))
    try:
        for number in range(4):
            prompt = tuple(range(1, 40 + 7 * number))
            await engine.submit(GenerationRequest(f"r{number}", prompt, SamplingParams(500), epoch=1))
        shadow = await engine.prepare(subject.topology(target))
        await shadow.ready()
        for _ in range(3):
            await shadow.lag()
        before = await engine.digests()
        cut = await shadow.cut(2, deadline_s=5)
        after = await engine.digests(before.positions)
        assert sum(before.positions.values()) > 0
        assert after.digests == before.digests
        assert len(cut.moved) == 4
        await shadow.release()
    finally:
        await engine.close()
