"""The ledger lets each index pass once, in order, from its owner alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.engine import Finish, Moved, Token
from runtime.ledger import Accepted, Dropped, DropReason, Ledger


def token(index: int, epoch: int = 0, request_id: str = "a") -> Token:
    return Token(request_id, epoch, index, token_id=100 + index)


def opened(*owners: str) -> Ledger:
    """A ledger with one stream ``a`` under epoch 0, and announced cuts."""
    ledger = Ledger("PP2")
    for owner in owners:
        ledger.announce(owner)
    ledger.open("a")
    return ledger


def test_tokens_in_order_pass():
    ledger = opened()
    verdicts = [ledger.accept(token(index)) for index in range(3)]
    assert verdicts == [Accepted(0, "PP2", "0-PP2")] * 3
    assert ledger.counts.accepted == 3


def test_a_token_delivered_before_is_dropped_as_a_duplicate():
    ledger = opened()
    ledger.accept(token(0))
    assert ledger.accept(token(0)) == Dropped(DropReason.DUPLICATE)
    assert ledger.counts.duplicates == 1
    assert isinstance(ledger.accept(token(1)), Accepted)


def test_a_gap_tells_how_many_tokens_were_lost():
    ledger = opened()
    assert ledger.accept(token(2)) == Dropped(DropReason.GAP, lost=2)
    assert ledger.counts.lost == 2


def test_after_the_fence_only_the_new_owner_is_heard():
    ledger = opened("TP2")
    ledger.accept(token(0))
    assert ledger.move(Moved(1, ("a", "b"))) == ["a"]
    assert ledger.move(Moved(1, ("a",))) == []
    assert ledger.accept(token(1, epoch=0)) == Dropped(DropReason.WRONG_EPOCH)
    assert ledger.accept(token(1, epoch=1)) == Accepted(1, "TP2", "1-TP2")
    assert ledger.counts.wrong_epoch == 1


def test_before_the_fence_the_new_owner_is_not_heard():
    ledger = opened("TP2")
    assert ledger.accept(token(0, epoch=1)) == Dropped(DropReason.WRONG_EPOCH)


def test_a_request_left_to_drain_keeps_its_owner():
    ledger = opened("TP2")
    ledger.open("b")
    ledger.move(Moved(1, ("b",)))
    assert ledger.accept(token(0, epoch=0)) == Accepted(0, "PP2", "0-PP2")
    assert ledger.accept(token(0, epoch=1, request_id="b")) == Accepted(1, "TP2", "1-TP2")


def test_new_streams_begin_under_the_epoch_of_the_last_cut():
    ledger = opened("TP2", "1x1")
    ledger.move(Moved(2, ()))
    assert ledger.open("b") == 2
    assert ledger.accept(token(0, epoch=2, request_id="b")) == Accepted(2, "1x1", "2-1x1")


def test_a_cut_nobody_announced_moves_nothing():
    ledger = opened()
    ledger.move(Moved(1, ("a",)))
    assert ledger.epoch == 0
    assert ledger.accept(token(0, epoch=1)) == Dropped(DropReason.WRONG_EPOCH)


def test_a_failed_cut_never_lends_its_epoch_to_another():
    ledger = Ledger("PP2")
    assert (ledger.announce("TP2"), ledger.announce("1x1")) == (1, 2)


def test_what_comes_after_the_end_is_dropped_and_counts_for_nothing():
    ledger = opened()
    ledger.close("a")
    assert ledger.accept(token(0)) == Dropped(DropReason.CLOSED)
    assert (ledger.counts.lost, ledger.counts.duplicates, len(ledger)) == (0, 0, 0)


def test_an_error_ends_a_stream_at_any_index_but_only_from_its_owner():
    ledger = opened("TP2")
    ledger.accept(token(0))
    ledger.move(Moved(1, ("a",)))
    end = Token("a", 0, 7, None, finish=Finish.ERROR, detail="the old rank died")
    assert ledger.accept(end) == Dropped(DropReason.WRONG_EPOCH)
    assert isinstance(ledger.accept(Token("a", 1, 7, None, finish=Finish.ERROR)), Accepted)


def test_an_ordinary_end_without_a_token_must_not_hide_a_gap():
    assert opened().accept(Token("a", 0, 3, None, finish=Finish.LENGTH)) == Dropped(DropReason.GAP, lost=3)


OUTPUTS = st.one_of(
    st.builds(token, st.integers(0, 6), st.integers(0, 3)),
    st.builds(Moved, st.integers(0, 4), st.sampled_from([(), ("a",)])),
)


@pytest.mark.slow
@given(st.lists(OUTPUTS, max_size=40))
def test_whatever_an_engine_says_the_accepted_indices_count_up_from_0(outputs):
    ledger, accepted, epoch = opened("TP2", "1x1", "PP2"), [], 0
    for output in outputs:
        if isinstance(output, Moved):
            ledger.move(output)
            epoch = output.epoch if output.request_ids and output.epoch <= 3 else epoch
        elif isinstance(verdict := ledger.accept(output), Accepted):
            accepted.append(output.index)
            assert verdict.epoch == output.epoch == epoch, "the last announced fence that named it says who speaks"
    assert accepted == list(range(len(accepted)))
