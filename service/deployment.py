"""The deployment file: one YAML, read once, handed down as the nouns of the packages below.

Relative paths in it are relative to the file. Memory is in GB of 1e9 bytes, bandwidth in GB/s.
"""

import itertools
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

from intent.models import NAMED_WINDOWS, Catalogue, RecurringWindow, Window
from runtime.capabilities import Limits
from runtime.errors import CheckpointError, RuntimeFault, TopologyError
from runtime.footprint import blocks, weight_bytes
from runtime.models import Cluster, Gpu, Link, ModelSpec, Node, Topology
from runtime.notation import parse_topology
from selector.models import Workload
from selector.profiles import is_file, kinds
from service.documents.problems import Code
from service.engine_settings import EngineChoice, read_engine, refuse_start
from service.errors import RefusedError
from service.located_yaml import LocatedYaml, read
from service.windows import DAYS, in_force

CPU = "CPU"
"""The kind whose figures are measured on the machine itself."""


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model of the deployment and what it starts as."""

    spec: ModelSpec
    checkpoint: Path | None
    """None when only its ``config.json`` is known: it can be planned for, not served."""
    aliases: tuple[str, ...]
    precision: str
    """What holds where a topology's text says none."""
    start: Topology | None


@dataclass(frozen=True, slots=True)
class LlmEndpoint:
    """Where the LLM translator is; the key itself stays in the environment."""

    base_url: str
    model: str
    key_variable: str | None
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Deployment:
    """Everything the file says."""

    file: Path
    cluster: Cluster
    model: ServedModel
    tenants: Mapping[str, tuple[str, ...]]
    """Tenant to its aliases."""
    windows: Mapping[str, Window]
    workload: Mapping[str, Workload]
    limits: Limits
    approval: Literal["person", "nobody"]
    engine: EngineChoice
    llm: LlmEndpoint | None
    profiles: Mapping[str, str]
    """Device kind to the name of its profile or the path of its file; kinds left out have the profile of their own name."""
    timezone: str

    def catalogue(self, now: datetime) -> Catalogue:
        """The names a text may use."""
        aliases = dict.fromkeys(self.model.aliases, self.model.spec.name)
        aliases |= {alias: tenant for tenant, names in self.tenants.items() for alias in names}
        return Catalogue(
            models=(self.model.spec.name,),
            windows=tuple(dict.fromkeys((*NAMED_WINDOWS, *self.windows))),
            now=now,
            tz=self.timezone,
            tenants=tuple(self.tenants),
            aliases=aliases,
            devices=Counter(gpu.kind for gpu in self.cluster.gpus),
            nodes=tuple(node.name for node in self.cluster.nodes),
        )

    def window_in_force(self, now: datetime) -> str:
        """The name of the window that holds now."""
        return in_force(self.windows, now)

    def workload_in(self, window: str) -> Workload:
        """What is asked of the service in a window; ``always`` stands for windows without their own."""
        default = self.workload.get("always") or next(iter(self.workload.values()))
        return self.workload.get(window, default)

    def checkpoint(self) -> Path:
        """The model's checkpoint folder.

        Raises:
            RefusedError: the deployment only knows the model's shape.
        """
        if self.model.checkpoint is None:
            name = self.model.spec.name
            raise RefusedError(
                Code.UNSUPPORTED,
                f"{self.file}: {name} has only a config, so it can be planned for but not served; "
                "give its checkpoint folder as `path`",
            )
        return self.model.checkpoint

    def to_serve(self) -> Path:
        """The checkpoint folder, where this is something that one service can run.

        Raises:
            RefusedError: the deployment only knows the model's shape, or has several machines.
        """
        if len(self.cluster.nodes) > 1:
            names = ", ".join(node.name for node in self.cluster.nodes)
            raise RefusedError(
                Code.UNSUPPORTED,
                f"{self.file}: the nodes {names} can be planned for together but not served: a service runs on one "
                "machine; leave the node that it is to run on",
            )
        return self.checkpoint()


def load(file: Path) -> Deployment:
    """Read and check a deployment file.

    Raises:
        DeploymentError: naming the file, the line, the path and what to do.
    """
    source = read(file)
    source.check(_schema())
    data = source.data
    if len(data["models"]) > 1:
        raise source.error(["models"], "one model per deployment is served for now; leave one")
    timezone = data.get("timezone", "UTC")
    _check_zone(source, ["timezone"], timezone)
    _check_nodes(source)
    cluster = _cluster(data["cluster"])
    engine = read_engine(source)
    model = _model(source, cluster, engine)
    if model.start is not None:
        refuse_start(source, (), engine, model.start, (model.spec, cluster))
    return Deployment(
        file=file,
        cluster=cluster,
        model=model,
        tenants={tenant["name"]: tuple(tenant.get("aliases", ())) for tenant in data.get("tenants", ())},
        windows={name: _window(source, name, timezone) for name in data.get("windows", {})},
        workload=_workloads(source),
        limits=_limits(data.get("limits", {})),
        approval=_approval(source),
        engine=engine,
        llm=_llm(data.get("llm")),
        profiles=_profiles(source, cluster),
        timezone=timezone,
    )


def _approval(source: LocatedYaml) -> Literal["person", "nobody"]:
    """Who may apply a plan; ``limits.approval`` is where older files say it."""
    said: Literal["person", "nobody"] | None = source.data.get("limits", {}).get("approval")
    if said is None:
        by: Literal["person", "nobody"] = source.data.get("approval", {"by": "person"})["by"]
        return by
    instead = f"write `approval: {{by: {said}}}` at the top level instead"
    if "approval" in source.data:
        raise source.error(["limits", "approval"], f"is said twice; {instead}, and leave this out")
    log.warning("%s", source.error(["limits", "approval"], instead))
    return said


@cache
def _schema() -> dict[str, Any]:
    text = files("service").joinpath("schema/deployment.v1.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _link(data: Mapping[str, Any]) -> Link:
    return Link(data["kind"], data["bandwidth_gb_s"] * 1e9, data["latency_us"] * 1e-6)


def _cluster(data: Mapping[str, Any]) -> Cluster:
    index = itertools.count()
    nodes = tuple(
        Node(node["name"], tuple(_gpus(node, index)), _link(node["link"])) for node in data["nodes"]
    )
    return Cluster(nodes, _link(data["network"]) if "network" in data else None)


def _check_nodes(source: LocatedYaml) -> None:
    """Every node has a name of its own, and every device a kind that there are figures for."""
    known, named = {CPU, *kinds(), *source.data.get("profiles", {})}, set[str]()
    for place, node in enumerate(source.data["cluster"]["nodes"]):
        path: list[str | int] = ["cluster", "nodes", place]
        if node["name"] in named:
            raise source.error(
                [*path, "name"], f"a node called {node['name']!r} is there already; name this one otherwise"
            )
        named.add(node["name"])
        for number, group in enumerate(node["gpus"]):
            if group["kind"] not in known:
                words = f"no figures for {group['kind']!r}; known are {', '.join(sorted(known))}"
                raise source.error(
                    [*path, "gpus", number, "kind"], f"{words}, or name a profile of it under profiles"
                )


def _gpus(node: Mapping[str, Any], index: Iterator[int]) -> Iterator[Gpu]:
    for group in node["gpus"]:
        for _ in range(group.get("count", 1)):
            memory_bytes = round(group["memory_gb"] * 1e9)
            yield Gpu(next(index), group["kind"], memory_bytes, group.get("usd_per_hour", 0.0))


def _model(source: LocatedYaml, cluster: Cluster, engine: EngineChoice) -> ServedModel:
    data = source.data["models"][0]
    key = "path" if "path" in data else "config"
    path = source.file.parent / Path(data[key]).expanduser()
    try:
        spec = _spec(path / "config.json" if key == "path" else path, data["name"])
        start = _start(data, cluster, spec, engine.block_tokens)
    except TopologyError as error:
        raise source.error(["models", 0, "start"], str(error)) from error
    except RuntimeFault as error:
        raise source.error(["models", 0, key], str(error)) from error
    return ServedModel(
        spec, path if key == "path" else None, tuple(data.get("aliases", ())), _precision(data), start
    )


def _start(data: Mapping[str, Any], cluster: Cluster, spec: ModelSpec, block_tokens: int) -> Topology | None:
    if "start" not in data:
        return None
    topology = parse_topology(data["start"], cluster, spec.num_layers, _precision(data))
    topology.check(cluster, spec)
    if not blocks(topology, spec, cluster, block_tokens):
        device, size = max(weight_bytes(topology, spec).items(), key=lambda item: item[1])
        raise TopologyError(
            f"{topology} does not fit: {size / 1e9:.3g} GB of weights leave no room for KV in the "
            f"{cluster.gpu(device).memory_bytes / 1e9:.3g} GB of device {device}; give it more devices"
        )
    return topology


def _precision(data: Mapping[str, Any]) -> str:
    return str(data.get("precision", "bf16"))


def _spec(config: Path, name: str) -> ModelSpec:
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
    return ModelSpec.from_config(data, name)


def _window(source: LocatedYaml, name: str, timezone: str) -> Window:
    data = source.data["windows"][name]
    if isinstance(data, str):
        return data
    tz = data.get("tz", timezone)
    _check_zone(source, ["windows", name, "tz"], tz)
    return RecurringWindow(tuple(data.get("days", DAYS)), data["start"], data["end"], tz)


def _check_zone(source: LocatedYaml, path: list[str | int], name: str) -> None:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise source.error(path, f"{name!r} is no time zone; write one like Europe/Berlin") from None


def _workloads(source: LocatedYaml) -> dict[str, Workload]:
    known = {*NAMED_WINDOWS, *source.data.get("windows", {})}
    for name in source.data["workload"]:
        if name not in known:
            raise source.error(["workload", name], f"no such window; known are {', '.join(sorted(known))}")
    return {name: Workload(**data) for name, data in source.data["workload"].items()}


def _limits(data: Mapping[str, Any]) -> Limits:
    lists = {
        key: tuple(data[key]) for key in ("allowed_tp", "allowed_pp", "allowed_precisions") if key in data
    }
    plain = ("max_gpus", "quality_loss", "max_sequences", "max_step_tokens")
    given: dict[str, Any] = {key: data[key] for key in plain if key in data} | lists
    return Limits(**given)


def _llm(data: Mapping[str, Any] | None) -> LlmEndpoint | None:
    if data is None:
        return None
    return LlmEndpoint(data["base_url"], data["model"], data.get("key_variable"), data.get("timeout_s", 20.0))


def _profiles(source: LocatedYaml, cluster: Cluster) -> dict[str, str]:
    data: dict[str, str] = source.data.get("profiles", {})
    for kind in data:
        if kind not in cluster.kinds:
            raise source.error(
                ["profiles", kind], f"no {kind} in the cluster; it has {', '.join(cluster.kinds)}"
            )
    folder = source.file.parent
    return {
        kind: str(folder / Path(name).expanduser()) if is_file(name) else name for kind, name in data.items()
    }
