"""``echo``: an answer that begins with its prompt, and with the logprobs of its tokens on request.

A scored prompt is said by the engine itself, a step a token: its grammar leaves nothing else, and logprobs are the model's own.
"""

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from dataclasses import dataclass

from runtime import grammar
from runtime.stream import Delta, Usage
from service.openai.declaration import ParameterError

MAX_SCORED = 4_000
"""Tokens of a prompt whose logprobs are told: its grammar has a word for each."""


@dataclass(frozen=True, slots=True)
class EnginePrompt:
    """A prompt as the engine gets it."""

    tokens: tuple[int, ...]
    grammar: str = ""
    """What the engine must say; empty: anything."""
    num_scored: int = 0
    """Tokens of the client's prompt that the engine says first."""
    told: tuple[int, ...] = ()
    """Tokens of the prompt whose text comes before."""


def scored(tokens: tuple[int, ...], ends: Collection[int]) -> EnginePrompt:
    """Have the engine say a prompt from its second token on; ``ends`` would end the answer.

    Raises:
        ParameterError: it is too long, too short, or would end there.
    """
    if not 2 <= len(tokens) <= MAX_SCORED:
        raise ParameterError(
            "prompt", f"has {len(tokens)} tokens; echo with logprobs is served for 2 to {MAX_SCORED:,}"
        )
    if ending := sorted({*tokens[1:]} & {*ends}):
        raise ParameterError(
            "prompt",
            f"token {ending[0]} ends an answer; send ignore_eos or max_tokens: 1, or leave out echo or logprobs",
        )
    in_turn = " ".join(f"<[{token}]>" for token in tokens[1:])
    return EnginePrompt(tokens[:1], grammar.lark(f"start: {in_turn} <[*]>*"), len(tokens) - 1, tokens[:1])


async def counted(generation: AsyncGenerator[Delta, None], num_scored: int) -> AsyncGenerator[Delta, None]:
    """The generation with its usage as the client counts: what was scored is of the prompt."""
    async with aclosing(generation):
        async for delta in generation:
            if (usage := delta.usage) is not None:
                prompt_tokens = usage.prompt_tokens + num_scored
                delta.usage = Usage(prompt_tokens, usage.completion_tokens - num_scored, usage.cached_tokens)
            yield delta
