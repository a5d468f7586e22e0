"""The models of a deployment: what each is, on which devices, by which engine, under which load."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from intent.models import NAMED_WINDOWS, Goal
from runtime.capabilities import Capabilities, Limits
from runtime.errors import CheckpointError, RuntimeFault, TopologyError
from runtime.footprint import blocks, weight_bytes
from runtime.models import Cluster, ModelSpec, Topology
from runtime.notation import parse_topology
from selector.models import SearchInput, Workload
from service.documents.problems import Code
from service.engine_settings import EngineChoice, read_engine, refuse_start, refuse_unused
from service.errors import RefusedError
from service.located_yaml import Key, LocatedYaml, Section


class Some(TypedDict):
    """So many devices of a kind."""

    kind: str
    count: int


Asked = int | Some
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

    @property
    def name(self) -> str:
        """What it is called."""
        return self.spec.name

    def workload_in(self, window: str) -> Workload:
        """What is asked of it in a window; ``always`` stands for windows without their own."""
        default = self.workload.get("always") or next(iter(self.workload.values()))
        return self.workload.get(window, default)

    def problem(self, window: str, limits: Limits, now: Topology | None, engine: Capabilities | None) -> SearchInput:
        """What a search for a topology is given; ``now`` is what runs, and ``engine`` what it can run."""
        cluster = self.cluster if now is None or engine is None else self.reach(now)
        return SearchInput(cluster, self.spec, self.workload_in(window), now, limits, engine)

    def reach(self, now: Topology) -> Cluster:
        """Where its requests can move from a topology.

        With the built-in engine, within the host where KV is on GPUs.
        """
        if self.engine.name == "vllm" or self.cluster.network is not None or self.cluster.kinds == ("CPU",):
            return self.cluster
        here = (node for node in self.cluster.nodes if any(gpu.index in now.devices for gpu in node.gpus))
        return Cluster(tuple(here))

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
    shares = _shares(source, cluster)
    models = tuple(_model(source, number, cluster.part(share)) for number, share in enumerate(shares))
    refuse_unused(source, [model.engine for model in models])
    return models


def _refuse_twice(source: LocatedYaml) -> None:
    """A name or an alias means one model."""
    owners: dict[str, int] = {}
    for number, data in enumerate(source.data["models"]):
        aliases = data.get("aliases", ())
        names = [
            (("name",), data["name"]),
            *((("aliases", place), alias) for place, alias in enumerate(aliases)),
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
            message = f"{owner} asks for {count} {kind}, and {found}"
            raise self._source.error(path, message)
        for device in free[:count]:
            self.take(device, owner, path)

    def of(self, owner: str) -> list[int]:
        """What a model has."""
        return [device for device, name in self._owners.items() if name == owner]


def _shares(source: LocatedYaml, cluster: Cluster) -> list[list[int]]:
    """The devices of each model: those that are named, then so many of a kind, then what is left."""
    models = source.data["models"]
    devices = _Devices(source, cluster)
    requested = [(number, model["name"], model.get("devices")) for number, model in enumerate(models)]
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
    precision = str(data.get("precision", "bf16"))
    try:
        config = _config(file / "config.json" if key == "path" else file)
        spec = ModelSpec.from_config(config, data["name"])
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
        workload=_workloads(source, (*path, "workload")),
    )


def refuse_impossible(topology: Topology, spec: ModelSpec, cluster: Cluster, block_tokens: int) -> None:
    """Refuse a topology that a model cannot start in.

    Raises:
        TopologyError: devices or layers that are not so, or no memory for KV.
    """
    topology.check(cluster, spec)
    if not blocks(topology, spec, cluster, block_tokens):
        device, size = max(weight_bytes(topology, spec).items(), key=lambda item: item[1])
        raise TopologyError(
            f"{topology} does not fit: {size / 1e9:.3g} GB of weights leave no room for KV in the "
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


def _workloads(source: LocatedYaml, path: tuple[Key, ...]) -> dict[str, Workload]:
    """A model's own load, or that of the deployment."""
    path = path if source.get(path) is not None else ("workload",)
    fields: Section | None = source.get(path)
    if fields is None:
        raise source.error((), "no workload is said; write `workload` for the deployment, or for each model")
    known = {*NAMED_WINDOWS, *source.data.get("windows", {})}
    for name in fields:
        if name not in known:
            raise source.error((*path, name), f"no such window; known are {', '.join(sorted(known))}")
    return {name: Workload(**data) for name, data in fields.items()}
