"""Every pipeline of a small cluster, one by one, from the scalar step model and the footprint: what the search is held to."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from runtime.footprint import blocks
from runtime.models import LayerRange, Precision, Stage, Topology
from selector.performance.load import SERVING_SHARE
from selector.performance.perf import Step, stage_costs
from selector.pipelines.grid import Parts
from selector.pipelines.operating import BLOCK_TOKENS, Pool, Setting, StageKind, step_tokens
from selector.pipelines.optimum import LOOSE, Threshold

Layers = tuple[Parts, ...]


@dataclass(frozen=True)
class Option:
    """A pipeline at a batch limit."""

    stages: Layers
    batch: float
    busy_s: float
    first_s: float


@dataclass(frozen=True)
class BruteForce:
    """All pipelines of some kinds of stages, with any number of layers up to the model's."""

    setting: Setting
    pools: Sequence[Pool]
    kinds: Sequence[StageKind]
    counts: Sequence[int]
    batches: Sequence[float]
    mixes: Sequence[tuple[StageKind, StageKind]] = ()
    """Kinds that may share a stage."""

    def _step_tokens(self, stages: int) -> int:
        return step_tokens(stages, self.setting.batching)

    @cached_property
    def options(self) -> list[Option]:
        """All that fit."""
        return [
            option
            for stages in self._pipelines()
            for batch in self.batches
            if batch <= len(stages) * self._step_tokens(len(stages)) / 2 and (option := self._option(stages, batch))
        ]

    def _pipelines(self) -> Iterator[Layers]:
        most = self.setting.model.num_layers
        alone = [((kind, layers),) for kind in self.kinds for layers in range(1, most + 1)]
        shared = [
            ((base, layers), (other, others))
            for base, other in self.mixes
            for layers in range(1, most)
            for others in range(1, most + 1 - layers)
        ]
        for count in self.counts:
            for stages in itertools.product([*alone, *shared], repeat=count):
                fits = all(self._used(stages, place) <= pool.size for place, pool in enumerate(self.pools))
                if fits and _layers(stages) <= most:
                    yield stages

    @staticmethod
    def _used(stages: Layers, pool: int) -> int:
        return sum(parts[0][0].tp for parts in stages if parts[0][0].pool == pool)

    def _option(self, stages: Layers, batch: float) -> Option | None:
        """Its times, or nothing if its KV does not fit."""
        load = self.setting.load
        topology, model = self._topology(stages), self.setting.model
        room = blocks(topology, model, self.setting.cluster, BLOCK_TOKENS)
        if room < max(batch, load.held) * load.blocks:
            return None
        costs = stage_costs(topology, model, self.setting.cluster, self.setting.profiles)
        count, sequences = len(stages), max(1.0, batch / len(stages))
        room = self._step_tokens(count) - sequences
        together = min(max(1.0, sequences / load.decoded), max(1.0, room / load.computed_tokens))
        chunks, shared = (list(_chunks(load.computed_tokens * number, room)) for number in (1, together))
        plain = [cost.seconds(self._step(sequences, 0, 0)) for cost in costs]
        passes = count + len(chunks) - 1

        def added(place: int, parts: Sequence[tuple[float, float]]) -> float:
            return sum(costs[place].seconds(self._step(sequences, *part)) - plain[place] for part in parts)

        arriving = batch / load.decoded * len(chunks)
        alone = max(1.0, count * (1 - math.exp(-arriving)) / arriving)
        busy_s = max(
            added(place, shared) / together * alone + plain[place] * load.decoded * count / batch
            for place in range(count)
        )
        first_s = max(
            added(place, chunks) * passes / len(chunks) + plain[place] * (passes + min(count, batch) / 2)
            for place in range(count)
        )
        return Option(stages, batch, busy_s / SERVING_SHARE, first_s / SERVING_SHARE)

    def _step(self, sequences: float, part: float, done: float) -> Step:
        context = sequences * self.setting.load.context_tokens
        return Step(
            sequences + part,
            context + part * (done + part / 2),
            context + (done + part) * (part > 0),
            sequences + (part > 0),
        )

    def _topology(self, stages: Layers) -> Topology:
        free = [list(itertools.chain.from_iterable(pool.nodes)) for pool in self.pools]
        found, start = [], 0
        for parts in stages:
            (kind, _), layers = parts[0], sum(layers for _, layers in parts)
            devices = tuple(free[kind.pool].pop(0) for _ in range(kind.tp))
            precision, *others = [Precision.named(one.precision, kind.kind) for one, _ in parts]
            overrides = tuple((LayerRange(start + parts[0][1], start + layers), other) for other in others)
            found.append(Stage(kind.kind, devices, LayerRange(start, start + layers), precision, overrides))
            start += layers
        return Topology(tuple(found))

    def reading(self, option: Option, wanted: Threshold) -> float:
        """What an objective reads, smaller is better: a rate is its negative."""
        counted = {
            "devices": sum(parts[0][0].tp for parts in option.stages),
            "usd_per_hour": sum(parts[0][0].tp * self.pools[parts[0][0].pool].usd_per_hour for parts in option.stages),
            "rate": -1 / option.busy_s,
            "quality_loss": self._quality_loss(option),
        }
        return counted[wanted.metric] if wanted.metric in counted else self._latency_s(option, wanted)

    def _quality_loss(self, option: Option) -> float:
        losses = self.setting.quality_loss
        lost = (losses.get(kind.precision, 0.0) * layers for parts in option.stages for kind, layers in parts)
        return sum(lost) / self.setting.model.num_layers

    def _latency_s(self, option: Option, wanted: Threshold) -> float:
        load = self.setting.load
        if option.busy_s > LOOSE / load.rate_rps * (1 + 1e-9):
            return math.inf
        tokens_s = option.batch * option.busy_s
        return {"tpot": tokens_s / load.decoded, "ttft": option.first_s, "e2e": option.first_s + tokens_s}[
            wanted.metric
        ]

    def holds(self, option: Option, bound: Threshold, slack: float = 1e-9) -> bool:
        """Whether a bound is kept."""
        value = -bound.value if bound.metric == "rate" else bound.value
        return self.reading(option, bound) <= value + slack * abs(value)

    def lowest(self, bounds: Sequence[Threshold], wanted: Threshold) -> float:
        """What an objective reads at the lowest under some bounds; infinite where nothing holds them."""
        return min(
            (
                self.reading(option, wanted)
                for option in self.options
                if _layers(option.stages) == self.setting.model.num_layers
                and all(self.holds(option, bound) for bound in bounds)
            ),
            default=math.inf,
        )

    def most_layers(self, bounds: Sequence[Threshold]) -> int:
        """The most layers of a pipeline that holds the bounds."""
        held = (_layers(one.stages) for one in self.options if all(self.holds(one, bound) for bound in bounds))
        return max(held, default=0)


def _layers(stages: Layers) -> int:
    return sum(layers for parts in stages for _, layers in parts)


def _chunks(tokens: int, room: float) -> Iterator[tuple[float, float]]:
    done = 0.0
    while tokens - done > 1e-9:
        part = min(room, tokens - done)
        yield part, done
        done += part
