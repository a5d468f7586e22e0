"""The order in which layers move in place, against a device-by-device replay."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.footprint import Piece, WeightSlice, owned, peak_bytes, weight_bytes, weight_slices
from runtime.models import BYTES_PER_VALUE, LayerRange, Precision, Stage, Topology
from runtime.sync.stream import KvSize, plan
from tests.runtime.test_footprint import DEVICES, model_of, switches

BF16 = Precision.named("bf16", "L40S")
USABLE = dict.fromkeys(range(DEVICES), 1e9)


def pipeline(*stages: tuple[tuple[int, ...], int, int]) -> Topology:
    return Topology(tuple(Stage("L40S", devices, LayerRange(*layers), BF16) for devices, *layers in stages))


@pytest.mark.slow
@given(switches(("bf16", "fp8")), st.integers(0, 50), st.integers(1, 3))
def test_the_peak_is_that_of_a_replay(switch, num_blocks, stack):
    now, target, model = switch
    found = plan(now, target, model, KvSize(num_blocks, 16, stack), USABLE)
    assert sorted(layer for step in found.steps for layer in step) == list(range(model.num_layers))
    assert all(len(step) == stack or step.end == model.num_layers for step in found.steps)
    held = {device: dict(slices) for device, slices in weight_slices(now, model).items()}
    new = weight_slices(target, model)
    for topology, into in ((now, held), (target, new)):
        for device, pieces in owned(topology, model).items():
            for piece in pieces:
                width = BYTES_PER_VALUE[topology.stage_of(piece.layer).precision_of(piece.layer).kv]
                into[device][piece] = 2 * model.head_dim * width * num_blocks * 16
    peak = {device: sum(held.get(device, {}).values()) for device in {*held, *new}}

    def note() -> None:
        peak.update({device: max(most, sum(held.get(device, {}).values())) for device, most in peak.items()})

    for step in found.steps:
        coming = {d: {i: s for i, s in items.items() if i.layer in step} for d, items in new.items()}
        for device, items in coming.items():
            here = held.setdefault(device, {})
            here.update({i: max(size, here.get(i, 0)) for i, size in items.items() if isinstance(i, Piece)})
        note()
        for kind in (WeightSlice, Piece):  # the old KV goes last
            for device, items in held.items():
                wanted = coming.get(device, {})
                for item in [one for one in items if one.layer in step and isinstance(one, kind)]:
                    if item not in wanted:
                        del items[item]
                items.update({item: size for item, size in wanted.items() if isinstance(item, kind)})
            note()
    assert held == {**{device: {} for device in held}, **new}
    assert found.peak_bytes == pytest.approx(peak, abs=1)


def test_layers_that_fill_a_device_take_turns_with_those_that_empty_it():
    """One after the other they would fill the first device to three quarters of the model before it gives anything."""
    model = model_of(8, 4)
    now, target = pipeline(((0, 1), 0, 8)), pipeline(((0,), 0, 4), ((1,), 4, 8))
    found = plan(now, target, model, KvSize(0, 16), USABLE)
    balance = itertools.accumulate(1 if step.start < 4 else -1 for step in found.steps)
    assert all(abs(ahead) <= 1 for ahead in balance)
    alone = max(weight_bytes(now, model)[0], weight_bytes(target, model)[0])
    assert max(found.peak_bytes.values()) <= alone + 2 * model.layer_parameters
    assert max(peak_bytes(now, target, model, 0, 16).values()) > 1.4 * alone


def test_what_stays_is_not_loaded():
    model = model_of(8, 4)
    now, target = pipeline(((0,), 0, 4), ((1,), 4, 8)), pipeline(((0,), 0, 5), ((1,), 5, 8))
    assert plan(now, target, model, KvSize(9, 16), USABLE).load_bytes == {0: 2 * model.layer_parameters, 1: 0}
