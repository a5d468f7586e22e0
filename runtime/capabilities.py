"""What an engine can run, and what a deployment allows to run. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runtime.errors import Reason, SwitchError
from runtime.forms import DESCRIBED
from runtime.models import Precision, Topology


@dataclass(frozen=True, slots=True)
class Batching:
    """How far an engine fills its steps.

    The defaults are what serving engines default to, or more than memory allows.
    """

    __get_pydantic_json_schema__ = DESCRIBED

    max_sequences: int = 2048
    """Sequences that run at once."""
    max_step_tokens: int = 2048
    """Tokens of one step, decodes included; prompts are computed in chunks of what is left."""
    each: tuple["Batching", ...] = ()
    """Of replicas that differ, in their order: what stands beside it is then the most of all. Empty: all are alike."""

    def __str__(self) -> str:
        if self.each:
            return " | ".join(map(str, self.each))
        return f"{self.max_sequences} sequences at once, {self.max_step_tokens} tokens a step"

    @classmethod
    def of_replicas(cls, replicas: Sequence["Batching"]) -> "Batching":
        """Of these replicas, in their order."""
        if len(set(replicas)) == 1:
            return replicas[0]
        sequences = max(replica.max_sequences for replica in replicas)
        tokens = max(replica.max_step_tokens for replica in replicas)
        return cls(sequences, tokens, tuple(replicas))

    def of(self, replica: int) -> "Batching":
        """That of one replica."""
        return self.each[replica] if self.each else self

    def within(self, most: "Batching") -> "Batching":
        """As far as this and ``most`` allow."""
        sequences = min(self.max_sequences, most.max_sequences)
        tokens = min(self.max_step_tokens, most.max_step_tokens)
        return Batching(sequences, tokens, tuple(replica.within(most) for replica in self.each))


USUAL_BATCHING = Batching()


Band = tuple[float, float]
"""The least and the most, in seconds."""
BUILT_IN_START: Band = (0.5, 6.0)
"""Workers, groups and a probe step of the built-in engine: 0.4 to 2.5 s on a CPU and 2.4 to 8 s on an H100, copies of KV included
(``benchmarks/results``: cutover-torch.json, gpu-H100.json)."""
IMPORTS: Band = (3.0, 12.0)
"""What a driver of the built-in engine takes longer without a spare one."""
VLLM_START: Mapping[str, Band] = {
    "processes": (10.0, 30.0),
    "processes from a spare": (3.0, 8.0),
    "groups and profile run": (5.0, 15.0),
    "torch.compile": (8.0, 60.0),
    "CUDA graphs": (15.0, 35.0),
    "on a CPU": (27.0, 33.0),
    "on a CPU from a spare": (6.0, 10.0),
}
"""Part of a start of vLLM to how long it takes. Public: vllm-project/vllm #19824 (a 70B at TP 8: Dynamo 15 s, compile 70 s,
graphs 60 s), #11005 (an 8B: compile 19 s, graphs 10 to 15 s), #20264 (compiled before: 7.5 s, graphs 17 s, the first answer
after 59 s). On a CPU as measured here (``benchmarks/results/prepare-vllm-cpu.json``)."""


def together(*parts: Band) -> Band:
    """Of what comes one after the other."""
    return sum(least for least, _ in parts), sum(most for _, most in parts)


def vllm_start(*, is_cpu: bool = False, has_spare: bool = False, is_eager: bool = False) -> Band:
    """A start of vLLM, without the loading of weights."""
    from_spare = " from a spare" if has_spare else ""
    if is_cpu:
        return VLLM_START[f"on a CPU{from_spare}"]
    compiled = () if is_eager else ("torch.compile", "CUDA graphs")
    return together(*(VLLM_START[part] for part in (f"processes{from_spare}", "groups and profile run", *compiled)))


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can run; the selector narrows its space by it and apply refuses by it."""

    tp_degrees: tuple[int, ...]
    max_pp: int
    precisions: tuple[str, ...]
    tp_per_stage: bool
    """Stages may differ in their TP degree."""
    replicated_kv_heads: bool
    """TP may exceed the number of KV heads."""
    base: str | None = None
    """Format of activations and KV, whatever that of weights; None: as ``Precision.named`` has it."""
    batching: Batching = USUAL_BATCHING
    wants_seed: bool = False
    """Every sampled request needs a seed: one is drawn where the client sent none."""
    logprobs_ignore_grammar: bool = False
    """Logprobs are the model's; else those of what a grammar leaves."""
    streams: bool = False
    """Where only one copy of the weights fits, it moves layer by layer while requests stand still (``sync.stream``)."""
    carries: bool = False
    """KV of running requests moves from host to host; else the target computes it anew."""
    out: frozenset[int] = frozenset()
    """Devices that are out: what runs may still use them, a target may not."""
    kv_bytes: int | None = None
    """KV cache that the engine keeps on each device, at most; None: what memory leaves."""
    kv_tokens: int | None = None
    """Tokens whose KV the engine keeps at once, at most; None: what memory leaves."""
    running: Batching | None = None
    """How what runs fills its steps; None: nothing runs."""

    name: str = ""
    """Of the engine."""
    lacks: str = ""
    """Why it serves no other formats, in words."""

    start_s: Band = BUILT_IN_START
    """To bring up what a switch goes to, beside the loading of weights: as it was measured, or a public figure."""
    shares_weights: bool = True
    """What a switch goes to takes the weights that its devices and hosts hold already; else two engines stand side by side."""
    own_bytes: int = 0
    """Of a device, that such an engine takes beside weights and KV."""
    standby: frozenset[Topology] = frozenset()
    """Where engines wait, warm, so that a switch there starts and loads nothing."""

    def precision(self, name: str, kind: str) -> Precision:
        """That of weights in a format on a GPU kind."""
        return Precision.named(self.base, kind).beside(name, kind) if self.base else Precision.named(name, kind)

    def serves_not(self, precision: str) -> str:
        """Why it serves no weight format, or nothing where it does."""
        if precision in self.precisions:
            return ""
        served = ", ".join(self.precisions) or "nothing"
        return f"the engine {self.name} serves no {precision} here, but {served}" + (self.lacks and f": {self.lacks}")

    def accept(self, wanted: Batching | None) -> Batching:
        """How far a target fills its steps: as wanted, or as what runs does.

        Every running sequence has to fit a step.

        Raises:
            SwitchError: further than the engine is set to, or with too few tokens; with what it may be.
        """
        wanted = wanted or self.running or self.batching
        if wanted.within(self.batching) != wanted or not 1 <= wanted.max_sequences <= wanted.max_step_tokens:
            raise SwitchError(
                Reason.UNSUPPORTED,
                f"{wanted}: the engine is set to at most {self.batching}, and every running sequence has to fit a step",
            )
        return wanted


@dataclass(frozen=True, slots=True)
class Limits:
    """What the deployment allows to run; None is no limit."""

    max_gpus: int | None = None
    allowed_tp: tuple[int, ...] | None = None
    allowed_pp: tuple[int, ...] | None = None
    allowed_precisions: tuple[str, ...] | None = None
    quality_loss: Mapping[str, float] = field(default_factory=dict)
    """Weight format to the share of quality that a model wholly in it loses; full formats lose nothing."""
    max_sequences: int | None = None
    max_step_tokens: int | None = None
    """As in ``Batching``."""
    max_output_tokens: int | None = None
    """Of one answer; requests for more are refused."""
    max_utilisation: float = 0.85
    """Of a plan's target: the load's rate by the rate that it sustains, unless a goal says otherwise."""
    headroom: float = 1.0
    """Share of a prediction's error band that a bound has to leave free; 0: the prediction itself may reach it."""
    usual_tpot_s: float | None = 0.2
    """Bound on the mean TPOT beside goals that bound TTFT alone; about reading speed."""
