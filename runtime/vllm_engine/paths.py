"""How each running request comes over to the target: its KV copied, computed there, or not at all. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.engine import Request
from runtime.vllm_engine.models import SwitchPath


@dataclass(frozen=True, slots=True)
class Terms:
    """What the choice depends on, the same for all requests of a switch."""

    wanted: str
    """``auto``, or the path the deployment insists on."""
    difference: str
    """Why KV of the source means nothing to the target; empty when it does."""
    kv_bytes_per_token: int
    link_bytes_s: float
    prefill_tokens_s: float
    """Of the target, measured by its probe."""
    has_stateless_sampling: bool
    drain_tokens: int
    """A request with so many left to its end stays."""


def path_of(request: Request, num_emitted: int, terms: Terms) -> SwitchPath:
    """The path of one request."""
    if request.sampling.temperature > 0 and not terms.has_stateless_sampling:
        # its random state cannot leave the worker
        return "drain"
    if request.sampling.max_tokens - num_emitted <= terms.drain_tokens:
        return "drain"
    if terms.difference or terms.wanted == "follow":
        return "follow"
    if terms.wanted == "patch":
        return "patch"
    tokens = len(request.prompt) + num_emitted
    # both are done in the background and once; what is slower there is not chosen
    copy_s = tokens * terms.kv_bytes_per_token / terms.link_bytes_s
    compute_s = tokens / terms.prefill_tokens_s
    return "patch" if copy_s <= compute_s else "follow"


def counted(paths: Mapping[str, SwitchPath], names: tuple[str, ...]) -> dict[str, int]:
    """Path to the number of these requests that took it."""
    taken = [paths[name] for name in names]
    return {path: taken.count(path) for path in sorted(set(taken))}
