"""Devices that are alike, and what stages cost and hold at every operating point. Pure."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from runtime.capabilities import USUAL_BATCHING, Batching
from runtime.footprint import HEADROOM, kv_bytes_per_token, value_bytes
from runtime.models import BYTES_PER_VALUE, Cluster, Gpu, LayerRange, ModelSpec, Precision, Stage, Topology, rank_part
from selector.models import Profile, SearchInput, Workload
from selector.performance.load import IDLE_RPS, SERVING_SHARE
from selector.performance.perf import ALLREDUCES_PER_LAYER, LayerCost, StageCost, Step, stage_costs


@dataclass(frozen=True, slots=True)
class Pool:
    """Devices of one kind, of which a stage may take any number up to the size of a node."""

    kind: str
    nodes: tuple[tuple[int, ...], ...]
    """Device indices by node."""
    memory_bytes: int
    """Of the smallest device."""
    usd_per_hour: float
    """Of one device, the mean."""

    @property
    def size(self) -> int:
        """Devices in all."""
        return sum(map(len, self.nodes))

    @property
    def node_size(self) -> int:
        """Devices of the largest node."""
        return max(map(len, self.nodes))


def pools_of(cluster: Cluster, kinds: Collection[str]) -> tuple[Pool, ...]:
    """The devices of these kinds, by kind; nodes together where counts alone say what fits into them."""
    found: list[Pool] = []
    for kind in kinds:
        groups: list[list[list[Gpu]]] = []
        for node in cluster.nodes:
            if gpus := [gpu for gpu in node.gpus if gpu.kind == kind]:
                home = next((group for group in groups if _together([*group, gpus])), None)
                if home is None:
                    groups.append([gpus])
                else:
                    home.append(gpus)
        found += [_pool(kind, group) for group in groups]
    return tuple(found)


def _together(nodes: Sequence[Sequence[Gpu]]) -> bool:
    """Whether stages of powers of two fit into nodes whenever there are devices enough, the largest first.

    They do where no size of stage leaves more over in the nodes one by one than in their sum. Nodes of several sizes have to
    have the same devices, too.
    """
    sizes = [len(gpus) for gpus in nodes]
    devices = {(gpu.memory_bytes, gpu.usd_per_hour) for gpus in nodes for gpu in gpus}
    if len(set(sizes)) > 1 and len(devices) > 1:
        return False
    parts = (2**power for power in range(max(sizes).bit_length()))
    return all(sum(size // part for size in sizes) == sum(sizes) // part for part in parts)


def _pool(kind: str, nodes: Sequence[Sequence[Gpu]]) -> Pool:
    gpus = [gpu for node in nodes for gpu in node]
    return Pool(
        kind,
        tuple(tuple(gpu.index for gpu in node) for node in nodes),
        min(gpu.memory_bytes for gpu in gpus),
        sum(gpu.usd_per_hour for gpu in gpus) / len(gpus),
    )


def dealt(pools: Sequence[Pool], wanted: Sequence[tuple[int, int]], first: Collection[int]) -> list[tuple[int, ...]]:
    """Devices for stages that want (pool, how many), in their order.

    Those in ``first`` go out before others.

    The largest stages choose first. Empty if they do not fit, which cannot be for powers of two in nodes of a power of two.
    """
    free = [[sorted(node, key=lambda device: device not in first) for node in pool.nodes] for pool in pools]
    given: dict[int, tuple[int, ...]] = {}
    for place, (pool, count) in sorted(enumerate(wanted), key=lambda item: -item[1][1]):
        nodes = [node for node in free[pool] if len(node) >= count]
        if not nodes:
            return []
        node = max(nodes, key=lambda node: (sum(device in first for device in node[:count]), -len(node)))
        given[place], node[:count] = tuple(node[:count]), []
    return [given[place] for place in range(len(wanted))]


Values = np.ndarray[Any, np.dtype[np.float64]]

BLOCK_TOKENS = 16
"""Tokens in one KV block, for the arithmetic of memory; another size shifts it by a block a request."""
BATCHES = (
    1 / 64,
    1 / 8,
    1 / 2,
    1,
    2,
    3,
    4,
    6,
    8,
    12,
    16,
    24,
    32,
    48,
    64,
    96,
    128,
    192,
    256,
    384,
    512,
    768,
    1024,
    1536,
    2048,
)
"""Sequences that run at once, less than one where a server is idle between requests. A micro-batch takes half a step at most, for
prompts to get on."""
_PARTS = 8
"""Places in a long prompt at which its chunks are costed."""
_CLOSE = 1e-10


@dataclass(frozen=True, slots=True)
class StageKind:
    """One way to build a stage: devices of which pool, how many, and the weight format."""

    pool: int
    kind: str
    tp: int
    precision: str
    base: str | None = None
    """Format of activations and KV where the engine keeps it, whatever that of weights (``Capabilities.base``)."""

    @property
    def formats(self) -> Precision:
        """Of weights, activations and KV."""
        usual = Precision.named(self.base or self.precision, self.kind)
        return usual.beside(self.precision, self.kind)


@dataclass(frozen=True, slots=True)
class OperatingLoad:
    """A workload as operating points see it: every request of its mean length."""

    rate_rps: float
    input_tokens: int
    output_tokens: int
    held: int
    """Requests in flight whose KV has to fit."""
    computed_tokens: int
    """Of a prompt, those whose KV is not in the prefix cache."""

    @classmethod
    def of(cls, workload: Workload) -> "OperatingLoad":
        """The load of a workload."""
        outputs = max(1, workload.output_tokens)
        held = max(1, workload.concurrency)
        inputs = workload.input_tokens
        computed = max(1, math.floor(inputs * (1 - workload.prefix_hit)))
        return cls(max(workload.rate_rps, IDLE_RPS), inputs, outputs, held, computed)

    @property
    def decoded(self) -> int:
        """Tokens of an answer that decode steps make; an answer of one token is taken to need one."""
        return max(1, self.output_tokens - 1)

    @property
    def context_tokens(self) -> float:
        """KV tokens of a sequence that decodes, on the mean."""
        return self.input_tokens + self.output_tokens / 2

    @property
    def blocks(self) -> int:
        """KV blocks of a request at its full length."""
        return math.ceil((self.input_tokens + self.output_tokens) / BLOCK_TOKENS)


PIPELINE_TOKENS = 1024
"""Of a step of several stages: with more the micro-batches beside a prompt wait longer for it, and plans tune that."""


def step_tokens(stages: int, batching: Batching) -> int:
    """As bounds take a step to be filled: as far as may be, and less where stages wait for each other."""
    return batching.max_step_tokens if stages == 1 else min(batching.max_step_tokens, PIPELINE_TOKENS)


@dataclass(frozen=True, slots=True)
class Points:
    """Operating points, one for each place of the arrays: stages ``P`` and batch ``B``."""

    stages: Values
    batch: Values
    step_tokens: Values
    """Of one step at most, decodes included."""

    @classmethod
    def all(cls, stages: Sequence[int], batches: Sequence[float], batching: Batching) -> "Points":
        """Every batch that is allowed with each number of stages, in that order."""
        allowed = sorted({min(batch, batching.max_sequences) for batch in batches})
        pairs = [
            (number, batch, step_tokens(number, batching))
            for number in stages
            for batch in allowed
            if batch <= number * step_tokens(number, batching) / 2
        ]
        places = np.array(pairs, dtype=float).reshape(-1, 3)
        return cls(places[:, 0], places[:, 1], places[:, 2])

    def __len__(self) -> int:
        return len(self.stages)

    def taken(self, places: Any) -> "Points":
        """Some of them."""
        return Points(self.stages[places], self.batch[places], self.step_tokens[places])

    @property
    def sequences(self) -> Values:
        """In a micro-batch."""
        return np.asarray(np.maximum(1.0, self.batch / self.stages))

    @property
    def room(self) -> Values:
        """Tokens that a step has left for prompts."""
        return np.asarray(self.step_tokens - self.sequences)

    def chunks(self, input_tokens: int) -> Values:
        """In how many steps a prompt is computed."""
        return np.asarray(np.ceil(input_tokens / self.room))


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of stages of each kind (rows) at each operating point (columns): affine in the layers."""

    layer_s: Values
    inner_s: Values
    """What comes on top where the stage is not the last."""
    last_s: Values
    """What comes on top where it is: the output head, and no hop."""

    def of(self, kind: int, layers: int, *, last: bool) -> Values:
        """Of one stage, at each point."""
        return np.asarray((self.last_s if last else self.inner_s)[kind] + layers * self.layer_s[kind])

    def layers_within(self, most_s: Values, *, last: bool) -> Values:
        """How many layers get done within a time that each point allows."""
        return np.asarray(np.floor((most_s - (self.last_s if last else self.inner_s)) / self.layer_s + _CLOSE))

    def shared(self, base: Any, other: Any, most_s: Values, *, last: bool) -> tuple[Values, Values]:
        """Layers of base kinds that get done within a time that each has at each point, with fractions.

        And how many fewer for one of another kind; what comes on top is taken to be alike.
        """
        extra_s = (self.last_s if last else self.inner_s)[base]
        return (most_s - extra_s) / self.layer_s[base], self.layer_s[other] / self.layer_s[base]

    def taken(self, places: Any) -> "Times":
        """At some of the points."""
        return Times(self.layer_s[:, places], self.inner_s[:, places], self.last_s[:, places])

    def of_kinds(self, kinds: Sequence[int]) -> "Times":
        """Of some of the kinds."""
        rows = list(kinds)
        return Times(self.layer_s[rows], self.inner_s[rows], self.last_s[rows])

    def scaled(self, factor: Values | float) -> "Times":
        """All of it times a factor."""
        return Times(self.layer_s * factor, self.inner_s * factor, self.last_s * factor)

    def plus(self, other: "Times", factor: Values | float = 1.0) -> "Times":
        """The sum with a multiple of another."""
        return Times(
            self.layer_s + factor * other.layer_s,
            self.inner_s + factor * other.inner_s,
            self.last_s + factor * other.last_s,
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """What stages are built for: the model, on a cluster, under a load."""

    model: ModelSpec
    cluster: Cluster
    profiles: Mapping[str, Profile]
    load: OperatingLoad
    quality_loss: Mapping[str, float] = field(default_factory=dict)
    """Weight format to the share of quality lost by a model that is wholly in it."""
    batches: tuple[float, ...] = BATCHES
    """Of the operating points, as far as the batching allows."""
    batching: Batching = USUAL_BATCHING
    kv_bytes: float = math.inf
    """That the engine keeps on each device, at most."""
    kv_tokens: float = math.inf
    """Whose KV the engine keeps with full formats, at most."""

    @classmethod
    def of(cls, problem: SearchInput, profiles: Mapping[str, Profile]) -> "Setting":
        """That of a problem."""
        losses = problem.losses
        load = OperatingLoad.of(problem.workload)
        engine = problem.capabilities
        kept, tokens = (engine.kv_bytes, engine.kv_tokens) if engine else (None, None)
        here = cls(problem.model, problem.cluster, profiles, load, losses, batching=problem.batching)
        return replace(here, kv_bytes=kept or math.inf, kv_tokens=tokens or math.inf)


def times_of(kinds: Sequence[StageKind], points: Points, setting: Setting) -> tuple[Times, Times]:
    """*busy* and *first* of every kind at every point, prompts of the mean length, waits for a step alone.

    Raises:
        ProfileError: a format or group size without figures.
    """
    load = setting.load
    costs = _Costs.of(kinds, setting)
    plain = costs.times(_step(points, load, 0.0, 0.0))
    prompt = float(load.computed_tokens)
    alone = _added(costs, points, load, prompt)
    together = np.clip(points.sequences / load.decoded, 1.0, np.maximum(1.0, points.room / prompt))
    shared = _added(costs, points, load, prompt * together).scaled(1 / together) if (together > 1).any() else alone
    chunks = points.chunks(load.computed_tokens)
    passes = points.stages + chunks - 1
    met = np.minimum(points.stages, points.batch) / 2
    busy = plain.plus(plain, load.decoded * points.stages / points.batch - 1).plus(shared, bubbles(points, load))
    first = plain.plus(plain, passes + met - 1).plus(alone, passes / chunks)
    return busy.scaled(1 / SERVING_SHARE), first.scaled(1 / SERVING_SHARE)


def bubbles(points: Points, load: OperatingLoad) -> Values:
    """How many stages a prompt keeps from work at each point.

    All of them where it is alone, fewer with the prompts beside it.

    A micro-batch with a prompt is slower than the others, which wait for it stage by stage. Prompts that arrive while it is
    computed (``B / (outputs - 1)`` in a pass, by Little's law) share the wait.
    """
    arriving = points.batch / load.decoded * points.chunks(load.computed_tokens)
    return np.asarray(np.maximum(1.0, points.stages * -np.expm1(-arriving) / arriving))


def _added(costs: "_Costs", points: Points, load: OperatingLoad, tokens: Values | float) -> Times:
    """What so many tokens of prompts add to the steps that carry them."""
    plain = costs.times(_step(points, load, 0.0, 0.0))
    added = plain.plus(plain, -1.0)
    for weight, part, done in _chunks(points, tokens):
        carrying = costs.times(_step(points, load, part, done))
        added = added.plus(carrying.plus(plain, -1.0), weight)
    return added


def _chunks(points: Points, input_tokens: Values | float) -> Iterator[tuple[Values, Values, Values]]:
    """The chunks of a prompt: how many like this, tokens, and tokens before.

    Those of a long prompt go by equal parts.
    """
    room = points.room
    whole = np.floor(input_tokens / room)
    most = int(whole.max(initial=0))
    for number in range(min(most, _PARTS)):
        if most <= _PARTS:
            yield (number < whole).astype(float), room, number * room
        else:
            yield whole / _PARTS, room, room * ((number + 0.5) * whole / _PARTS - 0.5)
    rest = input_tokens - whole * room
    yield (rest > 0).astype(float), np.maximum(rest, 1.0), whole * room


def _step(points: Points, load: OperatingLoad, part: Values | float, done: Values | float) -> Step:
    """A micro-batch of decodes beside a part of a prompt, behind what of the prompt is done."""
    context = points.sequences * load.context_tokens
    carries = np.asarray(part) > 0
    parts: list[Any] = [  # arrays where a step has numbers: the arithmetic is the same
        points.sequences + part,
        context + part * (done + part / 2),
        context + (done + part) * carries,
        points.sequences + carries,
    ]
    return Step(*parts)


@dataclass(frozen=True, slots=True)
class _Costs:
    """The costs of every kind, one per row."""

    layer: LayerCost
    """With a column of values for each figure."""
    stages: tuple[StageCost, ...]
    hops: tuple[tuple[float, float], ...]
    """Latency and seconds per byte to the next stage."""

    @classmethod
    def of(cls, kinds: Sequence[StageKind], setting: Setting) -> "_Costs":
        stages = tuple(_one_layer(kind, setting) for kind in kinds)
        layers = [stage.layers[0][1] for stage in stages]
        figures: list[Any] = [np.array([[getattr(layer, item.name)] for layer in layers]) for item in fields(LayerCost)]
        return cls(LayerCost(*figures), stages, tuple(_hop(kind, setting) for kind in kinds))

    def times(self, step: Step) -> Times:
        """How long stages of one kind are busy with a step."""
        sizes = [np.asarray(step.tokens * stage.hidden_bytes) for stage in self.stages]
        reduced = [
            stage.allreduce_s(size) * ALLREDUCES_PER_LAYER for stage, size in zip(self.stages, sizes, strict=True)
        ]
        hops = [latency_s + size * byte_s for (latency_s, byte_s), size in zip(self.hops, sizes, strict=True)]
        heads = [stage.head_s + stage.row_s * step.rows for stage in self.stages]
        overhead = np.array([[stage.overhead_s] for stage in self.stages])
        return Times(
            self.layer.seconds(step) + np.array(reduced),
            overhead + np.array(hops),
            overhead + np.array(heads),
        )


def _one_layer(kind: StageKind, setting: Setting) -> StageCost:
    gpus = [gpu.index for gpu in setting.cluster.gpus if gpu.kind == kind.kind]
    stage = Stage(kind.kind, tuple(gpus[: kind.tp]), LayerRange(0, 1), kind.formats)
    return stage_costs(Topology((stage,)), setting.model, setting.cluster, setting.profiles)[0]


def _hop(kind: StageKind, setting: Setting) -> tuple[float, float]:
    link = setting.cluster.network
    profile = setting.profiles[kind.kind]
    within = (profile.p2p_latency_s, 1 / profile.p2p_bytes_s)
    return min(within, (link.latency_s, 1 / link.bandwidth_bytes_s), key=lambda hop: hop[1]) if link else within


def capacities(
    kinds: Sequence[StageKind], points: Points, pools: Sequence[Pool], setting: Setting
) -> dict[tuple[bool, bool], Values]:
    """Layers that a stage holds with the KV of every sequence.

    By whether it is the first (embedding) and the last (head).

    One row per kind, one column per point; with fractions, for layers of several formats share the memory. The arithmetic of
    ``runtime.footprint``.
    """
    model = setting.model
    formats = [kind.formats for kind in kinds]
    wide = [model.embedding_parameters * max(2.0, BYTES_PER_VALUE[precision.activations]) for precision in formats]
    embedding = np.array([[size] for size in wide])
    tp = np.array([[kind.tp] for kind in kinds])
    usable = np.array([[pools[kind.pool].memory_bytes * (1 - HEADROOM)] for kind in kinds])
    largest = [model.rank_parameters(kind.tp, 0) for kind in kinds]
    heads = np.array([[len(rank_part(model.num_kv_heads, kind.tp, 0)) / model.num_kv_heads] for kind in kinds])
    weights = np.array(
        [[size * value_bytes(precision.weights, model)] for size, precision in zip(largest, formats, strict=True)]
    )
    kv = np.array([[kv_bytes_per_token(model, precision.kv) / model.num_layers] for precision in formats]) * heads
    tokens = np.maximum(points.batch, setting.load.held) * setting.load.blocks * BLOCK_TOKENS
    per_layer = weights + kv * tokens
    saved = np.array([[value_bytes(each.kv, model) - value_bytes(each.weights, model)] for each in formats])
    most_tokens = setting.kv_tokens + np.maximum(0.0, saved) * np.array([[size] for size in largest]) / kv
    kept = np.where(tokens <= most_tokens, setting.kv_bytes / (kv * tokens), 0.0)
    return {
        (first, last): np.maximum(
            0.0, np.minimum(kept, (usable - first * embedding - last * embedding / tp) / per_layer) - _CLOSE
        )
        for first in (False, True)
        for last in (False, True)
    }
