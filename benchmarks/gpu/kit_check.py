"""Whether what the kit brings can be imported and configured on a machine without a GPU.

The driver is a stub, the platform is faked.

``check`` runs this module with another Python, one that has the packages of the GPU machine: vLLM's libraries are loaded with
all their symbols, its modules imported, its hooks looked for, and each engine of ``vllm_switch`` is configured, not started.
"""

import os
import subprocess
import tempfile
from importlib import import_module
from pathlib import Path

from benchmarks.gpu.machine import Machine
from benchmarks.provenance import ROOT

FAKED = Path(__file__).parent / "faked"
DRIVER = """
cuCtxGetCurrent cuCtxSetCurrent cuDeviceGetAttribute cuDevicePrimaryCtxRetain cuGetErrorString cuGetProcAddress_v2
cuMemAddressFree cuMemAddressReserve cuMemCreate cuMemGetAllocationGranularity cuMemMap cuMemRelease cuMemSetAccess cuMemUnmap
cuPointerGetAttribute cuTensorMapEncodeTiled
""".split()  # noqa: SIM905 - a list of 16 is long
"""What the libraries want of CUDA's driver."""
NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE, the stub's answer to all."""
MODULES = (
    "vllm._custom_ops",
    "vllm.vllm_flash_attn",
    "vllm.v1.engine.llm_engine",
    "vllm.v1.worker.gpu_worker",
    "vllm.v1.worker.gpu.model_runner",
    "vllm.v1.attention.backends.flash_attn",
    "vllm.model_executor.models.llama",
    "vllm.model_executor.layers.quantization.fp8",
    "benchmarks.gpu.parts.vllm_cost",
    "benchmarks.gpu.parts.vllm_gates",
    "benchmarks.gpu.parts.vllm_switch",
    "service.deployment.file",
)
OPERATORS = ("rms_norm", "silu_and_mul", "rotary_embedding", "cutlass_scaled_mm")
H100 = Machine("cuda", "H100", 80 << 30, 80 << 30, 64 << 30, 1e12)


class NotFitError(Exception):
    """Something that the kit brings does not go with that Python; the message says what."""


def check(folder: Path, python: Path) -> str:
    """Try the kit of a folder with the packages of ``python``; what was found, for people.

    Raises:
        NotFitError: something is missing or does not go together.
    """
    with tempfile.TemporaryDirectory() as temporary:
        site, stub = Path(temporary, "site"), Path(temporary, "stub")
        wheels = sorted((folder / "wheels").glob("*.whl"))
        pip = (python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile")
        _run([*pip, "--target", site, *wheels])
        _run(["tar", "-xJf", folder / "vllm.tar.xz", "-C", site])
        stub.mkdir()
        source = stub / "driver.c"
        source.write_text("".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in DRIVER), encoding="utf-8")
        _run(["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", stub / "libcuda.so.1", source])
        paths = {"PYTHONPATH": f"{FAKED}:{site}:{ROOT}", "LD_LIBRARY_PATH": str(stub)}
        vllm = {"VLLM_USE_DEEP_GEMM": "0", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CACHE_ROOT": temporary}
        return _run([python, "-m", "benchmarks.gpu.kit_check"], paths | vllm)


def _run(command: list[str | Path], environment: dict[str, str] | None = None) -> str:
    env = {**os.environ, **(environment or {})}
    try:
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    except OSError as problem:
        raise NotFitError(f"{command[0]}: {problem.strerror}") from problem
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise NotFitError(lines[-1] if lines else f"{command[0]} ended with status {done.returncode}")
    return done.stdout


def main() -> None:
    """Import, look and configure; a line for each that held."""
    import torch

    for name in MODULES:
        import_module(name)
    if absent := [name for name in OPERATORS if not hasattr(torch.ops._C, name)]:  # noqa: SLF001 - its public name
        raise NotFitError(f"vLLM's library lacks {', '.join(absent)}")
    from runtime.vllm_engine.connector.hooks import missing

    if moved := missing():
        raise NotFitError(f"vLLM has moved {', '.join(moved)}")
    print(f"torch {torch.__version__}: {len(MODULES)} modules and {len(OPERATORS)} operators are there")
    _configure()


def _configure() -> None:
    from benchmarks.gpu.parts.vllm_switch import LOADS, made, subject_of, way
    from runtime.footprint import weight_bytes
    from runtime.process.content import PinnedCheckpoint
    from runtime.vllm_engine.driver.boot import configured
    from runtime.vllm_engine.launch import engine_options, sized, wanted_bytes
    from runtime.vllm_engine.messages import VllmDriverConfig

    with made(H100) as folder:
        pinned = PinnedCheckpoint.of(folder)
        for load in LOADS["cuda"]:
            subject = subject_of(H100, folder, load.pair[0], load.options)
            topology = way(H100, subject, 0, load.pair[1])
            weights = weight_bytes(topology, subject.spec)
            assert subject.vllm is not None, "it is of vLLM"
            settings = sized(subject.vllm, subject.cluster, topology, max(weights.values()))
            options = engine_options(folder, topology, settings)
            found = configured(VllmDriverConfig(pinned, options, {}, wanted_bytes(weights, settings)))
            runner = "V2" if found.use_v2_model_runner else "V1"
            print(f"{load.name}: model runner {runner}, compilation {found.compilation_config.mode.name}")


if __name__ == "__main__":
    main()
