"""Whether the model's weights fit the devices that a text leaves for it. Pure.

An optimist's arithmetic, so that nothing is refused that some topology could do: weights in the smallest format left,
spread over the largest devices left without loss, beside the KV cache of one short request.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from intent.models import Config, Finding, Goal, Objective, Placement, PrecisionRule
from runtime.footprint import HEADROOM, block_bytes, weight_bytes
from runtime.models import Gpu, LayerRange, ModelSpec, Precision, Stage, Topology
from validator.intervals import covers, hard, interval
from validator.inventory import served
from validator.models import Site
from validator.placements import open_to
from validator.precisions import left_for, permitted
from validator.words import Words

REQUEST_TOKENS = 256
"""A request whose KV cache must fit beside the weights."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a text leaves for a model at the time of one of its goals."""

    gpus: tuple[Gpu, ...]
    """The largest first."""
    most: int
    """How many of them at once."""
    formats: frozenset[str]

    @property
    def usable_bytes(self) -> float:
        """On as many devices as may be used at once."""
        return self.sums()[self.most - 1] if self.most else 0.0

    def sums(self) -> list[float]:
        """Usable bytes of the first one, two, … devices."""
        return list(accumulate(gpu.memory_bytes * (1 - HEADROOM) for gpu in self.gpus))


def check(goals: Sequence[Goal], site: Site, words: Words) -> Iterator[Finding]:
    """One finding for the first goal for which what covers it leaves too little, if the whole deployment has enough."""
    for number, goal in enumerate(goals):
        if not _narrows(goal):
            continue
        for model in served(getattr(goal, "model", None), site):
            left, everything = room(goal, goals, site), whole(site)
            if (
                left.formats
                and left.gpus
                and _short(left, model, site)
                and not _short(everything, model, site)
            ):
                yield _finding(number, goal, left, model, site, words)
                return


def room(goal: Goal, goals: Sequence[Goal], site: Site) -> Room:
    """What every goal that covers this one leaves together."""
    everything, devices = whole(site), open_to(goal, goals, site)
    gpus = tuple(gpu for gpu in everything.gpus if gpu.index in devices)
    covering = [one for one in goals if hard(one) and covers(one, goal, site)]
    most = max(0, min(everything.most, len(gpus), *_most_devices(covering, site)))
    return Room(gpus, int(most), left_for(goal, goals, site))


def whole(site: Site) -> Room:
    """What the deployment has, within its limits."""
    gpus = tuple(sorted(site.cluster.gpus, key=lambda gpu: -gpu.memory_bytes))
    return Room(gpus, min(len(gpus), site.limits.max_gpus or len(gpus)), permitted(site.limits))


@lru_cache(maxsize=256)
def needed_bytes(model: ModelSpec, kinds: tuple[str, ...], formats: frozenset[str]) -> int:
    """Least bytes of weights and one request's KV cache, over formats and device kinds."""
    return min(_bytes(model, kind, name) for kind in kinds for name in formats)


def _bytes(model: ModelSpec, kind: str, precision: str) -> int:
    """On one device, where nothing is held twice."""
    stage = Stage(kind, (0,), LayerRange(0, model.num_layers), Precision.named(precision, kind))
    alone = Topology((stage,))
    return weight_bytes(alone, model)[0] + block_bytes(alone, model, REQUEST_TOKENS)[0]


def _narrows(goal: Goal) -> bool:
    """Whether a goal takes devices or formats away."""
    if isinstance(goal, Objective):
        return goal.metric == "gpu_count" and goal.op in {"<=", "=="} and hard(goal)
    if isinstance(goal, Config):
        return goal.key in {"tp", "pp"} and goal.op in {"<=", "=="}
    if isinstance(goal, Placement):
        return goal.rule in {"require", "forbid"} and goal.workload is None
    return isinstance(goal, PrecisionRule) and goal.rule in {"require", "min", "forbid"}


def _most_devices(goals: Sequence[Goal], site: Site) -> Iterator[float]:
    """Upper bounds on the devices at once: a number of GPUs, or TP times PP."""
    most = {
        "tp": float(len(site.cluster.gpus)),
        "pp": float(max(site.limits.allowed_pp or (len(site.cluster.gpus),))),
    }
    for goal in goals:
        if isinstance(goal, Objective) and goal.metric == "gpu_count":
            yield interval(goal).high
        elif isinstance(goal, Config) and goal.key in most:
            most[goal.key] = min(most[goal.key], interval(goal).high)
    yield most["tp"] * most["pp"]


def _short(left: Room, model: ModelSpec, site: Site) -> bool:
    return left.usable_bytes < needed_bytes(model, site.cluster.kinds, left.formats)


def _finding(number: int, goal: Goal, left: Room, model: ModelSpec, site: Site, words: Words) -> Finding:
    slot = "selector" if isinstance(goal, Placement) else "value"
    need = needed_bytes(model, site.cluster.kinds, left.formats)
    enough = next((n for n, have in enumerate(left.sums(), 1) if have >= need), None)
    facts = {
        "model": model.name,
        "need": f"{need / 1e9:.3g}",
        "have": f"{left.usable_bytes / 1e9:.3g}",
        "devices": left.most,
        "formats": words.listed(sorted(left.formats)),
        "enough": enough,
    }
    return words.finding(
        "too_little_memory",
        f"/goals/{number}/{slot}",
        goal,
        "more_devices" if enough else "more_room",
        **facts,
    )
