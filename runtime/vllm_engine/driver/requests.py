"""Between the router's requests and tokens and vLLM's. Imports vLLM only when called."""

import time
from collections.abc import Mapping
from typing import Any

from runtime.engine import Finish, GenerationRequest, Token

NAME_KEY = "intentctl_request"
"""Where a request's sampling parameters carry the router's id, in ``kv_transfer_params``: vLLM changes its own ids."""

PENALTIES = ("presence_penalty", "frequency_penalty", "repetition_penalty")
SAME = ("temperature", "top_p", "top_k", "min_p", *PENALTIES)
"""What vLLM calls as we do."""

FINISHES = {"stop": Finish.STOP, "length": Finish.LENGTH}


def core_request(request: GenerationRequest, tokens: tuple[int, ...], max_tokens: int) -> Any:
    """A request for vLLM's engine core that goes on from ``tokens`` for at most ``max_tokens`` more."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
    from vllm.v1.engine import EngineCoreRequest

    wanted = request.sampling
    sampling = SamplingParams(
        max_tokens=max_tokens,
        seed=wanted.seed if wanted.is_seeded else None,
        logit_bias=dict(wanted.logit_bias) or None,
        structured_outputs=StructuredOutputsParams(grammar=wanted.grammar) if wanted.grammar else None,
        logprobs=wanted.num_logprobs,
        stop_token_ids=list(wanted.stop_token_ids),
        min_tokens=max(0, min(wanted.min_tokens, wanted.max_tokens) - (wanted.max_tokens - max_tokens)),
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        extra_args={"kv_transfer_params": {NAME_KEY: request.request_id}},
        **{name: getattr(wanted, name) for name in SAME},
    )
    return EngineCoreRequest(
        request_id=request.request_id, prompt_token_ids=list(tokens), sampling_params=sampling, arrival_time=time.time(),
        mm_features=None, pooling_params=None, lora_request=None, cache_salt=None, data_parallel_rank=None,
    )  # fmt: skip


def name_of(request: Any) -> str:
    """The router's id of one of vLLM's requests."""
    return str((request.kv_transfer_params or {}).get(NAME_KEY, ""))


def token(request: GenerationRequest, place: tuple[int, int], token_id: int, chances: Mapping[int, Any]) -> Token:
    """One token at (epoch, index); ``chances`` are vLLM's logprobs at its position, by token id."""
    epoch, index = place
    best = sorted(chances.items(), key=lambda item: item[1].rank)[: request.sampling.num_logprobs]
    own = chances[token_id].logprob if token_id in chances else 0.0
    alternatives = tuple((other, chance.logprob) for other, chance in best)
    return Token(request.request_id, epoch, index, token_id, own, alternatives)
