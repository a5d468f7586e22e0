"""Which profile each device kind has.

The CPU's is measured once per machine and checkpoint, then kept.
"""

import dataclasses
import hashlib
import json
import os
import platform
from functools import cache
from pathlib import Path

from selector.models import CpuSamples, Profile, ProfileError
from selector.profiles import KIND as CPU
from selector.profiles import fit_cpu, load
from service.deployment.file import Deployment
from service.deployment.models import ServedModel
from service.documents.errors import DeploymentError, RefusedError
from validator.models import Speed


def load_profiles(deployment: Deployment, model: ServedModel, folder: Path) -> dict[str, Profile]:
    """Kind of a model's devices to profile.

    Measuring the CPU takes seconds the first time; ``folder`` keeps the result.

    Raises:
        DeploymentError: a kind has no profile, or the file that it names cannot be used.
    """
    return {kind: _profile(kind, deployment, model, folder) for kind in model.cluster.kinds}


def _profile(kind: str, deployment: Deployment, model: ServedModel, folder: Path) -> Profile:
    name = deployment.profiles.get(kind)
    if kind == CPU and name is None:
        return cpu_profile(_measurable(model), folder)
    try:
        return dataclasses.replace(load(name or kind), kind=kind)
    except ProfileError as error:
        hint = "" if name else f"; name one for {kind} under profiles"
        raise DeploymentError(f"{deployment.file}: profiles.{kind}: {error}{hint}") from error


def _measurable(model: ServedModel) -> Path:
    try:
        return model.to_serve()
    except RefusedError as error:
        raise DeploymentError(
            f"{error}; so the CPU cannot be measured with it: name a profile for CPU under profiles"
        ) from error


def cpu_profile(checkpoint: Path, folder: Path) -> Profile:
    """This machine's profile for a checkpoint, measured if it was not before."""
    file = folder / "profiles" / f"cpu-{_fingerprint(checkpoint)}.json"
    try:
        return Profile.from_mapping(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, ProfileError):
        pass  # not measured yet, or by a version that wrote another form: measure
    from runtime.torch_engine.calibrate import measure

    profile = fit_cpu(CpuSamples(**measure(checkpoint)))
    _write(file, json.dumps(profile.to_mapping(), indent=2))
    return profile


def speeds(deployment: Deployment) -> dict[str, Speed]:
    """Device kind to its peaks by the data sheet; the CPU has none, only rates that were reached."""
    kinds = [kind for kind in deployment.cluster.kinds if kind != CPU]
    known = {kind: _speed(deployment.profiles.get(kind, kind)) for kind in kinds}
    return {kind: speed for kind, speed in known.items() if speed}


@cache
def _speed(name: str) -> Speed | None:
    try:
        profile = load(name)
    except ProfileError:
        return None
    return Speed(profile.memory_bytes_s, max(profile.flops_s.values()))


def _fingerprint(checkpoint: Path) -> str:
    """What the measurement depends on: the processor, how many cores may be used, and the model."""
    config = (checkpoint / "config.json").read_bytes()
    machine = f"{_processor()} {len(os.sched_getaffinity(0))} {checkpoint.resolve()}"
    return hashlib.sha256(machine.encode() + config).hexdigest()[:16]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def _write(file: Path, text: str) -> None:
    """All or nothing; a folder that cannot be written only costs the next process a measurement."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)
    except OSError:
        return
