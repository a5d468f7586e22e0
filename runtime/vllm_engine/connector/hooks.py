"""Patches that stock vLLM needs beyond its documented extension points.

All in one place, with the versions they are for.

``missing`` names what a new vLLM has moved; a contract test and every start of an engine ask it.
"""

from typing import Any

VERSIONS = ("0.32",)
"""vLLM releases whose hooks these are."""


class WorkerExtension:
    """Mixed into vLLM's worker by ``worker_extension_cls``; its methods are called by ``collective_rpc``."""

    def intentctl_prepare(self) -> int:
        """Let new requests have a past, and make the CPU runner able to take part in a pipeline.

        Returns the process id.

        Its ranks after the first never allocate the tensors they receive (vLLM 0.32: AssertionError at the first step).
        """
        import os

        from vllm.distributed import get_pp_group
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        from runtime.vllm_engine.connector.pasts import Requests

        runner: Any = self.model_runner  # type: ignore[attr-defined]
        connector: Any = get_kv_transfer_group()
        if type(getattr(runner, "requests", None)) is dict:  # model runner V2 is given all tokens, and needs no state
            runner.requests = Requests()
            connector.pasts = runner.requests.pasts
        else:
            connector.pasts = None
        if runner.device.type == "cpu" and not get_pp_group().is_first_rank:
            runner.intermediate_tensors = runner.model.make_empty_intermediate_tensors(
                batch_size=runner.max_num_tokens, dtype=runner.dtype, device=runner.device
            )
        return os.getpid()

    def intentctl_free_bytes(self) -> int | None:
        """Memory of this rank's device that nobody has; None on a CPU."""
        import torch

        device: Any = self.model_runner.device  # type: ignore[attr-defined]
        return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else None

    def intentctl_generators(self) -> dict[str, bytes]:
        """Where the generators of seeded requests stand, by vLLM's ids."""
        from runtime.vllm_engine.connector.pasts import Requests

        requests: Any = getattr(self.model_runner, "requests", None)  # type: ignore[attr-defined]
        return requests.generators() if isinstance(requests, Requests) else {}

    def intentctl_digests(self, blocks: list[int]) -> dict[tuple[int, int, int], str]:
        """Digests of the pages of these blocks; see ``WorkerSide.digests``."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        connector: Any = get_kv_transfer_group()
        found: dict[tuple[int, int, int], str] = connector.worker.digests(blocks)
        return found

    def intentctl_let_go(self) -> None:
        """Unmap the staging memory of a switch that is over."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        connector: Any = get_kv_transfer_group()
        if connector.worker is not None:
            connector.worker.close_staging()


def catch_up(request: Any) -> None:
    """Let the grammar of a parked request, if it is compiled, take in what was output elsewhere."""
    structured = request.structured_output_request
    if structured is not None and hasattr(structured.grammar, "catch_up"):
        structured.grammar.catch_up()


def let_blocks_go(scheduler: Any, request: Any) -> None:
    """A parked request is about to be aborted: its load is over, or its blocks would be kept for it."""
    if request.status.name == "WAITING_FOR_REMOTE_KVS":
        scheduler.finished_recving_kv_req_ids.add(request.request_id)


def reserve(manager: Any, request: Any, computed: int) -> None:
    """Give a parked request blocks for ``computed`` positions and book them, if there are any."""
    more = computed - request.num_computed_tokens
    if more > 0 and manager.allocate_slots(request, more, delay_cache_blocks=True) is None:
        return  # what does not fit is computed again
    request.num_computed_tokens = computed


def missing() -> list[str]:
    """What this vLLM does not have that the code here relies on; empty when it fits."""
    import inspect

    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.interface import PauseState
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.engine.core_client import InprocClient
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm.v1.request import Request
    from vllm.v1.structured_output import StructuredOutputManager
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    wanted: dict[Any, tuple[str, ...]] = {
        KVConnectorBase_V1: (
            "bind_kv_cache_manager", "build_connector_meta", "build_connector_worker_meta",
            "get_finished", "get_handshake_metadata", "get_num_new_matched_tokens", "handle_preemptions", "has_pending_push_work",
            "on_new_request", "register_kv_caches", "request_finished", "set_xfer_handshake_metadata_pp_aware",
            "start_load_kv", "update_connector_output", "update_state_after_alloc", "wait_for_save",
        ),
        KVCacheManager: ("allocate_slots", "get_block_ids"),
        Scheduler: ("get_kv_connector", "get_request_counts", "has_requests", "set_pause_state"),
        EngineCore: ("add_request", "preprocess_add_request"),
        InprocClient: ("abort_requests", "get_output"),
        LLMEngine: ("abort_request", "add_request", "collective_rpc", "from_vllm_config", "step"),
        Request: ("append_output_token_ids", "take_prefill_stats"),
        PauseState: ("PAUSED_ALL", "UNPAUSED"),
        StructuredOutputManager: ("grammar_bitmask", "grammar_init"),
    }  # fmt: skip
    absent = [
        f"{owner.__module__}.{owner.__name__}.{name}"
        for owner, names in wanted.items()
        for name in names
        if name not in vars(owner)  # an abstract method that is inherited is none
    ]
    sources = {
        Request.__init__: ("output_token_ids", "num_computed_tokens"),
        GPUModelRunner.__init__: ("requests",),
        StructuredOutputManager.__init__: ("backend",),
        Scheduler.__init__: ("finished_recving_kv_req_ids", "finished_req_ids"),
        EngineCore.__init__: ("batch_queue", "model_executor", "scheduler"),
    }
    return absent + [
        f"{function.__qualname__}: self.{name}"
        for function, names in sources.items()
        for name in names
        if f"self.{name}" not in inspect.getsource(function)
    ]
