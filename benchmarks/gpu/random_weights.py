"""A checkpoint without a weight file: every tensor is a function of its name and shape, the same in every process.

Only ``config.json`` is read. Weights are made where the process computes, so no file has to be carried to a machine and the
memory of the host stays free. Two processes on devices of one kind make the same bits.
"""

import json
import zlib
from typing import Any

import torch

from benchmarks.engines import OwnPath
from runtime.torch_engine.driver.loop import TorchDriver
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.worker.checkpoint import READERS, Checkpoint, expected_tensors

SHARP = 3.0
"""Standard deviation of logits, about: flat ones would hide mistakes."""


class RandomCheckpoint(Checkpoint):
    """A folder with ``config.json`` alone."""

    def open_tensors(self) -> None:
        """There is nothing to open."""
        self._shapes = dict(expected_tensors(self.spec))
        config: dict[str, Any] = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        self._dtype: torch.dtype = getattr(torch, config["dtype"])

    def tensor(self, name: str, rows: slice = slice(None), columns: slice = slice(None)) -> torch.Tensor:
        """A slice of a tensor, on the device that this process computes on."""
        whole = self._made(name)
        return whole[rows, columns] if whole.dim() == 2 else whole[rows]

    def _made(self, name: str) -> torch.Tensor:
        in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        device = torch.device("cuda" if in_use else "cpu")
        chance = torch.Generator(device).manual_seed(zlib.crc32(name.encode()))
        values = torch.empty(self._shapes[name], dtype=self._dtype, device=device)
        if "norm" in name:
            return values.uniform_(0.5, 1.5, generator=chance)
        gain = SHARP if name.startswith(("lm_head", "model.embed")) else 1.0
        return values.normal_(0.0, gain * values.shape[-1] ** -0.5, generator=chance)


READERS["random"] = RandomCheckpoint


class RandomDriver(TorchDriver):
    """A driver of random weights."""

    reader = "random"


class RandomEngine(TorchEngine):
    """An engine with such a driver."""

    driver_module = "benchmarks.gpu.random_driver"


class RandomStopAndCopyEngine(TorchEngine):
    """The same that switches by stop-and-copy."""

    driver_module = "benchmarks.gpu.random_stop_and_copy"


def random_engine_of(path: OwnPath) -> type[TorchEngine]:
    """The engine of random weights that switches by a path.

    Raises:
        KeyError: there is none.
    """
    engines: dict[OwnPath, type[TorchEngine]] = {
        "patch": RandomEngine,
        "stop-and-copy": RandomStopAndCopyEngine,
    }
    return engines[path]
