"""Properties of the transfer plan and of the memory arithmetic, over random topologies."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.footprint import (
    HEADROOM,
    Piece,
    block_bytes,
    blocks,
    blocks_beside,
    freed_blocks,
    kv_bytes_per_token,
    owned,
    peak_bytes,
    transfer,
    value_bytes,
    weight_bytes,
    weight_slices,
)
from runtime.models import (
    BYTES_PER_VALUE,
    Cluster,
    Gpu,
    LayerRange,
    Link,
    ModelSpec,
    Node,
    Precision,
    Stage,
    Topology,
)

DEVICES = 12
BLOCK_TOKENS = 16


def model_of(layers: int, kv_heads: int) -> ModelSpec:
    return ModelSpec("m", "LlamaForCausalLM", layers, 64, 128, kv_heads * 2, kv_heads, 16, 100, 1024)


@st.composite
def models(draw: st.DrawFn) -> ModelSpec:
    return model_of(draw(st.integers(1, 12)), draw(st.integers(2, 8)))


@st.composite
def topologies(draw: st.DrawFn, model: ModelSpec, formats: tuple[str, ...] = ("bf16",)) -> Topology:
    """Any split into stages, any TP degree per stage, on any devices in any order."""
    cuts = draw(st.sets(st.integers(1, max(1, model.num_layers - 1)), max_size=3))
    bounds = [0, *sorted(cut for cut in cuts if cut < model.num_layers), model.num_layers]
    free = draw(st.permutations(range(DEVICES)))
    stages = []
    for start, end in itertools.pairwise(bounds):
        left = len(free) - (len(bounds) - 2 - len(stages))
        tp = draw(st.integers(1, min(left, model.num_kv_heads)))
        devices, free = tuple(free[:tp]), free[tp:]
        precision = Precision.named(draw(st.sampled_from(formats)), "L40S")
        stages.append(Stage("L40S", devices, LayerRange(start, end), precision))
    return Topology(tuple(stages))


@st.composite
def switches(draw: st.DrawFn, formats: tuple[str, ...] = ("bf16",)) -> tuple[Topology, Topology, ModelSpec]:
    model = draw(models())
    return draw(topologies(model, formats)), draw(topologies(model, formats)), model


def owner(topology: Topology, piece: Piece, model: ModelSpec) -> int:
    """Where a piece lives, as numpy splits an array. Independent of the code under test."""
    (stage,) = [stage for stage in topology.stages if stage.layers.start <= piece.layer < stage.layers.end]
    shares = np.array_split(np.arange(model.num_kv_heads), len(stage.devices))
    (rank,) = [rank for rank, heads in enumerate(shares) if piece.head in heads]
    return stage.devices[rank]


def all_pieces(model: ModelSpec) -> list[Piece]:
    return [Piece(layer, head) for layer in range(model.num_layers) for head in range(model.num_kv_heads)]


def cluster_of(*memory_bytes: int) -> Cluster:
    gpus = tuple(Gpu(index, "L40S", size) for index, size in enumerate(memory_bytes))
    return Cluster((Node("n", gpus, Link("pcie", 1e9, 1e-5)),))


@pytest.mark.slow
@given(switches())
def test_every_target_rank_gets_each_piece_it_lacks_exactly_once_from_its_one_owner(switch):
    now, target, model = switch
    boxes = transfer(now, target, model)
    assert all(box.pieces for box in boxes)
    received = Counter((box.target, box.source, piece) for box in boxes for piece in box.pieces)
    moves = [(owner(target, piece, model), owner(now, piece, model), piece) for piece in all_pieces(model)]
    assert received == Counter(move for move in moves if move[0] != move[1])


@pytest.mark.slow
@given(switches())
def test_every_piece_has_exactly_one_owner(switch):
    topology, _, model = switch
    assert Counter(itertools.chain.from_iterable(owned(topology, model).values())) == Counter(all_pieces(model))


@pytest.mark.slow
@given(switches(("bf16", "fp32", "int8")))
def test_weights_add_up_to_the_model_with_the_embedding_on_each_rank_of_the_first_stage(switch):
    topology, _, model = switch
    widths = {stage: BYTES_PER_VALUE[stage.precision.activations] for stage in topology.stages}
    first, last = topology.stages[0], topology.stages[-1]
    layers = sum(
        len(stage.layers) * model.layer_parameters * value_bytes(stage.precision.weights, model)
        for stage in topology.stages
    )
    ends = model.embedding_parameters * (first.tp_size * widths[first] + widths[last])
    assert sum(weight_bytes(topology, model).values()) == pytest.approx(layers + ends, abs=len(topology.devices))


def test_quantised_layers_weigh_less_and_embeddings_keep_sixteen_bits():
    model = model_of(4, 4)
    full, eight = Precision.named("bf16", "L40S"), Precision.named("fp8", "L40S")
    topology = Topology((Stage("L40S", (0,), LayerRange(0, 4), full, ((LayerRange(0, 2), eight),)),))
    quantised = Topology((Stage("L40S", (0,), LayerRange(0, 4), eight),))
    ends = 2 * 2 * model.embedding_parameters
    assert weight_bytes(topology, model) == {0: 6 * model.layer_parameters + ends}
    assert weight_bytes(quantised, model) == {0: 4 * model.layer_parameters + ends}


@pytest.mark.slow
@given(switches(("bf16", "fp32")))
def test_a_block_takes_the_same_bytes_in_all_however_it_is_cut(switch):
    topology, _, model = switch
    one = Topology(tuple(replace(stage, precision=Precision.named("fp32", "L40S")) for stage in topology.stages))
    assert sum(block_bytes(one, model, BLOCK_TOKENS).values()) == BLOCK_TOKENS * kv_bytes_per_token(model, "fp32")


@pytest.mark.slow
@given(switches(("bf16", "fp32")), st.lists(st.integers(10**5, 10**7), min_size=DEVICES, max_size=DEVICES))
def test_blocks_is_the_most_that_fits_on_every_device(switch, memory):
    topology, _, model = switch
    count = blocks(topology, model, cluster_of(*memory), BLOCK_TOKENS)
    weights, per_block = weight_bytes(topology, model), block_bytes(topology, model, BLOCK_TOKENS)

    def fits(number: int) -> bool:
        return all(
            weights[device] + number * per_block[device] <= memory[device] * (1 - HEADROOM)
            for device in topology.devices
        )

    assert not fits(count + 1)
    assert fits(count) or count == 0


@pytest.mark.slow
@given(switches(("bf16", "fp32")), st.sampled_from(("int8", "int4")), st.integers(1, 12))
def test_bytes_that_quantised_layers_free_become_blocks(switch, name, number):
    """Where memory bounds the blocks, and where the engine keeps so many tokens in full formats."""
    full, _, model = switch
    stages = []
    for stage in full.stages:
        ends = sorted({stage.layers.start, min(stage.layers.end, max(stage.layers.start, number)), stage.layers.end})
        mixed = stage.precision.beside(name, stage.kind)
        parts = [
            (LayerRange(*pair), mixed if pair[0] < number else stage.precision) for pair in itertools.pairwise(ends)
        ]
        stages.append(Stage.of(stage.kind, stage.devices, parts))
    topology = Topology(tuple(stages))
    cluster = cluster_of(*[10**8] * DEVICES)
    freed = freed_blocks(topology, model, BLOCK_TOKENS)
    assert not freed_blocks(full, model, BLOCK_TOKENS)
    before, after = (weight_bytes(each, model) for each in (full, topology))
    per_block = block_bytes(topology, model, BLOCK_TOKENS)
    saved = {device: before[device] - after[device] for device in topology.devices}
    least = min(topology.devices, key=lambda device: saved[device] / per_block[device])
    assert saved[least] - per_block[least] - 1 <= freed * per_block[least] <= saved[least] + 1

    def held(each: Topology, kv_tokens: int | None) -> int:
        return blocks(each, model, cluster, BLOCK_TOKENS, kv_tokens=kv_tokens)

    assert held(topology, 10 * BLOCK_TOKENS) == held(full, 10 * BLOCK_TOKENS) + freed == 10 + freed
    gained = held(topology, None) - held(full, None)
    assert freed <= gained + 1, "another device may bind, which gains more"
    assert len(full.devices) > 1 or gained <= freed + 1


def test_replicas_free_blocks_each_for_themselves():
    model = model_of(4, 4)
    eight = Precision.named("bf16", "L40S").beside("int8", "L40S")
    one, two = (Topology((Stage("L40S", (device,), LayerRange(0, 4), eight),)) for device in (0, 1))
    alone = freed_blocks(one, model, BLOCK_TOKENS)
    assert alone > 10
    assert freed_blocks(Topology.of_replicas((one, two)), model, BLOCK_TOKENS) == 2 * alone


@pytest.mark.slow
@given(switches(("bf16", "fp32", "fp8")), st.integers(0, 500))
def test_the_peak_covers_each_topology_alone_and_never_exceeds_both(switch, num_blocks):
    now, target, model = switch
    peak = peak_bytes(now, target, model, num_blocks, BLOCK_TOKENS)
    alone = [
        {device: sizes[device] + num_blocks * kv[device] for device in topology.devices}
        for topology in (now, target)
        for sizes, kv in [(weight_bytes(topology, model), block_bytes(topology, model, BLOCK_TOKENS))]
    ]
    assert set(peak) == {*now.devices, *target.devices}
    for device, size in peak.items():
        needs = [sizes.get(device, 0) for sizes in alone]
        assert max(needs) - 1 <= size <= sum(needs) + 1


@pytest.mark.slow
@given(switches(("bf16", "fp32", "fp8")))
def test_slices_of_weights_that_both_hold_are_counted_once(switch):
    now, target, model = switch
    old, new = weight_slices(now, model), weight_slices(target, model)
    either = {device: sum({**old.get(device, {}), **new.get(device, {})}.values()) for device in {**old, **new}}
    assert peak_bytes(now, target, model, 0, BLOCK_TOKENS) == pytest.approx(either, abs=1)


@pytest.mark.slow
@given(switches(("bf16",)), st.integers(1, 500))
def test_beside_itself_a_topology_takes_no_more_than_alone(switch, num_blocks):
    now, _, model = switch
    weights, kv = weight_bytes(now, model), block_bytes(now, model, BLOCK_TOKENS)
    expected = {device: weights[device] + num_blocks * kv[device] for device in now.devices}
    assert peak_bytes(now, now, model, num_blocks, BLOCK_TOKENS) == expected


def test_layers_that_a_device_keeps_are_counted_once_if_its_share_of_them_stays():
    model, bf16 = model_of(8, 4), Precision.named("bf16", "L40S")

    def pipeline(split: int, first: tuple[int, ...], second: tuple[int, ...]) -> Topology:
        stages = (first, LayerRange(0, split)), (second, LayerRange(split, 8))
        return Topology(tuple(Stage("L40S", devices, layers, bf16) for devices, layers in stages))

    now = pipeline(4, (0, 1), (2, 3))
    layer, embedding = (
        model.layer_parameters,
        2 * model.embedding_parameters,
    )  # a layer on two ranks, two bytes a value
    moved = peak_bytes(now, pipeline(6, (0, 1), (2, 3)), model, 0, BLOCK_TOKENS)
    assert moved == dict.fromkeys((0, 1), 6 * layer + embedding) | dict.fromkeys((2, 3), 4 * layer + embedding // 2)
    swapped = peak_bytes(now, pipeline(4, (1, 0), (2, 3)), model, 0, BLOCK_TOKENS)
    assert swapped[0] == 8 * layer + embedding, "another rank's slices are others, the embedding is whole on each"
    narrower = peak_bytes(now, pipeline(4, (0,), (2, 3)), model, 0, BLOCK_TOKENS)
    assert narrower[0] == (4 + 2 * 4) * layer + embedding


def test_the_peak_of_a_precision_change_takes_the_wider_kv():
    model = model_of(2, 2)
    stage = Stage("L40S", (0,), LayerRange(0, 2), Precision.named("bf16", "L40S"))
    now, target = Topology((stage,)), Topology((replace(stage, precision=Precision.named("fp8", "L40S")),))
    weights = weight_bytes(now, model)[0] + weight_bytes(target, model)[0]
    wide = block_bytes(now, model, BLOCK_TOKENS)[0]
    assert peak_bytes(now, target, model, 10, BLOCK_TOKENS) == {0: weights + 10 * wide}


@pytest.mark.slow
@given(switches(("bf16", "fp32")), st.lists(st.integers(10**4, 10**7), min_size=DEVICES, max_size=DEVICES))
def test_what_fits_side_by_side_is_the_most_that_leaves_every_device_its_headroom(switch, memory):
    now, target, model = switch
    cluster = cluster_of(*memory)

    def fits(number: int) -> bool:
        peak = peak_bytes(now, target, model, number, BLOCK_TOKENS)
        return all(size <= memory[device] * (1 - HEADROOM) for device, size in peak.items())

    most = blocks_beside(now, target, model, cluster, BLOCK_TOKENS)
    assert fits(most)
    assert not fits(most + 1)
    for alone in (now, target):
        assert max(0, most) <= blocks(alone, model, cluster, BLOCK_TOKENS)
