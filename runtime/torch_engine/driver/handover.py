"""Sequences with their block tables on the way from one driver's scheduler to another's. Pure.

Nothing of them is in flight. Block ids mean the same on both sides, and the bytes behind them come otherwise.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runtime.engine import GenerationRequest
from runtime.kv.blocks import PoolContents
from runtime.torch_engine.driver.scheduler import Scheduler, Sequence

if TYPE_CHECKING:
    from runtime.grammar import Matcher


@dataclass(frozen=True, slots=True)
class Passage:
    """One sequence, without its request, which the other side has."""

    request_id: str
    output: list[int]
    """Known tokens behind the prompt."""
    table: list[int]
    num_computed: int
    num_cached: int | None


@dataclass(frozen=True, slots=True)
class Handover:
    """All that a scheduler knows."""

    running: list[Passage]
    """The oldest first."""
    waiting: list[Passage]
    pool: PoolContents
    cache_counts: tuple[int, int]
    """Queries and hits, in tokens."""


def handed_over(scheduler: Scheduler, lost: Collection[int]) -> Handover:
    """What another scheduler needs to go on; cached blocks that are ``lost`` have no bytes there."""
    assert not any(sequence.in_flight for sequence in scheduler.sequences), "a sequence is in a step"
    passages = [_passage(sequence) for sequence in scheduler.sequences]
    begun = len(scheduler.running)
    counts = scheduler.prefix_cache_queries, scheduler.prefix_cache_hits
    return Handover(passages[:begun], passages[begun:], scheduler.pool.contents(lost), counts)


def take_over(
    scheduler: Scheduler,
    handover: Handover,
    epoch: int,
    requests: Mapping[str, GenerationRequest],
    matchers: Mapping[str, "Matcher"],
) -> None:
    """Go on with it under ``epoch``; ``matchers`` of grammars have taken in nothing yet.

    Raises:
        KeyError: a request is not among ``requests``.
    """
    scheduler.pool.adopt(handover.pool, [passage.table for passage in handover.running])

    def arrived(passage: Passage) -> Sequence:
        request = requests[passage.request_id]
        matcher = matchers.get(passage.request_id)
        if matcher is not None:
            matcher.advance(passage.output)
        return Sequence(
            request,
            epoch,
            [*request.prompt, *passage.output],
            passage.table,
            passage.num_computed,
            passage.num_cached,
            scheduler.pool.hashes_of(passage.table),
            matcher,
            None if matcher is None else matcher.mask(),
        )

    scheduler.adopt([*map(arrived, handover.running)], [*map(arrived, handover.waiting)])
    scheduler.prefix_cache_queries, scheduler.prefix_cache_hits = handover.cache_counts


def _passage(sequence: Sequence) -> Passage:
    output = sequence.tokens[len(sequence.request.prompt) :]
    name = sequence.request.request_id
    return Passage(name, output, sequence.table, sequence.num_computed, sequence.num_cached)
