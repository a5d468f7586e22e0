"""A link with delay: packets between two network namespaces, each way through a queue.

Run as ``python -m tests.runtime.hosts.relay INIT DELAY_S NEAR FAR``: a TUN device ``NEAR`` here, and ``FAR`` in the namespaces of
process ``INIT``. The kernel of a small machine has no netem; this carries some 200 Mbit/s.
"""

import contextlib
import ctypes
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from pathlib import Path

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x1, 0x1000, 0x40000000
MTU = 1500
MOST_QUEUED = 4096
"""Packets each way; what comes then is dropped, as a router would."""


def opened(name: str) -> int:
    """The TUN device of this name, made in the namespace that the process is in."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return device


def opened_in(pid: int, name: str) -> int:
    """The same in the network namespace of a process; this process comes back to its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/self/ns/net").open() as ours, Path(f"/proc/{pid}/ns/net").open() as theirs:
        assert libc.setns(theirs.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        try:
            return opened(name)
        finally:
            assert libc.setns(ours.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())


def relay(ours: int, theirs: int, delay_s: float) -> None:
    """Carry packets until killed, each after its delay."""
    queues: dict[int, deque[tuple[float, bytes]]] = {ours: deque(), theirs: deque()}
    other = {ours: theirs, theirs: ours}
    while True:
        due_s = min((queue[0][0] for queue in queues.values() if queue), default=None)
        wait_s = None if due_s is None else max(0.0, due_s - time.monotonic())
        readable, _, _ = select.select([ours, theirs], [], [], wait_s)
        for device in readable:
            _take(device, queues[other[device]], delay_s)
        now_s = time.monotonic()
        for device, queue in queues.items():
            while queue and queue[0][0] <= now_s:
                with contextlib.suppress(OSError):  # the device is not up yet
                    os.write(device, queue.popleft()[1])


def _take(device: int, queue: deque[tuple[float, bytes]], delay_s: float) -> None:
    try:
        while True:
            packet = os.read(device, MTU + 64)
            if len(queue) < MOST_QUEUED:
                queue.append((time.monotonic() + delay_s, packet))
    except BlockingIOError:
        return


def main() -> None:
    """Make both devices, say so, and carry."""
    init, delay_s, near, far = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4]
    ours, theirs = opened(near), opened_in(init, far)
    os.write(1, b"carries\n")
    relay(ours, theirs, delay_s)


if __name__ == "__main__":
    main()
