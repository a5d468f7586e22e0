"""One replica of a set: its engine, what it has to do, and how fast it is found to be."""

import asyncio
import time
from dataclasses import dataclass, field, replace

from runtime.engine import Engine, EngineState, GenerationRequest, Token
from runtime.replicas.choice import UNBOUND, USUAL_SPEED, Bounds, Forecast, Measured, ReplicaSpeed, Work, forecast

MEMORY = 0.1
"""Weight of the last of several measurements of how fast a replica is."""
FASTEST = 1e-3
"""By which measurements may differ from a speed that nobody said, both ways."""


@dataclass(slots=True)
class InFlight:
    """A request that has not ended."""

    request: GenerationRequest
    epoch: int
    """Under which it is spoken for."""
    replica: "Replica | None"
    """Which has it; None: it was given away, and nobody has taken it."""
    prompt_tokens: int
    """That the replica has to compute before its first token."""
    forecast: Forecast
    prompt_s: float
    """That computing prompts was predicted to take before its first token, at the speed of the profile."""
    beside_s: float
    """That the rest was."""
    submitted_s: float
    why: str = ""
    """Why this replica; told with its first token."""
    has_begun: bool = False
    last_s: float = 0.0
    """When its last token came."""
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """What a plan says of a replica."""

    share: float = 1.0
    """Of the requests, by all shares together."""
    barred: frozenset[str] = frozenset()
    """Tenants that it may not serve."""
    only: frozenset[str] | None = None
    """Those that it may, and nobody else; None: everyone who is not barred."""
    speed: ReplicaSpeed = USUAL_SPEED
    """As it is predicted to be."""

    def may_serve(self, tenant: str) -> bool:
        """Whether a tenant's requests may go there."""
        return tenant not in self.barred and (self.only is None or tenant in self.only)


NO_SHARE = Share(0.0)


@dataclass(frozen=True, slots=True)
class Policy:
    """What a plan says of a set: the share of each replica, by its text, and what requests may meet."""

    shares: dict[str, Share] = field(default_factory=dict)
    bounds: Bounds = UNBOUND
    of_tenants: dict[str, Bounds] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Replica:
    """An engine among others."""

    engine: Engine
    name: str = ""
    """The text of its topology."""
    share: Share = NO_SHARE
    speed: ReplicaSpeed = USUAL_SPEED
    measured: Measured = field(default_factory=Measured)
    work: Work = field(default_factory=Work)
    requests: dict[str, InFlight] = field(default_factory=dict)
    is_avoided: bool = False
    """It is about to change: requests go elsewhere where they can."""
    is_empty: asyncio.Event = field(default_factory=asyncio.Event)
    num_taken: int = 0
    """Requests since the policy was set."""
    num_passed: int = 0
    """Requests that others took since its last one."""

    def __post_init__(self) -> None:
        self.is_empty.set()

    def heed(self, share: Share) -> None:
        """Take it for what a plan says; it runs no more at once than its engine is set to."""
        self.name = str(self.engine.topology)
        if share != self.share:
            self.measured = Measured()
        self.share = share
        running = self.engine.capabilities.running
        slots = min(share.speed.slots, running.max_sequences) if running else share.speed.slots
        self.speed = replace(share.speed, slots=slots)

    @property
    def serves(self) -> bool:
        """Whether it can take a request now."""
        return self.engine.state in {EngineState.SERVING, EngineState.STALLED}

    def forecast(self, prompt_tokens: int, output_tokens: float) -> Forecast:
        """What a request would meet here."""
        return forecast(self.speed, self.measured, self.work, prompt_tokens, output_tokens)

    def in_flight(self, request: GenerationRequest, found: Forecast, uncomputed: int) -> InFlight:
        """A request as it is here, with so many tokens to compute before its first one."""
        prompt_s = self.speed.token_s * max(1, self.work.prompt_tokens + uncomputed)
        beside_s = found.ttft_s - prompt_s * self.measured.prefilling
        return InFlight(request, request.epoch, self, uncomputed, found, prompt_s, beside_s, time.monotonic())

    def take(self, request: InFlight) -> None:
        """It has one more."""
        self.requests[request.request.request_id] = request
        self.is_empty.clear()
        self.num_taken += 1
        self.work.waiting += 1
        self.work.prompt_tokens += request.prompt_tokens

    def leave(self, request: InFlight) -> None:
        """It has one less."""
        if self.requests.pop(request.request.request_id, None) is None:
            return
        if not self.requests:
            self.is_empty.set()
        if request.has_begun:
            self.work.running -= 1
        else:
            self.work.waiting -= 1
            self.work.prompt_tokens -= request.prompt_tokens

    def hear(self, request: InFlight, token: Token, *, is_sample: bool) -> None:
        """A token came; ``is_sample``: the time since the one before is measured."""
        if token.token_id is None:
            return
        now_s = time.monotonic()
        request.tokens += 1
        if not request.has_begun:
            self._begin(request, now_s - request.submitted_s)
        elif is_sample:
            self._measure_step(now_s - request.last_s)
        request.last_s = now_s

    def _begin(self, request: InFlight, took_s: float) -> None:
        request.has_begun = True
        self.work.running += 1
        self.work.waiting -= 1
        self.work.prompt_tokens -= request.prompt_tokens
        found = max(took_s - request.beside_s, FASTEST * took_s) / request.prompt_s
        self.measured.prefilling = _mixed(self.measured.prefilling, found)

    def _measure_step(self, took_s: float) -> None:
        found = took_s / self.speed.step_of(self.work.running)
        if not self.work.waiting or found < self.measured.decoding:  # else prompts computed beside it are in it
            self.measured.decoding = _mixed(self.measured.decoding, found)


def _mixed(before: float, found: float) -> float:
    return min(1 / FASTEST, max(FASTEST, before + MEMORY * (found - before)))
