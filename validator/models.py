"""The nouns of the validator: what a deployment is to an intent. A leaf module."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from intent.models import Window
from runtime.capabilities import Limits
from runtime.models import Cluster, ModelSpec


@dataclass(frozen=True, slots=True)
class Speed:
    """The most that one device of a kind can do, whatever runs on it."""

    memory_bytes_s: float
    """Peak memory bandwidth."""
    flops_s: float
    """Peak FLOP/s in its fastest format."""


@dataclass(frozen=True, slots=True)
class Site:
    """The deployment that an intent is checked against, at one moment."""

    cluster: Cluster
    models: Mapping[str, ModelSpec]
    now: datetime
    """Aware."""
    limits: Limits = field(default_factory=Limits)
    tenants: tuple[str, ...] = ()
    windows: Mapping[str, Window] = field(default_factory=dict)
    """Named windows to when they are; a name without an entry is known, its hours are not."""
    speeds: Mapping[str, Speed] = field(default_factory=dict)
    """Device kind to its speed; nothing is said about what kinds without one cannot do."""
