"""The target side of a change: one replica switches, starts or stops (``runtime.engine.Shadow``)."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from runtime.engine import Cut, Engine, Lag, Shadow
from runtime.errors import EngineLostError, Reason, RuntimeFault, SwitchError
from runtime.models import CutTimings
from runtime.replicas.replica import Replica

AT_ONCE = CutTimings(0.0, 0.0, 0.0, 0.0)


class Set(Protocol):
    """What a change does to the set."""

    def add(self, engine: Engine) -> Replica:
        """An engine serves beside the others."""

    def retire(self, replica: Replica) -> tuple[str, ...]:
        """It takes no more requests; those that it has.

        Raises:
            SwitchError: no other serves.
        """

    async def emptied(self, replica: Replica) -> None:
        """Return when it has none."""

    async def end(self, replica: Replica) -> None:
        """End its engine."""

    def fence(self, epoch: int) -> None:
        """New requests speak under this epoch."""


class Switching:
    """A replica switches: its own engine does it, and new requests avoid it meanwhile."""

    def __init__(self, replica: Replica, shadow: Shadow, heed: Callable[[], None]) -> None:
        """``heed`` has it taken for what it is from the cut on."""
        self._replica = replica
        self._shadow = shadow
        self._heed = heed
        self.ready = shadow.ready
        self.lag = shadow.lag
        self.drain = shadow.drain

    async def cut(self, epoch: int, deadline_s: float) -> Cut:
        """Move its requests; it is as fast as its new topology from then on."""
        cut = await self._shadow.cut(epoch, deadline_s)
        self._heed()
        return cut

    async def release(self) -> None:
        """Clean up after the cut."""
        self._replica.is_avoided = False
        await self._shadow.release()

    async def abort(self, reason: Reason) -> None:
        """Clean up instead of it."""
        self._replica.is_avoided = False
        await self._shadow.abort(reason)


class Starting:
    """Another replica comes up; it takes requests from the cut on."""

    def __init__(self, replicas: Set, starting: "asyncio.Task[Engine]") -> None:
        self._set = replicas
        self._starting = starting
        self._has_joined = False

    async def ready(self) -> None:
        """Wait until its engine serves.

        Raises:
            SwitchError: it does not start.
        """
        try:
            await asyncio.shield(self._starting)
        except EngineLostError as error:
            raise SwitchError(Reason.ENGINE_LOST, str(error)) from error
        except SwitchError:
            raise
        except RuntimeFault as error:
            raise SwitchError(Reason.LOAD_FAILED, str(error)) from error

    async def lag(self) -> Lag:
        """None: it has no requests yet."""
        return Lag(0, 0)

    async def cut(self, epoch: int, deadline_s: float) -> Cut:  # noqa: ARG002 - nothing moves
        """It serves from now on."""
        self._set.add(self._starting.result())
        self._has_joined = True
        self._set.fence(epoch)
        return Cut(epoch, (), (), 0, AT_ONCE)

    async def drain(self) -> None:
        """Nothing is left."""

    async def release(self) -> None:
        """Nothing is over."""

    async def abort(self, reason: Reason) -> None:  # noqa: ARG002 - it ends whatever the reason
        """End it."""
        if self._has_joined:
            return
        self._starting.cancel()
        with contextlib.suppress(RuntimeFault, asyncio.CancelledError):
            await (await self._starting).close()


class Stopping:
    """A replica takes no more requests from the cut on, and ends when those that it has are gone."""

    def __init__(self, replicas: Set, replica: Replica) -> None:
        self._set = replicas
        self._replica = replica
        self._is_retired = False
        replica.is_avoided = True

    async def ready(self) -> None:
        """At once."""

    async def lag(self) -> Lag:
        """None: requests go on where they are, or are computed anew."""
        return Lag(0, 0)

    async def cut(self, epoch: int, deadline_s: float) -> Cut:  # noqa: ARG002 - nothing moves
        """From now on it is no part of the set."""
        left = self._set.retire(self._replica)
        self._is_retired = True
        self._set.fence(epoch)
        return Cut(epoch, (), left, 0, AT_ONCE)

    async def drain(self) -> None:
        """Wait until it is empty."""
        await self._set.emptied(self._replica)

    async def release(self) -> None:
        """End its engine; what it still has goes on in others."""
        if self._is_retired:
            await self._set.emptied(self._replica)
            await self._set.end(self._replica)

    async def abort(self, reason: Reason) -> None:  # noqa: ARG002 - it goes on whatever the reason
        """It takes requests again."""
        self._replica.is_avoided = False
