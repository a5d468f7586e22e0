"""The scheduler: budgets, chunks, preemption, and no block lost whatever happens."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.engine import Finish, GenerationRequest, SamplingParams, Token
from runtime.errors import RequestError
from runtime.kv.blocks import BlockPool
from runtime.torch_engine.driver.scheduler import Chunk, ModelLimits, Scheduler
from runtime.torch_engine.sampling_tasks import Sampled
from tests.rows import rows

BLOCK = 4


def scheduler(blocks: int = 16, max_running: int = 8) -> Scheduler:
    return Scheduler(BlockPool(blocks), BLOCK, max_running, ModelLimits(tokens=60, vocab_size=50))


def request(name: str, prompt: int = 5, tokens: int = 3, stop: tuple[int, ...] = ()) -> GenerationRequest:
    return GenerationRequest(name, tuple(range(prompt)), SamplingParams(tokens, stop_token_ids=stop), epoch=1)


def step(subject: Scheduler, chunks: list[Chunk], token: int = 9) -> list[Token]:
    return subject.complete(chunks, [Sampled(token, -0.5, ()) for chunk in chunks if chunk.samples])


def begun(subject: Scheduler, wanted: GenerationRequest) -> None:
    subject.submit(wanted)
    step(subject, subject.next_batch(40, 1))


def test_a_prompt_is_prefilled_in_chunks_and_only_the_last_chunk_samples():
    subject = scheduler()
    subject.submit(request("a", prompt=10))
    spans = []
    for _ in range(3):
        (chunk,) = subject.next_batch(4, 1)
        spans.append((chunk.span.start, chunk.span.count, chunk.samples))
        step(subject, [chunk])
    assert spans == [(0, 4, False), (4, 4, False), (8, 2, True)]


def test_decodes_come_before_prefills_within_the_budget():
    subject = scheduler()
    subject.submit(request("old"))
    step(subject, subject.next_batch(8, 1))
    subject.submit(request("new", prompt=20))
    batch = subject.next_batch(8, 1)
    assert [(c.sequence.request.request_id, c.span.count) for c in batch] == [("old", 1), ("new", 7)]


def test_a_pipeline_shares_the_decodes_among_its_micro_batches():
    subject = scheduler(blocks=40)
    for name in "abcd":
        subject.submit(request(name))
    step(subject, subject.next_batch(40, 2))
    first, second = subject.next_batch(40, 2), subject.next_batch(40, 2)
    names = [[c.sequence.request.request_id for c in batch] for batch in (first, second)]
    assert names == [["a", "b"], ["c", "d"]]
    assert subject.next_batch(40, 2) == []


def test_the_stream_ends_at_max_tokens_or_at_a_stop_token_with_contiguous_indices():
    subject = scheduler()
    subject.submit(request("length", tokens=2))
    subject.submit(request("stop", stop=(9,)))
    tokens = [token for _ in range(3) for token in step(subject, subject.next_batch(40, 1))]
    ends = {token.request_id: (token.index, token.finish) for token in tokens if token.finish}
    assert ends == {"length": (1, Finish.LENGTH), "stop": (0, Finish.STOP)}
    subject.check_integrity()
    assert subject.pool.num_free == 16


def test_below_a_lowered_limit_those_that_run_go_on_and_no_others_begin():
    subject = scheduler(blocks=40)
    plain = scheduler(blocks=40)
    said: dict[Scheduler, list[tuple[str, int]]] = {subject: [], plain: []}
    for each, tokens in said.items():
        for name in "abcd":
            each.submit(request(name, tokens=6))
        step(each, each.next_batch(40, 1))
        each.submit(request("e"))
        each.max_running = 2 if each is subject else 8
        crowds = []
        while each.sequences:
            tokens += [(token.request_id, token.index) for token in step(each, each.next_batch(40, 1))]
            crowds.append([sequence.request.request_id for sequence in each.running])
        assert ("e" in crowds[0]) is (each is plain)
        assert crowds[0][:4] == [*"abcd"]
        each.check_integrity()
    assert sorted(said[subject]) == sorted(said[plain])


def test_what_is_urgent_goes_before_all_that_wait_and_the_youngest_makes_room_for_it():
    subject = scheduler(blocks=6, max_running=2)
    for name in ("old", "young", "next"):
        subject.submit(request(name, prompt=7, tokens=6))
    step(subject, subject.next_batch(40, 1))
    subject.submit(replace(request("help", prompt=7, tokens=2), is_urgent=True))
    ended: list[str] = []
    crowds: list[list[str]] = []
    while subject.sequences:
        ended += [token.request_id for token in step(subject, subject.next_batch(40, 1)) if token.finish]
        crowds.append([sequence.request.request_id for sequence in subject.running])
        subject.check_integrity()
    assert crowds[0] == ["old", "help"]
    assert ended == ["help", "old", "young", "next"]


def test_what_is_urgent_has_a_place_of_its_own_where_no_more_may_run():
    subject = scheduler(blocks=40, max_running=2)
    for name in ("a", "b", "c"):
        subject.submit(request(name, tokens=6))
    step(subject, subject.next_batch(40, 1))
    for name in ("first", "second"):
        subject.submit(replace(request(name), is_urgent=True))
    step(subject, subject.next_batch(40, 1))
    assert [sequence.request.request_id for sequence in subject.running] == ["a", "b", "first"]


def test_before_the_least_tokens_no_end_may_come():
    subject = scheduler()
    wanted = request("a", tokens=4, stop=(9, 8))
    subject.submit(replace(wanted, sampling=replace(wanted.sampling, min_tokens=2, logit_bias=((3, 1.0),))))
    biases = []
    for token in (5, 6, 7):
        (sequence,) = subject.sequences
        biases.append([number for number, _ in sequence.sampling_task().params.logit_bias])
        step(subject, subject.next_batch(40, 1), token)
    assert biases == [[3, 9, 8], [3, 9, 8], [3]]


def test_without_room_the_youngest_is_computed_anew():
    subject = scheduler(blocks=5)
    subject.submit(request("old", prompt=7, tokens=6))
    subject.submit(request("young", prompt=7, tokens=6))
    ends: list[str] = []
    for _ in range(40):
        ends += [t.request_id for t in step(subject, subject.next_batch(40, 1)) if t.finish]
        subject.check_integrity()
    assert ends == ["old", "young"]


def test_a_full_cache_computes_hardly_anything_twice():
    subject = scheduler(blocks=10, max_running=8)
    for name in "abcdefgh":
        subject.submit(request(name, prompt=8, tokens=12))
    computed = 0
    for _ in range(300):
        batch = subject.next_batch(40, 1)
        computed += sum(chunk.span.count for chunk in batch)
        step(subject, batch)
    assert not subject.sequences
    assert computed < 1.25 * 8 * (8 + 11)


def test_while_no_more_may_run_nothing_new_starts_and_what_runs_goes_on():
    subject = scheduler()
    begun(subject, request("old"))
    subject.submit(request("new"))
    subject.is_held = True
    assert [token.request_id for token in step(subject, subject.next_batch(40, 1))] == ["old"]
    subject.is_held = False
    assert [token.request_id for token in step(subject, subject.next_batch(40, 1))] == ["old", "new"]


def test_cancelling_waits_for_the_step_in_flight():
    subject = scheduler()
    subject.submit(request("a"))
    batch = subject.next_batch(40, 1)
    assert subject.cancel("a") == []
    (end,) = step(subject, batch)
    assert end.finish is Finish.CANCELLED
    assert end.token_id is None
    assert subject.cancel("unknown") == []
    assert subject.pool.num_free == 16


def test_moved_sequences_speak_under_the_new_epoch():
    subject = scheduler(max_running=1)
    subject.submit(request("running"))
    begun(subject, request("waiting"))
    assert subject.move(2) == ("running", "waiting")
    (token,) = step(subject, subject.next_batch(40, 1))
    assert token.epoch == 2


@rows(
    ("prompt", "tokens", "message"),
    [
        (0, 1, "empty"),
        (50, 20, "maximum context length is 60 tokens, but 50 prompt tokens and 20 to generate make 70"),
        (30, 30, "KV cache of 48 tokens"),
        (3, 0, "max_tokens is 0"),
        (51, 1, "token 50 is not in the vocabulary of 50"),
    ],
)
def test_what_can_never_be_served_is_refused_with_the_figures(prompt, tokens, message):
    with pytest.raises(RequestError, match=message):
        scheduler(blocks=12).submit(request("a", prompt, tokens))


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 20)),
        st.tuples(st.just("batch"), st.integers(1, 24)),
        st.tuples(st.just("complete"), st.integers(0, 1)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("resize"), st.integers(1, 8)),
    ),
    max_size=80,
)


def is_whole(tokens: list[Token]) -> bool:
    """Indices from 0 without a gap, and an end that only the last token tells."""
    ends = [token.finish is not None for token in tokens]
    return [token.index for token in tokens] == list(range(len(tokens))) and ends.index(True) == len(ends) - 1


@pytest.mark.slow
@settings(deadline=None)
@given(ACTIONS, st.integers(1, 3))
def test_no_block_and_no_index_is_lost_whatever_happens(actions, stages):
    subject = scheduler(blocks=8, max_running=4)
    flying: list[list[Chunk]] = []
    heard: dict[str, list[Token]] = {}
    names = 0

    def hear(tokens: list[Token]) -> None:
        for token in tokens:
            heard.setdefault(token.request_id, []).append(token)

    def turn(kind: str, argument: int) -> None:
        nonlocal names
        match kind:
            case "submit":
                subject.submit(request(f"r{names}", argument, 4))
                names += 1
            case "batch" if len(flying) < stages:
                if batch := subject.next_batch(argument, stages):
                    assert sum(chunk.span.count for chunk in batch) <= argument
                    flying.append(batch)
            case "complete" if flying:
                hear(step(subject, flying.pop(0)))
            case "cancel":
                hear(subject.cancel(f"r{argument}"))
            case "resize":
                subject.pool.resize(argument)
        subject.check_integrity()

    for kind, argument in actions:
        turn(kind, argument)
    subject.pool.resize(max(subject.pool.capacity, subject.longest_blocks))
    for _ in range(40 * (names + 1)):
        turn("batch", 24)
        turn("complete", 0)
    assert len(heard) == names
    assert all(is_whole(tokens) for tokens in heard.values())
    assert subject.pool.num_free == subject.pool.num_blocks == subject.pool.capacity


def test_least_blocks_are_those_in_tables_with_a_reserve_or_those_of_the_longest_request():
    subject = scheduler()
    assert subject.least_blocks == subject.longest_blocks == 0
    subject.submit(request("a", prompt=9, tokens=1))
    subject.submit(request("b", prompt=6, tokens=1))
    assert subject.least_blocks == subject.longest_blocks == 3
    subject.next_batch(40, 1)
    assert subject.least_blocks == (3 + 1) + (2 + 1)
    assert subject.longest_blocks == 3


def test_a_request_may_need_more_than_the_pool_has_for_the_time_of_a_switch():
    subject = scheduler()
    subject.pool.resize(2)
    subject.submit(request("a", prompt=20, tokens=3))
    assert subject.next_batch(40, 1) == []
    subject.pool.resize(16)
    assert len(step(subject, subject.next_batch(40, 1))) == 1


def spans(batch: list[Chunk]) -> dict[str, tuple[int, int]]:
    return {chunk.sequence.request.request_id: (chunk.span.start, chunk.span.count) for chunk in batch}


@rows(("prompt", "cached"), [(10, 8), (8, 4), (9, 8), (4, 0), (20, 8)])
def test_of_a_prompt_known_in_part_the_rest_is_computed_and_one_token_at_least(prompt, cached):
    subject = scheduler()
    begun(subject, request("first", prompt=10, tokens=1))
    subject.submit(request("again", prompt, tokens=1))
    batch = subject.next_batch(40, 1)
    assert spans(batch) == {"again": (cached, prompt - cached)}
    assert (subject.prefix_cache_queries, subject.prefix_cache_hits) == (10 + prompt, cached)
    assert len(step(subject, batch)) == 1
    subject.check_integrity()


def test_what_was_generated_is_known_as_the_prompt_is():
    subject = scheduler()
    subject.submit(request("first", prompt=5, tokens=4))
    for _ in range(4):
        step(subject, subject.next_batch(40, 1))
    subject.submit(GenerationRequest("again", (*range(5), 9, 9, 9, 1, 2), SamplingParams(1), epoch=1))
    assert spans(subject.next_batch(40, 1)) == {"again": (8, 2)}


def test_running_sequences_share_the_blocks_of_their_prefix_and_write_to_others():
    subject = scheduler()
    begun(subject, request("old", prompt=10))
    begun(subject, request("new", prompt=10))
    old, new = (sequence.table for sequence in subject.running)
    assert old[:2] == new[:2]
    assert old[2] != new[2]
    assert subject.least_blocks == 4 + 2
    subject.cancel("old")
    assert subject.pool.num_free == 16 - 3
    subject.check_integrity()


def other(name: str, prompt: int, tokens: int) -> GenerationRequest:
    """One whose prompt begins like nobody else's."""
    return GenerationRequest(name, tuple(range(20, 20 + prompt)), SamplingParams(tokens), epoch=1)


@rows(("blocks", "starts"), [(7, False), (8, True)])
def test_a_prefix_that_comes_back_is_no_longer_free_for_the_rest(blocks, starts):
    subject = scheduler(blocks)
    begun(subject, request("first", prompt=16, tokens=1))
    begun(subject, other("busy", prompt=7, tokens=9))
    subject.submit(request("again", prompt=20, tokens=1))  # four of its five blocks are cached, and free
    batch = subject.next_batch(40, 1)
    assert spans(batch) == {"busy": (7, 1)} | ({"again": (16, 4)} if starts else {})
    step(subject, batch)
    subject.check_integrity()


def test_a_prefix_that_others_have_in_use_takes_no_room():
    subject = scheduler(blocks=8)
    begun(subject, request("old", prompt=17, tokens=9))
    subject.submit(request("new", prompt=19, tokens=1))
    assert spans(subject.next_batch(40, 1)) == {"old": (17, 1), "new": (16, 3)}


def test_a_sequence_that_was_preempted_finds_its_own_blocks_and_is_counted_once():
    subject = scheduler(blocks=6)
    subject.submit(request("old", prompt=8, tokens=9))
    subject.submit(other("young", prompt=8, tokens=9))
    ends: list[str] = []
    computed = 0
    for _ in range(40):
        batch = subject.next_batch(40, 1)
        computed += sum(chunk.span.count for chunk in batch)
        ends += [token.request_id for token in step(subject, batch) if token.finish]
    assert ends == ["old", "young"]
    assert 2 * 16 < computed < 2 * 16 + 8, "it was preempted, but not all was computed anew"
    assert (subject.prefix_cache_queries, subject.prefix_cache_hits) == (16, 0)


def test_prompts_known_but_for_a_token_start_together():
    subject = scheduler()
    begun(subject, request("first", prompt=9, tokens=1))
    for name in "abcd":
        subject.submit(request(name, prompt=9))
    assert spans(subject.next_batch(40, 1)) == dict.fromkeys("abcd", (8, 1))


def test_without_prefix_caching_nothing_is_known():
    subject = Scheduler(BlockPool(16), BLOCK, 8, ModelLimits(60, 50), prefix_caching=False)
    for name in "ab":
        subject.submit(request(name, prompt=9, tokens=1))
        batch = subject.next_batch(40, 1)
        assert spans(batch) == {name: (0, 9)}
        step(subject, batch)
    assert (subject.prefix_cache_queries, len(subject.pool.cached)) == (0, 0)
