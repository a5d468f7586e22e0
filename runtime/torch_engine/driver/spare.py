"""A driver process that imports while another one serves and waits to be the next.

It imports at the lowest priority, and says when it has: before, another process is sooner ready on a busy machine.
Run as ``python -m runtime.torch_engine.driver.spare FD`` by ``TorchEngine``; it becomes a driver with its first message.
"""

import os
import socket
import sys
import threading
from importlib import import_module

MODULE = "runtime.torch_engine.driver.loop"
NICENESS = 19


def _import() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)  # of this thread alone
    import_module(MODULE)


if __name__ == "__main__":
    importing = threading.Thread(target=_import)
    importing.start()
    importing.join()
    from runtime.process.channel import encode
    from runtime.process.messages import Prepared

    with socket.socket(fileno=os.dup(int(sys.argv[1]))) as service:
        service.sendall(encode(Prepared()))
    import_module(MODULE).main()
