"""Layers change formats in as few rounds as there is room for, and each round fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import SwitchError
from runtime.footprint import value_bytes, weight_bytes
from runtime.models import LayerRange, ModelSpec, Precision, Stage, Topology
from runtime.notation import parse_topology
from runtime.sync.swap import in_words, is_swap, least_room, mixed, rounds
from tests.rows import rows
from tests.runtime.scripted import cluster_of

MODEL = ModelSpec("m", "LlamaForCausalLM", 8, 128, 256, 4, 4, 32, 100, 1024)
FP32 = Precision.named("fp32", "CPU")
FORMATS = st.lists(st.sampled_from(["fp32", "int8", "int4"]), min_size=8, max_size=8)


def pipeline(formats: list[str], *, num_stages: int = 2, tp: int = 1) -> Topology:
    """Layers in formats, on fp32 stages of as many layers each."""
    each = 8 // num_stages
    stages = []
    for number in range(num_stages):
        layers = range(number * each, (number + 1) * each)
        parts = [(LayerRange(layer, layer + 1), FP32.beside(formats[layer], "CPU")) for layer in layers]
        stages.append(Stage.of("CPU", tuple(range(number * tp, (number + 1) * tp)), parts))
    return Topology(tuple(stages))


@given(FORMATS, FORMATS, st.integers(1, 2), st.integers(1, 2), st.floats(0, 12))
def test_no_round_needs_more_than_there_is_and_all_lead_to_the_target(before, after, num_stages, tp, extra):
    now, target = (pipeline(formats, num_stages=num_stages, tp=tp) for formats in (before, after))
    alone = weight_bytes(now, MODEL)
    least = least_room(now, target, MODEL)
    room = {device: least.get(device, 0) + extra * MODEL.rank_parameters(tp, 0) for device in alone}
    found = rounds(now, target, MODEL, room)
    present = now
    changed = set[int]()
    for each in found:
        peak = weight_bytes(present, MODEL)
        for layer, (_, name) in each.items():
            for rank, device in enumerate(now.stage_of(layer).devices):
                peak[device] += round(MODEL.rank_parameters(tp, rank) * value_bytes(name, MODEL))
        assert all(peak[device] <= alone[device] + room[device] + 8 for device in peak)
        changed |= each.keys()
        present = mixed(now, target, changed)
    assert present == target


def test_those_that_shrink_come_first_and_one_that_has_no_room_is_named():
    now, target = (
        pipeline(formats, num_stages=1) for formats in (["int4"] * 4 + ["fp32"] * 4, ["fp32"] * 4 + ["int4"] * 4)
    )
    layer = MODEL.layer_parameters * 4
    found = rounds(now, target, MODEL, {0: layer})
    assert [layer for each in found for layer in each] == [4, 5, 6, 7, 0, 1, 2, 3]
    assert len(found) == 2
    assert len(rounds(now, target, MODEL, {0: 8 * layer})) == 1
    with pytest.raises(SwitchError, match="device 0 has 0 bytes for layer 4 in int4"):
        rounds(now, target, MODEL, {0: 0.0})


def test_a_swap_changes_formats_alone():
    full = pipeline(["fp32"] * 8)
    mixed_formats = pipeline(["fp32", "int8"] * 4)
    assert is_swap(full, mixed_formats)
    assert is_swap(mixed_formats, full)
    assert not is_swap(full, full)
    assert not is_swap(full, pipeline(["int8"] * 8, num_stages=1))
    bf16 = Topology((Stage("CPU", (0,), LayerRange(0, 8), Precision.named("int8", "CPU")),))
    assert not is_swap(pipeline(["fp32"] * 8, num_stages=1), bf16), "its KV is another"


@rows(
    ("now", "target", "words"),
    [
        ("CPU[0]@fp32", "CPU[0]:0-8@fp32,2-6=int8", "weights of layers 2 to 5 become int8"),
        ("CPU[0]:0-8@fp32,2-6=int8", "CPU[0]@fp32", "weights of layers 2 to 5 become fp32"),
        ("CPU[0]@fp32", "CPU[0]:0-8@fp32,7-8=int4", "weights of layer 7 become int4"),
        (
            "CPU[0]:0-8@fp32,0-2=int4",
            "CPU[0]:0-8@fp32,0-1=int4,1-3=int8,5-6=int8",
            "weights of layers 1 to 2, 5 become int8",
        ),
        (
            "CPU[0]:0-8@fp32,4-8=int8",
            "CPU[0]:0-8@fp32,0-3=int8",
            "weights of layers 0 to 2 become int8, of layers 4 to 7 become fp32",
        ),
        (
            "CPU[0]:0-4@fp32 > CPU[1]:4-8@fp32",
            "CPU[0]:0-4@fp32,2-4=int8 > CPU[1]:4-8@fp32,4-6=int8",
            "weights of layers 2 to 5 become int8",
        ),
        ("CPU[0]@fp32", "CPU[0]@fp32", ""),
        ("CPU[0]@fp32", "CPU[0]@int8", ""),  # KV becomes bf16
        ("CPU[0]@fp32", "CPU[1]:0-8@fp32,2-6=int8", ""),
        ("CPU[0]@fp32", "CPU[0]:0-4@fp32 > CPU[1]:4-8@fp32", ""),
    ],
)
def test_a_swap_says_which_layers_change_to_what_and_nothing_else_is_one(now, target, words):
    sides = [parse_topology(text, cluster_of("cpu"), 8, "fp32") for text in (now, target)]
    assert in_words(*sides) == words
