"""Grammars of requests, compiled beside the steps.

Imports llguidance only when asked: machines that are lent bare have none.
"""

import asyncio
from typing import TYPE_CHECKING

from runtime.engine import GenerationRequest
from runtime.errors import RequestError
from runtime.process.content import PinnedCheckpoint

if TYPE_CHECKING:
    from runtime.grammar import Matcher, Vocabulary


class Compiler:
    """Makes matchers of grammars over one model's vocabulary."""

    def __init__(self, checkpoint: PinnedCheckpoint, vocab_size: int) -> None:
        self._checkpoint = checkpoint
        self._vocab_size = vocab_size
        self._vocabulary: asyncio.Future[Vocabulary] | None = None
        """Loaded for the first grammar."""
        self._compiling: dict[str, asyncio.Future[Matcher]] = {}

    async def matcher(self, request: GenerationRequest) -> "Matcher":
        """The matcher of a request's grammar.

        Raises:
            RequestError: no matcher can be made of it, or it was cancelled meanwhile.
            CheckpointError: the tokenizer is not what was served first.
        """
        compiling = asyncio.ensure_future(self._compile(request.sampling.grammar))
        self._compiling[request.request_id] = compiling
        try:
            return await compiling
        except asyncio.CancelledError:
            raise RequestError("it was cancelled before it began") from None
        finally:
            del self._compiling[request.request_id]

    def cancel(self, request_id: str) -> None:
        """Give up a request's grammar, if it is being compiled."""
        if compiling := self._compiling.get(request_id):
            compiling.cancel()

    async def _compile(self, grammar: str) -> "Matcher":
        from runtime.grammar import Matcher, Vocabulary

        if self._vocabulary is None or (self._vocabulary.done() and self._vocabulary.exception()):
            self._vocabulary = asyncio.ensure_future(
                asyncio.to_thread(Vocabulary.of, self._checkpoint, self._vocab_size)
            )
        matcher = await asyncio.to_thread(Matcher, grammar, await asyncio.shield(self._vocabulary))
        if matcher.error:
            raise RequestError(f"the grammar cannot be followed: {matcher.error}")
        return matcher
