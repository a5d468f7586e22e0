"""A switch between two drivers, each on its host, of which this is one: what the service asks of it.

The service takes what one driver says to the other.
"""

from typing import Any

from runtime.errors import Reason, SwitchError
from runtime.process.messages import Command
from runtime.torch_engine import messages
from runtime.torch_engine.driver.arrival import Arrival
from runtime.torch_engine.driver.departure import Departure
from runtime.torch_engine.driver.station import CrossingPart, Station


async def obey(host: Station, command: Command[Any]) -> object:
    """Do what the service asks of a driver for a crossing.

    Raises:
        SwitchError: it fails, or there is none.
    """
    match command:
        case messages.BeginDeparture(target):
            await host.free_for(target)
            host.switch = Departure(host, command)
            return None
        case messages.BeginArrival():
            await host.free_for(host.active.topology)
            host.switch = Arrival(host, command)
        case messages.Serve(tokens, batching):
            host.fill(batching)
            await _serve(host, tokens)
            return None
    if not isinstance(host.switch, CrossingPart):
        raise SwitchError(Reason.CANCELLED, "there is no switch to another host under way")
    return await host.switch.obey(command)


async def _serve(host: Station, tokens: int) -> None:
    """A driver that stands by serves, as nobody else does; ``tokens`` of one request have to fit."""
    await host.capacity.settle()
    held = host.scheduler.request_blocks * host.parts.settings.block_size
    if tokens > held:
        raise SwitchError(Reason.NO_MEMORY, f"it holds {held} tokens of one request, one has {tokens}")
    await host.capacity.gain(host.active)
    await host.active.warm_up(host.parts.workers)
    host.leaving = None
