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
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Self

from runtime.encoding import Encoder
from runtime.engine import Engine, Finish, GenerationRequest, Moved, Output, SamplingParams, Token
from runtime.errors import EngineLostError, RequestError, RuntimeFault, StreamError
from runtime.ledger import Accepted, Counts, Dropped, DropReason, Ledger
from runtime.models import Topology
from runtime.process.supervised import begin
from runtime.recovery import RECOVERY_TIMEOUT_S, Recovery
from runtime.stream import Delta, Gaps, GenerationParams, Observers, Stream, TokenArrival
from runtime.text import TextStream
from runtime.tokenizer import Tokenizer

log = logging.getLogger(__name__)


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
        """A stream whose engine is lost waits ``recovery_timeout_s`` to go on.

        With 0 it ends with an error at once.
        """
        self.tokenizer = tokenizer
        self.encoder = Encoder(tokenizer)
        self._engine = engine
        self._clock = clock
        self._observers = observers
        self._ledger = Ledger(engine.topology.shape)
        self._streams: dict[str, Stream] = {}
        self._pump: asyncio.Task[None] | None = None
        self.lost: EngineLostError | None = None
        """Why the engine serves no more; None while it does."""
        self._background: set[asyncio.Task[None]] = set()
        self._gaps: Gaps | None = None
        self._recovery = Recovery(engine, self._ledger, clock, recovery_timeout_s)

    async def __aenter__(self) -> Self:
        self._pump = asyncio.create_task(self._pump_outputs(), name="router-pump")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._pump is not None:
            self._pump.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pump
        await self._recovery.close()
        self.encoder.close()
        await asyncio.gather(*self._background, return_exceptions=True)

    @property
    def scores_prompts(self) -> bool:
        """A prompt that a grammar has it say comes with the model's logprobs."""
        return self._engine.capabilities.logprobs_ignore_grammar

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

    @contextlib.contextmanager
    def patient(self, seconds: float) -> Iterator[None]:
        """Meanwhile streams wait at least so long for an engine."""
        usual_s = self._recovery.timeout_s
        self._recovery.timeout_s = max(usual_s, seconds)
        try:
            yield
        finally:
            self._recovery.timeout_s = usual_s

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

    async def generate(self, prompt: str | Sequence[int], params: GenerationParams) -> AsyncGenerator[Delta, None]:
        """Deltas of one generation, the last with ``finish`` and ``usage``.

        Pauses between them while its engine is away.

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
        stream = Stream(f"req-{uuid.uuid4().hex}", len(token_ids), arrived_s, text, params.tenant, observer)
        finish: Finish | None = None
        is_refused = False
        try:
            await self._submit(stream, token_ids, params)
            if observer is not None:
                observer.arrived(len(token_ids))
            while finish is None:
                for arrival in await stream.next_arrivals():
                    if params.told and not stream.is_led:
                        yield stream.lead(params.told, arrival)
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

    async def _submit(self, stream: Stream, token_ids: tuple[int, ...], params: GenerationParams) -> None:
        # known to the ledger first: its first token may come before submit returns
        self._streams[stream.request_id] = stream
        epoch = self._ledger.open(stream.request_id)
        if self.lost is not None:
            raise self.lost
        stream.request = GenerationRequest(
            stream.request_id,
            token_ids,
            self._sampling(params),
            epoch,
            is_urgent=params.is_urgent,
            tenant=params.tenant,
        )
        if self._recovery.holds_back(stream):
            return
        try:
            await self._engine.submit(stream.request)
        except EngineLostError:
            if self.lost is not None or not self._recovery.timeout_s:
                raise
            self._recovery.resume(stream)

    def _sampling(self, params: GenerationParams) -> SamplingParams:
        """As the engine is asked: with the model's end tokens, and a seed where it wants one."""
        sampling = params.sampling
        eos_ids = () if params.ignore_eos else self.tokenizer.eos_ids
        draws = sampling.temperature > 0 and sampling.seed is None and self._engine.capabilities.wants_seed
        seed = random.getrandbits(63) if draws else sampling.seed
        return replace(sampling, seed=seed, stop_token_ids=sampling.stop_token_ids + eos_ids)

    def _close(self, stream: Stream, finish: Finish | None) -> None:
        """Forget a stream; without a finish its request was refused."""
        if self._streams.pop(stream.request_id, None) is None:
            return
        self._ledger.close(stream.request_id)
        self._recovery.forget(stream)
        if self.lost is None and not stream.is_ended:
            # in a task of its own: the consumer may sit in a cancelled scope, where nothing can be awaited
            begin("router", self._cancel(stream.request_id), self._background)
        if stream.observer is not None and finish is not None:
            e2e_s = self._clock() - stream.arrived_s if finish is Finish.CANCELLED else stream.e2e_s
            stream.observer.finished(finish, stream.usage, e2e_s=e2e_s, tpot_s=stream.tpot_s)
        elif stream.observer is not None:
            stream.observer.refused()

    async def _cancel(self, request_id: str) -> None:
        with contextlib.suppress(EngineLostError):
            await self._engine.cancel(request_id)

    async def _pump_outputs(self) -> None:
        lost = EngineLostError("the engine ended; start it again")
        try:
            async for batch in self._engine.outputs():
                self._dispatch(batch)
        except EngineLostError as problem:
            lost = problem
        finally:
            self.lost = lost
            for stream in self._streams.values():
                stream.fail(lost)

    def _dispatch(self, batch: Sequence[Output]) -> None:
        """Let a batch through the ledger and wake its streams."""
        now_s = self._clock()
        self._recovery.num_batches += 1
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
                        stream.fail(StreamError("an error of the service, which its log has; send the request again"))

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
        if self._recovery.awaits(token.request_id):
            self._ledger.serves(self._engine.topology.shape)
        match self._ledger.accept(token):
            case Accepted(fingerprint=fingerprint):
                stream = self._streams[token.request_id]
                stream.is_ended = token.finish is not None
                goes_on = token.is_lost and (self._recovery.timeout_s or token.is_handed_on)
                if goes_on and not stream.is_closed:
                    self._recovery.lose(stream, token)
                    return
                if token.finish is Finish.ERROR:
                    stream.fail(StreamError(token.detail))
                    return
                self._observe(stream, token, now_s)
                stream.arrivals.append(TokenArrival(token, fingerprint, now_s))
                stream.wake.set()
            case Dropped(DropReason.GAP, lost):
                self._ledger.close(token.request_id)
                failure = StreamError(f"{lost} tokens before index {token.index} were lost; send the request again")
                self._streams[token.request_id].fail(failure)
            case Dropped():
                pass

    def _observe(self, stream: Stream, token: Token, now_s: float) -> None:
        if token.token_id is None:
            return
        stream.output.append(token.token_id)
        self._recovery.hear(stream)
        before_s = stream.e2e_s
        stream.e2e_s = now_s - stream.arrived_s
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
