"""From step times of a running engine to the profile of its device kind.

Pure: measuring is the command line's.

Gauss-Newton on the logarithms of predicted over measured times, with a weak pull to the profile that it starts from. Shares are
sought on a logarithmic scale, overheads in units of the shortest step. What the samples cannot tell apart (a layer's overhead
and a step's, under one topology) would only drift; such figures are dropped one by one, the least known first, and stay.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from runtime.capabilities import USUAL_BATCHING
from runtime.models import Cluster, ModelSpec, Precision, Topology
from selector.models import Profile, SampleError
from selector.performance.load import period_s
from selector.performance.perf import ServerModel, Step, stage_costs

MIN_PREFILLS = 3
MIN_DECODES = 4
FOLDS = 5
"""Parts of the samples that are held out in turn."""
MIN_ERROR_BAND = 0.02
"""Nobody measures better than that."""
PULL = 0.03
"""Weight of a figure's distance to its start: a share off by a factor of e counts as much as one sample that is 3 % off."""
KNOWN = 0.2
"""A figure is known when the samples leave less than this of the variance that the pull alone allows."""
LOWEST_SHARE = 1e-3
_ROUNDS = 60
_HALVINGS = 12
_NUDGE = 1e-4
_SETTLED = 1e-9
_DIGITS = 4
_OVERHEADS = ("layer_overhead_s", "step_overhead_s")
_FIXED = frozenset(
    {"kind", "memory_bytes", "memory_bytes_s", "flops_s", "error_band", "source", "extrapolated", "made"}
    | {"packed_flops_s", "unpacked_share"}
)
"""What is declared of a kind and not fitted: peaks of the data sheet, and words about the profile."""

Vector = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class StepSample:
    """One step that was timed: so many sequences, each with new tokens behind cached ones."""

    sequences: int
    new_tokens: int
    """Per sequence: those of the prompt in a prefill, 1 in a decode."""
    cached_tokens: int
    """Per sequence."""
    seconds: float
    """Of a step through all stages; with several micro-batches in flight, between two tokens of a stream."""

    @property
    def is_prefill(self) -> bool:
        """Whether a prompt was computed."""
        return self.new_tokens > 1


@dataclass(frozen=True, slots=True)
class Running:
    """What runs while it is measured: stages of one device kind, on one machine."""

    topology: Topology
    model: ModelSpec
    cluster: Cluster

    @property
    def kind(self) -> str:
        """The device kind."""
        return self.topology.stages[0].kind

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """Every precision that some layer has."""
        stages = self.topology.stages
        return tuple(dict.fromkeys(stage.precision_of(layer) for stage in stages for layer in stage.layers))

    def predicted_s(self, samples: Sequence[StepSample], profile: Profile) -> tuple[float, ...]:
        """What the selector's step model says that the steps of these samples take.

        Raises:
            ProfileError: the profile lacks figures for what runs.
        """
        stages = stage_costs(self.topology, self.model, self.cluster, {self.kind: profile})
        steps = USUAL_BATCHING
        server = ServerModel(stages, steps.max_sequences, kv_tokens=0, chunk_tokens=steps.max_step_tokens)
        return tuple(
            period_s(
                server,
                sample.sequences,
                Step.of(
                    math.ceil(sample.sequences / min(len(stages), sample.sequences)),
                    sample.new_tokens,
                    sample.cached_tokens,
                ),
            )
            for sample in samples
        )


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted profile and how well it fits."""

    profile: Profile
    fitted: tuple[str, ...]
    """Figures that the samples told, such as ``compute_share.fp16``."""
    kept: tuple[str, ...]
    """Figures that stay as they were."""
    predicted_s: tuple[float, ...]
    """The profile's word on each sample."""


def fit(samples: Sequence[StepSample], running: Running, start: Profile) -> Fit:
    """The profile that explains the samples, as near to ``start`` as they allow.

    Its error band is the worst relative error at a sample, held out or not. Formats that did not run are marked as extrapolated
    unless an earlier measurement had them.

    Raises:
        SampleError: too few samples, or a time that is not positive.
        ProfileError: ``start`` lacks figures for what runs.
    """
    _check(samples)
    # a start that lacks a format is refused before its figures are asked for
    running.predicted_s(samples, start)
    names = _figures(running)
    while unknown := _least_known(samples, running, start, names):
        names = tuple(name for name in names if name != unknown)
    profile = _solved(samples, running, start, names)
    predicted = running.predicted_s(samples, profile)
    errors = [*_held_out_errors(samples, running, start, names), *_errors(samples, predicted)]
    profile = replace(
        profile,
        source="measured",
        error_band=math.ceil(max(MIN_ERROR_BAND, *errors) * 1000) / 1000,
        extrapolated=_extrapolated(start, running),
    )
    kept = tuple(name for name in all_figures(start) if name not in names)
    return Fit(profile, names, kept, predicted)


def figure(profile: Profile, name: str) -> float:
    """The figure of that name, one number; ``compute_share.fp16`` is that format's."""
    key, _, part = name.partition(".")
    value = getattr(profile, key)
    return float(value[part] if part else value)


def all_figures(profile: Profile) -> tuple[str, ...]:
    """The names of a profile's shares and fixed costs, one per format where there are several."""
    found = []
    for item in fields(profile):
        if item.name in {"compute_share", "weight_share"}:
            found += [f"{item.name}.{part}" for part in getattr(profile, item.name)]
        elif item.name not in _FIXED:
            found.append(item.name)
    return tuple(found)


def _check(samples: Sequence[StepSample]) -> None:
    prefills = sum(sample.is_prefill for sample in samples)
    decodes = len(samples) - prefills
    if prefills < MIN_PREFILLS or decodes < MIN_DECODES:
        raise SampleError(
            f"{prefills} prefills and {decodes} decodes are too few for a profile; measure {MIN_PREFILLS} input lengths "
            f"and {MIN_DECODES} decode batches at least"
        )
    for sample in samples:
        if not 0 < sample.seconds < math.inf:
            raise SampleError(f"{sample} has no positive time; measure it again")


def _figures(running: Running) -> tuple[str, ...]:
    """What step times can tell of a kind, formats as they run."""
    computes = dict.fromkeys(f"compute_share.{precision.activations}" for precision in running.precisions)
    streams = dict.fromkeys(f"weight_share.{precision.weights}" for precision in running.precisions)
    return (*computes, *streams, "kv_share", *_OVERHEADS)


def _extrapolated(start: Profile, running: Running) -> tuple[str, ...]:
    ran = {precision.weights for precision in running.precisions}
    without = start.extrapolated if start.source == "measured" else start.precisions
    return tuple(name for name in without if name not in ran)


def _with(profile: Profile, values: Mapping[str, float]) -> Profile:
    changed: dict[str, Any] = {}
    for name, value in values.items():
        key, _, part = name.partition(".")
        before = changed.get(key, getattr(profile, key))
        changed[key] = {**before, part: value} if part else value
    return replace(profile, **changed)


@dataclass(frozen=True, slots=True)
class _FitSearch:
    """Figures as places on a line each, between their bounds."""

    samples: Sequence[StepSample]
    running: Running
    start: Profile
    names: tuple[str, ...]
    shortest_s: float
    """The shortest step, as measured or as predicted at the start, whichever is longer: the scale of overheads."""

    @classmethod
    def of(
        cls, samples: Sequence[StepSample], running: Running, start: Profile, names: tuple[str, ...]
    ) -> "_FitSearch":
        predicted = running.predicted_s(samples, start)
        longer = (max(sample.seconds, predicted_s) for sample, predicted_s in zip(samples, predicted, strict=True))
        return cls(samples, running, start, names, min(longer))

    @property
    def bounds(self) -> Vector:
        ranges = [(0.0, math.inf) if name in _OVERHEADS else (math.log(LOWEST_SHARE), 0.0) for name in self.names]
        return np.array(ranges, dtype=float).reshape(-1, 2).T

    @property
    def origin(self) -> Vector:
        values = [self._place(name, float(figure(self.start, name))) for name in self.names]
        lowest, highest = self.bounds
        clipped: Vector = np.clip(np.array(values, dtype=float), lowest, highest)
        return clipped

    def _unit_s(self, name: str) -> float:
        """The overhead that would be all of the shortest step."""
        stages = self.running.topology.pp_size
        layers = self.running.model.num_layers
        return self.shortest_s / (layers if name == "layer_overhead_s" else stages)

    def _place(self, name: str, value: float) -> float:
        return value / self._unit_s(name) if name in _OVERHEADS else math.log(max(value, LOWEST_SHARE))

    def profile(self, place: Vector) -> Profile:
        """The start with the figures of a place."""
        values = {
            name: float(at) * self._unit_s(name) if name in _OVERHEADS else math.exp(at)
            for name, at in zip(self.names, place, strict=True)
        }
        return _with(self.start, values)

    def misses(self, place: Vector) -> Vector:
        """Logarithms of predicted over measured time."""
        predicted = self.running.predicted_s(self.samples, self.profile(place))
        measured = [sample.seconds for sample in self.samples]
        misses: Vector = np.log(np.array(predicted) / np.array(measured))
        return misses

    def residuals(self, place: Vector) -> Vector:
        """The misses, and how far the figures were pulled."""
        return np.concatenate([self.misses(place), PULL * (place - self.origin)])

    def slopes(self, place: Vector) -> Vector:
        """Derivatives of the residuals, a column per figure."""
        here = self.residuals(place)
        columns = [(self.residuals(place + nudge) - here) / _NUDGE for nudge in np.eye(len(place)) * _NUDGE]
        return np.array(columns).T

    def solution(self) -> Vector:
        """Where the residuals are least, within the bounds."""
        place = self.origin
        for _ in range(_ROUNDS):
            better = self._better(place)
            if better is None:
                break
            place = better
        return place

    def _better(self, place: Vector) -> Vector | None:
        """The next place on the way down; None at the bottom."""
        low, high = self.bounds
        residuals = self.residuals(place)
        slopes = self.slopes(place)
        gradient: Vector = slopes.T @ residuals
        free = ~((place <= low) & (gradient > 0) | (place >= high) & (gradient < 0))
        step = np.zeros(len(place))
        step[free] = -np.linalg.solve(slopes[:, free].T @ slopes[:, free], gradient[free])
        cost = residuals @ residuals
        for halving in range(_HALVINGS):
            candidate: Vector = np.clip(place + step / 2**halving, low, high)
            left = self.residuals(candidate)
            if left @ left < cost * (1 - _SETTLED):
                return candidate
        return None


def _solved(samples: Sequence[StepSample], running: Running, start: Profile, names: tuple[str, ...]) -> Profile:
    search = _FitSearch.of(samples, running, start, names)
    found = search.profile(search.solution())
    return _with(found, {name: float(f"{figure(found, name):.{_DIGITS}g}") for name in names})


def _least_known(samples: Sequence[StepSample], running: Running, start: Profile, names: tuple[str, ...]) -> str | None:
    """The figure of which the samples tell least, if that is too little."""
    if not names:
        return None
    search = _FitSearch.of(samples, running, start, names)
    slopes = search.slopes(search.solution())
    left = PULL**2 * np.diag(np.linalg.inv(slopes.T @ slopes))
    ranks = list(zip(left.round(3), -search.origin, strict=True))  # of two overheads the smaller one stays
    worst = max(range(len(names)), key=ranks.__getitem__)
    return names[worst] if left[worst] > KNOWN else None


def _held_out_errors(
    samples: Sequence[StepSample], running: Running, start: Profile, names: tuple[str, ...]
) -> list[float]:
    """The error at each sample of a profile that was fitted without it."""
    errors = []
    for fold in range(FOLDS):
        held_out = samples[fold::FOLDS]
        rest = [sample for number, sample in enumerate(samples) if number % FOLDS != fold]
        profile = _solved(rest, running, start, names)
        errors += _errors(held_out, running.predicted_s(held_out, profile))
    return errors


def _errors(samples: Sequence[StepSample], predicted_s: Sequence[float]) -> list[float]:
    """Relative to the measured time."""
    return [abs(predicted / sample.seconds - 1) for sample, predicted in zip(samples, predicted_s, strict=True)]
