"""The figures of the resizing benchmark, from rounds that were made up."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from benchmarks.resize import Listener, Round, figures, moved, stacks, table
from runtime.footprint import Piece
from runtime.torch_engine.messages import KvDigests

ROUND = Round(
    held_bytes=1000,
    free_bytes=800,
    returned_bytes=780,
    rss_fell_bytes=760,
    shrink_s=0.5,
    grow_s=0.001,
    first_token_s=0.1,
    slices_ms=(1.0, 2.0, 6.0),
    gaps_ms=(9.0, 12.0, 10.0),
    quiet_gaps_ms=(8.0, 7.0, 9.0),
    live_blocks=20,
    moved_blocks=0,
)


def test_bounds_take_the_worst_round_and_stacks_say_how_much_holds_kv():
    found = figures([ROUND, replace(ROUND, returned_bytes=600, slices_ms=(3.0,), gaps_ms=(20.0, 8.0, 8.0))])
    assert found["returned_share_least"] == 0.75
    assert found["rss_share_least"] == 0.95
    assert found["slice_ms"] == {"least": 1.0, "median": 2.5, "most": 6.0}
    assert found["slices"] == 4
    assert found["delay_ms"] == {"least": 0.0, "median": 1.0, "most": 2.0}
    assert found["longest_delay_ms"] == {"least": 3.0, "median": 7.0, "most": 11.0}
    assert (found["live_blocks"], found["moved_blocks"]) == (40, 0)
    assert "returned_share_least          0.75" in table(found)
    shares = [row["utilisation"] for row in stacks()]
    assert shares[0][1] == 1.0
    assert shares[1][1] == 8 / 2048
    assert shares[2][32] == pytest.approx(80 / 96)


def test_a_block_is_moved_when_anything_of_it_changed_and_a_gap_counts_while_it_goes_on():
    pieces = [Piece(0, 0), Piece(1, 0)]
    places = [("a", 0), ("a", 1), ("b", 0)]
    before = KvDigests(
        {"a": 40, "b": 5},
        {(*place, piece): "x" for place in places for piece in pieces},
        {place: number for number, place in enumerate(places)},
    )
    assert moved(before, before) == 0
    assert moved(before, msgspec.structs.replace(before, digests={**before.digests, ("a", 1, pieces[1]): "y"})) == 1
    assert moved(before, msgspec.structs.replace(before, blocks={**before.blocks, ("b", 0): 7})) == 1
    assert moved(before, KvDigests(before.positions, {}, {})) == 3
    listener: Any = SimpleNamespace(arrivals={"a": [0.0, 1.0, 4.0, 4.5, 9.0], "b": [2.0, 2.1]})
    assert Listener.gaps_ms(listener, ["a", "b"], 2.05, 3.0) == (3000, 100)
    assert Listener.gaps_ms(listener, ["a"], 4.2, 4.4) == (500,)
