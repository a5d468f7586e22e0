"""What a host has, and what of it differs from the deployment.

Devices, versions, shared memory, checkpoints.
"""

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.models import Gpu
from runtime.process.content import CODE, PACKAGES, PinnedCheckpoint, other_files

SMI_S = 20.0
"""How long ``nvidia-smi`` may take."""
ENOUGH = 0.9
"""Of the memory that the deployment says; drivers keep some of what is on the label."""
LEAST_SHARED_BYTES = 64 << 20
"""In /dev/shm, for vLLM's processes."""
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where Linux keeps it


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """A GPU of a host; its local ordinal is its place among the host's, by PCI bus."""

    uuid: str
    name: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a host has."""

    gpus: tuple[GpuFacts, ...]
    """Those that its processes may use, by local ordinal."""
    cores: int
    memory_bytes: int
    free_shared_bytes: int
    versions: Mapping[str, str]
    """Of packages and of the GPUs' ``driver``; of those that are there."""
    checkpoints: Mapping[str, Mapping[str, str]]
    """Folder to its files and their digests; none where there is no such folder."""


def gather(checkpoints: Iterable[str], visible: str = "") -> HostFacts:
    """The facts of this host. Blocks, up to ``SMI_S`` and a read of some pages of each checkpoint.

    ``visible`` is what a process may use of its GPUs, as in ``CUDA_VISIBLE_DEVICES``; empty: all.
    """
    gpus, driver = _gpus()
    shared = os.statvfs(_SHARED_MEMORY) if Path(_SHARED_MEMORY).is_dir() else None
    return HostFacts(
        gpus=_visible(gpus, visible),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        free_shared_bytes=shared.f_bavail * shared.f_frsize if shared else 0,
        versions={**CODE, **driver},
        checkpoints={folder: PinnedCheckpoint.of(Path(folder)).digests for folder in checkpoints},
    )


def _gpus() -> tuple[tuple[GpuFacts, ...], dict[str, str]]:
    """The GPUs that the driver lists, and its version."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return (), {}
    query = [command, "--query-gpu=uuid,name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, check=True, timeout=SMI_S).stdout
        lines = [[part.strip() for part in line.split(",")] for line in output.splitlines()]
        gpus = tuple(GpuFacts(uuid, name, int(mib) << 20) for uuid, name, mib, _ in lines)
    except (OSError, subprocess.SubprocessError, ValueError):
        return (), {}
    return gpus, {"driver": lines[0][3]} if lines else {}


def _visible(gpus: tuple[GpuFacts, ...], visible: str) -> tuple[GpuFacts, ...]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` names: by ordinal or by the beginning of a UUID.

    nvidia-smi says nothing here of a part of a GPU (MIG): it is taken at its word.
    """
    if not visible:
        return gpus
    found = list[GpuFacts]()
    for name in map(str.strip, visible.split(",")):
        if name.startswith("MIG-"):
            found.append(GpuFacts(name, "", 0))
        else:
            found += [
                gpu for n, gpu in enumerate(gpus) if str(n) == name or (gpu.uuid.startswith(name) and name[:1] == "G")
            ]
    return tuple(found)


def wrong_devices(inventory: Sequence[Gpu], facts: HostFacts) -> str:
    """What of a host's devices the deployment says otherwise; empty: nothing. Pure."""
    gpus = [device for device in inventory if device.kind.upper() != "CPU"]
    expected_bytes = sum(device.memory_bytes for device in inventory if device.kind.upper() == "CPU")
    if expected_bytes > facts.memory_bytes:
        return f"its CPU slots take {expected_bytes / 1e9:.1f} GB, and it has {facts.memory_bytes / 1e9:.1f} GB"
    if len(gpus) > len(facts.gpus):
        has = ", ".join(gpu.name for gpu in facts.gpus) or "none that nvidia-smi lists"
        return f"the deployment gives it {len(gpus)} GPUs, and it has {has}"
    for ordinal, (gpu, real) in enumerate(zip(gpus, facts.gpus, strict=False)):
        is_like = is_kind(gpu.kind, real.name) and real.memory_bytes >= ENOUGH * gpu.memory_bytes
        if real.name and not is_like:
            described = f"{gpu.kind} with {gpu.memory_bytes / 1e9:.0f} GB"
            found = f"{real.name} with {real.memory_bytes / 1e9:.0f} GB ({real.uuid})"
            return f"device {gpu.index} is {described} in the deployment; its GPU {ordinal} is {found}"
    return ""


def is_kind(kind: str, name: str) -> bool:
    """Whether a GPU's name may be of this kind; a kind that is no model's name, as ``big``, says nothing.

    Pure.
    """
    model = re.match(r"[A-Z]+\d+[A-Z]*", kind.upper().replace(" ", ""))
    words = re.findall(r"[A-Z0-9]+", name.upper())
    pairs = [first + other for first, other in itertools.pairwise(words)]
    return model is None or model[0] in {*words, *pairs}


def differences(facts: HostFacts, ours: HostFacts, *, needs_vllm: bool) -> str:
    """What a host has otherwise than the service's own; empty: nothing. Pure."""
    for name in PACKAGES[: 3 if needs_vllm else 2]:
        theirs, here = (source.versions.get(name, "none") for source in (facts, ours))
        if theirs != here and not (name == "vllm" and here == "none"):
            return f"it has {name} {theirs}, the service's host {here}; install the same"
    for folder, files in ours.checkpoints.items():
        theirs_of = facts.checkpoints.get(folder, {})
        if not theirs_of:
            return f"it has no checkpoint {folder}; put a copy at the same path"
        if other := other_files(files, theirs_of):
            return f"its checkpoint {folder} differs in {', '.join(other[:5])}; copy it anew"
    if needs_vllm and facts.free_shared_bytes < LEAST_SHARED_BYTES:
        return f"{_SHARED_MEMORY} has {facts.free_shared_bytes >> 20} MiB free; vLLM needs {LEAST_SHARED_BYTES >> 20}"
    return ""
