"""What the engine's processes say to each other, beside what those of both engines do.

Orders go down, events come up.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from runtime.capabilities import Batching
from runtime.engine import Cut, GenerationRequest, Lag
from runtime.errors import Reason
from runtime.footprint import Piece, Transfer
from runtime.kv.carrier.messages import Fetched, PeerReached
from runtime.kv.pages import Runs
from runtime.kv.store import KvHandle, KvShape, Slice
from runtime.models import Cluster, LayerRange, ModelSpec, Topology
from runtime.process import messages as wire
from runtime.process.content import PinnedCheckpoint
from runtime.torch_engine.models import EngineSettings, Resized, Span
from runtime.torch_engine.sampling_tasks import Sampled, SamplingTask
from runtime.torch_engine.worker.backends import DTYPES
from runtime.torch_engine.worker.distributed import DistributedRanks
from runtime.torch_engine.worker.group import SharedRanks
from runtime.torch_engine.worker.shard import ShardSpec


class TorchDriverConfig(wire.WireMessage, frozen=True):
    """What the driver is started with."""

    checkpoint: PinnedCheckpoint
    topology: Topology
    cluster: Cluster
    settings: EngineSettings
    first_device: int = 0
    """Inventory index of the first device of its host."""
    reserved_blocks: int | None = None
    """Block ids to have where they have to mean what they mean to another driver; as many circulate as devices hold."""
    batching: Batching | None = None
    """How far steps are filled; None: as far as the settings let them be."""


class TorchStarted(wire.WireMessage, frozen=True):
    """The driver serves."""

    spec: ModelSpec
    num_blocks: int
    """KV blocks that there are while no weights are quantised."""
    reserved_blocks: int
    """Block ids: as many as there may ever be."""


class KvDigests(wire.WirePart, frozen=True):
    """Digests of KV bytes that do not depend on the topology."""

    positions: dict[str, int]
    """Request to how many of its first positions were read."""
    digests: dict[tuple[str, int, Piece], str]
    """(request, logical block, piece) to digest."""
    blocks: dict[tuple[str, int], int]
    """(request, logical block) to block id."""


class BeginSwitch(wire.Command[None], frozen=True):
    """Begin to bring the target up, or refuse it before anything is touched."""

    target: Topology


class AwaitTarget(wire.Command[None], frozen=True):
    """Wait until the target is up."""


class CopyAhead(wire.Command[Lag], frozen=True):
    """Copy a slice of what the target lacks."""


class CutOver(wire.Command[Cut], frozen=True):
    """Move every request to the target."""

    epoch: int
    deadline_s: float
    batching: Batching | None = None
    """How far steps are filled from then on; None: as before."""


class Refill(CutOver, frozen=True):
    """The same where what serves is the target: nothing moves."""


class EndSwitch(wire.Command[None], frozen=True):
    """Clean up after a cut."""


class AbortSwitch(wire.Command[None], frozen=True):
    """Clean up instead of a cut."""

    reason: Reason


class Resize(wire.Command[Resized], frozen=True):
    """Have so many KV blocks, unless a switch is under way."""

    num_blocks: int


class ReadDigests(wire.Command[KvDigests], frozen=True):
    """Digests of each running request's first positions; None takes all it has computed."""

    positions: dict[str, int] | None


class Crossing(wire.Command[wire.Answer], frozen=True):
    """Part of a switch between two drivers, each on its host."""


class BeginDeparture(Crossing[None], frozen=True):
    """Source: begin a switch to a target on another host, or refuse it before anything is touched."""

    target: Topology
    host: str
    """This driver's own, for people."""
    toward: str
    """An address of the target's host."""


class OpenDeparture(Crossing[bytes], frozen=True):
    """Source: start a carrier; the answer is its address."""


class BeginArrival(Crossing[PeerReached], frozen=True):
    """Target: start a carrier and reach that of the source."""

    source: Topology
    peer: bytes
    """Address of the source's carrier."""
    host: str
    """This driver's own, for people."""
    toward: str
    """An address of the source's host."""


class OfRuns(wire.WirePart, frozen=True):
    """About tokens."""

    packed_runs: bytes
    """``runs`` as they lie in memory: answers carry no arrays."""

    @property
    def runs(self) -> Runs:
        """``[runs, 2]``: the first token (block x block size + position) and the one after the last."""
        return np.frombuffer(self.packed_runs, np.int64).reshape(-1, 2)


class GatheredTokens(OfRuns, frozen=True):
    """Tokens that can be fetched from the source's carrier."""

    newcomers: list[GenerationRequest]
    """Requests that the target has not heard of."""


class Sliced(GatheredTokens, frozen=True):
    """A slice of the background copy, and what is left behind it."""

    lag: Lag

    @property
    def gathered(self) -> GatheredTokens:
        """What of it the target fetches."""
        return GatheredTokens(self.packed_runs, self.newcomers)


class NextSlice(Crossing[Sliced], frozen=True):
    """Source: have a slice of what the target lacks gathered, once the pace allows."""

    fetched: Fetched | None
    """How the slice before came over."""
    is_last: bool = False
    """Of those before the fence: nothing waits for the pace, and no new request begins from now on."""


class FetchSlice(Crossing[Fetched], frozen=True):
    """Target: have a slice."""

    gathered: GatheredTokens


class Sample(OfRuns, frozen=True):
    """Digest of some of what was copied."""

    seed: int
    digest: bytes


class TakeSample(Crossing[Sample], frozen=True):
    """Source: of what was copied so far."""


class CompareSample(Crossing[bool], frozen=True):
    """Target: whether it has the same bytes there."""

    sample: Sample


class Departed(GatheredTokens, frozen=True):
    """All requests stand still behind a step, and what they last wrote is gathered."""

    handover: msgspec.Raw
    """Of the scheduler, for the target to read."""
    fence_s: float
    """From the order to the fence."""
    drain_s: float
    """From the fence to the end of the last step."""


class Leave(Crossing[Departed], frozen=True):
    """Source: stand still until ``StayHere``, or the end of the switch."""

    deadline_s: float


class DigestPatch(Crossing[bytes], frozen=True):
    """Source: digest of what ``Leave`` gathered."""


class StayHere(Crossing[None], frozen=True):
    """Source: let requests go on where they are."""


class Arrived(wire.WirePart, frozen=True):
    """All is there that requests need."""

    request_ids: tuple[str, ...]
    digest: bytes
    """Of the last patch."""
    fetched: Fetched


class Arrive(Crossing[Arrived], frozen=True):
    """Target: take everything over and wait for ``Begin``."""

    left: Departed
    epoch: int


class Begin(Crossing[None], frozen=True):
    """Target: the requests are its own; answers after their first step."""

    batching: Batching | None = None
    """How far steps are filled."""


class Serve(Crossing[None], frozen=True):
    """A driver that stands by: serve, if ``tokens`` of one request fit, as nobody else does."""

    tokens: int
    batching: Batching | None = None


Asked = (
    wire.Submit | wire.CancelStream | wire.Stats | BeginSwitch | AwaitTarget | CopyAhead
    | CutOver | Refill | EndSwitch | AbortSwitch | Resize | ReadDigests
    | BeginDeparture | OpenDeparture | BeginArrival | NextSlice | FetchSlice | TakeSample | CompareSample
    | Leave | DigestPatch | StayHere | Arrive | Begin | Serve
)  # fmt: skip
ToDriver = TorchDriverConfig | wire.Call[Asked]
FromDriver = (
    wire.Greeting
    | wire.Prepared
    | TorchStarted
    | wire.Tokens
    | wire.Fenced
    | wire.Reply
    | wire.Beat
    | wire.StoodIn
    | wire.Fatal
)


class WorkerConfig(wire.WireMessage, frozen=True):
    """What a worker is started with."""

    checkpoint: PinnedCheckpoint
    kv: tuple[int, int, int, int, int, int]
    """Layers, KV heads, blocks, block size, head dimension, layers of a slab."""
    precision: str
    scratch_block: int
    """A block no sequence ever gets: probes write there."""
    index: int = 0
    """Of its device in the inventory."""
    place: str = "cpu"
    """One of ``places.PLACES``."""
    gains: bool = False
    """KV memory has to be gained before it is written to, and peers close it before it is given back."""
    reader: str = "safetensors"
    """One of ``checkpoint.READERS``."""
    address: str | None = None
    """Of this host, where other ranks find it; None where they share its memory."""
    first_device: int = 0
    """Inventory index of the first device of its host."""

    @property
    def shape(self) -> KvShape:
        """Of its KV memory."""
        return KvShape(*self.kv[:5], DTYPES[self.precision], self.kv[5])


class Hello(wire.WireMessage, frozen=True):
    """The worker is up; peers find its KV memory here."""

    handle: KvHandle
    rendezvous: tuple[str, int] | None = None
    """Host and port where ranks of a topology find each other, if they do not share memory."""


class Unable(wire.WireMessage, frozen=True):
    """There is no such device, or no memory on it: the worker waits for its end."""

    detail: str


class LoadShard(wire.WireMessage, frozen=True):
    """Take an incoming role: load weights, join the group, warm up alone."""

    generation: int
    shard: ShardSpec
    layers: LayerRange
    """Whose weights to load now: all of the shard's, or none where they come later."""
    stage: int
    ranks: SharedRanks | DistributedRanks
    """Where it finds the others."""


class Run(wire.WireMessage, frozen=True):
    """Compute one micro-batch in a role."""

    generation: int
    batch_id: int
    tokens: list[int]
    spans: tuple[Span, ...]
    rows: list[int]
    """Rows that sample."""
    tasks: list[SamplingTask]


class Copied(wire.WirePart, frozen=True):
    """What a copy was."""

    num_bytes: int
    seconds: float
    """Of its device's time; see ``Place.clock_s``."""


class Copy(wire.Command[Copied], frozen=True):
    """Copy slots from peers."""

    boxes: tuple[tuple[Transfer, KvHandle], ...]
    runs: NDArray[np.int64]
    """``[runs, 2]``: first slot and the one after the last."""


class OpenPeers(wire.Command[Slice], frozen=True):
    """Open the memory of peers that copies of these runs of blocks will read, for one slice between steps."""

    boxes: tuple[tuple[Transfer, KvHandle], ...]
    runs: tuple[tuple[int, int], ...]
    after: int
    """Where to go on: the ``rest`` of the slice before."""


class Exchange(wire.Command[None], frozen=True):
    """Let one role go of the weights of these layers, and another take its own; either may be absent."""

    sheds: int
    """Generation."""
    takes: int
    layers: LayerRange


class FetchLayer(wire.Command[None], frozen=True):
    """Load a layer of a role in another format, beside the steps, and lay it aside."""

    generation: int
    layer: int
    format: str | None
    """None: as the engine computes."""


class SwapLayers(wire.Command[None], frozen=True):
    """Compute with layers that lie aside, and lay aside those before them, between two steps."""

    generation: int
    layers: tuple[int, ...]
    """Of all stages. What lies aside beside them, of a swap that was given up, stays there."""


class LetGo(wire.Command[None], frozen=True):
    """Free the layers that lie aside, beside the steps."""


class Drop(wire.Command[None], frozen=True):
    """Forget a role, if it is still there."""

    generation: int


class Gain(wire.Command[Slice], frozen=True):
    """Have memory for these runs of blocks, in these pieces, for one slice.

    Between steps, or beside them where it can be.
    """

    pieces: tuple[Piece, ...]
    runs: tuple[tuple[int, int], ...]
    after: int
    """Where to go on: the ``rest`` of the slice before."""


class GiveBack(Gain, frozen=True):
    """Give the memory of these runs of blocks back to the system, in these pieces, for one slice.

    When, as with ``Gain``.
    """


class Forget(wire.Command[Slice], frozen=True):
    """Close the memory of peers, for one slice; the next copy opens it again."""

    after: int
    """0: what is closed already is not looked at."""


class Ping(wire.Command[None], frozen=True):
    """Answer: a worker that does not is hung."""


class WarmUp(wire.Command[bool], frozen=True):
    """Run a step alone in a role; the answer is whether this worker has that role."""

    generation: int


class Digest(wire.Command[list[str]], frozen=True):
    """Digests of these (block, valid tokens, piece) of this worker's, in their order."""

    places: list[tuple[int, int, Piece]]


class Loaded(wire.WireMessage, frozen=True):
    """The role is ready for its group."""

    generation: int


class Loading(wire.WireMessage, frozen=True):
    """Another layer of the role is there."""

    generation: int


class LoadFailed(wire.WireMessage, frozen=True):
    """The role could not be taken."""

    generation: int
    detail: str


class BatchFinished(wire.WireMessage, frozen=True):
    """The last stage finished a micro-batch."""

    batch_id: int
    sampled: list[Sampled]


Order = (
    Copy
    | OpenPeers
    | Exchange
    | FetchLayer
    | SwapLayers
    | LetGo
    | Drop
    | Gain
    | GiveBack
    | Forget
    | Ping
    | WarmUp
    | Digest
)
ToWorker = WorkerConfig | LoadShard | Run | wire.Call[Order]
FromWorker = Hello | Unable | Loaded | Loading | LoadFailed | BatchFinished | wire.Reply
