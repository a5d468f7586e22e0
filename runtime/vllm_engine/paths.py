"""How each running request comes over to the target: its KV copied, computed there, or not at all. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from runtime.engine import Request
from runtime.vllm_engine.models import Stay, SwitchPath


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
    seeds_travel: bool
    """The target draws the noise that the source would."""
    drain_tokens: int
    """A request with so many left to its end stays."""


def path_of(request: Request, num_emitted: int, terms: Terms) -> SwitchPath | Stay:
    """The path of one request, or why it stays."""
    if request.sampling.is_seeded and not terms.seeds_travel:
        return Stay.SEED
    if request.sampling.max_tokens - num_emitted <= terms.drain_tokens:
        return Stay.NEARLY_DONE
    if terms.difference or terms.wanted == "follow":
        return "follow"
    if terms.wanted == "patch":
        return "patch"
    tokens = len(request.prompt) + num_emitted
    # both are done in the background and once; what is slower there is not chosen
    copy_s = tokens * terms.kv_bytes_per_token / terms.link_bytes_s
    compute_s = tokens / terms.prefill_tokens_s
    return "patch" if copy_s <= compute_s else "follow"


def counted(taken: Iterable[SwitchPath | Stay]) -> dict[str, int]:
    """Path, or why requests stayed, to their number."""
    return dict(sorted(Counter(map(str, taken)).items()))
