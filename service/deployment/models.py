"""The models of a deployment: what each is, on which devices, by which engine, under which load."""

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from intent.models import NAMED_WINDOWS, Goal
from runtime.capabilities import Capabilities, Limits
from runtime.errors import CheckpointError, RuntimeFault, TopologyError
from runtime.footprint import blocks, weight_bytes
from runtime.models import Cluster, ModelSpec, Topology, uniform
from runtime.notation import parse_topology
from runtime.torch_engine.models import base_of
from selector.models import MOST_P95, PUBLIC_CHAT, SearchInput, Spread, Workload, WorkloadError
from selector.profiles import KIND as CPU
from selector.quality import QualityCurve
from service.deployment.engine_settings import EngineChoice, read_engine, refuse_start, refuse_unused
from service.deployment.located_yaml import Key, LocatedYaml, Section
from service.documents.errors import RefusedError
from service.documents.problems import Code


class DeviceCount(TypedDict):
    """So many devices of a kind."""

    kind: str
    count: int


Asked = int | DeviceCount
"""A device's id, or so many of a kind."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model of the deployment; what it does not say of engine and load, the deployment says for all."""

    where: str
    """File, line and path, for messages."""
    spec: ModelSpec
    checkpoint: Path | None
    """None when only its ``config.json`` is known: it can be planned for, not served."""
    aliases: tuple[str, ...]
    speaks: bool
    """It was trained on a language; its ``config.json`` says where not."""
    precision: str
    """What holds where a topology's text says none."""
    start: Topology | None
    cluster: Cluster
    """Its devices: no other model's."""
    engine: EngineChoice
    workload: Mapping[str, Workload]
    quality: Path | None = None
    """The file of its quality in weight formats, where it names one."""
    curve: QualityCurve | None = None
    """What was measured of that, once it was read."""

    @property
    def name(self) -> str:
        """What it is called."""
        return self.spec.name

    def workload_in(self, window: str) -> Workload:
        """What is asked of it in a window; ``always`` stands for windows without their own."""
        return self.workload.get(window) or self.workload.get("always") or next(iter(self.workload.values()))

    def problem(self, window: str, limits: Limits, now: Topology | None, engine: Capabilities | None) -> SearchInput:
        """What a search for a topology is given; ``now`` is what runs, and ``engine`` what it can run."""
        cluster = self.cluster
        if engine and cluster.network:  # no engine runs a topology over two nodes
            cluster = replace(cluster, network=None, between=cluster.network)
        return SearchInput(
            cluster,
            self.spec,
            self.workload_in(window),
            now,
            limits,
            engine,
            precision=self.precision,
            running=engine.running if engine else None,
            quality=self.curve,
        )

    def reach(self, now: Topology) -> Cluster:
        """Where its requests can move from a topology.

        With the built-in engine, within the host where KV is on GPUs.
        """
        is_for_sizing = self.engine.named is None and self.cluster.network is not None
        if self.engine.name == "vllm" or is_for_sizing or self.cluster.kinds == ("CPU",):
            return self.cluster
        here = (node for node in self.cluster.nodes if any(gpu.index in now.devices for gpu in node.gpus))
        return replace(self.cluster, nodes=tuple(here))

    def to_serve(self) -> Path:
        """Its checkpoint folder.

        Raises:
            RefusedError: no engine serves such a model, or the deployment only knows its shape.
        """
        if self.spec.unserved:
            raise RefusedError(Code.UNSUPPORTED, f"{self.where}: {self.spec.unserved}")
        if self.checkpoint is None:
            raise RefusedError(
                Code.UNSUPPORTED,
                f"{self.where}: {self.name} has only a config, so it can be planned for but not served; "
                "give its checkpoint folder as `path`",
            )
        return self.checkpoint


def is_about(goal: Goal, model: str) -> bool:
    """Whether a goal is about a model, or about all of them."""
    return getattr(goal, "model", None) in {None, model}


def read_models(source: LocatedYaml, cluster: Cluster) -> tuple[ServedModel, ...]:
    """Every model of the file, each with devices of its own.

    Raises:
        DeploymentError: a name twice, devices that are shared or not there, or a model that cannot be read or started.
    """
    _refuse_twice(source)
    models = tuple(_model(source, number, cluster.part(share)) for number, share in enumerate(_shares(source, cluster)))
    refuse_unused(source, [model.engine for model in models])
    return models


def _refuse_twice(source: LocatedYaml) -> None:
    """A name or an alias means one model."""
    owners: dict[str, int] = {}
    for number, data in enumerate(source.data["models"]):
        names = [
            (("name",), data["name"]),
            *((("aliases", place), alias) for place, alias in enumerate(data.get("aliases", ()))),
        ]
        for path, name in names:
            if owners.setdefault(name, number) != number:
                other = source.data["models"][owners[name]]["name"]
                raise source.error(
                    ("models", number, *path), f"{name!r} means the model {other!r} already; say another name"
                )


class _Devices:
    """The devices of a cluster as models take them."""

    def __init__(self, source: LocatedYaml, cluster: Cluster) -> None:
        self._source = source
        self._cluster = cluster
        self._owners: dict[int, str] = {}

    def free(self, kind: str | None = None) -> list[int]:
        """Those that nobody has, of one kind or of all."""
        return [gpu.index for gpu in self._cluster.gpus if gpu.index not in self._owners and kind in {None, gpu.kind}]

    def take(self, device: int, owner: str, path: tuple[Key, ...]) -> None:
        """Give a device to a model.

        Raises:
            DeploymentError: another model has it, or there is none.
        """
        known = [gpu.index for gpu in self._cluster.gpus]
        if device not in known:
            raise self._source.error(path, f"there is no device {device}; the cluster has {known[0]} to {known[-1]}")
        if device in self._owners:
            raise self._source.error(path, f"device {device} is {self._owners[device]}'s already; models share none")
        self._owners[device] = owner

    def take_some(self, kind: str, count: int, owner: str, path: tuple[Key, ...]) -> None:
        """Give the first free devices of a kind to a model.

        Raises:
            DeploymentError: there are fewer.
        """
        free = self.free(kind)
        if len(free) < count:
            every = sum(gpu.kind == kind for gpu in self._cluster.gpus)
            known = f"there is none; the cluster has {', '.join(self._cluster.kinds)}"
            found = f"{len(free)} of its {every} are free" if every else known
            raise self._source.error(path, f"{owner} asks for {count} {kind}, and {found}")
        for device in free[:count]:
            self.take(device, owner, path)

    def of(self, owner: str) -> list[int]:
        """What a model has."""
        return [device for device, name in self._owners.items() if name == owner]


def _shares(source: LocatedYaml, cluster: Cluster) -> list[list[int]]:
    """The devices of each model: those that are named, then so many of a kind, then what is left."""
    devices = _Devices(source, cluster)
    requested = [(number, model["name"], model.get("devices")) for number, model in enumerate(source.data["models"])]
    named = [
        (share, name, ("models", number, "devices", *place))
        for number, name, wanted in requested
        for share, place in _each(wanted)
    ]
    for share, name, path in named:
        if isinstance(share, int):
            devices.take(share, name, path)
    for share, name, path in named:
        if not isinstance(share, int):
            devices.take_some(share["kind"], share["count"], name, path)
    for number, name, wanted in requested:
        free = [] if wanted is not None else devices.free()
        if wanted is None and not free:
            raise source.error(("models", number), f"no device is left for {name}; give every model its `devices`")
        for device in free:
            devices.take(device, name, ("models", number))
    return [devices.of(name) for _, name, _ in requested]


def _each(devices: Asked | list[Asked] | None) -> list[tuple[Asked, tuple[Key, ...]]]:
    """What a model asks for, one by one, with its place below ``devices``.

    A device's id, or ``{kind, count}``.
    """
    if devices is None:
        return []
    return (
        [(device, (place,)) for place, device in enumerate(devices)] if isinstance(devices, list) else [(devices, ())]
    )


def _model(source: LocatedYaml, number: int, cluster: Cluster) -> ServedModel:
    path: tuple[Key, ...] = ("models", number)
    data = source.data["models"][number]
    engine = read_engine(source, path)
    key = "path" if "path" in data else "config"
    file = source.file.parent / Path(data[key]).expanduser()
    try:
        config = _config(file / "config.json" if key == "path" else file)
        spec = ModelSpec.from_config(config, data["name"])
        precision = str(data.get("precision", spec.quantised or _usual_precision(engine, cluster)))
        start = None
        if (topology := data.get("start")) is not None:
            start = parse_topology(topology, cluster, spec.num_layers, precision)
            refuse_impossible(start, spec, cluster, engine.block_tokens)
    except TopologyError as error:
        raise source.error((*path, "start"), str(error)) from error
    except RuntimeFault as error:
        raise source.error((*path, key), str(error)) from error
    if start is not None:
        refuse_start(source, path, engine, start, model=spec, cluster=cluster)
    if start is not None and engine.name == "vllm":
        for stage in start.stages:
            if why := spec.undivided(stage.tp_size):
                raise source.error((*path, "start"), f"vLLM divides a model evenly: {why}")
    if key == "path" and engine.name == "torch" and not spec.quantised:
        alone = uniform(cluster, cluster.kinds[0], 1, 1, spec.num_layers, precision)
        try:
            base_of(start or alone)
        except TopologyError as error:
            raise source.error((*path, "start" if start else "precision"), str(error)) from error
    return ServedModel(
        where=source.where((*path, key)),
        spec=spec,
        checkpoint=file if key == "path" else None,
        aliases=tuple(data.get("aliases", ())),
        speaks=config.get("speaks_language", True) is not False,
        precision=precision,
        start=start,
        cluster=cluster,
        engine=engine,
        workload=_workloads(source, (*path, "workload"), spec),
        quality=source.file.parent / Path(data["quality"]).expanduser() if "quality" in data else None,
    )


def _usual_precision(engine: EngineChoice, cluster: Cluster) -> str:
    """What a model computes in where the file says nothing: fp32 with the built-in engine on CPUs."""
    return "fp32" if engine.name == "torch" and {*cluster.kinds} == {CPU} else "bf16"


def refuse_impossible(topology: Topology, spec: ModelSpec, cluster: Cluster, block_tokens: int) -> None:
    """Refuse a topology that a model cannot start in.

    Raises:
        TopologyError: devices or layers that are not so, or no memory for KV.
    """
    topology.check(cluster, spec)
    for replica in topology.replicas:
        if not blocks(replica, spec, cluster, block_tokens):
            device, size = max(weight_bytes(replica, spec).items(), key=lambda item: item[1])
            raise TopologyError(
                f"{replica} does not fit: {size / 1e9:.3g} GB of weights leave no room for KV in the "
                f"{cluster.gpu(device).memory_bytes / 1e9:.3g} GB of device {device}; give it more devices"
            )


def _config(config: Path) -> Section:
    """A model's ``config.json``.

    Raises:
        CheckpointError: it cannot be read.
    """
    if not config.parent.is_dir():
        raise CheckpointError(f"the checkpoint folder {config.parent} does not exist")
    try:
        data = json.loads(config.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{config} does not exist; a checkpoint folder holds config.json and safetensors"
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{config} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{config} is not a JSON object")
    return data


def _workloads(source: LocatedYaml, path: tuple[Key, ...], spec: ModelSpec) -> dict[str, Workload]:
    """A model's own load, or that of the deployment."""
    path = path if source.get(path) is not None else ("workload",)
    fields: Section | None = source.get(path)
    if fields is None:
        raise source.error((), "no workload is said; write `workload` for the deployment, or for each model")
    known = {*NAMED_WINDOWS, *source.data.get("windows", {})}
    for name in fields:
        if name not in known:
            raise source.error((*path, name), f"no such window; known are {', '.join(sorted(known))}")
    return {name: _workload(source, (*path, name), spec) for name in fields}


SPREADS = {"input_tokens": "inputs", "output_tokens": "outputs"}
"""Key of a load's lengths to the field of their spread."""
FILE = "the file"
"""Where a spread comes from that is said."""


def _workload(source: LocatedYaml, path: tuple[Key, ...], spec: ModelSpec) -> Workload:
    """One window's: what is said goes before what a trace tells, and a mean alone has the usual spread."""
    fields: Section = dict(source.get(path))
    trace = fields.pop("trace", None)
    for key, spread in SPREADS.items():
        if isinstance(fields.get(key), dict):
            fields[key], fields[spread] = _lengths(source, (*path, key))
    if trace is not None:
        load = _traced(source, (*path, "trace"), fields)
    elif missing := {"rate_rps", *SPREADS} - fields.keys():
        raise source.error(path, f"the key {min(missing)!r} is missing; say it, or name a trace")
    else:
        load = Workload(**{"concurrency": 1, **fields})
    _refuse_long(source, path, load, spec)
    return load


def _traced(source: LocatedYaml, path: tuple[Key, ...], fields: Section) -> Workload:
    """The load of a trace, but for the fields that are said."""
    from selector.performance.traces import in_flight, read_trace, workload_of  # here: it takes numpy, and is rare

    file = source.file.parent / Path(source.get(path)).expanduser()
    try:
        found = workload_of(read_trace(file.read_text(encoding="utf-8", errors="replace"), file.name), file.name)
    except (OSError, WorkloadError) as error:
        raise source.error(path, str(error)) from error
    load = replace(found, **fields)
    if not load.rate_rps:
        raise source.error(path, "its requests come at one moment; say rate_rps")
    return replace(load, concurrency=fields.get("concurrency") or in_flight(load))


def _lengths(source: LocatedYaml, path: tuple[Key, ...]) -> tuple[int, Spread]:
    """Mean and spread of ``{mean, p95}`` or ``{histogram}``."""
    lengths: Section = source.get(path)
    if lengths.keys() == {"histogram"}:
        return _histogram(source, (*path, "histogram"), lengths["histogram"])
    if lengths.keys() != {"mean", "p95"}:
        raise source.error(path, "write a number, {mean, p95} or {histogram}")
    mean = int(lengths["mean"])
    p95 = lengths["p95"]
    if not mean <= p95 <= MOST_P95 * mean:
        below = f"below the mean of {mean}; where lengths are all alike, write it twice"
        beyond = f"over {MOST_P95} times the mean, which no lognormal distribution has; write a histogram"
        raise source.error((*path, "p95"), f"{p95} is {below if p95 < mean else beyond}")
    return mean, Spread(p95 / mean, source=FILE)


def _histogram(source: LocatedYaml, path: tuple[Key, ...], shares: dict[int, float]) -> tuple[int, Spread]:
    """Mean and spread of tokens with the share of requests that have so many."""
    for length in shares:
        if type(length) is not int or length < 1:
            raise source.error((*path, length), "a length is a whole number of tokens, 1 or more")
    total = math.fsum(shares.values())
    if abs(total - 1) > 0.01:
        raise source.error(path, f"the shares sum to {total:.4g}; they have to sum to 1")
    mean = math.fsum(length * share for length, share in shares.items()) / total
    bins = tuple((length / mean, share / total) for length, share in sorted(shares.items()))
    reached = itertools.accumulate(share for _, share in bins)
    p95_by_mean = next(length for (length, _), share in zip(bins, reached, strict=True) if share > 0.95 - 1e-9)
    return round(mean), Spread(p95_by_mean, bins, FILE)


def _refuse_long(source: LocatedYaml, path: tuple[Key, ...], load: Workload, spec: ModelSpec) -> None:
    """Refuse lengths that are said, or of a trace, and over the model's context."""
    known = [
        (key, getattr(load, key) * max(spread.histogram, default=(spread.p95_by_mean,))[0])
        for key, field in SPREADS.items()
        if (spread := getattr(load, field)).source != PUBLIC_CHAT
    ]
    for key, tokens in (*known, ("input_tokens", load.input_tokens + load.output_tokens)):
        if tokens > spec.max_position_embeddings:
            where = (*path, key if key in source.get(path) else "trace")
            raise source.error(
                where, f"{tokens:.0f} tokens are more than the {spec.max_position_embeddings} that {spec.name} holds"
            )
