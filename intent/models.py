"""The nouns of an intent: goals, windows, findings and the document that holds them (apiVersion intentctl/v1).

A leaf module: frozen dataclasses, no I/O. ``None`` in a goal means "not said".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal

API_VERSION = "intentctl/v1"

Metric = Literal[
    "ttft", "tpot", "e2e", "reconfig_pause", "throughput_tok", "throughput_req", "gpu_util", "availability",
    "error_rate", "quality_loss", "gpu_count", "cost",
]  # fmt: skip
Stat = Literal["p50", "p90", "p95", "p99", "p99.9", "mean"]
Op = Literal["<=", ">=", "==", "minimize", "maximize"]

UNITS: Mapping[str, tuple[str, ...]] = {
    "ttft": ("s",),
    "tpot": ("s",),
    "e2e": ("s",),
    "reconfig_pause": ("s",),
    "throughput_tok": ("tokens/s",),
    "throughput_req": ("requests/s",),
    "gpu_util": ("ratio",),
    "availability": ("ratio",),
    "error_rate": ("ratio",),
    "quality_loss": ("ratio",),
    "gpu_count": ("gpus",),
    "cost": ("USD/h", "USD/day", "USD/month", "USD/Mtok"),
}
"""Metric to the units its normalised value may have."""

METRIC_LABELS: Mapping[str, str] = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "e2e": "E2E",
    "reconfig_pause": "reconfiguration pause",
    "throughput_tok": "token throughput",
    "throughput_req": "request throughput",
    "gpu_util": "GPU utilisation",
    "availability": "availability",
    "error_rate": "error rate",
    "quality_loss": "quality loss",
    "gpu_count": "GPU count",
    "cost": "cost",
}
"""Metric to what people are shown."""

HOURS_OF_COST = {"USD/h": 1.0, "USD/day": 24.0, "USD/month": 730.0}
"""Unit of cost to the hours it is for; a price per token has none."""

HIGHER_IS_BETTER = frozenset({"throughput_tok", "throughput_req", "availability"})
LOWER_IS_BETTER = frozenset(
    {"ttft", "tpot", "e2e", "reconfig_pause", "error_rate", "quality_loss", "cost", "gpu_count"}
)
"""Neither set holds GPU utilisation: operators want it high to save and low to have room."""

LATENCIES: frozenset[Metric] = frozenset({"ttft", "tpot", "e2e"})
"""Metrics measured per request, which therefore need a statistic."""

DEFAULT_STAT: Stat = "p95"
"""What a latency bound means when no statistic is said."""

NAMED_WINDOWS = ("always", "peak", "off_peak", "overnight", "business_hours")


@dataclass(frozen=True, slots=True)
class RecurringWindow:
    """Hours on days of the week; ``end`` at or before ``start`` runs into the next day."""

    days: tuple[str, ...]
    start: str
    end: str
    tz: str


@dataclass(frozen=True, slots=True)
class DatedWindow:
    """Hours on one date."""

    date: str
    start: str
    end: str
    tz: str


@dataclass(frozen=True, slots=True)
class FromNowWindow:
    """The next ``duration_s`` seconds."""

    duration_s: float


Window = str | RecurringWindow | DatedWindow | FromNowWindow
"""A name of ``NAMED_WINDOWS`` (or of the deployment file), or a definition said in the text."""


@dataclass(frozen=True, slots=True)
class Objective:
    """A bound on a metric, or its optimisation."""

    metric: Metric
    op: Op
    evidence: str
    stat: Stat | None = None
    value: float | None = None
    """Normalised to ``unit``: seconds, ratios between 0 and 1, tokens/s."""
    unit: str | None = None
    window: Window = "always"
    tenant: str | None = None
    model: str | None = None
    soft: bool = False
    type: Literal["objective"] = "objective"


@dataclass(frozen=True, slots=True)
class Relative:
    """A bound relative to what is measured now: target = factor x current, or current + delta."""

    metric: Metric
    op: Op
    evidence: str
    stat: Stat | None = None
    factor: float | None = None
    delta: float | None = None
    unit: str | None = None
    window: Window = "always"
    tenant: str | None = None
    model: str | None = None
    type: Literal["relative"] = "relative"


@dataclass(frozen=True, slots=True)
class TenantException:
    """This tenant need not meet a bound, up to ``limit`` or ``factor`` times it (both None: no bound at all)."""

    tenant: str
    metric: Metric
    evidence: str
    limit: float | None = None
    unit: str | None = None
    factor: float | None = None
    window: Window = "always"
    type: Literal["exception"] = "exception"


@dataclass(frozen=True, slots=True)
class PrecisionRule:
    """Which numeric formats may serve."""

    rule: Literal["require", "forbid", "allow", "min"]
    value: Literal["int4", "int8", "fp8", "fp16", "bf16", "full"]
    evidence: str
    window: Window = "always"
    tenant: str | None = None
    model: str | None = None
    type: Literal["precision"] = "precision"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a workload may run."""

    rule: Literal["require", "prefer", "forbid", "freeze"]
    selector: str
    """``gpu_type:A100``, ``gpu:gpu-3`` or ``node:a``."""
    evidence: str
    workload: str | None = None
    window: Window = "always"
    type: Literal["placement"] = "placement"


@dataclass(frozen=True, slots=True)
class Priority:
    """Of two sides, which one wins; ``lower`` None means everything else."""

    higher: str
    evidence: str
    lower: str | None = None
    window: Window = "always"
    type: Literal["priority"] = "priority"


@dataclass(frozen=True, slots=True)
class Config:
    """A wish for the topology itself."""

    key: Literal["tp", "pp", "replicas"]
    op: Op
    value: int
    evidence: str
    window: Window = "always"
    model: str | None = None
    type: Literal["config"] = "config"


@dataclass(frozen=True, slots=True)
class ReconfigRule:
    """A limit on how often the service may reshape itself."""

    rule: Literal["forbid", "limit"]
    evidence: str
    value: float | None = None
    unit: Literal["1/h", "1/day"] | None = None
    window: Window = "always"
    type: Literal["reconfig"] = "reconfig"


Goal = Objective | Relative | TenantException | PrecisionRule | Placement | Priority | Config | ReconfigRule


class Outcome(StrEnum):
    """What became of the words."""

    OK = "ok"
    CLARIFY = "clarify"
    CONFLICT = "conflict"
    INFEASIBLE = "infeasible"
    OUT_OF_SCOPE = "out_of_scope"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing the validator has to say; ``pointer`` is a JSON Pointer into the document."""

    code: str
    pointer: str
    message: str
    evidence: str | None = None
    suggestion: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """The one question of a ``clarify`` outcome."""

    text: str
    options: tuple[str, ...]
    """What a person would say."""
    default: str
    texts: tuple[str, ...] = ()
    """The whole text that each option makes; the options themselves where there are none."""

    def stands_for(self, option: int) -> str:
        """The whole text of an option, by its place."""
        return self.texts[option] if self.texts else self.options[option]


@dataclass(frozen=True, slots=True)
class Assumption:
    """A default that was filled in, shown in the read-back as assumed."""

    pointer: str
    text: str


@dataclass(frozen=True, slots=True)
class SetAside:
    """Words that change no wish, with their half-open place in the text."""

    words: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TranslatorInfo:
    """Which translator answered, and why if it was not the configured one."""

    name: Literal["rules", "llm"]
    model: str | None = None
    prompt_version: str | None = None
    prompt_hash: str | None = None
    """Of all that the model is told beside the text."""
    schema_version: str = API_VERSION
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """An OpenAI-compatible endpoint that may translate words."""

    base_url: str
    model: str
    api_key: str = field(repr=False)
    timeout_s: float = 20.0
    """Deadline for the whole translation, retries included."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the words expect of the load: no goal, but what a plan may count with."""

    words: str
    factor: float | None
    """What the present load is multiplied by; None if they do not say it."""
    window: Window
    start: int
    end: int
    """Half-open, in the text."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What an operator wants, with everything that was found out about it."""

    text: str
    language: Literal["en", "zh"]
    goals: tuple[Goal, ...]
    translator: TranslatorInfo
    outcome: Outcome = Outcome.OK
    windows: Mapping[str, Window] = field(default_factory=dict)
    assumptions: tuple[Assumption, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    questions: tuple[Question, ...] = ()
    findings: tuple[Finding, ...] = ()
    readback: str = ""

    @property
    def understood(self) -> Outcome:
        """What the words alone come to, before any goal is checked."""
        if self.questions:
            return Outcome.CLARIFY
        return Outcome.OK if self.goals else Outcome.OUT_OF_SCOPE


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The names a text may use, handed down from the deployment file."""

    models: tuple[str, ...]
    windows: tuple[str, ...]
    now: datetime
    tz: str
    tenants: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Any other way to say a tenant's or a model's name."""
    devices: Mapping[str, int] = field(default_factory=dict)
    """GPU kind to how many there are."""
    nodes: tuple[str, ...] = ()

    @property
    def gpu_kinds(self) -> tuple[str, ...]:
        """The kinds of GPU that there are."""
        return tuple(self.devices)
