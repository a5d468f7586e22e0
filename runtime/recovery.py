"""Streams whose engine was lost: submitted again with their output so far, to the one that comes back."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from runtime.engine import Engine, Token
from runtime.errors import EngineLostError, RuntimeFault, StreamError
from runtime.ledger import Ledger
from runtime.process.supervised import cancel, supervised
from runtime.stream import Stream, TokenArrival

RECOVERY_TIMEOUT_S = 60.0
"""How long a stream waits for an engine that was lost, where nobody says otherwise."""
RESUMED_AT_ONCE = 8
"""Lost requests that are prefilled again beside each other; what is new waits behind these alone."""
NEAR = 20
"""Batches before a loss from which on a request that was submitted may have caused it; tokens after which it has not."""
STRIKES = 2
"""So often near a loss, and a request is suspected."""
MOST_TRIED = 32
"""Suspects that are tried together at most: those of a group that was lost are tried one by one, and that takes time."""
PAUSE_TOLD_S = 5.0
"""Between two signs of life to a client that waits for a lost engine."""
AGAIN_S = 0.1
"""Between two tries to submit a lost request."""


class Recovery:
    """Of one router's streams. Everything here is called in the event loop."""

    def __init__(self, engine: Engine, ledger: Ledger, clock: Callable[[], float], timeout_s: float) -> None:
        self.timeout_s = timeout_s
        """How long a stream waits to go on; with 0 it ends with an error at once."""
        self.num_batches = 0
        """That the engine gave."""
        self._engine = engine
        self._ledger = ledger
        self._clock = clock
        self._to_resume: dict[str, Stream] = {}
        """Streams whose engine was lost, until they are submitted again."""
        self._resumed: set[str] = set()
        """Submitted again, and silent since."""
        self._tried: set[str] = set()
        """Suspected, and without anybody else in the engine until they are ``NEAR`` tokens further."""
        self._num_tried = 0
        """So many these were when they began; 0 after a loss."""
        self._has_room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Submit nothing more."""
        if self._task is not None:
            await cancel({self._task})

    def holds_back(self, stream: Stream) -> bool:
        """Whether a new stream has to wait, because suspected ones are tried."""
        stream.submitted_at = self.num_batches
        if self._tried:
            self.resume(stream)
        return bool(self._tried)

    def awaits(self, request_id: str) -> bool:
        """Whether this stream was submitted again, and is silent since."""
        return request_id in self._resumed

    def hear(self, stream: Stream) -> None:
        """It said something."""
        if stream.lost_at_s is not None:
            self._goes_on(stream)
        if stream.request_id in self._tried and (stream.is_ended or len(stream.output) - stream.num_resumed >= NEAR):
            self._clear(stream)

    def forget(self, stream: Stream) -> None:
        """It is over."""
        stream.is_closed = True
        self._goes_on(stream)
        self._clear(stream)

    def lose(self, stream: Stream, last: Token) -> None:
        """A stream lost its engine, whose last word this is.

        It goes on, unless it is suspected and was alone.
        """
        self._ledger.lose(last.epoch)
        if last.is_handed_on:  # nobody is to blame, and others serve
            self.resume(stream, self.timeout_s or RECOVERY_TIMEOUT_S)
            return
        is_tried = stream.request_id in self._tried
        was_alone = is_tried and self._num_tried == 1
        stream.strikes += is_tried or self.num_batches - stream.submitted_at <= NEAR
        if is_tried or not self._tried:
            self._num_tried = 0
            self._tried.difference_update({stream.request_id}, self._to_resume)
        if not was_alone:
            self.resume(stream)
            return
        self._fail(
            stream,
            StreamError(
                "poison_request: engines were lost each time shortly after this request came, the last while it was "
                "alone; change it before it is sent again"
            ),
        )

    def _fail(self, stream: Stream, why: RuntimeFault) -> None:
        """It is over; others need not wait until its client has heard why."""
        stream.fail(why)
        self.forget(stream)

    def _clear(self, stream: Stream) -> None:
        """It is over, or past the place where it was suspected: others may go on."""
        if stream.request_id in self._tried:
            self._tried.remove(stream.request_id)
            stream.strikes = 0
            self._has_room.set()

    def resume(self, stream: Stream, timeout_s: float | None = None) -> None:
        """Let a stream go on as soon as an engine serves again."""
        stream.is_ended = False
        self._resumed.discard(stream.request_id)
        self._to_resume[stream.request_id] = stream
        self._has_room.set()
        if stream.lost_at_s is None:
            stream.lost_at_s = now_s = self._clock()
            loop = asyncio.get_running_loop()
            loop.call_later(self.timeout_s if timeout_s is None else timeout_s, self._give_up, stream, now_s)
            loop.call_later(PAUSE_TOLD_S, self._tell_pause, stream, now_s)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(supervised("recovery of streams", self._submit_again))

    def _goes_on(self, stream: Stream) -> None:
        """It speaks again, or is over."""
        stream.lost_at_s = None
        stream.num_refused = 0
        self._to_resume.pop(stream.request_id, None)
        self._resumed.discard(stream.request_id)
        self._has_room.set()

    def _tell_pause(self, stream: Stream, lost_at_s: float) -> None:
        """Let its client know that it is still here."""
        if stream.lost_at_s == lost_at_s:
            pause = Token(stream.request_id, self._ledger.epoch, len(stream.output), None)
            stream.arrivals.append(TokenArrival(pause, "", self._clock()))
            stream.wake.set()
            asyncio.get_running_loop().call_later(PAUSE_TOLD_S, self._tell_pause, stream, lost_at_s)

    def _give_up(self, stream: Stream, lost_at_s: float) -> None:
        """No engine came back for a stream in time."""
        if stream.lost_at_s == lost_at_s:
            why = (
                f"its engine was lost and did not go on with it in {self.timeout_s or RECOVERY_TIMEOUT_S:g} s "
                "(clients.recovery_timeout_s); "
                "send the request again"
            )
            self._fail(stream, StreamError(why))

    async def _submit_again(self) -> None:
        """Submit what was lost with its output so far.

        Suspects first, then the oldest, some beside each other. Whoever finds no engine lets others go before it.
        """
        while self._to_resume:
            waiting = sorted(
                self._to_resume.values(),
                key=lambda stream: (-max(stream.strikes, STRIKES - 1), stream.num_refused, stream.arrived_s),
            )
            if not self._tried and not self._resumed:
                self._try(waiting)
            first = waiting[0]
            may_go = first.request_id in self._tried if self._tried else first.strikes < STRIKES
            if not may_go or len(self._resumed) >= RESUMED_AT_ONCE:
                self._has_room.clear()
                await self._has_room.wait()
                continue
            del self._to_resume[first.request_id]
            await self._submit_output(first)

    def _try(self, waiting: Sequence[Stream]) -> None:
        """Choose the suspects that are tried next: one, then twice as many each time, up to a loss.

        Who was lost in a group is tried alone: a loss takes longer than many times ``NEAR`` tokens.
        """
        strikes = max(waiting[0].strikes, STRIKES)
        most = 1 if strikes > STRIKES else min(max(1, 2 * self._num_tried), MOST_TRIED)
        self._tried = {stream.request_id for stream in waiting[:most] if stream.strikes == strikes}
        self._num_tried = len(self._tried)

    async def _submit_output(self, stream: Stream) -> None:
        assert stream.request is not None, "it was submitted before"
        epoch = self._ledger.resume(stream.request_id)
        past = tuple(stream.output)
        self._resumed.add(stream.request_id)
        stream.submitted_at = self.num_batches
        stream.num_resumed = len(past)
        try:
            await self._engine.submit(replace(stream.request, epoch=epoch, past=past))
        except EngineLostError:
            self._tried.clear()
            self._num_tried = 0
            if stream.lost_at_s is not None:
                stream.num_refused += 1
                self.resume(stream)
                await asyncio.sleep(AGAIN_S)
        except RuntimeFault as error:
            refused = StreamError(f"its engine was lost, and another one refuses it: {error}")
            self._fail(stream, refused if past else error)
        else:
            if stream.is_closed:
                with contextlib.suppress(EngineLostError):
                    await self._engine.cancel(stream.request_id)
