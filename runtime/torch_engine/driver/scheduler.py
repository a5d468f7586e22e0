"""Continuous batching with chunked prefill over paged KV. Pure: the driver does the I/O.

Decodes come first, then prefill chunks of running sequences, then new ones, within a budget of tokens. A pipeline
of PP stages keeps up to PP micro-batches in flight; a sequence is in one of them at most.
"""

import itertools
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from runtime.engine import Finish, GenerationRequest, Token
from runtime.errors import OVER_CONTEXT, RequestError
from runtime.kv.blocks import BlockPool
from runtime.kv.prefixes import BlockHash, hash_block
from runtime.torch_engine.models import Span
from runtime.torch_engine.sampling_tasks import Integers, Sampled, SamplingTask

if TYPE_CHECKING:
    from runtime.grammar import Matcher


NEVER = -1e30
"""Added to the logit of a token that may not come."""


@dataclass(slots=True, eq=False)
class Sequence:
    """One request on its way. ``tokens`` is the prompt and what came out of it."""

    request: GenerationRequest
    epoch: int
    tokens: list[int]
    table: list[int] = field(default_factory=list)
    num_computed: int = 0
    num_cached: int | None = None
    """Tokens that needed no computation when it started; None before."""
    hashes: list[BlockHash] = field(default_factory=list)
    """Of its first full blocks, as far as anybody asked."""
    matcher: "Matcher | None" = None
    """Where its grammar stands after its output."""
    mask: Integers | None = None
    """What its grammar allows next."""
    in_flight: bool = False
    cancelled: bool = False

    def block_hashes(self, count: int, block_size: int) -> list[BlockHash]:
        """Hashes of the first ``count`` blocks, all of them full."""
        for first in range(len(self.hashes) * block_size, count * block_size, block_size):
            parent = self.hashes[-1] if self.hashes else b""
            self.hashes.append(hash_block(parent, self.tokens[first : first + block_size]))
        return self.hashes[:count]

    @property
    def num_outputs(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def is_decoding(self) -> bool:
        """Its last token is what the step before gave.

        A prompt may lack one token too, if the others are cached.
        """
        return self.num_missing == 1 and self.num_outputs > 0

    @property
    def most_tokens(self) -> int:
        """Tokens of the prompt and all that may be generated."""
        return len(self.request.prompt) + self.request.sampling.max_tokens

    def sampling_task(self) -> SamplingTask:
        """What it asks of the sampler now."""
        params = self.request.sampling
        if self.num_outputs < params.min_tokens:
            never = ((token, NEVER) for token in params.stop_token_ids)
            params = replace(params, logit_bias=(*params.logit_bias, *never))
        generated = None
        known = None
        if params.presence_penalty or params.frequency_penalty:
            output = self.tokens[len(self.request.prompt) :]
            generated = np.array(np.unique(output, return_counts=True), dtype=np.int32)
        if params.repetition_penalty != 1:
            known = np.unique(self.tokens).astype(np.int32)
        return SamplingTask(params, self.num_outputs, generated, known, self.mask)

    def match(self, token_id: int) -> str:
        """Let the grammar take in a token of the output; why it can go no further, if it cannot."""
        if self.matcher is None:
            return ""
        self.matcher.advance([token_id])
        self.mask = self.matcher.mask()
        return self.matcher.error

    @property
    def num_missing(self) -> int:
        """Tokens whose KV is not in the cache; 1 while decoding."""
        return len(self.tokens) - self.num_computed


@dataclass(frozen=True, slots=True)
class Chunk:
    """One sequence's part of a micro-batch."""

    sequence: Sequence
    span: Span

    @property
    def samples(self) -> bool:
        """The chunk ends at the last known token, so the step gives the next one."""
        return self.span.start + self.span.count == len(self.sequence.tokens)


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What a request may ask of the model."""

    tokens: int
    """Prompt and output together."""
    vocab_size: int


class Scheduler:
    """Queues, block tables and the choice of the next micro-batch."""

    def __init__(
        self, pool: BlockPool, block_size: int, max_running: int, limits: ModelLimits, prefix_caching: bool = True
    ) -> None:
        self.pool = pool
        self._block_size = block_size
        self._limits = limits
        self._prefix_caching = prefix_caching
        self.max_running = max_running
        """Sequences with KV at once; those that run already when it is lowered go on."""
        self.is_held = False
        """No new sequence starts."""
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self.request_blocks = pool.num_blocks
        """KV blocks that a request may come to need; the pool may have fewer for the time of a switch."""
        self.prefix_cache_queries = self.prefix_cache_hits = 0
        """Tokens of the sequences that started, and those of them that were in the cache."""

    @property
    def num_waiting(self) -> int:
        """Sequences without blocks."""
        return len(self._waiting)

    @property
    def running(self) -> tuple[Sequence, ...]:
        """Sequences with blocks, oldest first."""
        return tuple(self._running)

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        """All sequences, running before waiting."""
        return (*self._running, *self._waiting)

    def submit(self, request: GenerationRequest, matcher: "Matcher | None" = None) -> None:
        """Queue a request, with the matcher of its grammar if it has one.

        Raises:
            RequestError: it could never be served, or is served already.
        """
        if any(sequence.request.request_id == request.request_id for sequence in self.sequences):
            raise RequestError(f"request {request.request_id} runs already; submit it again when it has ended")
        total = len(request.prompt) + request.sampling.max_tokens
        if not request.prompt:
            raise RequestError("the prompt is empty; send at least one token")
        if request.sampling.max_tokens < 1:
            raise RequestError(f"max_tokens is {request.sampling.max_tokens}; ask for at least one")
        if unknown := [token for token in request.prompt if not 0 <= token < self._limits.vocab_size]:
            raise RequestError(f"token {unknown[0]} is not in the vocabulary of {self._limits.vocab_size}")
        if request.sampling.temperature > 0 and request.sampling.seed is None:
            raise RequestError("a sampled request needs a seed: this engine's noise follows from it")
        biased = [token for token, _ in request.sampling.logit_bias]
        if unknown := [token for token in biased if not 0 <= token < self._limits.vocab_size]:
            raise RequestError(f"logit_bias: token {unknown[0]} is not in the vocabulary of {self._limits.vocab_size}")
        if total > self._limits.tokens:
            raise RequestError(
                f"{OVER_CONTEXT} {self._limits.tokens} tokens, but {len(request.prompt)} prompt tokens and "
                f"{request.sampling.max_tokens} to generate make {total}; ask for fewer"
            )
        if self._blocks_for(total) > self.request_blocks:
            capacity = self.request_blocks * self._block_size
            raise RequestError(
                f"{OVER_CONTEXT} {capacity} tokens here: {total} tokens do not fit the KV cache of {capacity} tokens; "
                "ask for fewer"
            )
        if matcher is not None:
            matcher.advance(list(request.past))
        mask = None if matcher is None else matcher.mask()
        tokens = [*request.prompt, *request.past]
        place = self._num_urgent if request.is_urgent else len(self._waiting)
        self._waiting.insert(place, Sequence(request, request.epoch, tokens, matcher=matcher, mask=mask))

    def next_batch(self, budget: int, micro_batches: int) -> list[Chunk]:
        """The next micro-batch of at most ``budget`` tokens, its sequences marked in flight.

        Empty if there is none.
        """
        self._make_room_for_urgent()
        most = -(-max(len(self._running), 1) // micro_batches)
        chunks: list[Chunk] = []
        ready = sorted(
            (s for s in self._running if not s.in_flight and not s.cancelled), key=lambda s: s.num_missing > 1
        )
        for sequence in itertools.chain(ready, self._admissions()):
            if budget == 0 or (len(chunks) >= most and sequence.is_decoding):
                break
            if sequence not in self._running:
                continue  # preempted by an earlier turn of this loop
            if (chunk := self._chunk(sequence, budget)) is None:
                continue
            sequence.in_flight = True
            chunks.append(chunk)
            budget -= chunk.span.count
        return chunks

    def complete(self, chunks: list[Chunk], sampled: list[Sampled]) -> list[Token]:
        """Book a finished micro-batch; ``sampled`` has one entry per chunk that samples, in order."""
        out = []
        results = iter(sampled)
        for chunk in chunks:
            sequence = chunk.sequence
            samples = chunk.samples
            sequence.in_flight = False
            sequence.num_computed += chunk.span.count
            self._written(sequence, chunk.span.start, sequence.num_computed)
            result = next(results) if samples else None
            if sequence.cancelled:
                out.append(self._end_cancelled(sequence))
            elif result is not None:
                out.append(self._append(sequence, result))
        return out

    def cancel(self, request_id: str) -> list[Token]:
        """End a request; if it is in flight its end is told when the step completes."""
        for sequence in self.sequences:
            if sequence.request.request_id == request_id:
                sequence.cancelled = True
                return [] if sequence.in_flight else [self._end_cancelled(sequence)]
        return []

    def lose(self, detail: str) -> list[Token]:
        """End every sequence, and forget all KV: the workers that had it are no more."""
        ends = [
            Token(
                sequence.request.request_id, sequence.epoch, -1, None, finish=Finish.ERROR, detail=detail, is_lost=True
            )
            for sequence in self.sequences
        ]
        for sequence in self.sequences:
            self._forget(sequence)
        self.pool.forget([*self.pool.cached])
        return ends

    def adopt(self, running: list[Sequence], waiting: list[Sequence]) -> None:
        """Go on with the sequences of another scheduler, whose pool this one's took over; there are none here."""
        assert not self.sequences, "a scheduler with sequences takes over nothing"
        self._running, self._waiting = running, deque(waiting)

    def move(self, epoch: int) -> tuple[str, ...]:
        """Every sequence speaks under ``epoch`` from now on. Returns their ids."""
        for sequence in self.sequences:
            sequence.epoch = epoch
        return tuple(sequence.request.request_id for sequence in self.sequences)

    @property
    def longest_blocks(self) -> int:
        """KV blocks that the longest of the accepted requests may come to need; with fewer it would never end."""
        return max((self._blocks_for(s.most_tokens) for s in self.sequences), default=0)

    @property
    def least_blocks(self) -> int:
        """Blocks with which all goes on.

        Those in tables with one more per running sequence, or those of the longest request.
        """
        held = self.pool.num_blocks - self.pool.num_free
        return max(held + len(self._running), self.longest_blocks)

    def check_integrity(self) -> None:
        """Every block is free or in tables (for tests and idle moments)."""
        self.pool.check_integrity(s.table for s in self._running)

    def _admissions(self) -> Iterable[Sequence]:
        """Sequences that may start.

        One that is urgent may be beyond the most that run.
        """
        while self._waiting and not self.is_held:
            sequence = self._waiting[0]
            if len(self._running) >= self.max_running + sequence.request.is_urgent:
                return
            prefix = self._cached_prefix(sequence)
            if self._lacks_room(sequence, prefix):
                return
            self._waiting.popleft()
            self._running.append(sequence)
            self._start(sequence, prefix)
            yield sequence

    def _lacks_room(self, sequence: Sequence, prefix: list[int]) -> bool:
        """Whether it cannot start.

        A block per running sequence is left, or the newcomer would soon be preempted.
        """
        needed = self._blocks_for(sequence.num_missing) + len(self._running)
        return self.pool.num_free < needed - sum(block not in self.pool.cached for block in prefix)

    def _make_room_for_urgent(self) -> None:
        """Take the blocks of the youngest for the first urgent sequence that waits."""
        if not self._num_urgent or self.is_held:
            return
        first = self._waiting[0]
        while self._lacks_room(first, self._cached_prefix(first)) and self._preempt_younger(None):
            pass

    def _cached_prefix(self, sequence: Sequence) -> list[int]:
        """Blocks that hold its first tokens.

        The last token is computed in any case: the step gives the next one.
        """
        if not self._prefix_caching:
            return []
        count = (len(sequence.tokens) - 1) // self._block_size
        return self.pool.find(sequence.block_hashes(count, self._block_size))

    def _start(self, sequence: Sequence, prefix: list[int]) -> None:
        """Its blocks are those of its cached prefix; one that was preempted counts once."""
        self.pool.share(prefix)
        sequence.table = prefix
        sequence.num_computed = len(prefix) * self._block_size
        if self._prefix_caching and sequence.num_cached is None:
            sequence.num_cached = sequence.num_computed
            self.prefix_cache_queries += len(sequence.tokens)
            self.prefix_cache_hits += sequence.num_cached

    def _chunk(self, sequence: Sequence, budget: int) -> Chunk | None:
        count = min(sequence.num_missing, budget)
        lacking = self._blocks_for(sequence.num_computed + count) - len(sequence.table)
        while lacking > self.pool.num_free and self._preempt_younger(sequence):
            pass
        if lacking > self.pool.num_free:
            lacking = self.pool.num_free
            count = min(count, (len(sequence.table) + lacking) * self._block_size - sequence.num_computed)
        if count <= 0:
            return None
        if lacking > 0:
            sequence.table += self.pool.take(lacking)
        return Chunk(sequence, Span(sequence.num_computed, count, tuple(sequence.table)))

    def _preempt_younger(self, sequence: Sequence | None) -> bool:
        """Take the blocks of the youngest idle sequence after ``sequence``; it will be computed anew.

        One that waits (None) is before all that are not urgent.
        """
        first = 0 if sequence is None else self._running.index(sequence) + 1
        for victim in reversed(self._running[first:]):
            if victim.table and not victim.in_flight and not victim.request.is_urgent:
                self.pool.give_back(victim.table)
                victim.table = []
                victim.num_computed = 0
                self._running.remove(victim)
                self._waiting.insert(self._num_urgent, victim)
                return True
        return False

    @property
    def _num_urgent(self) -> int:
        """Urgent sequences that wait: they are the first."""
        return sum(sequence.request.is_urgent for sequence in self._waiting)

    def _written(self, sequence: Sequence, start: int, stop: int) -> None:
        """Tell the pool which slots new tokens filled, and which blocks are full.

        Tokens from ``start`` to before ``stop``.
        """
        size = self._block_size
        table = sequence.table
        for logical in range(start // size, -(-stop // size)):
            first = logical * size
            self.pool.written(table[logical], max(start - first, 0), min(stop - first, size))
        if self._prefix_caching and start // size < stop // size:
            hashes = sequence.block_hashes(stop // size, size)
            for logical in range(start // size, stop // size):
                self.pool.cache(hashes[logical], table[logical])

    def _append(self, sequence: Sequence, result: Sampled) -> Token:
        index = sequence.num_outputs
        params = sequence.request.sampling
        sequence.tokens.append(result.token_id)
        finish = None
        detail = ""
        if result.token_id in params.stop_token_ids:
            finish = Finish.STOP
        elif sequence.num_outputs >= params.max_tokens:
            finish = Finish.LENGTH
        elif wrong := sequence.match(result.token_id):
            finish = Finish.ERROR
            detail = f"its grammar can go no further: {wrong}"
        if finish is not None:
            self._forget(sequence)
        return Token(
            request_id=sequence.request.request_id,
            epoch=sequence.epoch,
            index=index,
            token_id=result.token_id,
            logprob=result.logprob,
            alternatives=result.alternatives,
            finish=finish,
            detail=detail,
            num_cached=sequence.num_cached,
        )

    def _end_cancelled(self, sequence: Sequence) -> Token:
        self._forget(sequence)
        request_id = sequence.request.request_id
        return Token(request_id, sequence.epoch, sequence.num_outputs, None, finish=Finish.CANCELLED)

    def _forget(self, sequence: Sequence) -> None:
        if sequence in self._running:
            self._running.remove(sequence)
        else:
            self._waiting.remove(sequence)
        self.pool.give_back(sequence.table)
        sequence.table = []

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._block_size)
