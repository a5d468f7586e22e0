"""Pages: which a rank holds, which forms are known, and what makes two engines' pages differ."""

from dataclasses import replace

import pytest
import torch

from runtime.errors import UnsupportedModelError
from runtime.vllm_engine.geometry import PACKED, SPLIT, KvGeometry, form_of, heads_of, paged
from tests.rows import rows

GEOMETRY = KvGeometry(
    num_layers=3, num_kv_heads=4, block_size=16, head_dim=8, dtype="float32", form=PACKED, backend="cpu-x"
)


@rows(
    ("tp_size", "num_kv_heads"),
    [(1, 1), (1, 3), (2, 4), (3, 12), (4, 4), (8, 8), (2, 1), (8, 2), (8, 4), (4, 1)],
)
def test_every_head_is_brought_by_exactly_one_rank_and_held_by_equally_many(tp_size, num_kv_heads):
    shares = [heads_of(rank, tp_size, num_kv_heads) for rank in range(tp_size)]
    held = [head for heads, _ in shares for head in range(*heads)]
    brought = [head for heads, is_writer in shares if is_writer for head in range(*heads)]
    assert brought == list(range(num_kv_heads))
    assert held == sorted(held)
    assert {held.count(head) for head in held} == {max(1, tp_size // num_kv_heads)}


@rows(("tp_size", "num_kv_heads"), [(2, 3), (4, 6), (8, 12), (6, 4)])
def test_a_degree_that_does_not_fit_the_heads_is_refused(tp_size, num_kv_heads):
    with pytest.raises(UnsupportedModelError, match=f"TP {tp_size} and {num_kv_heads} KV heads"):
        heads_of(0, tp_size, num_kv_heads)


def test_the_form_is_known_by_the_shape():
    assert form_of((99, 2, 16, 64), num_heads=2, block_size=16, head_dim=32) == PACKED
    assert form_of((99, 2, 16, 2, 32), num_heads=2, block_size=16, head_dim=32) == SPLIT


@rows("shape", [(99, 16, 2, 64), (99, 2, 16, 32), (2, 99, 16, 2, 32), (99, 16, 2, 2, 32), (99, 16, 576)])
def test_a_form_that_is_not_known_is_refused_with_its_shape_and_a_way_out(shape):
    with pytest.raises(UnsupportedModelError) as refused:
        form_of(shape, num_heads=2, block_size=16, head_dim=32)
    assert f"{shape} for 2 heads of 32 in blocks of 16" in str(refused.value)
    assert "path: follow" in str(refused.value)


@rows(("form", "shape"), [(PACKED, (5, 3, 16, 2 * 8)), (SPLIT, (5, 2, 16, 3, 8))], ids=[PACKED, SPLIT])
def test_pages_are_a_view_by_head_of_one_block(form, shape):
    cache = torch.arange(torch.Size(shape).numel()).reshape(shape)
    before = cache.clone()
    found = paged(cache, form)[4]
    assert found.shape == (3, *replace(GEOMETRY, form=form).page_shape)
    for head in range(3):
        assert torch.equal(found[head], cache[4, head] if form == PACKED else cache[4, :, :, head])
    found.zero_()
    assert torch.equal(cache[:4], before[:4])
    assert not cache[4].any()


def test_a_block_has_as_many_values_as_its_pages():
    for form in (PACKED, SPLIT):
        geometry = replace(GEOMETRY, form=form)
        assert geometry.block_values == 3 * 4 * torch.Size(geometry.page_shape).numel()


def test_equal_geometries_do_not_differ():
    assert GEOMETRY.difference(replace(GEOMETRY)) == ""


@rows(
    ("name", "other"),
    [
        ("num_layers", 4),
        ("num_kv_heads", 8),
        ("block_size", 128),
        ("head_dim", 16),
        ("dtype", "bfloat16"),
        ("form", SPLIT),
        ("backend", "cuda-default"),
    ],
)
def test_a_difference_is_named_with_both_values(name, other):
    changed = replace(GEOMETRY, **{name: other})  # type: ignore[arg-type]
    assert GEOMETRY.difference(changed) == f"{name} {getattr(GEOMETRY, name)} and {other}"


def test_several_differences_are_all_named():
    changed = replace(GEOMETRY, dtype="float16", block_size=64)
    assert GEOMETRY.difference(changed) == "block_size 16 and 64, dtype float32 and float16"
