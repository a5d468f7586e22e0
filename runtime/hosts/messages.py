"""What the service and the agent of a host say to each other."""

from dataclasses import dataclass

from runtime.process import messages as wire
from runtime.process.facts import HostFacts


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """Memory on a host that processes there open by this path."""

    path: str
    inode: int


class Inspect(wire.Command[HostFacts], frozen=True):
    """Say what the host has; of these checkpoint folders too."""

    checkpoints: tuple[str, ...]


class Claim(wire.Command[None], frozen=True):
    """Let this service start processes, and no other.

    Answered once nothing is left of what another one started.
    """

    database: str
    """Which one the service owns; two services of one are told apart by the fence."""
    fence: int
    """Higher with each owner of the database."""
    holder: str
    """Where the service is found."""


NOBODY = Claim("", 0, "")
"""Where no database is owned."""


class MakeMemory(wire.Command[MemoryFile], frozen=True):
    """Make shared memory of so many bytes."""

    size: int


class FreeMemory(wire.Command[None], frozen=True):
    """Give it back as soon as no process has it open."""

    memory: MemoryFile


class Probe(wire.Command[int], frozen=True):
    """Bytes that nobody needs; the answer says how many came."""

    data: bytes


class Launch(wire.WireMessage, frozen=True):
    """Start a process, which is ``number`` from now on."""

    number: int
    module: str
    device: int | None
    has_folder: bool


class Relay(wire.WireMessage, frozen=True):
    """Bytes for a process, or from it: parts of its frames as they come."""

    number: int
    data: bytes


class Terminate(wire.WireMessage, frozen=True):
    """End a process and all that it started."""

    number: int
    litter: tuple[str, ...]
    """Files in shared memory that it would leave."""


class Heartbeat(wire.WireMessage, frozen=True):
    """A sign of life, which the agent sends back."""

    number: int


class Launched(wire.WireMessage, frozen=True):
    """A process was started."""

    number: int
    pid: int


class Ended(wire.WireMessage, frozen=True):
    """A process ended, by itself or because it was told to."""

    number: int
    why: str
    log: tuple[str, ...]


class Removed(wire.WireMessage, frozen=True):
    """Nothing of it is left."""

    number: int


ToAgent = wire.Call[Inspect | Claim | MakeMemory | FreeMemory | Probe] | Launch | Relay | Terminate | Heartbeat
FromAgent = wire.Reply | Heartbeat | Launched | Relay | Ended | Removed
