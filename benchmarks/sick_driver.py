"""A driver process whose workers die as soon as they start on the devices that the file ``SICK`` in the environment names."""

import os
from pathlib import Path
from typing import Any

from runtime.torch_engine import messages
from runtime.torch_engine.driver.loop import main
from runtime.torch_engine.worker import loop
from runtime.torch_engine.worker.loop import Worker


class SickWorker(Worker):
    """One that may be sick."""

    def __init__(self, channel: Any, config: messages.WorkerConfig) -> None:
        if str(config.index) in Path(os.environ["SICK"]).read_text(encoding="utf-8").split():
            os._exit(1)
        super().__init__(channel, config)


loop.Worker = SickWorker  # type: ignore[misc]  # workers are copies of this process

if __name__ == "__main__":
    main()
