"""Many requests at once: streams through the OpenAI client, every token stamped when it arrives."""

import asyncio
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from intentctl.measure import ClientStream
from runtime.process.supervised import cancel

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Prompt = str | list[int]
"""Text, or token ids."""


@dataclass(slots=True)
class Recording:
    """One streamed completion while it grows; the lists are parallel."""

    prompt: Prompt
    arrivals_s: list[float] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    fingerprints: list[str] = field(default_factory=list)
    finish: str | None = None
    error: str | None = None
    asked_s: float = 0.0
    """When the request was sent, on the clock of the arrivals."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.finish is not None or self.error is not None

    def stream(self, most: int | None = None) -> ClientStream:
        """What has come so far, or its first ``most`` tokens."""
        return ClientStream(
            tuple(self.arrivals_s[:most]),
            tuple(self.tokens[:most]),
            tuple(self.logprobs[:most]),
            tuple(self.fingerprints[:most]),
        )

    def note(self, at_s: float, token: str, logprob: float, fingerprint: str | None) -> None:
        """Add a token that arrived."""
        self.arrivals_s.append(at_s)
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.fingerprints.append(fingerprint or "")

    def tail(self, width: int = 40) -> str:
        """The end of the text, for people."""
        return "".join(self.tokens[-width:]).partition(" ")[2]


def inference_at(url: str, key: str, retries: int = 2) -> "AsyncOpenAI":
    """The inference API of the service at an address; no proxy of the environment stands between."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    http = DefaultAsyncHttpxClient(trust_env=False)
    return AsyncOpenAI(base_url=f"{url}/openai/v1", api_key=key, max_retries=retries, http_client=http)


ENDLESS = {"ignore_eos": True}
"""Answers go on for as many tokens as are asked for."""


class BackgroundLoad:
    """Greedy completions that run at the same time in the running event loop."""

    def __init__(self, client: "AsyncOpenAI", model: str, prompts: Sequence[Prompt], max_tokens: int) -> None:
        self.recordings = [Recording(prompt) for prompt in prompts]
        self._client = client
        self._model = model
        self._max_tokens = max_tokens
        self._tasks = [asyncio.create_task(self._run(recording)) for recording in self.recordings]

    async def finish(self) -> list[Recording]:
        """Every recording when all have ended."""
        await asyncio.gather(*self._tasks)
        return self.recordings

    async def stop(self) -> list[Recording]:
        """Leave every stream, and return the recordings as they are."""
        await cancel(self._tasks)
        return self.recordings

    async def grow(self, num_tokens: int, since_s: float = 0.0) -> None:
        """Return when every stream has that many tokens after a moment, or has ended."""
        while not all(r.ended or _count_after(r, since_s) >= num_tokens for r in self.recordings):  # noqa: ASYNC110 - see below
            await asyncio.sleep(0.02)  # polled, so that recording a token costs nothing more

    async def _run(self, recording: Recording) -> None:
        from openai import OpenAIError

        try:
            await self._record(recording)
        except OpenAIError as error:
            recording.error = str(error)

    async def _record(self, recording: Recording) -> None:
        recording.asked_s = time.time()
        chunks = await self._client.completions.create(
            model=self._model,
            prompt=recording.prompt,
            max_tokens=self._max_tokens,
            temperature=0.0,
            logprobs=0,
            stream=True,
            extra_body=ENDLESS,
        )
        async for chunk in chunks:
            now_s = time.time()
            choice = chunk.choices[0]
            if choice.logprobs and choice.logprobs.tokens and choice.logprobs.token_logprobs:
                (token,) = choice.logprobs.tokens
                recording.note(now_s, token, choice.logprobs.token_logprobs[0], chunk.system_fingerprint)
            recording.finish = choice.finish_reason or recording.finish


class ChatLoad(BackgroundLoad):
    """Sampled answers to messages, each with a seed, that run at the same time in the running event loop."""

    never: Mapping[str, int] = {"2": -100}
    """SmolLM2's end token is not sampled, or text would go on behind it."""

    async def _record(self, recording: Recording) -> None:
        recording.asked_s = time.time()
        chunks = await self._client.chat.completions.create(
            model=self._model,
            messages=[{"role": "user", "content": str(recording.prompt)}],
            max_tokens=self._max_tokens,
            temperature=0.8,
            top_p=0.95,
            frequency_penalty=0.6,
            seed=len(str(recording.prompt)),
            logit_bias={**self.never},
            logprobs=True,
            stream=True,
        )
        async for chunk in chunks:
            now_s = time.time()
            choice = chunk.choices[0]
            if choice.logprobs and choice.logprobs.content:
                (found,) = choice.logprobs.content
                recording.note(now_s, found.token, found.logprob, chunk.system_fingerprint)
            recording.finish = choice.finish_reason or recording.finish


def _count_after(recording: Recording, since_s: float) -> int:
    return len(recording.arrivals_s) - bisect_left(recording.arrivals_s, since_s)
