"""Prompts become token ids without holding up the event loop that all streams share.

Short prompts, as most are, are encoded on the spot: that is done before a thread would have begun. Others go to a thread,
and long ones to another, so that none of the rest waits behind them.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from runtime.tokenizer import Tokenizer

T = TypeVar("T")

ON_THE_SPOT_CHARACTERS = 1_000
"""Encoded in about a millisecond."""
LONG_CHARACTERS = 32_000
"""From here on tens of milliseconds."""


class Encoder:
    """A tokenizer with two threads of its own. To be closed; what is under way then is given up."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._short, self._long = (
            ThreadPoolExecutor(1, thread_name_prefix=f"encode-{name}") for name in ("short", "long")
        )

    def close(self) -> None:
        """End the threads; what waits for them is cancelled."""
        for pool in (self._short, self._long):
            pool.shutdown(wait=False, cancel_futures=True)

    async def prompts(self, prompts: Sequence[str | Sequence[int]]) -> list[tuple[int, ...]]:
        """Token ids of each prompt; one that is token ids stays as it is."""

        def encode() -> list[tuple[int, ...]]:
            return [self._tokenizer.encode(prompt) if isinstance(prompt, str) else tuple(prompt) for prompt in prompts]

        return await self._run(sum(len(prompt) for prompt in prompts if isinstance(prompt, str)), encode)

    async def chat(
        self, messages: Sequence[Mapping[str, object]], tools: Sequence[Mapping[str, object]] = ()
    ) -> tuple[int, ...]:
        """Token ids of a conversation up to where the assistant answers, told of tools it may call.

        Raises:
            RequestError: the model has no chat template, or its template refuses the messages.
        """
        size = len(str(messages)) + len(str(tools))  # of what a template may write, keys included
        return await self._run(size, lambda: self._tokenizer.encode_chat(messages, tools))

    async def _run(self, num_characters: int, work: Callable[[], T]) -> T:
        if num_characters <= ON_THE_SPOT_CHARACTERS:
            return work()
        pool = self._long if num_characters >= LONG_CHARACTERS else self._short
        return await asyncio.get_running_loop().run_in_executor(pool, work)
