"""What steps and static batches take on the stages of a server. Pure."""

import math

from selector.performance.perf import ServerModel, Step

IDLE_RPS = 1e-9
"""What no requests at all are taken for."""
LONGEST = 2**20
"""Tokens in or out of the longest request that is taken seriously."""
SERVING_SHARE = 0.93
"""What continuous batching keeps of the step rate beside a static batch; fitted to saturated 7B and 8B rows of TensorRT-LLM."""


def static_batch(server: ServerModel, batch: int, input_tokens: int, output_tokens: int) -> tuple[float, float, float]:
    """TTFT, TPOT and E2E where all is prefilled together, then decoded together, as offline benchmarks do.

    No queue, no mixing.
    """
    groups = min(len(server.stages), batch)
    stages = times(server, Step.of(math.ceil(batch / groups), input_tokens, 0))
    ttft_s = sum(stages) + (groups - 1) * max(stages)
    context = round(input_tokens + output_tokens / 2)
    tpot_s = period_s(server, batch, Step.of(math.ceil(batch / groups), 1, context))
    return ttft_s, tpot_s, ttft_s + (output_tokens - 1) * tpot_s


def period_s(server: ServerModel, sequences: float, part: Step) -> float:
    """Time in which every micro-batch advances once.

    Each passes all stages, and the slowest stage serves them all.
    """
    stages = times(server, part)
    return max(sum(stages), min(len(server.stages), sequences) * max(stages))


def times(server: ServerModel, step: Step) -> list[float]:
    """Seconds of a step on each stage."""
    return [stage.seconds(step) / server.share for stage in server.stages]
