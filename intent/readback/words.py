"""How things are called in the operator's language: metrics, numbers, windows, tenants, devices. Pure."""

import json
import math
import re
from dataclasses import dataclass
from decimal import Decimal

from intent.messages import Language, say
from intent.models import NAMED_WINDOWS, FromNowWindow, Window
from intent.times import spoken

OPS = {
    "<=": "op.at_most",
    ">=": "op.at_least",
    "==": "op.exactly",
    "minimize": "op.minimise",
    "maximize": "op.maximise",
}
_UNITS = {
    "s": (("s", 1), ("ms", 1000), ("min", 1 / 60), ("h", 1 / 3600)),
    "tokens/s": (("tokens/s", 1), ("tokens/min", 60), ("tokens/h", 3600)),
    "requests/s": (("requests/s", 1), ("requests/min", 60), ("requests/h", 3600)),
    "ratio": (("%", 100),),
}
"""Normalised unit to the units people say, with what the value is multiplied by."""
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?")
_ONE_WORD = re.compile(r"[\w./:@+-]+")


@dataclass(frozen=True, slots=True)
class Words:
    """Words of one language."""

    language: Language

    def say(self, key: str, **facts: object) -> str:
        """A part of the read-back."""
        return say("intent.readback", self.language, key, **facts)

    def metric(self, metric: str) -> str:
        """What people are shown for a metric."""
        return self.say(f"metric.{metric}")

    def op(self, op: str) -> str:
        """A comparison or an optimisation."""
        return self.say(OPS[op])

    def amount(self, value: float, unit: str | None, evidence: str = "") -> str:
        """A value in the unit in which the operator's own number appears, else in one that reads well."""
        said = {plain(float(number.replace(",", ""))) for number in _NUMBER.findall(evidence)}
        units = _UNITS.get(unit or "", ((unit or "", 1),))
        usual = units[1] if unit == "s" and abs(value) < 1 else units[0]
        name, factor = next((one for one in units if plain(value * one[1]) in said), usual)
        number = plain(value * factor)
        return f"{number} {name}" if name not in {"gpus", ""} else number

    def window(self, window: Window) -> str:
        """When."""
        if isinstance(window, FromNowWindow) and not math.isfinite(window.duration_s):
            return f"{window.duration_s} s"  # another rule's finding; it has no words
        if not isinstance(window, str):
            return spoken(window, self.language)
        return (
            self.say(f"window.{window}")
            if window in NAMED_WINDOWS
            else self.say("window.other", name=name(window))
        )

    def side(self, side: str) -> str:
        """What a priority is about."""
        kind, _, tenant = side.partition(":")
        return self.say("tenant", name=name(tenant)) if tenant else self.say(f"side.{kind}")

    def setting(self, key: str) -> str:
        """TP, PP or replicas."""
        return self.say("replicas") if key == "replicas" else key.upper()

    def place(self, selector: str) -> str:
        """Devices: a kind, one device or a node."""
        kind, _, said = selector.partition(":")
        as_said = {"gpu_type": name(said) == said and not is_device(said), "gpu": is_device(said)}
        return said if as_said.get(kind) else self.say(f"place.{kind}", name=name(said))


def is_device(said: str) -> bool:
    """Whether this is how one device is called: ``gpu-3``."""
    return re.fullmatch(r"gpu-\d+", said) is not None


def name(said: str) -> str:
    """A name as it is, in quotation marks where it is more than one word."""
    return said if _ONE_WORD.fullmatch(said) else json.dumps(said, ensure_ascii=False)


def plain(value: float) -> str:
    """Twelve digits, without exponent or the sign of a zero."""
    return f"{Decimal(f'{value + 0.0:.12g}'):f}"
