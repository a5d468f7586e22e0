"""Structured outputs in vLLM by ``runtime.grammar``, as in the built-in engine.

vLLM keeps the state of a grammar beside its scheduler and advances it by each step's tokens. Here it follows from the
request's output, which a request that moves brings along: there is nothing else to carry.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import torch

from runtime.grammar import Matcher, Vocabulary
from runtime.process.content import PinnedCheckpoint


class Grammars:
    """Replaces the backend of vLLM's structured output manager.

    That one needs a tokenizer of its own kind.
    """

    def __init__(self, checkpoint: PinnedCheckpoint, vocab_size: int) -> None:
        self._checkpoint = checkpoint
        self._vocab_size = vocab_size
        # one thread: grammars are compiled beside the steps, one after the other
        self._compiler = ThreadPoolExecutor(1, "grammars")

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary.of(self._checkpoint, self._vocab_size)

    def install(self, manager: Any) -> None:
        """Answer for vLLM's structured output manager."""
        manager.backend = self
        manager.grammar_init = self.begin

    def begin(self, request: Any) -> None:
        """In place of ``StructuredOutputManager.grammar_init``.

        VLLM holds the request back until its grammar is there.
        """
        if structured := request.structured_output_request:
            structured.grammar = self._compiler.submit(self._compile, structured.params.grammar, request)

    def allocate_token_bitmask(self, max_num_seqs: int) -> torch.Tensor:
        """One bit per token: int32 ``[max_num_seqs, words]``."""
        return torch.full((max_num_seqs, -(-self._vocab_size // 32)), -1, dtype=torch.int32)

    def destroy(self) -> None:
        """vLLM is being closed."""
        self._compiler.shutdown(wait=False, cancel_futures=True)

    def _compile(self, grammar: str, request: Any) -> "RequestGrammar":
        return RequestGrammar(Matcher(grammar, self._vocabulary), request)


class RequestGrammar:
    """One request's, in the form that vLLM's scheduler asks.

    The matcher stands where the request's output ends.
    """

    def __init__(self, matcher: Matcher, request: Any) -> None:
        self._matcher = matcher
        self._request = request
        self._num_matched = 0

    @property
    def error(self) -> str:
        """Why it can go no further; empty while it can."""
        return self._matcher.error

    def catch_up(self) -> bool:
        """Take in what was output since; tells whether all of it matches."""
        new = self._request.output_token_ids[self._num_matched :]
        self._num_matched += len(new)
        if self._matcher.is_over:
            return True  # the mask has left the end alone, which is no part of what is matched
        return self._matcher.advance(new)

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:  # noqa: ARG002 - vLLM's signature
        """The request has output these."""
        return self.catch_up()

    def fill_bitmask(self, bitmask: torch.Tensor, batch_index: int) -> None:
        """Allow what may come next."""
        self.catch_up()
        bitmask[batch_index] = torch.from_numpy(self._matcher.mask())

    def is_terminated(self) -> bool:
        """Never: when the grammar is matched its mask allows the end alone."""
        return False
