"""Blocks between the ranks of two engines of any TP and PP: what arrives is, page by page, what was sent."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

from runtime.errors import EngineLostError
from runtime.vllm_engine.connector import worker_side
from runtime.vllm_engine.connector.worker_side import Ack, Order, WorkerSide
from runtime.vllm_engine.geometry import PACKED, SPLIT, KvGeometry, RankShare, heads_of
from runtime.vllm_engine.staging import Staging
from tests.rows import rows

NUM_LAYERS, NUM_BLOCKS = 4, 5
SPLITS = list(itertools.product((1, 2, 4), (1, 2, 4)))
"""(TP, PP)"""
LAYOUTS = {
    PACKED: ["LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"],
    SPLIT: ["LBKNHC", "LKBNHC", "LBKHNC", "BLKNHC"],
}
"""Physical orders of layers, blocks, KV heads, positions in a block, K and V, and content: slowest first."""
PAIRS = ((1, 3), (4, 0), (2, 2))
"""(source block, slot)"""
LOADS = ((0, 3), (2, 0), (4, 2))
"""(target block, slot)"""


@dataclass(frozen=True, slots=True)
class Model:
    """A KV cache as a whole: the truth, in the logical order of its form."""

    geometry: KvGeometry
    content: torch.Tensor

    @property
    def logical(self) -> str:
        return "LBHNC" if self.geometry.form == PACKED else "LBKNHC"


def model_of(form: str, num_kv_heads: int = 4, dtype: torch.dtype = torch.float32) -> Model:
    block_size, head_dim = 3, 2
    geometry = KvGeometry(
        NUM_LAYERS, num_kv_heads, block_size, head_dim, str(dtype).removeprefix("torch."), form, "cpu-x"
    )
    layer_shape = (
        (num_kv_heads, block_size, 2 * head_dim) if form == PACKED else (2, block_size, num_kv_heads, head_dim)
    )
    shape = (NUM_LAYERS, NUM_BLOCKS, *layer_shape)
    content = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    return Model(geometry, content)


def ranks_of(model: Model, split: tuple[int, int], layout: str, *, is_empty: bool) -> Iterator[WorkerSide]:
    """The ranks of an engine, each with its slice of the truth, stored in a layout's physical order."""
    tp, pp = split
    layers_each = NUM_LAYERS // pp
    order = [model.logical.index(axis) for axis in layout]
    for stage, rank in itertools.product(range(pp), range(tp)):
        heads, is_writer = heads_of(rank, tp, model.geometry.num_kv_heads)
        layers = (stage * layers_each, (stage + 1) * layers_each)
        own = model.content[slice(*layers)].narrow(model.logical.index("H"), heads[0], heads[1] - heads[0])
        stored = own.permute(order).clone(memory_format=torch.contiguous_format)
        stored = stored.permute([layout.index(axis) for axis in model.logical])
        if is_empty:
            stored.zero_()
        caches = {layers[0] + number: stored[number] for number in range(layers_each)}
        yield WorkerSide(caches, model.geometry, RankShare(layers, heads, is_writer))


def staging_of(model: Model) -> Staging:
    block_bytes = model.geometry.block_values * model.content.element_size()
    return Staging(model.geometry, block_bytes, 4 * block_bytes)


def block_bytes_of(model: Model) -> int:
    return model.geometry.block_values * model.content.element_size()


def digests_of(ranks: list[WorkerSide], blocks: list[int]) -> dict[tuple[int, int, int], str]:
    """Of all ranks; copies of a head must agree."""
    found: dict[tuple[int, int, int], str] = {}
    for rank in ranks:
        for place, digest in rank.digests(blocks).items():
            assert found.setdefault(place, digest) == digest
    return found


def assert_is_slice_of_truth(model: Model, rank: WorkerSide) -> None:
    """Loaded blocks hold what was in the source's, all others are as they were."""
    for layer, cache in rank._caches.items():
        own = model.content[layer].narrow(
            model.logical.index("H") - 1, rank.share.heads[0], rank.share.heads[1] - rank.share.heads[0]
        )
        want = torch.zeros_like(own)
        for (source, slot), (target, loaded) in itertools.product(PAIRS, LOADS):
            if slot == loaded:
                want[target] = own[source]
        assert torch.equal(cache, want)


FORMS_AND_LAYOUTS = [(form, layout) for form, layouts in LAYOUTS.items() for layout in layouts]


@pytest.mark.slow
@rows(("form", "layout"), FORMS_AND_LAYOUTS)
def test_every_split_loads_what_every_split_stored(form, layout):
    model = model_of(form)
    staging = staging_of(model)
    store, load = Order(1, staging.handle, store=PAIRS), Order(2, staging.handle, load=LOADS)
    for split in SPLITS:
        sources = list(ranks_of(model, split, LAYOUTS[form][0], is_empty=False))
        assert sum(rank.store(store) for rank in sources) == len(PAIRS) * block_bytes_of(model)
        want = digests_of(sources, [block for block, _ in PAIRS])
        assert len(want) == len(PAIRS) * NUM_LAYERS * model.geometry.num_kv_heads
        for other in SPLITS:
            targets = list(ranks_of(model, other, layout, is_empty=True))
            assert sum(rank.load(load) for rank in targets) == len(LOADS) * block_bytes_of(model)
            for rank in targets:
                assert_is_slice_of_truth(model, rank)
            assert digests_of(targets, [block for block, _ in LOADS]) == want
    staging.close()


@rows(("form", "layout"), FORMS_AND_LAYOUTS)
def test_any_layout_can_be_stored_from(form, layout):
    model = model_of(form, dtype=torch.bfloat16)
    staging = staging_of(model)
    for rank in ranks_of(model, (2, 2), layout, is_empty=False):
        rank.store(Order(1, staging.handle, store=PAIRS))
    (target,) = ranks_of(model, (1, 1), LAYOUTS[form][0], is_empty=True)
    target.load(Order(2, staging.handle, load=LOADS))
    assert_is_slice_of_truth(model, target)
    staging.close()


@rows("form", [PACKED, SPLIT])
def test_heads_that_several_ranks_hold_are_stored_once_and_loaded_by_all(form):
    model = model_of(form, num_kv_heads=2)
    staging = staging_of(model)
    sources = list(ranks_of(model, (4, 1), LAYOUTS[form][0], is_empty=False))
    stored = [rank.store(Order(1, staging.handle, store=PAIRS)) for rank in sources]
    each = len(PAIRS) * block_bytes_of(model) // 2
    assert stored == [each, 0, each, 0]
    for split in ((4, 2), (2, 1), (1, 1)):
        for rank in ranks_of(model, split, LAYOUTS[form][0], is_empty=True):
            rank.load(Order(2, staging.handle, load=LOADS))
            assert_is_slice_of_truth(model, rank)
    staging.close()


@rows("form", [PACKED, SPLIT])
def test_an_order_takes_one_gather_and_one_scatter_a_layer_however_many_blocks_it_has(form, monkeypatch):
    model = model_of(form)
    staging = staging_of(model)
    (rank,) = ranks_of(model, (1, 1), LAYOUTS[form][0], is_empty=False)
    calls = []
    monkeypatch.setattr(worker_side, "move", lambda *rows: calls.append(len(rows[1])))
    for pairs in (PAIRS[:1], PAIRS):
        rank.store(Order(1, staging.handle, store=pairs))
        rank.load(Order(2, staging.handle, load=pairs))
    assert calls == [1] * 2 * NUM_LAYERS + [len(PAIRS)] * 2 * NUM_LAYERS
    staging.close()


def test_a_digest_changes_with_one_value_of_its_page_and_no_other():
    model = model_of(SPLIT)
    (rank,) = ranks_of(model, (1, 1), "BLKNHC", is_empty=False)
    before = rank.digests([4, 1])
    rank._caches[2][1, 0, 2, 3, 1] += 1
    after = rank.digests([4, 1])
    assert {place for place in before if before[place] != after[place]} == {(1, 2, 3)}


def test_the_next_switch_has_staging_memory_of_its_own():
    model = model_of(PACKED)
    (source,) = ranks_of(model, (1, 1), "LBHNC", is_empty=False)
    first = staging_of(model)
    source.store(Order(1, first.handle, store=PAIRS))
    first.close()
    second = staging_of(model)
    assert second.handle.path == first.handle.path, "the descriptor is used again, which is the danger here"
    source.store(Order(2, second.handle, store=PAIRS))
    (target,) = ranks_of(model, (1, 1), "LBHNC", is_empty=True)
    target.load(Order(1, second.handle, load=LOADS))
    assert_is_slice_of_truth(model, target)
    second.close()


def test_a_worker_that_lets_go_of_staging_memory_has_to_open_it_again():
    model = model_of(PACKED)
    staging = staging_of(model)
    (rank,) = ranks_of(model, (1, 1), "LBHNC", is_empty=False)
    rank.store(Order(1, staging.handle, store=PAIRS))
    rank.close_staging()
    staging.close()
    with pytest.raises(EngineLostError, match="is gone"):
        rank.store(Order(2, staging.handle, store=PAIRS))


def test_acknowledgements_of_ranks_add_up():
    assert Ack(7, 100, 3, 0.5).plus(Ack(7, 20, 1, 0.25)) == Ack(7, 120, 4, 0.5)
