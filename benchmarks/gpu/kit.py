"""What travels to a bare GPU machine without a network: ``python -m benchmarks.gpu.kit FOLDER``.

vLLM's stock wheel, cut down to what one kind of GPU loads (an H100 unless said), and what it needs beside the packages of such a
machine (benchmarks/README.md). There: ``bash FOLDER/run.sh`` in the checkout. A GPU has not yet loaded a library that was cut.
"""

import argparse
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from email import message_from_string
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.gpu.fatbin import NoLibraryError, cut
from benchmarks.gpu.kit_check import NotFitError, check
from benchmarks.provenance import ROOT

VLLM = "vllm==0.32.0"
PYTHON = "3.12"
NEEDED = """
llguidance==1.7.6 oss-harmony==0.0.11 apache-tvm-ffi==0.1.11 openai==2.25.0 pydantic==2.14.4 pydantic_core==2.50.5
xgrammar==0.2.8 pyzmq==27.3.0 cbor2==6.3.0 jiter==0.19.0 msgspec==0.22.0 compressed-tensors==0.17.0 opentelemetry-api==1.45.2
opentelemetry-sdk==1.45.2 dill==0.4.1 fastapi==0.136.3 httpx2==2.16.2 pybase64==1.5.1 starlette==1.10.0
pydantic-extra-types==2.11.1 loguru==0.7.3 cachetools==8.0.2 typing-inspection==0.4.5 annotated-types==0.8.0
partial-json-parser==0.2.1.1.post7 sniffio==1.3.1 annotated-doc==0.0.7 distro==1.9.0 jsonschema==4.26.0 referencing==0.37.0
jsonschema-specifications==2025.9.1 rpds-py==2026.9.1
""".split()  # noqa: SIM905 - a list of 32 is long
"""What vLLM imports for a text model, and the deployment file, where torch, transformers, triton and what they need are there."""
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (17, 24, 26, 27, 28, 31, 34)]
LIBRARIES = {"_C_stable_libtorch.abi3.so": "", "vllm_flash_attn/_vllm_fa3_C.abi3.so": "flash attention"}
"""Those that are cut. Without flash attention vLLM's backends cannot be imported at all."""
SMALL = ("cumem_allocator.abi3.so", "spinloop.abi3.so", "fs_io_C.abi3.so")
LEFT_OUT = re.compile(r"third_party/(deep_gemm|fmha_sm100|tml_fa4)/|/configs/.*json$")
"""Python and tables that a Llama on one GPU does not load."""
KEPT = re.compile(r".*\.(py|json|typed|jinja)")
MOST_BYTES = 64 << 20
"""Of one transfer, with the working tree."""

RUN = """#!/usr/bin/env bash
# In the root of the checkout, on the GPU machine.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
site=$(mktemp -d)
python3 -m pip install -q --no-index --no-deps --no-compile --target "$site" "$here"/wheels/*.whl
tar -xJf "$here/vllm.tar.xz" -C "$site"
# in PYTHONPATH: vLLM looks at models in a process of its own; one GPU stands for the two devices of the inventory
export PYTHONPATH=$site VLLM_USE_DEEP_GEMM=0
# what has changed most since a GPU was there last; what there was no time for is in the file as "not reached"
[ $# -gt 0 ] || set -- --only vllm-gates --only vllm-switch --only vllm-cost --only formats --only cutover
exec python3 -m benchmarks.gpu --minutes "${MINUTES:-7}" "$@"
"""


class KitError(Exception):
    """The folder cannot be made; the message says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the folder; 1 when it would not fit, 2 when it cannot be made."""
    found = argparse.ArgumentParser("python -m benchmarks.gpu.kit", description=__doc__)
    found.add_argument("folder", type=Path, help="made anew")
    found.add_argument(
        "--arch", type=int, default=90, help="compute capability times ten: 80 of an A100, 89 of an L40S"
    )
    found.add_argument(
        "--python", type=Path, metavar="PYTHON", help="with the packages of that machine: imports are tried with it"
    )
    options = found.parse_args(arguments)
    try:
        make(options.folder, options.arch)
        if options.python:
            print(check(options.folder, options.python), end="")
    except (KitError, NoLibraryError, NotFitError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    sizes = {"kit": size_of(options.folder), "tracked files": tracked_bytes()}
    print(", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in sizes.items()), f"of {MOST_BYTES / 1e6:.1f} MB")
    return int(sum(sizes.values()) > MOST_BYTES)


def make(folder: Path, arch: int) -> None:
    """Fill the folder.

    Raises:
        KitError: it is there already, or something cannot be downloaded.
        NoLibraryError: a library of the wheel is not what it was.
    """
    if folder.exists():
        raise KitError(f"{folder} is there already; remove it, or name another")
    (folder / "wheels").mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        download(Path(temporary), [VLLM])
        (wheel,) = Path(temporary).glob("vllm-*.whl")
        with zipfile.ZipFile(wheel) as source:
            (about,) = (name for name in source.namelist() if name.endswith(".dist-info/METADATA"))
            if wrong := unmet(source.read(about).decode(), NEEDED):
                raise KitError(f"{VLLM} needs {', '.join(wrong)}; change NEEDED")
        pack(wheel, folder / "vllm.tar.xz", arch)
    download(folder / "wheels", NEEDED)
    (folder / "run.sh").write_text(RUN, encoding="utf-8")


def download(folder: Path, names: Sequence[str]) -> None:
    """Wheels of exact versions for the GPU machine's Python.

    Raises:
        KitError: one is not to be had.
    """
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(folder),
    ]
    python = ["--python-version", PYTHON, "--implementation", "cp", "--abi", "cp312", "--abi", "abi3", "--abi", "none"]
    done = subprocess.run([*pip, *python, *platforms, *names], capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise KitError(said[-1] if said else "pip did not download the wheels")


def unmet(metadata: str, names: Sequence[str]) -> list[str]:
    """What a wheel says that it needs and what these exact versions are not."""
    versions = {canonicalize_name(name): version for name, version in (one.split("==") for one in names)}
    lines = message_from_string(metadata).get_all("Requires-Dist") or []
    needed = [one for one in map(Requirement, lines) if one.marker is None or one.marker.evaluate({"extra": ""})]
    return [
        str(one)
        for one in needed
        if (version := versions.get(canonicalize_name(one.name))) and not one.specifier.contains(version)
    ]


def pack(wheel: Path, target: Path, arch: int) -> None:
    """What is used of vLLM's wheel, compressed."""
    with (
        zipfile.ZipFile(wheel) as source,
        lzma.open(target, "wb", preset=6) as packed,
        tarfile.open(fileobj=packed, mode="w|") as out,
    ):
        for name in source.namelist():
            if not is_used(name):
                continue
            data = source.read(name)
            library = name.removeprefix("vllm/")
            if library in LIBRARIES:
                data = cut(data, arch, is_attention_of_bf16 if LIBRARIES[library] else lambda _: True)
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            out.addfile(entry, _Bytes(data))


class _Bytes:
    """Bytes as ``tarfile`` reads them."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)

    def read(self, count: int = -1) -> bytes:
        end = len(self._data) if count < 0 else count
        found, self._data = self._data[:end], self._data[end:]
        return bytes(found)


def is_used(name: str) -> bool:
    """Whether a file of the wheel travels."""
    if ".dist-info/" in name:
        return name.endswith(("METADATA", "WHEEL", "entry_points.txt"))
    small = name.removeprefix("vllm/")
    return small in LIBRARIES or small in SMALL or (KEPT.fullmatch(name) is not None and LEFT_OUT.search(name) is None)


def is_attention_of_bf16(code: bytes) -> bool:
    """Whether kernels of FlashAttention 3 are those of bfloat16 with heads of up to 192."""
    others = (b"6half_t" in code and b"10bfloat16_t" not in code) or b"e4m3" in code
    return not others and b"Li256EN7cutlass" not in code


def size_of(folder: Path) -> int:
    """Bytes of all its files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def tracked_bytes() -> int:
    """Bytes of the working tree that travel anyway."""
    git = shutil.which("git") or "git"
    done = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return sum(
        (ROOT / name.decode()).stat().st_size
        for name in done.stdout.split(b"\0")
        if name and (ROOT / name.decode()).is_file()
    )


if __name__ == "__main__":
    sys.exit(main())
