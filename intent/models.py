"""The nouns of an intent.

Goals, windows, findings and the document that holds them (apiVersion intentctl/v1).

A leaf module: frozen dataclasses, no I/O. ``None`` in a goal means "not said". The types are the form of the document too:
``intent.document`` reads by them, and ``validator/schema/intent.v1.json`` is made of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from intent.forms import NULL, NUMBER, TEXT, Keywords, ToldBy, form, when

API_VERSION = "intentctl/v1"
MAX_CHARACTERS = 2_000
"""Longest text that is read; an intent is a sentence or two."""

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

THROUGHPUTS: frozenset[Metric] = frozenset({"throughput_tok", "throughput_req"})
"""Rates of the service; bounded from above for a tenant they are what it may send."""

PERCENTILES: Mapping[Stat, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
"""Percentile to the share of requests it is about."""

LOSSES = frozenset({"lost_devices", "lost_nodes"})
"""How many of these may be lost while the model still serves; a wish for them is always ``>=``."""

PER_NODE = "replicas_per_node"
"""How many replicas each node has."""
PHRASED = LOSSES | {PER_NODE}
"""Settings that are said by whole phrases, which code finds in any text; one, where no number is said."""

SETTINGS = PHRASED | {"tp", "pp", "replicas"}
"""What a wish for the topology itself may be about."""

DEFAULT_STAT: Stat = "p95"
"""What a latency bound means when no statistic is said."""

NonEmpty = Annotated[str, Keywords(minLength=1)]
Pointer = Annotated[str, Keywords(pattern="^(/[^/]*)*$")]
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
Day = Annotated[str, Keywords(enum=list(DAYS))]
Date = Annotated[str, Keywords(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
ClockTime = Annotated[str, Keywords(pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$|^24:00$")]
Positive = Annotated[float, Keywords(exclusiveMinimum=0)]
Offset = Annotated[int, Keywords(minimum=0)]
Period = Annotated[int, Keywords(minimum=60, maximum=366 * 86_400, multipleOf=60)]
"""Seconds, whole minutes."""
BoundOp = Annotated[Op, Keywords(enum=["<=", ">=", "=="])]
Side = Annotated[str, Keywords(pattern="^(latency|throughput|cost|quality|tenant:.+)$")]

_MEASURED = [
    when(
        {"metric": {"enum": [metric for metric in UNITS if UNITS[metric] == units]}},
        {"unit": {"enum": [*units, None]}},
    )
    for units in dict.fromkeys(UNITS.values())
]
"""A value has the unit of its metric."""

NAMED_WINDOWS = ("always", "peak", "off_peak", "overnight", "business_hours")


@dataclass(frozen=True, slots=True)
class RecurringWindow:
    """Hours on days of the week; ``end`` at or before ``start`` runs into the next day."""

    days: Annotated[tuple[Day, ...], Keywords(minItems=1, uniqueItems=True)]
    start: ClockTime
    end: ClockTime
    tz: NonEmpty


@dataclass(frozen=True, slots=True)
class DatedWindow:
    """Hours on one date."""

    date: Date
    start: ClockTime
    end: ClockTime
    tz: NonEmpty


@dataclass(frozen=True, slots=True)
class DatesWindow(DatedWindow):
    """From ``start`` on one date to ``end`` on a later one, without a break."""

    last: Date


@dataclass(frozen=True, slots=True)
class FromNowWindow:
    """The next ``duration_s`` seconds."""

    since: Literal["now"] = field(default="now", kw_only=True, metadata={"alias": "from"})
    duration_s: Positive


def _window_kind(data: object) -> type:
    if not isinstance(data, dict):
        return str
    dated = DatesWindow if "last" in data else DatedWindow if "date" in data else RecurringWindow
    return FromNowWindow if "from" in data else dated


Window = Annotated[NonEmpty | RecurringWindow | DatedWindow | DatesWindow | FromNowWindow, ToldBy(_window_kind)]
"""A name of ``NAMED_WINDOWS`` (or of the deployment file), or a definition said in the text."""


@dataclass(frozen=True, slots=True)
class Objective:
    """A bound on a metric, or its optimisation."""

    metric: Metric
    op: Op
    evidence: NonEmpty
    stat: Stat | None = None
    value: float | None = None
    """Normalised to ``unit``: seconds, ratios between 0 and 1, tokens/s."""
    unit: str | None = None
    window: Window = "always"
    tenant: NonEmpty | None = None
    model: NonEmpty | None = None
    soft: bool = False
    over_s: Period | None = None
    """Seconds over which it is measured: ``over 28 days``."""
    type: Literal["objective"] = "objective"

    __pydantic_config__ = form(
        *_MEASURED,
        when(
            {"op": {"enum": ["minimize", "maximize"]}},
            {"value": NULL, "unit": NULL, "over_s": NULL},
            {"value": NUMBER, "unit": TEXT},
        ),
    )


@dataclass(frozen=True, slots=True)
class Relative:
    """A bound relative to what is measured now: target = factor x current, or current + delta."""

    metric: Metric
    op: BoundOp
    evidence: NonEmpty
    stat: Stat | None = None
    factor: float | None = None
    delta: float | None = None
    unit: str | None = None
    window: Window = "always"
    tenant: NonEmpty | None = None
    model: NonEmpty | None = None
    type: Literal["relative"] = "relative"

    __pydantic_config__ = form(
        *_MEASURED, when({"factor": NUMBER}, {"delta": NULL, "unit": NULL}, {"delta": NUMBER, "unit": TEXT})
    )


@dataclass(frozen=True, slots=True)
class TenantException:
    """A tenant that need not meet a bound.

    Up to ``limit`` or ``factor`` times it (both None: no bound at all).
    """

    tenant: NonEmpty
    metric: Metric
    evidence: NonEmpty
    limit: float | None = None
    unit: str | None = None
    factor: float | None = None
    window: Window = "always"
    type: Literal["exception"] = "exception"

    __pydantic_config__ = form(*_MEASURED, when({"limit": NUMBER}, {"factor": NULL, "unit": TEXT}, {"unit": NULL}))


FULL = ("fp32", "bf16", "fp16")
"""What ``full`` precision means: nothing is quantised."""


@dataclass(frozen=True, slots=True)
class PrecisionRule:
    """Which numeric formats may serve."""

    rule: Literal["require", "forbid", "allow", "min"]
    value: Literal["int4", "int8", "fp8", "fp16", "bf16", "full"]
    evidence: NonEmpty
    window: Window = "always"
    tenant: NonEmpty | None = None
    model: NonEmpty | None = None
    layers: (
        Annotated[str, Keywords(pattern=r"^([0-9]{1,3}-[0-9]{1,3}|(first|last) [1-9][0-9]{0,2}|middle)$")] | None
    ) = None
    """``8-16`` (both ends included, 0 is the first), ``first 4``, ``last 4`` or ``middle``; None: all of them."""
    type: Literal["precision"] = "precision"

    @property
    def formats(self) -> frozenset[str]:
        """Those that it names."""
        return frozenset(FULL if self.value == "full" else {self.value})

    def leaves(self, sizes: Mapping[str, float]) -> frozenset[str]:
        """Of formats, by the bytes of a value, those that it leaves; ``allow`` takes none away."""
        least = min(sizes[name] for name in self.formats)
        kept = {"require": self.formats, "min": {name for name in sizes if sizes[name] >= least}}.get(
            self.rule, sizes.keys()
        )
        return frozenset(kept - self.formats if self.rule == "forbid" else kept)

    def held(self, num_layers: int) -> range:
        """The layers of a model with so many that it is about; ``middle`` is the middle half."""
        start, _, end = (self.layers or f"first {num_layers}").replace(" ", "-").partition("-")
        count = int(end or num_layers // 4)
        parts = {
            "first": range(count),
            "last": range(num_layers - count, num_layers),
            "middle": range(count, num_layers - count),
        }
        return parts[start] if start in parts else range(int(start), count + 1)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a workload may run."""

    rule: Literal["require", "prefer", "forbid", "freeze"]
    selector: Annotated[str, Keywords(pattern="^(gpu_type|gpu|node):.+$")]
    """``gpu_type:A100``, ``gpu:gpu-3`` or ``node:a``."""
    evidence: NonEmpty
    workload: NonEmpty | None = None
    window: Window = "always"
    type: Literal["placement"] = "placement"


@dataclass(frozen=True, slots=True)
class Priority:
    """Of two sides, which one wins; ``lower`` None means everything else."""

    higher: Side
    evidence: NonEmpty
    lower: Side | None = None
    window: Window = "always"
    type: Literal["priority"] = "priority"


@dataclass(frozen=True, slots=True)
class Config:
    """A wish for the topology itself."""

    key: Literal["tp", "pp", "replicas", "replicas_per_node", "lost_devices", "lost_nodes"]
    op: BoundOp
    value: int
    evidence: NonEmpty
    window: Window = "always"
    model: NonEmpty | None = None
    type: Literal["config"] = "config"

    __pydantic_config__ = form(when({"key": {"enum": sorted(LOSSES)}}, {"op": {"const": ">="}}))


@dataclass(frozen=True, slots=True)
class ReconfigRule:
    """A limit on how often the service may reshape itself."""

    rule: Literal["forbid", "limit"]
    evidence: NonEmpty
    value: float | None = None
    unit: Literal["1/h", "1/day"] | None = None
    window: Window = "always"
    type: Literal["reconfig"] = "reconfig"

    __pydantic_config__ = form(
        when({"rule": {"const": "limit"}}, {"value": NUMBER, "unit": TEXT}, {"value": NULL, "unit": NULL})
    )


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

    code: Annotated[str, Keywords(pattern="^[a-z][a-z0-9_]*$")]
    pointer: Pointer
    message: str
    evidence: str | None = None
    suggestion: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """The one question of a ``clarify`` outcome."""

    text: str
    options: Annotated[tuple[str, ...], Keywords(minItems=2, maxItems=4)]
    """What a person would say."""
    default: str
    texts: Annotated[tuple[str, ...], Keywords(maxItems=4)] = ()
    """The whole text that each option makes; the options themselves where there are none."""

    def stands_for(self, option: int) -> str:
        """The whole text of an option, by its place."""
        return self.texts[option] if self.texts else self.options[option]


@dataclass(frozen=True, slots=True)
class Assumption:
    """A default that was filled in, shown in the read-back as assumed."""

    pointer: Pointer
    text: str


@dataclass(frozen=True, slots=True)
class SetAside:
    """Words that change no wish, with their half-open place in the text and why they are harmless."""

    words: str
    start: Offset
    end: Offset
    why: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """A word that turns a meaning, with its half-open place in the text and what became of it."""

    words: str
    start: Offset
    end: Offset
    turns: str
    """Its class in ``turning.yaml``."""
    became: str
    """A JSON Pointer to the goal that used it; else why none did.

    ``set_aside``, ``told``, ``idiom``, ``joins``, ``repeats``, ``order`` or ``question``.
    """
    sign: str = ""
    """What the word that the goal used means: ``<=``, ``drain``."""


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
    factor: Positive | None
    """What the present load is multiplied by; None if they do not say it."""
    window: Window
    start: Offset
    end: Offset
    """Half-open, in the text."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What an operator wants, with everything that was found out about it."""

    text: Annotated[str, Keywords(maxLength=MAX_CHARACTERS)]
    language: Literal["en", "zh"]
    goals: tuple[Annotated[Goal, ToldBy("type")], ...]
    translator: TranslatorInfo
    outcome: Outcome = Outcome.OK
    windows: Mapping[str, Window] = field(default_factory=dict)
    assumptions: tuple[Assumption, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    questions: Annotated[tuple[Question, ...], Keywords(maxItems=1)] = ()
    findings: tuple[Finding, ...] = ()
    readback: str = ""
    ledger: tuple[Turn, ...] = ()

    __pydantic_config__ = form()

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
