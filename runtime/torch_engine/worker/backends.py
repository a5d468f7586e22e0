"""Where a rank computes and keeps its KV: a core of the CPU, or a GPU.

The driver decides from the kind of its devices and touches neither: CUDA that was initialised before a fork is of no use
after it. So everything here that does happens in the worker.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from runtime.errors import EngineStartError, TopologyError
from runtime.kv.chunks import ChunkedStore
from runtime.kv.store import KvShape, KvStore
from runtime.models import Topology
from runtime.torch_engine.models import Span, is_on_gpus
from runtime.torch_engine.worker.attention import Attention, StepAttention

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Precision to what a rank computes in."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A rank's device and its KV memory."""

    device: torch.device
    store: KvStore | ChunkedStore

    def attention(self, heads: slice, spans: Sequence[Span]) -> StepAttention:
        """Of one step, over this rank's KV heads."""
        if isinstance(self.store, KvStore):
            return Attention(self.store.cache, heads, spans, self.store.is_hole)
        from runtime.torch_engine.worker.chunked_attention import ChunkedAttention

        return ChunkedAttention(self.store, heads, spans)

    def warm_up_copy(self) -> None:
        """Have what copies KV ready: a kernel that is compiled within a switch holds up steps for a second."""
        if isinstance(self.store, ChunkedStore):
            self.store.warm_up_copy()

    def clock_s(self) -> float:
        """What copying takes from serving.

        CPU time where waiting for a core takes nothing from anybody, else wall time.
        """
        return time.thread_time() if isinstance(self.store, KvStore) else time.perf_counter()

    def use(self) -> None:
        """Make the device this thread's own: CUDA has one for each thread."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)

    def return_freed(self) -> None:
        """Let others have the device memory of weights that are gone.

        Torch keeps it, and KV and other ranks cannot use it.
        """
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def wait(self) -> None:
        """Return when what was asked of the device is done: then a peer may read it."""
        if isinstance(self.store, ChunkedStore):
            self.store.wait()


OpenPlace = Callable[[int, KvShape], Backend]
"""Makes the place of a worker, in its process, from its device's number on its host."""


def open_cpu(_: int, shape: KvShape) -> Backend:
    """A core of the CPU."""
    return Backend(torch.device("cpu"), KvStore(shape))


def open_gpu(index: int, shape: KvShape) -> Backend:
    """A GPU of this machine.

    Where the inventory has more devices than it, several ranks share one as processes.

    Raises:
        EngineStartError: there is none, or a package is missing.
    """
    from runtime.kv.memory import CudaMemory

    if not torch.cuda.is_available():
        raise EngineStartError("the inventory has GPUs, but torch finds none; on a CPU the kind is CPU")
    number = index % torch.cuda.device_count()
    device = torch.device("cuda", number)
    torch.cuda.set_device(device)
    return Backend(device, ChunkedStore(shape, CudaMemory(number), device))


PLACES: dict[str, OpenPlace] = {"cpu": open_cpu, "gpu": open_gpu}
"""By the names that travel to workers."""


def refuse_to_cross(now: Topology, target: Topology) -> None:
    """Refuse to go between CPUs and GPUs.

    Raises:
        TopologyError: naming the target.
    """
    if is_on_gpus(target) != is_on_gpus(now):
        raise TopologyError(f"requests cannot move between CPUs and GPUs, so not from {now.shape} to {target}")
