"""One generation on its way to its client: what is asked, what comes, and who wants to know."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runtime.engine import Finish, GenerationRequest, SamplingParams, Token
from runtime.errors import RuntimeFault
from runtime.text import TextStream

AT_A_TIME = 64
"""Tokens that a stream handles before others may go on, where many wait because its client was slow."""


@dataclass(slots=True)
class Gaps:
    """Of the streams that one cut moved, those that went on so far."""

    epoch: int
    """Of the cut."""
    waits_s: list[float] = field(default_factory=list)
    """From a stream's last token before to its first one under the new epoch."""
    usual_s: list[float] = field(default_factory=list)
    """The mean time between two tokens before, of each stream that had two."""

    def add(self, wait_s: float, before_s: float, num_before: int) -> None:
        """A stream went on; it had so many tokens before, the first and the last ``before_s`` apart."""
        self.waits_s.append(wait_s)
        if num_before > 1:
            self.usual_s.append(before_s / (num_before - 1))


@dataclass(frozen=True, slots=True)
class GenerationParams:
    """What a client asks of one generation."""

    sampling: SamplingParams
    """As the engine takes it; the router adds the model's end tokens, and a seed where the engine wants one."""
    stop: tuple[str, ...] = ()
    """Texts that end it; they are no part of the answer."""
    ignore_eos: bool = False
    """Go on after the model's end token, for measurements of a fixed length."""
    tenant: str = ""
    """Whose it is, for whoever observes; empty: nobody's in particular."""
    arrived_s: float | None = None
    """When its client's request began to come, as ``time.monotonic``; None: when it is asked for here."""
    is_urgent: bool = False
    """It goes before others that wait."""
    told: tuple[int, ...] = ()
    """Tokens of the prompt whose text comes before the output."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens a generation took."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    """Of the prompt, those that needed no computation; None where the engine does not tell."""


@dataclass(slots=True)  # one is made for every token, and a frozen one takes three times as long to make
class Delta:
    """One token of a generation with the text that became certain with it, or an end without a token."""

    text: str
    token_id: int | None
    logprob: float
    alternatives: tuple[tuple[int, float], ...]
    index: int
    """In the output; -1 of a prompt's text before it, which has no logprob."""
    finish: Finish | None
    fingerprint: str
    """``epoch-shape`` of the topology that made the token; it changes exactly at the stream's own cut."""
    arrived_at_s: float
    """When the router had it, by the router's clock."""
    usage: Usage | None = None
    """On the last delta."""
    route: str = ""
    """On the first one, where there are replicas: why this one."""

    @property
    def is_pause(self) -> bool:
        """Says nothing but that its stream goes on: the engine was lost, and another one is awaited."""
        return self.token_id is None and self.finish is None


class Observers(Protocol):
    """Who wants to know latencies, for metrics."""

    def of(self, tenant: str) -> "Observer":
        """Who wants to know those of a tenant's requests."""


class Observer(Protocol):
    """Is told of one tenant's requests. Called on the hot path: it must be quick and never fail."""

    def arrived(self, prompt_tokens: int) -> None:
        """A request came."""

    def first_token(self, ttft_s: float) -> None:
        """A request's arrival to its first token."""

    def next_token(self, itl_s: float) -> None:
        """One token to the next of the same stream."""

    def refused(self) -> None:
        """A request that can never be served."""

    def finished(self, finish: Finish, usage: Usage, *, e2e_s: float, tpot_s: float | None) -> None:
        """A stream ended: by itself, by its client (cancelled) or broken (error).

        ``e2e_s`` is from arrival to the last token, of a cancelled one to when its client left; ``tpot_s`` the mean time between
        tokens, None with fewer than two.
        """


@dataclass(slots=True)
class TokenArrival:
    """A token that the ledger let pass."""

    token: Token
    fingerprint: str
    at_s: float


@dataclass(slots=True)
class Stream:
    """What the pump and the consumer of one stream share."""

    request_id: str
    num_prompt_tokens: int
    arrived_s: float
    text: TextStream
    tenant: str = ""
    observer: Observer | None = None
    request: GenerationRequest | None = None
    """As it was submitted first."""
    output: list[int] = field(default_factory=list)
    """The tokens that came."""
    lost_at_s: float | None = None
    """When its engine was lost, until it goes on."""
    submitted_at: int = 0
    """Batches that came before it was submitted last."""
    num_resumed: int = 0
    """Tokens that it had then."""
    strikes: int = 0
    """How often it was submitted shortly before a loss."""
    num_refused: int = 0
    """How often no engine took it since it was lost."""
    ttft_s: float = 0.0
    e2e_s: float = 0.0
    """From arrival to the last token so far."""
    last_index: int = 0
    """Of the tokens that came."""
    gaps: Gaps | None = None
    """Of the cut that moved it, until its next token."""
    arrivals: list[TokenArrival] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    num_tokens: int = 0
    """Delivered to the client."""
    num_cached: int | None = None
    is_led: bool = False
    """What comes before its output was told."""
    is_ended: bool = False
    """The engine is through with it."""
    is_closed: bool = False
    """Its client has it, or left."""
    failure: RuntimeFault | None = None
    """Raised to the consumer after what arrived before it."""

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        return Usage(self.num_prompt_tokens, self.num_tokens, self.num_cached)

    @property
    def tpot_s(self) -> float | None:
        """The mean time between tokens; None with fewer than two."""
        return (self.e2e_s - self.ttft_s) / self.last_index if self.last_index else None

    def fail(self, failure: RuntimeFault) -> None:
        """Raise this to the consumer, after what arrived before it."""
        self.failure = self.failure or failure
        self.wake.set()

    async def next_arrivals(self) -> list[TokenArrival]:
        """What came since the last call; waits for the first.

        Of much, some at a time, and others' turn between.
        """
        while not self.arrivals:
            if self.failure is not None:
                raise self.failure
            self.wake.clear()
            await self.wake.wait()
        arrivals = self.arrivals[:AT_A_TIME]
        self.arrivals = self.arrivals[AT_A_TIME:]
        if self.arrivals:
            await asyncio.sleep(0)
        return arrivals

    def lead(self, tokens: Sequence[int], first: TokenArrival) -> Delta:
        """Text of a prompt that comes before what comes first."""
        self.is_led = True
        return Delta(self.text.begin(tokens), tokens[0], 0.0, (), -1, None, first.fingerprint, first.at_s)

    def delta(self, arrival: TokenArrival) -> Delta:
        """What the client gets for one token."""
        token = arrival.token
        text = ""
        finish = token.finish
        self.num_tokens += token.token_id is not None
        self.num_cached = token.num_cached if token.index == 0 else self.num_cached
        # the text of a stop token is no part of the answer
        if token.token_id is not None and finish is not Finish.STOP:
            text, is_stopped = self.text.add(token.token_id)
            finish = Finish.STOP if is_stopped else finish
        if token.finish is not None and finish is token.finish:
            rest, is_stopped = self.text.end()
            text += rest
            finish = Finish.STOP if is_stopped else finish
        return Delta(
            text=text,
            token_id=token.token_id,
            logprob=token.logprob,
            alternatives=token.alternatives,
            index=token.index,
            finish=finish,
            fingerprint=arrival.fingerprint,
            arrived_at_s=arrival.at_s,
            usage=self.usage if finish is not None else None,
            route=token.detail if token.index == 0 else "",
        )
