"""Numbers with units: read as they were said, and brought to the one unit of a metric."""

import re
from dataclasses import dataclass, replace

from intent.models import UNITS

PER_USER = "tokens/s/user"
"""A token rate seen by one user, which is a bound on TPOT: its inverse."""
LARGEST = 1e15
"""No wish has a larger number; beyond it a float no longer holds every whole one."""

_OTHER_PERIODS = {"USD/week": ("USD/day", 1 / 7), "USD/year": ("USD/month", 1 / 12)}
"""Prices per a period that no goal has, in one that it has."""

_NUMBER = re.compile(r"(?P<whole>\d{1,3}(?:,\d{3})+|\d+)?(?P<fraction>\.\d+)?(?P<exponent>e[+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number and its unit as said.

    ``unit`` is a dimension of the lexicon or a cost unit, None if not said.
    """

    number: float
    unit: str | None = None
    factor: float = 1.0
    """What the number is multiplied with to be in ``unit``."""

    @property
    def value(self) -> float:
        """The number in ``unit``, rounded to the 15 digits a float holds, so that 1900 ms are 1.9 s."""
        return float(f"{self.number * self.factor:.15g}")

    def in_unit(self, unit: str | None, factor: float) -> "Quantity":
        """The same number with another unit."""
        return replace(self, unit=unit, factor=factor)


def parse_number(word: str) -> float | None:
    """A decimal number with optional thousands commas and exponent.

    None if it is not one or could be two things.

    ``1,500`` is 1500; ``1,5`` (one and a half, or a list?) and ``1e400`` are refused, as is anything above ``LARGEST``.
    """
    match = _NUMBER.fullmatch(word)
    if match is None or not (match["whole"] or match["fraction"]):
        return None
    value = float(word.replace(",", ""))
    return value if value <= LARGEST else None


def normalise(metric: str, quantity: Quantity) -> Quantity | None:
    """The quantity in a unit the metric may have; None if the said unit is impossible for it.

    A ratio said without a unit is one below 1 and a percentage from 2; between them, and for any other metric, the unit
    has to be said.
    """
    allowed = UNITS[metric]
    unit = quantity.unit
    if metric == "cost" and unit in _OTHER_PERIODS:
        priced, factor = _OTHER_PERIODS[unit]
        return Quantity(float(f"{quantity.value * factor:.15g}"), priced)
    if unit is None:
        return _without_unit(metric, quantity)
    if unit == "s/token" and metric == "tpot":
        return Quantity(quantity.value, "s")
    if unit == PER_USER and metric == "tpot":
        return Quantity(1 / quantity.value, "s") if quantity.value > 0 else None
    return Quantity(quantity.value, unit) if unit in allowed else None


def _without_unit(metric: str, quantity: Quantity) -> Quantity | None:
    if metric == "gpu_count":
        return Quantity(quantity.number, "gpus")
    if UNITS[metric] == ("ratio",) and not 1 <= quantity.number < 2:
        factor = 1.0 if quantity.number < 1 else 0.01
        return Quantity(Quantity(quantity.number, "ratio", factor).value, "ratio")
    return None
