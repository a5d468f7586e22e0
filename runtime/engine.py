"""The protocol every engine speaks; one suite (tests/runtime/test_conformance.py) runs against each.

An engine sees token ids only. Text, detokeniser, stop strings, usage and the ledger belong to the router.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from runtime.capabilities import Batching, Capabilities
from runtime.errors import Reason
from runtime.models import CutTimings, MeasuredLink, Topology


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen.

    Logits → biases and penalties → grammar → temperature → min_p, top_k, top_p → a draw.
    """

    max_tokens: int
    temperature: float = 0.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps all."""
    min_p: float = 0.0
    """Tokens with less than this share of the best one's probability are left out."""
    seed: int | None = None
    """None: the engine need not say the same twice. One that wants a seed always gets one (``Capabilities.wants_seed``)."""
    presence_penalty: float = 0.0
    """Taken from the logits of tokens of the output, once."""
    frequency_penalty: float = 0.0
    """The same, as often as they were said."""
    repetition_penalty: float = 1.0
    """Logits of tokens of the prompt and the output are divided by it, those below 0 multiplied."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, what is added to its logit)."""
    grammar: str = ""
    """What the output must match, in llguidance's form (``runtime.grammar``); empty: anything."""
    num_logprobs: int = 0
    """Alternatives to report beside each token's own logprob."""
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    """Of the output, before one of ``stop_token_ids`` may come."""

    @property
    def is_seeded(self) -> bool:
        """Its noise follows from its seed."""
        return self.temperature > 0 and self.seed is not None

    @property
    def has_memory(self) -> bool:
        """The next token depends on the output in other ways than through the model."""
        counts = self.presence_penalty != 0 or self.frequency_penalty != 0
        return self.is_seeded or counts or bool(self.grammar)


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One generation, as an engine sees it."""

    request_id: str
    prompt: tuple[int, ...]
    sampling: SamplingParams
    epoch: int
    """The ledger's epoch at submission."""
    past: tuple[int, ...] = ()
    """Output that another engine gave before it was lost: this one goes on behind it, at index ``len(past)``."""
    is_urgent: bool = False
    """It goes before others that wait, where the engine can do that."""
    tenant: str = ""
    """Whose it is; empty: nobody's in particular."""


class Finish(StrEnum):
    """Why a request's stream ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Token:
    """One token of one request. A request that ends without a token has ``token_id`` None and a finish."""

    request_id: str
    epoch: int
    index: int
    """Output index from 0, contiguous; -1 for an end of which the engine does not know where it comes."""
    token_id: int | None
    logprob: float = 0.0
    """Natural log of the probability under the unscaled distribution (temperature 1, nothing filtered)."""
    alternatives: tuple[tuple[int, float], ...] = ()
    """The most probable (token id, logprob), best first."""
    finish: Finish | None = None
    detail: str = ""
    """For ``Finish.ERROR``: what happened and what to do. On a first token: why its replica was chosen."""
    num_cached: int | None = None
    """Tokens of the prompt that needed no computation when the request first started; None where the engine does not tell."""
    is_lost: bool = False
    """For ``Finish.ERROR``: its engine ended; it may be submitted again with its output (``GenerationRequest.past``)."""
    is_handed_on: bool = False
    """For ``is_lost``: its engine did not fail, but gives the request to others."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The fence in the output stream: after it, these requests speak under the new epoch."""

    epoch: int
    request_ids: tuple[str, ...]


Output = Token | Moved


@dataclass(frozen=True, slots=True)
class Lag:
    """What the target still lacks."""

    tokens: int
    bytes: int
    copied_bytes: int = 0
    """Copied so far."""
    stop_s: float = 0.0
    """For how long requests will stand still in the cut, where that is more than its last patch."""
    held_s: float = 0.0
    """For how long new requests were not admitted so far, so that copying could catch up."""
    transport: str = "file"
    """As in ``CutoverReport``."""
    bytes_between_hosts: int = 0
    """Went over the network so far."""
    link: MeasuredLink | None = None
    """Between the hosts; None on one."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The outcome of a committed cut."""

    epoch: int
    moved: tuple[str, ...]
    left_to_drain: tuple[str, ...]
    bytes_inside: int
    timings: CutTimings
    tokens_recomputed: int = 0
    paths: Mapping[str, int] = field(default_factory=dict)
    """How the moved requests came over: path (``patch``, ``follow``) to their number."""
    stays: Mapping[str, int] = field(default_factory=dict)
    """Why the others did not: reason to their number."""
    bytes_between_hosts: int = 0
    """Went over the network in the whole switch."""
    free_device_bytes: int | None = None
    """Of the target's device with the least, once it had started; None where nobody measured."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot for metrics and leak checks."""

    running: int
    waiting: int
    free_blocks: int
    total_blocks: int
    worker_pids: dict[int, int] = field(default_factory=dict)
    """Device index to process id, standby workers included."""
    standby: tuple[Topology, ...] = ()
    """Topologies to which a switch would load nothing, the oldest first."""
    prefix_cache_queries: int = 0
    """Tokens of requests that started since the engine did, where it tells."""
    prefix_cache_hits: int = 0
    """Those of them whose KV was in the cache."""


class EngineState(StrEnum):
    """Whether an engine can serve now."""

    SERVING = "serving"
    STALLED = "stalled"
    """It makes no progress; it ends soon unless it does."""
    RESTARTING = "restarting"
    FAILED = "failed"
    """It could not be started again, and is tried again later; or it was closed."""


class Shadow(Protocol):
    """The target side of a switch being prepared.

    Every method raises ``SwitchError`` when the shadow is lost.
    """

    async def ready(self) -> None:
        """Return when weights are loaded, groups built and every worker of the target has run a step."""

    async def lag(self) -> Lag:
        """Start or go on copying in the background, and tell what is still missing."""

    async def cut(self, epoch: int, deadline_s: float) -> Cut:
        """Move every request to the target under ``epoch``.

        Either all of it happens or ``SwitchError`` is raised.

        ``deadline_s`` is how long the cut may take before it is given up.
        """

    async def drain(self) -> None:
        """After a cut: return when what was left to drain has ended on the old topology."""

    async def release(self) -> None:
        """After a cut: give back what only the old topology needed. Idempotent."""

    async def abort(self, reason: Reason) -> None:
        """Before a cut: give back what only the target needed. Idempotent."""


class Comeback(Protocol):
    """Decides where an engine that was lost starts again, and hears of it."""

    async def place(self, lost: Topology) -> Topology:
        """The topology of the next try.

        Raises:
            EngineLostError: there is none that may be tried now.
        """

    async def take_out(self, device: int, why: str) -> bool:
        """Start next without a device that is to blame, if something can serve then; whether it does."""

    def came_back(self, lost: Topology, runs: Topology, why: str) -> None:
        """The engine serves again, in another topology than it was lost in."""


class Engine(Protocol):
    """A running engine that serves one model and can change its topology live."""

    comeback: Comeback

    @property
    def capabilities(self) -> Capabilities:
        """What it can run."""

    @property
    def topology(self) -> Topology:
        """What it runs now."""

    @property
    def state(self) -> EngineState:
        """Whether it can serve now. Answers at once."""

    async def submit(self, request: GenerationRequest) -> None:
        """Queue a request.

        Raises:
            RequestError: it can never be served (too long for the model or the KV cache).
            EngineLostError: the engine is down.
        """

    async def cancel(self, request_id: str) -> None:
        """End a request early; unknown ids are ignored (it may just have ended)."""

    def outputs(self) -> AsyncIterator[list[Output]]:
        """Batches in order, for one consumer; ends when the engine is closed."""

    async def prepare(self, target: Topology, batching: Batching | None = None) -> Shadow:
        """Begin to build the target beside what runs.

        It fills steps as far as ``batching`` says, or as what runs does. What runs may be the target, to fill steps otherwise.

        Raises:
            SwitchError: refused before anything is touched (unsupported, no memory, a switch already under way).
        """

    async def succeed_by(self, target: Topology, batching: Batching | None = None) -> Shadow:
        """Begin a switch for which what runs ends first, in the cut.

        Its requests are computed anew on the target.

        Raises:
            SwitchError: as for ``prepare``.
        """

    async def stats(self) -> EngineStats:
        """A snapshot of queues, blocks and processes."""

    async def exposition(self) -> str:
        """The engine's own metrics as Prometheus text, beside those of the service; empty where it has none."""

    async def close(self) -> None:
        """End the engine and every process it started."""
