"""The KV connector that vLLM loads by ``kv_connector_module_path``.

Hands each of its hooks to one of two sides.
"""

import time
from dataclasses import dataclass
from typing import Any

from vllm.config import VllmConfig
from vllm.distributed import get_pp_group, get_tensor_model_parallel_rank
from vllm.distributed.kv_transfer.kv_connector.v1 import base
from vllm.model_executor.models.utils import extract_layer_index
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig

from runtime.errors import UnsupportedModelError
from runtime.vllm_engine.connector.pasts import RequestPast
from runtime.vllm_engine.connector.scheduler_side import SchedulerSide
from runtime.vllm_engine.connector.worker_side import Ack, Order, WorkerSide
from runtime.vllm_engine.driver.requests import name_of
from runtime.vllm_engine.geometry import KvGeometry, RankShare, form_of, heads_of


@dataclass
class StepOrder(base.KVConnectorMetadata):  # type: ignore[misc]
    """Rides on a step to the workers."""

    order: Order | None = None
    pasts: tuple[RequestPast, ...] = ()


@dataclass
class StepAck(base.KVConnectorWorkerMetadata):  # type: ignore[misc]
    """Rides back."""

    ack: Ack

    def aggregate(self, other: "StepAck") -> "StepAck":
        """Add up two ranks."""
        return StepAck(self.ack.plus(other.ack))


@dataclass
class Pages(base.KVConnectorHandshakeMetadata):  # type: ignore[misc]
    """What a worker's pages are, for the scheduler's side; a string says why they cannot travel."""

    geometry: KvGeometry | str


_IDLE = StepOrder()


class KvConnector(base.KVConnectorBase_V1):  # type: ignore[misc]
    """Moves the KV of running requests between two engines of different TP and PP, when told to."""

    def __init__(self, vllm_config: VllmConfig, role: base.KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.scheduler = SchedulerSide()
        self.worker: WorkerSide | None = None
        self.pasts: dict[str, RequestPast] | None = {}
        """Where the model runner looks for those of new requests; None where it needs none."""
        self._pages: KvGeometry | str = "no KV cache"
        self._ack: Ack | None = None

    # --- in the workers ---

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Learn of this rank's KV cache."""
        try:
            self._pages, share, caches = _describe(self._vllm_config, self._kv_cache_config, kv_caches)
        except UnsupportedModelError as error:
            self._pages = str(error)
            return
        self.worker = WorkerSide(caches, self._pages, share)

    def get_handshake_metadata(self) -> Pages:
        """Tell the scheduler's side."""
        return Pages(self._pages)

    def handle_preemptions(self, kv_connector_metadata: Any) -> None:
        """Called before the runner hears of the step's new requests: their pasts are there then."""
        if self.pasts is not None:
            self.pasts.update({past.request_id: past for past in kv_connector_metadata.pasts})

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:  # noqa: ARG002 - vLLM's signature
        """Load what this step is to load."""
        if (order := self._order) and self.worker:
            self._ack = Ack(order.number, 0, self.worker.load(order) if order.load else 0)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing is loaded layer by layer."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Nothing is stored layer by layer."""

    def wait_for_save(self) -> None:
        """Store what this step is to store; its forward pass is done."""
        if (order := self._order) and order.store and self.worker:
            self.worker.wait()  # for the step itself, which is no copying
            started_s = time.monotonic()
            stored = Ack(order.number, self.worker.store(order), storing_s=time.monotonic() - started_s)
            self._ack = self._ack.plus(stored) if self._ack else stored

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:  # noqa: ARG002
        """Requests whose KV is all here now."""
        order = self._order
        return None, set(order.arrived) if order and order.arrived else None

    def build_connector_worker_meta(self) -> StepAck | None:
        """Acknowledge the step's order."""
        ack = self._ack
        self._ack = None
        return StepAck(ack) if ack else None

    @property
    def _order(self) -> Order | None:
        metadata = self._get_connector_metadata()
        return metadata.order if isinstance(metadata, StepOrder) else None

    # --- beside the scheduler ---

    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[tuple[int, int], Any]) -> None:
        """Learn of the pages, which are the same on every rank."""
        pages = {peer.geometry for peer in metadata.values()}
        self.scheduler.geometry = pages.pop() if len(pages) == 1 else "the ranks have different pages"

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        """Learn of the block tables."""
        super().bind_kv_cache_manager(kv_cache_manager)
        self.scheduler.bind(kv_cache_manager)

    def on_new_request(self, request: Any) -> None:
        """Keep a request by its name."""
        if name := name_of(request):
            self.scheduler.new_request(name, request)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        """Answer for parked requests."""
        return self.scheduler.matched_tokens(name_of(request), num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Note where a parked request's KV goes."""
        self.scheduler.allocated(name_of(request), tuple(blocks.get_block_ids()[0]), num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> StepOrder:
        """The order that rides on this step."""
        order = self.scheduler.order(scheduler_output.num_scheduled_tokens)
        pasts = self.scheduler.pasts(new.req_id for new in scheduler_output.scheduled_new_reqs)
        return StepOrder(order, pasts) if order or pasts else _IDLE

    def update_connector_output(self, connector_output: Any) -> None:
        """Hear the acknowledgement."""
        if isinstance(connector_output.kv_connector_worker_meta, StepAck):
            self.scheduler.acknowledged(connector_output.kv_connector_worker_meta.ack)

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:  # noqa: ARG002
        """Forget a request; its blocks are free at once."""
        self.scheduler.request_finished(name_of(request))
        return False, None

    def has_pending_push_work(self) -> bool:
        """Steps are wanted for copies alone."""
        return self.scheduler.wants_step

    @property
    def requires_kv_delivery(self) -> bool:
        """A preempted request is simply computed again."""
        return False


def _describe(
    vllm_config: VllmConfig, kv_cache_config: KVCacheConfig, kv_caches: dict[str, Any]
) -> tuple[KvGeometry, RankShare, dict[int, Any]]:
    """Geometry of the whole model, this rank's share, and its tensors by layer.

    Raises:
        UnsupportedModelError: pages of this cache cannot travel, and why.
    """
    groups = kv_cache_config.kv_cache_groups
    if len(groups) != 1 or not isinstance(groups[0].kv_cache_spec, FullAttentionSpec):
        kinds = ", ".join(type(group.kv_cache_spec).__name__ for group in groups)
        raise UnsupportedModelError(f"only one group of full attention layers can travel, not {kinds}")
    spec = groups[0].kv_cache_spec
    parallel = vllm_config.parallel_config
    model = vllm_config.model_config
    total = model.get_total_num_kv_heads()
    heads, is_writer = heads_of(get_tensor_model_parallel_rank(), parallel.tensor_parallel_size, total)
    caches = {extract_layer_index(name): cache for name, cache in kv_caches.items()}
    shapes = {
        form_of(tuple(cache.shape), heads[1] - heads[0], spec.block_size, spec.head_size) for cache in caches.values()
    }
    layers = model.get_num_layers(parallel)
    layers_here = vllm_config.compilation_config.static_forward_context
    backends = {layers_here[name].get_attn_backend().get_name() for name in kv_caches if name in layers_here}
    geometry = KvGeometry(
        num_layers=model.get_total_num_hidden_layers(),
        num_kv_heads=total,
        block_size=spec.block_size,
        head_dim=spec.head_size,
        dtype=str(spec.dtype).removeprefix("torch."),
        form=shapes.pop(),
        # as it was resolved: what the options say is nothing where vLLM chose
        backend=f"{next(iter(caches.values())).device.type}-{'+'.join(sorted(backends))}",
    )
    first = min(caches) if caches else get_pp_group().rank_in_group * layers
    return geometry, RankShare((first, first + len(caches)), heads, is_writer), caches
