"""What a switch may ask of the driver that it works in: little enough to stand in for one in a test."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from runtime.errors import Reason, SwitchError
from runtime.kv.blocks import BlockPool
from runtime.kv.store import KvShape
from runtime.models import Cluster, ModelSpec
from runtime.process.messages import Fatal
from runtime.torch_engine.driver.standby import Standby
from runtime.torch_engine.driver.workers import Ranks, Workers
from runtime.torch_engine.models import EngineSettings


@dataclass(frozen=True, slots=True)
class DriverParts:
    """What a driver is made of for good."""

    settings: EngineSettings
    model: ModelSpec
    cluster: Cluster
    shape: KvShape
    pool: BlockPool
    workers: Workers
    standby: Standby


class Underway(Protocol):
    """A switch, as far as the driver that is in it looks at it."""

    is_closing: bool
    """The cut is near: no step may take long."""

    @property
    def target(self) -> Ranks:
        """What comes up, or takes part, here."""

    @property
    def devices(self) -> frozenset[int]:
        """Those without which it is over, and the engine is not."""

    def lose(self, error: SwitchError) -> None:
        """One of these devices was lost, or its role."""

    async def release(self) -> None:
        """Clean up after a cut. Idempotent."""

    async def abort(self, reason: Reason) -> None:
        """Clean up instead of a cut. Idempotent."""


class Host(Protocol):
    """The driver, as far as a switch and the size of the pool concern it."""

    parts: DriverParts
    """What does not change while it lives."""

    active: Ranks
    """What serves."""

    @property
    def rank_sets(self) -> tuple[Ranks, ...]:
        """What holds KV: what serves, and what is coming up beside it."""

    @property
    def num_running(self) -> int:
        """Sequences that have begun."""

    load_bytes_per_s: float
    """How fast weights were loaded when it started."""

    def schedule(self) -> None:
        """Fill the pipeline with micro-batches."""

    def hold(self) -> None:
        """Start no new sequence until ``admit``."""

    def admit(self) -> None:
        """Start new sequences again, from the next step on."""

    async def probe(self, ranks: Ranks) -> None:
        """Run one token through every rank of a topology; each by itself where it could block what serves.

        Raises:
            SwitchError: it does not come back.
        """

    async def fence(self) -> tuple[float, float]:
        """Schedule nothing new, and wait for what is in flight.

        When the fence fell and when the last step had ended.
        """

    def commit(self, ranks: Ranks, epoch: int) -> tuple[str, ...]:
        """Every request belongs to ``ranks`` and speaks under ``epoch`` from here on. Returns their ids."""

    def resume(self) -> asyncio.Future[None]:
        """Schedule again, on the active topology.

        The future is done after the first step (at once if there is none).
        """

    def over(self, target: Ranks) -> None:
        """The switch to ``target`` has ended and cleaned up."""

    def fail(self, fatal: Fatal) -> None:
        """Nothing can go on: the engine ends."""
