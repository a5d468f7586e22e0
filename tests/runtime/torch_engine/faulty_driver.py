"""A driver whose workers fail while layers are streamed; run by test_streaming.

The file named by ``INTENTCTL_TEST_FAULT`` says how: ``raise LAYER`` or ``die LAYER``, when the second rank of TP2 takes
that layer. Without the file all is well.
"""

import os
from pathlib import Path

from runtime.models import LayerRange
from runtime.torch_engine.driver import main
from runtime.torch_engine.shard import Shard

_take = Shard.take


def faulty(self: Shard, layers: LayerRange) -> None:
    """As asked by the file."""
    file = Path(os.environ["INTENTCTL_TEST_FAULT"])
    if file.exists() and self._spec.share == (1, 2):
        kind, layer = file.read_text().split()
        if int(layer) in layers and kind == "die":
            os._exit(3)
        if int(layer) in layers:
            raise OSError("the disk is gone")
    _take(self, layers)


if __name__ == "__main__":
    Shard.take = faulty  # type: ignore[method-assign]
    main()
