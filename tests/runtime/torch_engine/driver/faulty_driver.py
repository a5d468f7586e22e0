"""A driver whose workers fail: while layers come, KV is copied or a token is computed.

Run by test_streaming, test_digests, test_hung and test_lost_engines.

The file named by ``INTENTCTL_TEST_FAULT`` says how: ``raise LAYER`` or ``die LAYER``, when the second rank of TP2 takes
that layer; ``copy 0``: each copy; ``flip 0``: each copy writes wrong bytes; ``flip 1``: those do that come after digests
of a sample; ``poison TOKEN``: die at a step that computes this token. Without the file all is well.
"""

import os
from pathlib import Path

from runtime.models import LayerRange
from runtime.torch_engine.driver.loop import main
from runtime.torch_engine.messages import Copied, Copy, Digest, Order, Run
from runtime.torch_engine.worker.loop import Worker
from runtime.torch_engine.worker.shard import Shard

_take, _copy, _run, _outcome = Shard.take, Worker._copy, Worker._run, Worker._outcome
_digested: list[object] = []
"""Orders for digests that a worker had."""


def faulty(self: Shard, layers: LayerRange) -> None:
    """As asked by the file."""
    file = Path(os.environ["INTENTCTL_TEST_FAULT"])
    if file.exists() and self._spec.share == (1, 2):
        kind, layer = file.read_text().split()
        if int(layer) in layers and kind == "die":
            os._exit(3)
        if int(layer) in layers and kind == "raise":
            raise OSError("the disk is gone")
    _take(self, layers)


def faulty_copy(self: Worker, order: Copy) -> Copied:
    """The same."""
    file = Path(os.environ["INTENTCTL_TEST_FAULT"])
    if file.exists() and file.read_text().startswith("copy"):
        raise OSError("no peer access")
    copied = _copy(self, order)
    if file.exists() and file.read_text() in ("flip 0", "flip 1" if _digested else ""):
        for box, _ in order.boxes:
            block, position = divmod(int(order.runs[0, 0]), self._shape.block_size)
            self._store.cache[0, slice(*box.layers), slice(*box.heads), block, :, position] += 1
    return copied


def hearing_digests(self: Worker, order: Order) -> object:
    """Notes it."""
    if isinstance(order, Digest):
        _digested.append(order)
    return _outcome(self, order)


def poisoned(self: Worker, order: Run) -> None:
    """The same."""
    file = Path(os.environ["INTENTCTL_TEST_FAULT"])
    if file.exists() and file.read_text().startswith("poison") and int(file.read_text().split()[1]) in order.tokens:
        os._exit(3)
    _run(self, order)


if __name__ == "__main__":
    Worker._copy = faulty_copy  # type: ignore[method-assign]
    Worker._outcome = hearing_digests  # type: ignore[method-assign]
    Worker._run = poisoned  # type: ignore[method-assign]
    Shard.take = faulty  # type: ignore[method-assign]
    main()
