"""A scheduler's side of the connector with its surroundings, asked and told in the order in which vLLM and the driver do."""

from dataclasses import dataclass, field

from runtime.models import ModelSpec
from runtime.vllm_engine.connector.scheduler_side import SchedulerSide
from runtime.vllm_engine.connector.worker_side import Ack, Order
from runtime.vllm_engine.geometry import PACKED, KvGeometry
from runtime.vllm_engine.messages import Extent
from runtime.vllm_engine.staging import StagingHandle

MODEL = ModelSpec("m", "LlamaForCausalLM", 8, 64, 96, 8, 4, 8, 100, 512)
BLOCK_SIZE = 4
GEOMETRY = KvGeometry(2, 2, BLOCK_SIZE, 8, "float32", PACKED, "cpu-x")
UNBOUNDED = 1 << 30


@dataclass
class VllmRequest:
    """What of vLLM's request is used."""

    request_id: str
    prompt_token_ids: list[int]
    num_computed_tokens: int = 0
    output_token_ids: list[int] = field(default_factory=list)
    is_counted: bool = False
    structured_output_request: None = None

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    def append_output_token_ids(self, token_ids: list[int]) -> None:
        self.output_token_ids += token_ids

    def take_prefill_stats(self) -> None:
        self.is_counted = True


class VllmBlocks:
    """What of vLLM's KV cache manager is used, with few blocks."""

    def __init__(self, num_blocks: int = 20) -> None:
        self.free = list(range(100, 100 + num_blocks))
        self.tables: dict[str, list[int]] = {}

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        return (self.tables[request_id],)

    def allocate_slots(
        self, request: VllmRequest, num_new_tokens: int, *, delay_cache_blocks: bool
    ) -> list[int] | None:
        assert delay_cache_blocks, "what is not here yet must not be found in the prefix cache"
        table = self.tables.setdefault(request.request_id, [])
        missing = -(-(request.num_computed_tokens + num_new_tokens) // BLOCK_SIZE) - len(table)
        if missing > len(self.free):
            return None
        table += [self.free.pop(0) for _ in range(missing)]
        return table


@dataclass
class Clock:
    """Goes on when told to."""

    s: float = 100.0

    def __call__(self) -> float:
        return self.s


class Side:
    """A scheduler's side with its surroundings; vLLM's ids differ from the router's, as they do."""

    def __init__(self, num_slots: int = 20, num_blocks: int = 20, now: Clock | None = None) -> None:
        self.side = SchedulerSide(now or Clock())
        self.blocks = VllmBlocks(num_blocks)
        self.side.bind(self.blocks)
        self.handle = StagingHandle("/nowhere", 1, num_slots, GEOMETRY)

    def add(self, name: str, num_tokens: int, num_computed: int = 0) -> VllmRequest:
        request = VllmRequest(f"{name}-x7", list(range(num_tokens)))
        self.side.new_request(name, request)
        self.compute(request, num_computed)
        return request

    def compute(self, request: VllmRequest, num_tokens: int) -> None:
        """A step computed these, outside of what is tested."""
        self.blocks.allocate_slots(request, num_tokens, delay_cache_blocks=True)
        request.num_computed_tokens += num_tokens

    def preempt(self, request: VllmRequest) -> None:
        self.blocks.free += self.blocks.tables.pop(request.request_id)
        request.num_computed_tokens = 0

    def admit(self, name: str, request: VllmRequest, present: int = 0) -> bool:
        """What the scheduler does with a waiting request; whether it is admitted."""
        external, is_async = self.side.matched_tokens(name, present)
        if external is None:
            return False
        request.num_computed_tokens = 0
        self.blocks.allocate_slots(request, present + external, delay_cache_blocks=True)
        table = tuple(self.blocks.tables.setdefault(request.request_id, []))
        self.side.allocated(name, table, external)
        if is_async:
            request.num_computed_tokens = present + external
        return True

    def release(self, name: str, tokens: tuple[int, ...], extent: Extent) -> None:
        """The cut: what the source said since, and the request goes on."""
        self.side.extend(name, tokens)
        self.side.release(name, extent, UNBOUNDED)

    def run_orders(self) -> list[Order]:
        """Steps with nothing scheduled, each carried out at once, while there is something to do."""
        orders: list[Order] = []
        while self.side.wants_step or not orders:
            order = self.side.order({})
            if order is None:
                break
            orders.append(order)
            self.side.acknowledged(Ack(order.number))
        return orders
