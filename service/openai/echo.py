"""``echo``: an answer that begins with its prompt, and with the logprobs of its tokens on request.

A scored prompt is said by the engine itself, a step a token: its grammar leaves nothing else, and logprobs are the model's own.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

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
    return EnginePrompt(tokens[:1], grammar.lark(f"start: {in_turn} <[*]>*"), len(tokens) - 1)


async def echoed(
    generation: AsyncGenerator[Delta, None], prompt: EnginePrompt, decode: Callable[[Sequence[int]], str]
) -> AsyncGenerator[Delta, None]:
    """The generation behind what was not generated of its prompt, and its usage as the client counts."""
    is_begun = False
    async with aclosing(generation):
        async for delta in generation:
            if not is_begun and not delta.is_pause:
                is_begun = True
                yield replace(
                    delta,
                    text=decode(prompt.tokens),
                    token_id=prompt.tokens[0],
                    index=-1,
                    finish=None,
                    usage=None,
                )
            if delta.usage is not None:
                prompt_tokens = delta.usage.prompt_tokens + prompt.num_scored
                completion_tokens = delta.usage.completion_tokens - prompt.num_scored
                delta.usage = Usage(prompt_tokens, completion_tokens, delta.usage.cached_tokens)
            yield delta
