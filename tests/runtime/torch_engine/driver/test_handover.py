"""A scheduler whose sequences were handed over says and allocates what it would have on the old one."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from runtime.engine import GenerationRequest, SamplingParams, Token
from runtime.kv.blocks import BlockPool
from runtime.torch_engine.driver.handover import Handover, handed_over, take_over
from runtime.torch_engine.driver.scheduler import Chunk, ModelLimits, Scheduler
from runtime.torch_engine.sampling_tasks import Sampled

SIZE, BLOCKS = 4, 24
Deed = tuple[str, int, int]
DEEDS = st.lists(
    st.tuples(
        st.sampled_from(["submit", "step", "step", "step", "cancel", "resize"]), st.integers(0, 30), st.integers(1, 9)
    ),
    max_size=40,
)


def scheduler() -> Scheduler:
    pool = BlockPool(BLOCKS)
    pool.reserve()
    return Scheduler(pool, SIZE, 5, ModelLimits(60, 50))


def seen(chunks: list[Chunk]) -> list[Any]:
    return [(chunk.sequence.request.request_id, chunk.span, chunk.sequence.sampling_task()) for chunk in chunks]


def done(subject: Scheduler, deed: Deed, number: int, epoch: int) -> tuple[list[Any], list[Token]]:
    """What one deed gave: what is computed, and what is said."""
    kind, first, second = deed
    if kind == "submit":
        prompt = tuple(i // (1 + first % 3) for i in range(1 + first))  # many begin alike
        subject.submit(GenerationRequest(f"r{number}", prompt, SamplingParams(second), epoch))
    elif kind == "cancel":
        return [], subject.cancel(f"r{first}")
    elif kind == "resize":
        subject.pool.resize(max(subject.longest_blocks, BLOCKS - 1 - first))
    batch = subject.next_batch(second + 6, 1)
    return seen(batch), subject.complete(batch, [Sampled(number % 7, -0.5, ()) for chunk in batch if chunk.samples])


def carried(handover: Handover) -> Handover:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(handover), type=Handover)


@given(before=DEEDS, after=DEEDS, share=st.integers(0, 3))
def test_whoever_takes_over_goes_on_as_if_nothing_had_happened(
    before: list[Deed], after: list[Deed], share: int
) -> None:
    old, new = scheduler(), scheduler()
    for number, deed in enumerate(before):
        done(old, deed, number, 1)
    lost = [block for block in old.pool.cached if share and block % share == 0]
    requests = {sequence.request.request_id: sequence.request for sequence in old.sequences}
    new.pool.resize(old.pool.capacity)
    take_over(new, carried(handed_over(old, lost)), 2, requests, {})
    old.pool.forget(lost)
    old.move(2)
    new.check_integrity()
    for number, deed in enumerate(after, len(before)):
        assert done(new, deed, number, 2) == done(old, deed, number, 2)
        new.check_integrity()
        assert [*new.pool.filled] == [*old.pool.filled]
        assert new.pool.next_free(BLOCKS) == old.pool.next_free(BLOCKS)
    assert (new.prefix_cache_queries, new.prefix_cache_hits) == (old.prefix_cache_queries, old.prefix_cache_hits)


@given(before=DEEDS, capacity=st.integers(0, BLOCKS - 1))
def test_a_pool_that_holds_less_lets_go_of_what_is_cached_and_retires_the_rest_as_it_comes_free(
    before: list[Deed], capacity: int
) -> None:
    old, new = scheduler(), scheduler()
    for number, deed in enumerate(before):
        done(old, deed, number, 1)
    requests = {sequence.request.request_id: sequence.request for sequence in old.sequences}
    new.pool.resize(capacity)
    take_over(new, handed_over(old, []), 2, requests, {})
    new.check_integrity()
    used = {block for sequence in old.running for block in sequence.table}
    assert new.pool.num_blocks == max(capacity, len(used))
    new.lose("all end")
    new.check_integrity()
    assert new.pool.num_blocks == capacity


def test_a_grammar_goes_on_where_its_output_ended() -> None:
    class Counting:
        error = ""

        def __init__(self) -> None:
            self.heard: list[int] = []

        def advance(self, tokens: list[int]) -> None:
            self.heard += tokens

        def mask(self) -> list[int]:
            return [len(self.heard)]

    old, new, matchers = scheduler(), scheduler(), [Counting(), Counting()]
    request = GenerationRequest("a", (1, 2), SamplingParams(9), 1, past=(5,))
    old.submit(request, matchers[0])  # type: ignore[arg-type] - as much of one as is needed
    for _ in range(3):
        batch = old.next_batch(9, 1)
        old.complete(batch, [Sampled(8, 0.0, ())])
    take_over(new, handed_over(old, []), 2, {"a": request}, {"a": matchers[1]})  # type: ignore[dict-item] - the same
    assert matchers[1].heard == matchers[0].heard == [5, 8, 8, 8]
    assert new.sequences[0].mask == [4]
