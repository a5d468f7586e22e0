"""A driver whose workers fail while layers come or KV is copied; run by test_streaming and test_hung.

The file named by ``INTENTCTL_TEST_FAULT`` says how: ``raise LAYER`` or ``die LAYER``, when the second rank of TP2 takes
that layer; ``copy 0``: each copy. Without the file all is well.
"""

import os
from pathlib import Path

from runtime.models import LayerRange
from runtime.torch_engine.driver.loop import main
from runtime.torch_engine.messages import Copied, Copy
from runtime.torch_engine.worker.loop import Worker
from runtime.torch_engine.worker.shard import Shard

_take, _copy = Shard.take, Worker._copy


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
    return _copy(self, order)


if __name__ == "__main__":
    Worker._copy = faulty_copy  # type: ignore[method-assign]
    Shard.take = faulty  # type: ignore[method-assign]
    main()
