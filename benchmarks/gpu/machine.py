"""What the campaign runs on: found by a process of its own, because CUDA does not outlive a fork.

``python -m benchmarks.gpu.machine DEVICE`` prints it as JSON, or one line that says why nothing can run there.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import Any, Literal

from benchmarks.memcpy import memcpy_bytes_s
from benchmarks.provenance import ROOT
from runtime.models import Cluster, Gpu, Link, Node

Device = Literal["cuda", "cpu"]

SLOTS = 4
"""Devices of the inventory: processes on the one that there is."""
OTHERS_BYTES = 2 << 30
"""Device memory in use from which on somebody else is there; a context alone takes less."""
PROBE_TIMEOUT_S = 120
LINE_END = "\n"


class UnusableError(Exception):
    """Nothing can run on such a device here; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A device, and how much memory there is."""

    device: Device
    kind: str
    """As inventories and profiles call it: ``H100``."""
    total_bytes: int
    free_bytes: int
    host_bytes: int
    """Memory of the host that is free."""
    copy_bytes_s: float
    """How fast the device copies within its memory."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Of the hardware, for people."""

    @property
    def cluster(self) -> Cluster:
        """An inventory whose devices are all this one."""
        gpus = tuple(Gpu(index, self.kind, self.total_bytes) for index in range(SLOTS))
        return Cluster((Node("local", gpus, Link("shared-memory", 5e9, 1e-5)),))

    @property
    def warnings(self) -> list[str]:
        """What makes figures worth less, or breaks some parts."""
        found, used = [], self.total_bytes - self.free_bytes
        if self.device == "cuda" and used > OTHERS_BYTES:
            found.append(
                f"another process holds {used / 1e9:.1f} GB of the {self.total_bytes / 1e9:.1f} GB of the device: figures are of "
                "both, and parts that do not fit beside it are skipped; end it, or name another with CUDA_VISIBLE_DEVICES"
            )
        if any("Exclusive" in mode for mode in self.facts.get("compute_mode") or ()):
            found.append("the device lets one process use it only, but ranks are processes: nvidia-smi -c DEFAULT")
        if self.device == "cuda" and not self.facts.get("compiler"):
            found.append("there is no C compiler (cc, gcc or clang), which Triton needs to launch its first kernel")
        return found


def find_machine(device: Device) -> Machine:
    """Ask a process of its own.

    Raises:
        UnusableError: there is no such device, or it does not answer.
    """
    command = [sys.executable, "-m", "benchmarks.gpu.machine", device]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise UnusableError(f"the device did not answer within {PROBE_TIMEOUT_S} s; does nvidia-smi?") from None
    said = (done.stdout if not done.returncode else done.stderr).strip().splitlines()
    if done.returncode or not said:
        raise UnusableError(said[-1] if said else f"looking for it ended with status {done.returncode}")
    return Machine(**json.loads(said[-1]))


def kind_of(name: str) -> str:
    """The kind of a device by what its driver calls it: ``NVIDIA H100 80GB HBM3`` is an ``H100``."""
    words = re.findall(r"[A-Za-z0-9]+", re.sub(r"NVIDIA|GeForce|Tesla|Quadro", " ", name))
    if not words:
        return "GPU"
    first = "".join(words[:2]) if words[0] == "RTX" else words[0]
    if "PCIe" in words:
        return f"{first}-PCIE"
    return f"{first}-40GB" if first == "A100" and "40GB" in words else first


def why_cuda_cannot_be_used(torch: Any) -> str | None:
    """Of a torch module, before anything else is asked of it; None where it can."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} was built without CUDA; install one that was built with it"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        first = str(error).strip().splitlines()[0]
        return f"torch finds no GPU that it can use: {first}"
    for package, name in (("triton", "triton"), ("cuda.bindings", "cuda-bindings")):
        if not _is_there(package):
            return f"the package {name} is missing, without which KV on a GPU cannot be reached; install it"
    return None


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _cuda() -> Machine:
    import torch

    from benchmarks.kv_copy import PLAIN_BYTES, plain_bytes_s

    if reason := why_cuda_cannot_be_used(torch):
        raise UnusableError(reason)
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    found = torch.cuda.get_device_properties(0)
    facts = {
        "gpu": found.name,
        "gpus": torch.cuda.device_count(),
        "compute_capability": f"{found.major}.{found.minor}",
        "multiprocessors": found.multi_processor_count,
        "cuda": torch.version.cuda,
        "driver": _smi("--query-gpu=driver_version"),
        "compute_mode": _smi("--query-gpu=compute_mode"),
        "compute_processes": _smi("--query-compute-apps=pid,used_memory,process_name"),
        "compiler": next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None),
    }
    return Machine(
        "cuda",
        kind_of(found.name),
        total_bytes,
        free_bytes,
        host_free_bytes(),
        plain_bytes_s(min(PLAIN_BYTES, free_bytes // 8)),
        facts,
    )


def _cpu() -> Machine:
    free_bytes = host_free_bytes()
    total_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine("cpu", "CPU", total_bytes, free_bytes, free_bytes, memcpy_bytes_s())


def host_free_bytes() -> int:
    """Memory that can be had without swapping."""
    with open("/proc/meminfo", encoding="utf-8") as file:  # noqa: PTH123 - of the system
        sizes = dict(line.split(":") for line in file)
    return int(sizes["MemAvailable"].split()[0]) << 10


def _smi(query: str) -> list[str] | None:
    """What the driver's own tool says, a line each; None where there is no such tool."""
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader"],  # noqa: S607 - the one of the path
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip().splitlines()


def main() -> int:
    """Print what there is; 2 where nothing can run on it."""
    try:
        machine = {"cuda": _cuda, "cpu": _cpu}[sys.argv[1]]()
    except UnusableError as problem:
        print(problem, file=sys.stderr)
        return 2
    except Exception as problem:  # noqa: BLE001 - whatever it is, it is told in one line
        traceback.print_exc()
        print(f"the device cannot be used: {str(problem).strip().partition(LINE_END)[0]}", file=sys.stderr)
        return 1
    print(json.dumps(asdict(machine)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
