"""Which profile each device kind has.

The CPU's is measured once per machine and checkpoint, then kept, until the machine is found to be quicker than it was.
"""

import dataclasses
import hashlib
import json
import logging
import os
import platform
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from runtime.errors import CheckpointError
from runtime.footprint import recipe
from runtime.process.content import PinnedCheckpoint, other_files
from selector.models import CpuSamples, Profile, ProfileError
from selector.profiles import KIND as CPU
from selector.profiles import fit_cpu, load
from service.deployment.engine_settings import fitted as fitted_engine
from service.deployment.engines import base
from service.deployment.file import Deployment
from service.deployment.models import ServedModel
from service.deployment.settings import NEWS
from service.documents.errors import DeploymentError, RefusedError
from validator.models import Speed

if TYPE_CHECKING:
    from selector.quality import QualityCurve

log = logging.getLogger(__name__)


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
        return cpu_profile(_measurable(model), folder, base(model))
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


def cpu_profile(checkpoint: Path, folder: Path, computes: str = "fp32") -> Profile:
    """This machine's profile for a checkpoint that is served in a format, measured if it was not before."""
    file = _kept(checkpoint, folder, computes)
    try:
        return Profile.from_mapping(json.loads(file.read_text(encoding="utf-8"))["profile"])
    except (OSError, LookupError, ValueError, TypeError, AttributeError, ProfileError):
        pass  # not measured yet, or by a version that wrote another form, or damaged: measure
    from runtime.torch_engine.calibrate import measure

    NEWS.info("measuring this CPU with %s, for up to a minute; the profile is kept", checkpoint)
    before_s = pace_s()
    found = measure(checkpoint, computes)
    when = datetime.fromtimestamp(found.at_s, UTC)
    made = (
        f"measured on {when:%Y-%m-%d %H:%M}Z at a load of {found.load:.1f}, "
        f"in {found.rounds} rounds of which two differ by {found.apart:.0%}"
    )
    profile = dataclasses.replace(fit_cpu(CpuSamples(**found.figures)), made=made)
    log.info("the CPU was %s", made)
    _write(file, json.dumps({"profile": profile.to_mapping(), "pace_s": min(before_s, pace_s())}, indent=2))
    return profile


def _quality_file(checkpoint: Path, folder: Path) -> Path:
    return folder / "profiles" / f"quality-{checkpoint.resolve().name}.yaml"


def keep_quality(checkpoint: Path, folder: Path, text: str) -> Path:
    """Write what was measured of a checkpoint in weight formats to where ``quality_of`` finds it.

    Raises:
        OSError: the folder cannot be written.
    """
    file = _quality_file(checkpoint, folder)
    _replace(file, text)
    return file


def quality_of(model: ServedModel, folder: Path) -> "QualityCurve | None":
    """What was measured of a model's checkpoint in weight formats.

    None: nothing, or of another checkpoint, which is logged.

    Raises:
        DeploymentError: the model names a file that is none, or of another checkpoint.
    """
    file = model.quality or (model.checkpoint and _quality_file(model.checkpoint, folder))
    if file is None or not (model.quality or file.exists()):
        return None
    from selector.quality import QualityCurve  # most commands do without

    try:
        curve = QualityCurve.from_mapping(yaml.safe_load(file.read_text(encoding="utf-8")))
        differ = other_files(curve.checkpoint, PinnedCheckpoint.of(model.checkpoint or Path()).digests)
        why = f"it was measured for another checkpoint ({', '.join(differ[:3])})" if differ else ""
        if not why and curve.recipe != recipe(model.spec):
            why = "it was measured with another recipe of weights"
        if not why:
            return curve
    except (OSError, ValueError, yaml.YAMLError, ProfileError, CheckpointError) as error:
        why = " ".join(str(error).split())
    why = f"{file}: {why}; `intentctl profile --quality` measures anew"
    if model.quality:
        raise DeploymentError(f"{model.where}: {why}")
    log.warning("%s", why)
    return None


def fitted(model: ServedModel, profiles: Mapping[str, Profile], folder: Path) -> ServedModel:
    """With its measured quality, and with engine settings that suit its steps on CPUs.

    Raises:
        DeploymentError: it names a file of its quality that is none, or of another checkpoint.
    """
    model = dataclasses.replace(model, curve=quality_of(model, folder))
    on_cpus = {*model.cluster.kinds} == {CPU} and CPU in profiles and base(model) in profiles[CPU].flops_s
    if model.engine.name != "torch" or not on_cpus:
        return model
    return dataclasses.replace(model, engine=fitted_engine(model.engine, model.spec, profiles[CPU], base(model)))


def crowded(deployment: Deployment, devices: Collection[int]) -> str:
    """Why nothing can be predicted of these devices; empty: it can.

    They are more CPU slots of this machine than it has cores.
    """
    cores = len(os.sched_getaffinity(0))
    for node in deployment.cluster.nodes:
        ranks = sum(gpu.kind == CPU and gpu.index in devices for gpu in node.gpus)
        if node.name not in deployment.agents and ranks > cores:
            return f"{ranks} CPU slots of {node.name} share {cores} cores: what is predicted of them together is worth nothing"
    return ""


def forget_outdated(model: ServedModel, folder: Path) -> None:
    """Have the CPU measured anew where it is quicker than it was then; tell where it is slower."""
    if CPU not in model.cluster.kinds or model.checkpoint is None:
        return
    file = _kept(model.checkpoint, folder, base(model))
    try:
        then_s = float(json.loads(file.read_text(encoding="utf-8"))["pace_s"])
    except (OSError, LookupError, ValueError, TypeError):
        return
    now_s = pace_s()
    if now_s < then_s / OUTDATED:
        log.warning("this CPU is %.1f times as quick as when it was measured; it is measured anew", then_s / now_s)
        file.unlink(missing_ok=True)
    elif now_s > then_s * OUTDATED:
        log.warning(
            "this CPU is %.1f times slower than when it was measured (load %.1f now): predictions promise too much",
            now_s / then_s,
            os.getloadavg()[0],
        )


OUTDATED = 1.5
"""By how much a CPU is quicker or slower than it was."""


def pace_s() -> float:
    """Seconds of a fixed calculation of one thread over memory that few caches hold; the quickest of some."""
    import numpy as np  # here, as planning from a file alone may wait for none of it

    values = np.ones(1 << 23, dtype=np.float32)

    def once() -> float:
        began = time.perf_counter()
        values.sum()
        return time.perf_counter() - began

    return min(once() for _ in range(9))


def _kept(checkpoint: Path, folder: Path, computes: str) -> Path:
    return folder / "profiles" / f"cpu-{_fingerprint(checkpoint, computes)}.json"


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


def _fingerprint(checkpoint: Path, computes: str) -> str:
    """What the measurement depends on: processor, cores that may be used, model, and what it computes in."""
    config = (checkpoint / "config.json").read_bytes()
    machine = f"{_processor()} {len(os.sched_getaffinity(0))} {checkpoint.resolve()} {computes}"
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
    """A folder that cannot be written only costs the next process a measurement."""
    with suppress(OSError):
        _replace(file, text)


def _replace(file: Path, text: str) -> None:
    """All or nothing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(f".{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(file)
