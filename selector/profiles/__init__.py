"""Profiles: known GPU kinds, files, and this machine's CPU.

GPU kinds are data with the source beside each number.
"""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from intent.tables import mapping
from runtime.models import BYTES_PER_VALUE, Link
from selector.models import OVERLAP, CpuSamples, Profile, ProfileError


def available() -> tuple[str, ...]:
    """The names of the shipped profiles."""
    files = resources.files(__name__).iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


@cache
def kinds() -> tuple[str, ...]:
    """The device kinds of the shipped profiles."""
    return tuple(sorted({_shipped(name).kind for name in available()}))


def is_file(name: str) -> bool:
    """Whether a name means a file rather than a shipped profile: it ends in ``.yaml`` or ``.yml``."""
    return Path(name).suffix in {".yaml", ".yml"}


def load(name: str) -> Profile:
    """The profile of a name (``a100-80gb``), a device kind (``A100``) or a file (``a100.yaml``).

    Raises:
        ProfileError: there is none, or it cannot be read or is malformed.
    """
    if is_file(name):
        return _from_file(Path(name))
    profiles = {other: _shipped(other) for other in available()}
    for other, profile in profiles.items():
        if name in {other, profile.kind}:
            return profile
    known = ", ".join(f"{other} (kind {profile.kind})" for other, profile in profiles.items())
    raise ProfileError(f"no profile for {name!r}; there are {known}, or give the path of a .yaml file")


@cache
def _shipped(name: str) -> Profile:
    return _parsed(mapping(__name__, name))


def _from_file(file: Path) -> Profile:
    try:
        return _parsed(yaml.safe_load(file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ProfileError(f"{file} cannot be read: {reason}; `intentctl profile --out` writes one") from error
    except yaml.YAMLError as error:
        raise ProfileError(f"{file} is no YAML: {' '.join(str(error).split())}") from error
    except ProfileError as error:
        raise ProfileError(f"{file}: {error}") from error


def _parsed(document: Any) -> Profile:
    if not isinstance(document, Mapping):
        raise ProfileError("a profile is a mapping of keys to figures, not this")
    return Profile.from_mapping(document)


NODE_LINK = Link("node", 25e9, 10e-6)
"""Within a machine; what a profile says of its links goes before it."""
KIND = "CPU"
GROUPS = (2, 4, 8)
ERROR_BAND = 0.5
"""One rank alone was measured; slots share cores, caches and memory bandwidth with each other."""


def fit_cpu(samples: CpuSamples) -> Profile:
    """The profile of one CPU slot.

    The samples are rates that were reached, so shares of them are 1 but where products of layers say otherwise. Offered is what
    was measured.
    Groups of more than two are extrapolated: a reduction through shared memory passes every rank once.
    """
    base = samples.base
    fewer = {name: _of_format(name, samples) for name in samples.products_s if name != base}
    whole = _of_format(base, samples)[0] if samples.products_s else 1.0
    return Profile(
        kind=KIND,
        memory_bytes=0.0,  # a slot's memory is the deployment's to say
        memory_bytes_s=samples.memory_bytes_s,
        flops_s={base: samples.gemm_flops_s},
        compute_share={base: 1.0},
        weight_share={base: whole, **{name: found[0] for name, found in fewer.items()}},
        kv_share=min(1.0, samples.kv_bytes_s / samples.memory_bytes_s),  # a cache may be quicker than memory
        elementwise_share=1.0,
        expert_share=1.0,
        layer_overhead_s=samples.layer_overhead_s,
        step_overhead_s=samples.step_overhead_s,
        allreduce_s={size: _line(samples, size - 1) for size in GROUPS},
        # a hop copies once where an all-reduce of two copies both ways
        p2p_bytes_s=samples.allreduce_bytes_s,
        p2p_latency_s=samples.p2p_latency_s,
        error_band=ERROR_BAND,
        source="measured",
        packed_flops_s={name: found[1] for name, found in fewer.items()},
        unpacked_share={name: found[2] for name, found in fewer.items()},
    )


def _of_format(name: str, samples: CpuSamples) -> tuple[float, float, float]:
    """Of a format: share of bandwidth as it streams, FLOP/s as it is, and share where it is made whole.

    From products with one row, with few, and with many: by the first two the overlapped sum of streaming and computing has both,
    and with many rows making weights whole comes on top of what the base takes.
    """
    (few, one_s), (more, more_s), (_, many_s) = samples.products_s[name]
    (_, plain_s), _, (_, many_plain_s) = samples.products_s[samples.base]
    gained = max(0.0, more_s**OVERLAP - one_s**OVERLAP) / (more**OVERLAP - few**OVERLAP)
    row_s = max(gained ** (1 / OVERLAP), 2 / samples.gemm_flops_s)
    streamed_s = max(0.1 * one_s, max(0.0, one_s**OVERLAP - row_s**OVERLAP) ** (1 / OVERLAP))
    whole_s = plain_s + max(0.0, many_s - many_plain_s)
    return _share(name, streamed_s, samples), 2 / row_s, _share(name, whole_s, samples)


def _share(name: str, value_s: float, samples: CpuSamples) -> float:
    """Of memory bandwidth, where a value takes so long."""
    return min(1.0, BYTES_PER_VALUE[name] / value_s / samples.memory_bytes_s)


def _line(samples: CpuSamples, passes: int) -> dict[int, float]:
    """Time of an all-reduce by message size.

    Latency and bandwidth of two ranks, as often as the data passes.
    """
    return {size: passes * (samples.allreduce_latency_s + size / samples.allreduce_bytes_s) for size in (0, 1_000_000)}
