"""One-sided reads of another host's memory, by NIXL over UCX.

NIXL's own progress thread takes a quarter of a core while nothing happens, so there is none: where the network cannot
read without the owner's help (TCP), the owner has to ``turn``, often while it is read from: a reader says that it begins. A read
that was begun cannot be taken back, whatever NIXL's handles say: it ends with the process.
"""

import ctypes
import fcntl
import importlib
import os
import re
import socket
import struct
import time
from pathlib import Path
from typing import Any

from runtime.errors import Reason, SwitchError
from runtime.kv.carrier.layout import Memory

_BUSY_S = 0.0002
"""Between two turns of an owner: a small read takes as long over TCP; one turn fills the network's buffers for a large one."""
_IDLE_S = 0.02
"""Between two turns of one that expects no read."""
_LINGER_S = 0.5
"""How long an owner is busy after it expected or heard of a read."""
_SIOCGIFADDR = 0x8915
_READ_S = 0.00002
"""Between two looks of a reader at its read."""
_LANES = re.compile(r"node cfg#\d+ .*\bam\(([^)]*)\)")
_TROUBLE = re.compile(r"UCX +(?:WARN|ERROR) +(.*)")


class ReadPort:
    """A piece of memory that a peer may read, and that is read into from a peer's."""

    def __init__(self, name: str, memory: Memory, toward: str) -> None:
        """Register the memory with the devices of the network.

        Of several networks, the one that leads ``toward`` an address; with all where that is empty.

        Raises:
            SwitchError: NIXL is missing, or finds no device.
        """
        self._log = os.memfd_create("intentctl-ucx-log")
        os.environ["UCX_LOG_FILE"] = f"/proc/self/fd/{self._log}"  # the only place where UCX says which lane it takes
        os.environ.setdefault("UCX_LOG_LEVEL", "info")
        if toward and (devices := devices_toward(toward)):
            os.environ.setdefault("UCX_NET_DEVICES", devices)
        os.environ.setdefault("NIXL_LOG_LEVEL", "FATAL")  # what it says otherwise is in the errors here
        try:
            nixl: Any = importlib.import_module("nixl_cu12")
        except ImportError as error:
            refused = f"host {name} has no NIXL, which moves KV between hosts ({error}); install intentctl[cluster]"
            raise SwitchError(Reason.UNSUPPORTED, refused) from error
        self._name = name
        self._memory = memory
        self._at = memory.ctypes.data
        self._peer: Any = None
        self._peer_name = ""
        self._peer_at = 0
        try:
            self._agent = nixl.nixl_agent(
                f"{name} {os.getpid()}", nixl.nixl_agent_config(enable_prog_thread=False)
            )  # unique to the peer
            self._agent.register_memory([(self._at, memory.nbytes, 0, "")], mem_type="DRAM")
            self.address: tuple[bytes, int] = self._agent.get_agent_metadata(), self._at
        except Exception as error:
            refused = f"host {name}: NIXL finds no network to move KV over: {self._why(error)}"
            raise SwitchError(Reason.UNSUPPORTED, refused) from error
        self._busy_until_s = 0.0

    def connect(self, name: str, address: tuple[bytes, int]) -> None:
        """Read from the port with this ``address``, of host ``name``, from now on.

        Raises:
            SwitchError: it is none.
        """
        self._peer_name = name
        metadata, self._peer_at = address
        try:
            self._peer = self._agent.add_remote_agent(metadata)
        except Exception as error:
            raise SwitchError(Reason.UNSUPPORTED, self._failed("connect to", error)) from error

    def read(self, *ranges: tuple[int, int]) -> None:
        """Read these bytes of the peer's memory to the same places of this one; returns when all are here.

        Never, where the peer or the network hangs: end the process.

        Raises:
            SwitchError: NIXL says that it failed.
        """
        here, there = (
            self._agent.get_xfer_descs([(at + start, stop - start, 0) for start, stop in ranges], "DRAM")
            for at in (self._at, self._peer_at)
        )
        try:
            self._agent.send_notif(self._peer, b"begins")
            handle = self._agent.initialize_xfer("READ", here, there, self._peer)
            state = self._agent.transfer(handle)
            while state == "PROC":
                time.sleep(_READ_S)
                state = self._agent.check_xfer_state(handle)
            if state != "DONE":
                raise RuntimeError(f"NIXL says {state}")  # noqa: TRY301 - NIXL raises other failures itself
            self._agent.release_xfer_handle(handle)
        except Exception as error:
            raise SwitchError(Reason.RANK_LOST, self._failed("read from", error)) from error

    def turn(self) -> None:
        """Help peers that read."""
        if self._agent.get_new_notifs():
            self.expect()

    def expect(self) -> None:
        """A peer is about to read."""
        self._busy_until_s = time.monotonic() + _LINGER_S

    @property
    def turn_s(self) -> float:
        """How long an owner may wait before its next ``turn``."""
        return _BUSY_S if time.monotonic() < self._busy_until_s else _IDLE_S

    @property
    def lane(self) -> str:
        """What UCX took for the last peer, as ``tcp/eth0``; empty where it does not say."""
        found = _LANES.findall(self._said())
        return found[-1] if found else ""

    def _failed(self, verb: str, error: Exception) -> str:
        return f"host {self._name} could not {verb} host {self._peer_name} by NIXL: {self._why(error)}"

    def _said(self) -> str:
        ctypes.CDLL(None).fflush(None)
        return Path(f"/proc/self/fd/{self._log}").read_text(encoding="utf-8", errors="replace")

    def _why(self, error: Exception) -> str:
        trouble = _TROUBLE.findall(self._said())
        return f"{error}; UCX: {trouble[-1]}" if trouble else str(error)


def devices_toward(address: str) -> str:
    """Network devices for UCX by which this host reaches an IPv4 address, and all for RDMA.

    Empty where it cannot be told. Left to itself UCX may take an interface that the peer cannot reach.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))  # sends nothing, and chooses a route
        except OSError:
            return ""
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            try:
                request = struct.pack("256s", name.encode())
                found = socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, request)[20:24])
            except OSError:  # it has no such address
                continue
            if found == own:
                rdma = sorted(f"{device.name}:1" for device in Path("/sys/class/infiniband").glob("*"))
                return ",".join([name, *rdma])
    return ""
