"""What weight formats cost in quality, as ``intentctl profile --quality`` measured it.

Of one checkpoint, in the formats it was measured in. Pure.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from runtime.models import FULL

QualitySource = Literal["measured", "assumed"]
SIZES = 8
"""Of sets of layers that are tried."""


class QualityError(ValueError):
    """A measured quality that cannot be used."""


@dataclass(frozen=True, slots=True)
class FormatCurve:
    """Layers in one format: which are to be first, and what sets of them lose.

    That is the share by which the perplexity of a held text grew.
    """

    order: tuple[int, ...]
    """All layers, the least sensitive first."""
    prefixes: Mapping[int, float]
    """The first so many of the order."""
    singles: Mapping[int, float]
    """A layer alone."""

    def of(self, layers: frozenset[int]) -> float | None:
        """What was measured of exactly these; None: nothing."""
        if len(layers) == 1:
            return self.singles.get(min(layers))
        return self.prefixes.get(len(layers)) if layers == {*self.order[: len(layers)]} else None

    @property
    def least_loss(self) -> float:
        """With all layers, if each lost no more than those of the best set do: what a search may hope for."""
        return min((max(0.0, loss) * len(self.order) / count for count, loss in self.prefixes.items()), default=1.0)

    def sets(self, most: float | None) -> list[frozenset[int]]:
        """The sets in order that lose no more than so much, the largest among them; a few of many."""
        known = sorted(count for count, loss in self.prefixes.items() if most is None or loss <= most)
        return [frozenset(self.order[:count]) for count in known[:: -(len(known) // SIZES + 1)]]


@dataclass(frozen=True, slots=True)
class QualityCurve:
    """What was measured of one checkpoint."""

    checkpoint: Mapping[str, str]
    """File to digest (``PinnedCheckpoint.digests``)."""
    recipe: Mapping[str, int | str | None]
    """``footprint.recipe``."""
    num_layers: int
    formats: Mapping[str, FormatCurve]

    def loss_of(self, formats: Mapping[int, str], stated: Mapping[str, float]) -> tuple[float, QualitySource]:
        """What is lost with layers in these formats (the others in a full one), and whether it was measured.

        Measured: no layer, one, or the first of the order of one format. Of other sets what each layer loses alone is summed,
        where that was measured; else ``stated``, which is the loss with all layers in a format, counts for its share.
        """
        lossy = {layer: name for layer, name in formats.items() if name not in FULL}
        if not lossy:
            return 0.0, "measured"
        name, *others = {*lossy.values()}
        found = self.formats[name].of(frozenset(lossy)) if name in self.formats and not others else None
        if found is not None:
            return max(0.0, found), "measured"
        return math.fsum(self._alone(layer, name, stated) for layer, name in lossy.items()), "assumed"

    def _alone(self, layer: int, name: str, stated: Mapping[str, float]) -> float:
        usual = stated.get(name, 0.0) / self.num_layers
        return max(0.0, self.formats[name].singles.get(layer, usual)) if name in self.formats else usual

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object]) -> Self:
        """Read what the measurement wrote.

        Raises:
            QualityError: naming what is missing, or is none.
        """
        data: Any = mapping
        try:
            layers = int(data["layers"])
            curves = {name: _curve(name, curve, layers) for name, curve in data["formats"].items()}
            return cls({**data["checkpoint"]}, {**data["recipe"]}, layers, curves)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            what = f"it lacks {error}" if isinstance(error, LookupError) else str(error)
            raise QualityError(f"it is no measured quality, or not all of one: {what}") from None


def _curve(name: str, mapping: Any, num_layers: int) -> FormatCurve:
    curve = FormatCurve(tuple(mapping["order"]), _losses(mapping["prefixes"]), _losses(mapping["singles"]))
    if sorted(curve.order) != [*range(num_layers)]:
        raise QualityError(f"the order of {name} does not have each of {num_layers} layers once")
    return curve


def _losses(mapping: Any) -> dict[int, float]:
    found = {int(key): float(each["loss"]) for key, each in mapping.items()}
    if wrong := [loss for loss in found.values() if not -1 < loss < math.inf]:
        raise ValueError(f"{wrong[0]} is no loss")
    return found
