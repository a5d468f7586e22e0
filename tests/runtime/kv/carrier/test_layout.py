"""The order of bytes: whatever the topologies, what is gathered here is scattered to where it belongs there."""

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from runtime.footprint import Piece, Transfer
from runtime.kv.carrier.layout import (
    SAMPLES,
    KvLayout,
    Memory,
    Rows,
    digest,
    digest_sample,
    gather,
    num_tokens,
    rows_of,
    sample,
    scatter,
)
from runtime.models import ModelSpec
from tests.rows import rows
from tests.runtime.kv.carrier.moves import Kv, Move, moves, topology


def held(move: Move, kv: dict[int, Kv]) -> list[tuple[Transfer, Rows]]:
    return [(box, rows_of(kv[box.source if box.source in kv else box.target], move.layout)) for box in move.boxes]


def gathered(move: Move, kv: dict[int, Kv]) -> Memory:
    staged = np.full(num_tokens(move.runs) * move.layout.token_bytes(move.boxes), 0xAA, np.uint8)
    gather(held(move, kv), move.runs, move.layout, staged)
    return staged


def moved(move: Move) -> dict[int, Kv]:
    kv = move.targets()
    scatter(held(move, kv), move.runs, move.layout, gathered(move, move.sources()))
    return kv


def digests(move: Move, kv: dict[int, Kv]) -> bytes:
    return digest(held(move, kv), move.runs, move.layout)


def in_layers(move: Move, kv: Kv) -> Kv:
    """Without what fills the last stack up: it belongs to no layer."""
    flat = kv.transpose(0, 2, 3, 5, 6, 1, 4).reshape(2, *kv.shape[2:4], *kv.shape[5:], -1)
    return flat[..., : move.layout.num_layers]


@given(moves())
def test_each_token_comes_to_where_it_belongs_and_nothing_else_is_touched(move):
    found, wanted = moved(move), move.wanted()
    assert found.keys() == wanted.keys()
    for device, kv in found.items():
        assert np.array_equal(in_layers(move, kv), in_layers(move, wanted[device]))


@given(moves())
def test_both_sides_have_the_same_bytes_in_the_same_order(move):
    here, there = move.sources(), moved(move)
    assert np.array_equal(gathered(move, here), gathered(move, there))
    assert digests(move, here) == digests(move, there)
    sampled = [digest_sample(held(move, kv), move.runs, move.layout, 5) for kv in (here, there)]
    assert sampled[0] == sampled[1]


@given(moves(), st.data())
def test_a_wrong_value_in_what_was_moved_is_seen_and_one_beside_it_is_not(move, data):
    assume(len(move.runs))
    kv = moved(move)
    box = data.draw(st.sampled_from(move.boxes))
    block, at = data.draw(st.sampled_from(move.blocks))
    piece, half = data.draw(st.sampled_from(box.pieces)), data.draw(st.integers(0, 1))
    before = digests(move, kv)
    kv[box.target][move.place(piece, block, at)][half, -1] ^= 1
    assert digests(move, kv) != before
    kv[box.target][move.place(piece, block, at)][half, -1] ^= 1
    beside = {*np.ndindex(move.layout.num_blocks, move.layout.block_size)} - {*move.blocks}
    assume(beside)
    kv[box.target][move.place(piece, *data.draw(st.sampled_from(sorted(beside))))] ^= 1
    assert digests(move, kv) == before


@given(moves(), st.integers(0, 1 << 60))
def test_a_sample_is_of_what_was_moved_a_piece_of_a_block_each(move, seed):
    taken = sample(move.boxes, move.runs, move.layout, seed)
    assert len(taken) == (SAMPLES if len(move.runs) else 0)
    ours, layout = {*move.blocks}, move.layout
    for number, piece, slots in taken[:50]:
        assert piece in move.boxes[number].pieces
        of_blocks = [divmod(slot, layout.stack * layout.block_size) for slot in range(slots.start, slots.stop)]
        assert len({block for block, _ in of_blocks}) == 1
        assert {at // layout.block_size for _, at in of_blocks} == {piece.layer % layout.stack}
        assert {(block, at % layout.block_size) for block, at in of_blocks} <= ours


@rows("seed", range(12))
def test_a_fault_in_two_of_a_hundred_pieces_is_seen_by_a_sample(seed):
    move = Move(*_wide())
    kv = moved(move)
    before = digest_sample(held(move, kv), move.runs, move.layout, seed)
    number = len(move.blocks) * 8
    for wrong in np.random.default_rng(seed).choice(number, number // 50, replace=False).tolist():
        piece, place = Piece(*divmod(wrong % 8, 2)), move.blocks[wrong // 8]
        box = next(box for box in move.boxes if piece in box.pieces)
        kv[box.target][move.place(piece, *place)] ^= 1
    assert digest_sample(held(move, kv), move.runs, move.layout, seed) != before


def _wide():
    layout = KvLayout(4, 2, 64, 1, 1, "int32", 4, 1)
    model = ModelSpec("m", "LlamaForCausalLM", 4, 64, 128, 2, 2, 16, 100, 1024)
    return layout, model, topology([0, 4], [1], 0), topology([0, 2, 4], [2, 2], 50), np.array([[0, 64]])


def test_what_differs_between_two_layouts_is_named():
    layout = _wide()[0]
    other = type(layout)(4, 2, 32, 1, 1, "int32", 4, 1)
    assert layout.differences(layout) == []
    assert layout.differences(other) == ["num_blocks 32 there, 64 here"]
