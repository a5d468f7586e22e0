"""The router: text on one side, token ids on the other, and the ledger between.

It owns text, detokenising, stop strings, usage and who may speak for a stream. One background task reads the
engine's batches; each batch wakes each of its streams once, and the stream's own consumer does the text.
"""

import asyncio
import contextlib
import logging
import random
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

from runtime.encoding import Encoder
from runtime.engine import Engine, Finish, Moved, Output, Request, SamplingParams, Token
from runtime.errors import EngineLostError, RequestError, RuntimeFault, StreamError
from runtime.gaps import Gaps
from runtime.ledger import Accepted, Counts, Dropped, DropReason, Ledger
from runtime.models import Topology
from runtime.text import TextStream
from runtime.tokenizer import Tokenizer

log = logging.getLogger(__name__)

RECOVERY_TIMEOUT_S = 60.0
"""How long a stream waits for an engine that was lost, where nobody says otherwise."""
RESUMED_AT_ONCE = 8
"""Lost requests that are prefilled again beside each other; what is new waits behind these alone."""
NEAR = 20
"""Batches before a loss from which on a request that was submitted may have caused it; tokens after which it has not."""
STRIKES = 2
"""So often near a loss, and a request is suspected."""
PAUSE_TOLD_S = 5.0
"""Between two signs of life to a client that waits for a lost engine."""
AGAIN_S = 0.1
"""Between two tries to submit a lost request."""
AT_A_TIME = 64
"""Tokens that a stream handles before others may go on, where many wait because its client was slow."""


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
    finish: Finish | None
    fingerprint: str
    """``epoch-shape`` of the topology that made the token; it changes exactly at the stream's own cut."""
    arrived_at_s: float
    """When the router had it, by the router's clock."""
    usage: Usage | None = None
    """On the last delta."""

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
class _Arrival:
    """A token that the ledger let pass."""

    token: Token
    fingerprint: str
    at_s: float


@dataclass(slots=True)
class _Stream:
    """What the pump and the consumer of one stream share."""

    request_id: str
    num_prompt_tokens: int
    arrived_s: float
    text: TextStream
    tenant: str = ""
    observer: Observer | None = None
    request: Request | None = None
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
    ttft_s: float = 0.0
    e2e_s: float = 0.0
    """From arrival to the last token so far."""
    last_index: int = 0
    """Of the tokens that came."""
    gaps: Gaps | None = None
    """Of the cut that moved it, until its next token."""
    arrivals: list[_Arrival] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    num_tokens: int = 0
    """Delivered to the client."""
    num_cached: int | None = None
    is_ended: bool = False
    """The engine is through with it."""
    failure: RuntimeFault | None = None
    """Raised to the consumer after what arrived before it."""

    @property
    def usage(self) -> Usage:
        return Usage(self.num_prompt_tokens, self.num_tokens, self.num_cached)

    @property
    def tpot_s(self) -> float | None:
        """The mean time between tokens; None with fewer than two."""
        return (self.e2e_s - self.ttft_s) / self.last_index if self.last_index else None

    def fail(self, failure: RuntimeFault) -> None:
        self.failure = self.failure or failure
        self.wake.set()

    async def next_arrivals(self) -> list[_Arrival]:
        """What came since the last call; waits for the first. Of much, some at a time, and others' turn between."""
        while not self.arrivals:
            if self.failure is not None:
                raise self.failure
            self.wake.clear()
            await self.wake.wait()
        arrivals, self.arrivals = self.arrivals[:AT_A_TIME], self.arrivals[AT_A_TIME:]
        if self.arrivals:
            await asyncio.sleep(0)
        return arrivals

    def delta(self, arrival: _Arrival) -> Delta:
        """What the client gets for one token."""
        token, text, finish = arrival.token, "", arrival.token.finish
        self.num_tokens += token.token_id is not None
        self.num_cached = token.num_cached if token.index == 0 else self.num_cached
        # the text of a stop token is no part of the answer
        if token.token_id is not None and finish is not Finish.STOP:
            text, is_stopped = self.text.add(token.token_id)
            finish = Finish.STOP if is_stopped else finish
        if token.finish is not None and finish is token.finish:
            rest, is_stopped = self.text.end()
            text, finish = text + rest, Finish.STOP if is_stopped else finish
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
        )


class Router:
    """Serves text generations from one engine and keeps its streams whole across topology switches.

    Use as an async context manager; leaving it ends every stream, not the engine.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        *,
        clock: Callable[[], float] = time.monotonic,
        observers: Observers | None = None,
        recovery_timeout_s: float = RECOVERY_TIMEOUT_S,
    ) -> None:
        """A stream whose engine is lost waits ``recovery_timeout_s`` to go on; with 0 it ends with an error at once."""
        self.tokenizer = tokenizer
        self.encoder = Encoder(tokenizer)
        self._engine = engine
        self._clock = clock
        self._observers = observers
        self._ledger = Ledger(engine.topology.shape)
        self._streams: dict[str, _Stream] = {}
        self._pump: asyncio.Task[None] | None = None
        self._lost: EngineLostError | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._gaps: Gaps | None = None
        self._recovery_timeout_s = recovery_timeout_s
        self._to_resume: dict[str, _Stream] = {}
        """Streams whose engine was lost, until they are submitted again."""
        self._resumed: set[str] = set()
        """Submitted again, and silent since."""
        self._alone: _Stream | None = None
        """Suspected, and alone in the engine until it is ``NEAR`` tokens further."""
        self._num_batches = 0
        self._has_room = asyncio.Event()
        self._recovery: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._pump = asyncio.create_task(self._pump_outputs(), name="router-pump")
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (self._pump, self._recovery):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        self.encoder.close()
        await asyncio.gather(*self._background, return_exceptions=True)

    @property
    def lost(self) -> EngineLostError | None:
        """Why the engine serves no more; None while it does."""
        return self._lost

    @property
    def num_streams(self) -> int:
        """Streams open now, waiting ones included."""
        return len(self._ledger)

    @property
    def waits_s(self) -> list[tuple[str, float]]:
        """Tenant and age of each request that has no token yet."""
        now_s = self._clock()
        waiting = (stream for stream in self._streams.values() if not stream.e2e_s)
        return [(stream.tenant, now_s - stream.arrived_s) for stream in waiting]

    @property
    def counts(self) -> Counts:
        """Tokens accepted, lost and dropped since the router was made."""
        return self._ledger.counts

    def gaps(self, epoch: int) -> Gaps | None:
        """What streams waited through the last cut, if it has this epoch and one of them has gone on."""
        found = self._gaps
        return found if found is not None and found.epoch == epoch and found.waits_s else None

    def end_streams(self, reason: str) -> None:
        """Break every open stream with a clear error, for a service that stops."""
        for stream in self._streams.values():
            stream.fail(StreamError(reason))

    def announce(self, target: Topology) -> int:
        """Reserve the epoch of a cut to ``target``, so that its first token is known for what it is."""
        return self._ledger.announce(target.shape)

    async def generate(
        self, prompt: str | Sequence[int], params: GenerationParams
    ) -> AsyncGenerator[Delta, None]:
        """Deltas of one generation, the last with ``finish`` and ``usage``; pauses between them while its engine is away.

        Nothing happens before the first delta is asked for. Closing the iterator (``contextlib.aclosing``),
        or cancelling whoever waits in it, ends the generation in the engine.

        Raises:
            RequestError: it can never be served. Before the first delta.
            EngineLostError: the engine is down.
            StreamError: the stream broke.
        """
        arrived_s = self._clock() if params.arrived_s is None else params.arrived_s
        (token_ids,) = await self.encoder.prompts([prompt])
        text = TextStream(self.tokenizer.decode, params.stop)
        observer = self._observers.of(params.tenant) if self._observers else None
        stream = _Stream(f"req-{uuid.uuid4().hex}", len(token_ids), arrived_s, text, params.tenant, observer)
        finish: Finish | None = None
        is_refused = False
        try:
            await self._submit(stream, token_ids, params)
            if observer is not None:
                observer.arrived(len(token_ids))
            while finish is None:
                for arrival in await stream.next_arrivals():
                    delta = stream.delta(arrival)
                    finish = delta.finish
                    yield delta
                    if finish is not None:
                        break
        except RequestError:
            is_refused = True
            raise
        except RuntimeFault:
            finish = Finish.ERROR
            raise
        finally:
            self._close(stream, None if is_refused else finish or Finish.CANCELLED)

    async def _submit(self, stream: _Stream, token_ids: tuple[int, ...], params: GenerationParams) -> None:
        # known to the ledger first: its first token may come before submit returns
        self._streams[stream.request_id] = stream
        epoch = self._ledger.open(stream.request_id)
        if self._lost is not None:
            raise self._lost
        stream.request = Request(stream.request_id, token_ids, self._sampling(params), epoch)
        if self._alone is not None:
            self._resume(stream)
            return
        stream.submitted_at = self._num_batches
        try:
            await self._engine.submit(stream.request)
        except EngineLostError:
            if self._lost is not None or not self._recovery_timeout_s:
                raise
            self._resume(stream)

    def _sampling(self, params: GenerationParams) -> SamplingParams:
        """As the engine is asked: with the model's end tokens, and a seed where it wants one."""
        asked = params.sampling
        eos_ids = () if params.ignore_eos else self.tokenizer.eos_ids
        draws = asked.temperature > 0 and asked.seed is None and self._engine.capabilities.wants_seed
        seed = random.getrandbits(63) if draws else asked.seed
        return replace(asked, seed=seed, stop_token_ids=asked.stop_token_ids + eos_ids)

    def _close(self, stream: _Stream, finish: Finish | None) -> None:
        """Forget a stream; without a finish its request was refused."""
        if self._streams.pop(stream.request_id, None) is None:
            return
        self._ledger.close(stream.request_id)
        self._goes_on(stream)
        self._clear(stream)
        if self._lost is None and not stream.is_ended:
            # in a task of its own: the consumer may sit in a cancelled scope, where nothing can be awaited
            self._spawn(self._cancel(stream.request_id))
        if stream.observer is not None and finish is not None:
            e2e_s = self._clock() - stream.arrived_s if finish is Finish.CANCELLED else stream.e2e_s
            stream.observer.finished(finish, stream.usage, e2e_s=e2e_s, tpot_s=stream.tpot_s)
        elif stream.observer is not None:
            stream.observer.refused()

    async def _cancel(self, request_id: str) -> None:
        with contextlib.suppress(EngineLostError):
            await self._engine.cancel(request_id)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _pump_outputs(self) -> None:
        lost = EngineLostError("the engine ended; start it again")
        try:
            async for batch in self._engine.outputs():
                self._dispatch(batch)
        except EngineLostError as problem:
            lost = problem
        finally:
            self._lost = lost
            for stream in self._streams.values():
                stream.fail(lost)

    def _dispatch(self, batch: Sequence[Output]) -> None:
        """Let a batch through the ledger and wake its streams."""
        now_s = self._clock()
        self._num_batches += 1
        for output in batch:
            try:
                match output:
                    case Moved():
                        self._move(output)
                    case Token():
                        self._take(output, now_s)
            except Exception:  # a bug, or one of whoever observes: it ends the streams that it is about
                log.exception("a batch of the engine")
                for name in output.request_ids if isinstance(output, Moved) else (output.request_id,):
                    if stream := self._streams.get(name):
                        stream.fail(
                            StreamError("an error of the service, which its log has; send the request again")
                        )

    def _move(self, moved: Moved) -> None:
        """Have the streams that a cut moved tell of their next token; those without one waited for nothing."""
        streams = [self._streams[request_id] for request_id in self._ledger.move(moved)]
        waiting = [stream for stream in streams if stream.e2e_s]
        if not waiting:
            return
        if self._gaps is None or self._gaps.epoch != moved.epoch:
            self._gaps = Gaps(moved.epoch)
        for stream in waiting:
            stream.gaps = self._gaps

    def _take(self, token: Token, now_s: float) -> None:
        match self._ledger.accept(token):
            case Accepted(fingerprint=fingerprint):
                stream = self._streams[token.request_id]
                stream.is_ended = token.finish is not None
                if token.is_lost and self._recovery_timeout_s:
                    self._ledger.lose(token.epoch)
                    self._suspect(stream)
                    return
                if token.finish is Finish.ERROR:
                    stream.fail(StreamError(token.detail))
                    return
                self._observe(stream, token, now_s)
                stream.arrivals.append(_Arrival(token, fingerprint, now_s))
                stream.wake.set()
            case Dropped(DropReason.GAP, lost):
                self._ledger.close(token.request_id)
                failure = StreamError(
                    f"{lost} tokens before index {token.index} were lost; send the request again"
                )
                self._streams[token.request_id].fail(failure)
            case Dropped():
                pass

    def _observe(self, stream: _Stream, token: Token, now_s: float) -> None:
        if token.token_id is None:
            return
        if stream.lost_at_s is not None:
            self._goes_on(stream)
        stream.output.append(token.token_id)
        if stream is self._alone and len(stream.output) - stream.num_resumed >= NEAR:
            self._clear(stream)
        before_s, stream.e2e_s = stream.e2e_s, now_s - stream.arrived_s
        stream.last_index = token.index
        if stream.gaps is not None:
            stream.gaps.add(stream.e2e_s - before_s, before_s - stream.ttft_s, token.index)
            stream.gaps = None
        if token.index == 0:
            stream.ttft_s = stream.e2e_s
            if stream.observer is not None:
                stream.observer.first_token(stream.ttft_s)
        elif stream.observer is not None:
            stream.observer.next_token(stream.e2e_s - before_s)

    # -- an engine that was lost -------------------------------------------------------------------

    def _suspect(self, stream: _Stream) -> None:
        """A stream lost its engine: it goes on, unless it was alone in two of them."""
        stream.strikes += self._num_batches - stream.submitted_at <= NEAR
        if stream is not self._alone:
            self._resume(stream)
            return
        stream.fail(
            StreamError(
                "poison_request: engines were lost each time shortly after this request came, the last while it was "
                "alone; change it before it is sent again"
            )
        )

    def _clear(self, stream: _Stream) -> None:
        """It is over, or past the place where it was suspected: others may go on."""
        if stream is self._alone:
            self._alone, stream.strikes = None, 0
            self._has_room.set()

    def _resume(self, stream: _Stream) -> None:
        """Let a stream go on as soon as an engine serves again."""
        stream.is_ended = False
        self._resumed.discard(stream.request_id)
        self._to_resume[stream.request_id] = stream
        if stream.lost_at_s is None:
            stream.lost_at_s = now_s = self._clock()
            loop = asyncio.get_running_loop()
            loop.call_later(self._recovery_timeout_s, self._give_up, stream, now_s)
            loop.call_later(PAUSE_TOLD_S, self._tell_pause, stream, now_s)
        if self._recovery is None or self._recovery.done():
            self._recovery = asyncio.create_task(self._submit_again(), name="router-recovery")

    def _goes_on(self, stream: _Stream) -> None:
        """It speaks again, or is over."""
        stream.lost_at_s = None
        self._to_resume.pop(stream.request_id, None)
        self._resumed.discard(stream.request_id)
        self._has_room.set()

    def _tell_pause(self, stream: _Stream, lost_at_s: float) -> None:
        """Let its client know that it is still here."""
        if stream.lost_at_s == lost_at_s:
            pause = Token(stream.request_id, self._ledger.epoch, len(stream.output), None)
            stream.arrivals.append(_Arrival(pause, "", self._clock()))
            stream.wake.set()
            asyncio.get_running_loop().call_later(PAUSE_TOLD_S, self._tell_pause, stream, lost_at_s)

    def _give_up(self, stream: _Stream, lost_at_s: float) -> None:
        """No engine came back for a stream in time."""
        if stream.lost_at_s == lost_at_s:
            self._goes_on(stream)
            waited = f"its engine was lost and did not go on with it in {self._recovery_timeout_s:g} s"
            stream.fail(StreamError(f"{waited} (clients.recovery_timeout_s); send the request again"))

    async def _submit_again(self) -> None:
        """Submit what was lost with its output so far: each suspect alone, then the oldest first, some beside each other."""
        while self._to_resume:
            waiting = sorted(self._to_resume.values(), key=lambda one: (one.strikes < STRIKES, one.arrived_s))
            is_suspected = waiting[0].strikes >= STRIKES
            if self._alone or len(self._resumed) >= (1 if is_suspected else RESUMED_AT_ONCE):
                self._has_room.clear()
                await self._has_room.wait()
                continue
            self._alone = waiting[0] if is_suspected else None
            del self._to_resume[waiting[0].request_id]
            await self._submit_output(waiting[0])

    async def _submit_output(self, stream: _Stream) -> None:
        assert stream.request is not None, "it was submitted before"
        epoch, past = self._ledger.resume(stream.request_id), tuple(stream.output)
        self._resumed.add(stream.request_id)
        stream.submitted_at, stream.num_resumed = self._num_batches, len(past)
        try:
            await self._engine.submit(replace(stream.request, epoch=epoch, past=past))
        except EngineLostError:
            self._alone = None if stream is self._alone else self._alone
            if stream.lost_at_s is not None:
                self._resume(stream)
                await asyncio.sleep(AGAIN_S)
        except RuntimeFault as error:
            refused = StreamError(f"its engine was lost, and another one refuses it: {error}")
            stream.fail(refused if past else error)
        else:
            if stream.request_id not in self._streams:
                await self._cancel(stream.request_id)
