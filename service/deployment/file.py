"""The deployment file: one YAML, read once, handed down as the nouns of the packages below.

Relative paths in it are relative to the file. Memory is in GB of 1e9 bytes, bandwidth in GB/s.
"""

import itertools
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from importlib.resources import files
from ipaddress import ip_network
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from intent.models import DAYS, NAMED_WINDOWS, Catalogue, RecurringWindow, Window
from intent.windows import holds, in_force
from runtime.capabilities import Limits
from runtime.models import Cluster, Gpu, Link, Node
from selector.profiles import is_file, kinds
from service.deployment.located_yaml import LocatedYaml, Section, read
from service.deployment.models import ServedModel, read_models
from service.deployment.policy import (
    Approval,
    Auth,
    ClientLimits,
    Retention,
    Rules,
    Webhook,
    read_approval,
    read_auth,
    read_clients,
    read_webhooks,
)
from service.documents.errors import RefusedError
from service.documents.problems import Code, Detail
from service.documents.promises import Mode

CPU = "CPU"
"""The kind whose figures are measured on the machine itself."""


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LlmEndpoint:
    """Where the LLM translator is; the key itself stays in the environment."""

    base_url: str | None
    """None: this service's own."""
    model: str
    key_variable: str | None
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Deployment:
    """Everything the file says."""

    file: Path
    cluster: Cluster
    models: tuple[ServedModel, ...]
    """Each on devices of its own."""
    tenants: Mapping[str, tuple[str, ...]]
    """Tenant to its aliases."""
    windows: Mapping[str, Window]
    limits: Limits
    """They hold for each model."""
    clients: ClientLimits
    retention: Retention
    webhooks: tuple[Webhook, ...]
    auth: Auth
    proxies: tuple[str, ...]
    """Networks of those whose ``X-Forwarded-For`` is believed: proxies, and the console."""
    approval: Approval
    mode: Mode
    """Of the controller where nobody has said another."""
    rules: Rules
    """How patient it is."""
    llm: LlmEndpoint | None
    profiles: Mapping[str, str]
    """Device kind to the name of its profile or the path of its file; kinds left out have the profile of their own name."""
    timezone: str
    agents: Mapping[str, tuple[str, int] | None]
    """Host to the address and port of its agent; None: Ray starts it. A node that is not in it is this machine."""
    ray: str
    """The address of Ray's head; empty: there is none."""

    @property
    def certificates(self) -> Path:
        """The folder of the hosts' certificates and keys: beside the file, by its name."""
        return self.file.with_suffix(".hosts")

    @property
    def names(self) -> tuple[str, ...]:
        """The models' names."""
        return tuple(model.name for model in self.models)

    def model(self, name: str | None = None) -> ServedModel:
        """The model of that name, or the only one.

        Raises:
            RefusedError: there is none of that name, or several and none is named.
        """
        found = [model for model in self.models if name in {None, model.name}]
        if len(found) == 1:
            return found[0]
        known = ", ".join(self.names)
        if name is None:
            message = f"several models are served here: {known}; name one of them"
            raise RefusedError(Code.INVALID_REQUEST, message, [Detail("/model", message, "model_not_named")])
        raise RefusedError(Code.NOT_FOUND, f"there is no model {name!r} here; there are {known}")

    def catalogue(self, now: datetime) -> Catalogue:
        """The names a text may use."""
        aliases = {alias: model.name for model in self.models for alias in model.aliases}
        aliases |= {alias: tenant for tenant, names in self.tenants.items() for alias in names}
        return Catalogue(
            models=self.names,
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

    def is_in_force(self, window: str, now: datetime) -> bool:
        """Whether a window of this deployment holds now, alone or beside others; ``always`` does."""
        return holds(self.windows.get(window, window), now)

    def refuse_unless_served(self) -> None:
        """Refuse what one service cannot run.

        Raises:
            RefusedError: there are several machines, or a model that cannot be served.
        """
        for model in self.models:
            model.to_serve()
        here = [node.name for node in self.cluster.nodes if node.name not in self.agents]
        if len(here) > 1:
            raise RefusedError(
                Code.UNSUPPORTED,
                f"{self.file}: the nodes {', '.join(here)} can be planned for together but not served: one of them at "
                "most is this machine; name the agents of the others under `hosts`, or leave the node to run on",
            )


def load(file: Path) -> Deployment:
    """Read and check a deployment file.

    Raises:
        DeploymentError: naming the file, the line, the path and what to do.
    """
    source = read(file)
    source.check(_schema())
    data = source.data
    timezone = data.get("timezone", "UTC")
    _check_zone(source, ["timezone"], timezone)
    _check_nodes(source)
    agents = _agents(source) if "hosts" in data else {}
    cluster = _cluster(data["cluster"])
    if agents:
        cluster = replace(cluster, network=None, between=cluster.network)  # a topology stays within a host
    models = read_models(source, cluster)
    return Deployment(
        file=file,
        cluster=cluster,
        models=models,
        tenants={tenant["name"]: tuple(tenant.get("aliases", ())) for tenant in data.get("tenants", ())},
        windows={name: _window(source, name, timezone) for name in data.get("windows", {})},
        limits=_limits(data.get("limits", {})),
        clients=read_clients(source, [model.spec.max_position_embeddings for model in models]),
        retention=Retention(**data.get("retention", {})),
        webhooks=read_webhooks(source),
        auth=read_auth(source),
        proxies=tuple(_proxies(source)) if "proxies" in data else (),
        approval=(approval := _approval(source)),
        mode=_mode(source, approval),
        rules=Rules(**data.get("promises", {})),
        llm=_llm(source, models),
        profiles=_profiles(source, cluster),
        timezone=timezone,
        agents=agents,
        ray=data.get("hosts", {}).get("ray", ""),
    )


def _agents(source: LocatedYaml) -> dict[str, tuple[str, int] | None]:
    """Where the agents of hosts listen; each host is a node, each agent that of one."""
    nodes = [node["name"] for node in source.data["cluster"]["nodes"]]
    agents = dict[str, tuple[str, int] | None]()
    for name, data in source.data["hosts"].items():
        if name == "ray":
            agents = dict.fromkeys(nodes) | agents
            continue
        address, _, port = data["agent"].rpartition(":")
        if name not in nodes:
            raise source.error(["hosts", name], f"no node {name!r} in the cluster; it has {', '.join(nodes)}")
        if (address, int(port)) in agents.values():
            raise source.error(["hosts", name, "agent"], f"{data['agent']} is another host's agent already")
        agents[name] = address.strip("[]"), int(port)
    return agents


def _proxies(source: LocatedYaml) -> Iterator[str]:
    for place, proxy in enumerate(source.data.get("proxies", ())):
        try:
            yield str(ip_network(proxy, strict=False))
        except ValueError:
            what = f"{proxy!r} is no address and no network; write 10.0.0.7 or 10.1.0.0/16"
            raise source.error(["proxies", place], what) from None


def _mode(source: LocatedYaml, approval: Approval) -> Mode:
    """How far the controller goes; to act it needs something that it may."""
    mode: Mode = source.data.get("mode", "recommend")
    if mode == "act" and (approval.by == "nobody" or approval.within is None):
        what = "the controller may apply nothing: say what under `approval.within`, as {most_stop_ms: 50, per_hour: 4}"
        raise source.error(["mode"], what)
    return mode


def _approval(source: LocatedYaml) -> Approval:
    """Who may apply a plan; ``limits.approval`` is where older files say it."""
    who: Literal["person", "nobody"] | None = source.data.get("limits", {}).get("approval")
    if who is None:
        return read_approval(source)
    instead = f"write `approval: {{by: {who}}}` at the top level instead"
    if "approval" in source.data:
        raise source.error(["limits", "approval"], f"is said twice; {instead}, and leave this out")
    log.warning("%s", source.error(["limits", "approval"], instead))
    return Approval(who)


@cache
def _schema() -> Section:
    text = files(__package__).joinpath("schema/deployment.v1.json").read_text(encoding="utf-8")
    schema: Section = json.loads(text)
    return schema


def _link(data: Section) -> Link:
    return Link(data["kind"], data["bandwidth_gb_s"] * 1e9, data["latency_us"] * 1e-6)


def _cluster(data: Section) -> Cluster:
    index = itertools.count()
    nodes = tuple(
        Node(node["name"], tuple(_gpus(node, index)), _link(node["link"]), _storage_bytes_s(node))
        for node in data["nodes"]
    )
    return Cluster(nodes, _link(data["network"]) if "network" in data else None)


def _storage_bytes_s(node: Section) -> float | None:
    return node["storage"]["bandwidth_gb_s"] * 1e9 if "storage" in node else None


def _check_nodes(source: LocatedYaml) -> None:
    """Every node has a name of its own, and every device a kind that there are figures for."""
    known = {CPU, *kinds(), *source.data.get("profiles", {})}
    named = set[str]()
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
                raise source.error([*path, "gpus", number, "kind"], f"{words}, or name a profile of it under profiles")


def _gpus(node: Section, index: Iterator[int]) -> Iterator[Gpu]:
    for group in node["gpus"]:
        for _ in range(group.get("count", 1)):
            memory_bytes = round(group["memory_gb"] * 1e9)
            yield Gpu(next(index), group["kind"], memory_bytes, group.get("usd_per_hour", 0.0))


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


def _limits(data: Section) -> Limits:
    fields: Section = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    fields.pop("approval", None)  # read beside them
    return Limits(**fields)


def _llm(source: LocatedYaml, models: Sequence[ServedModel]) -> LlmEndpoint | None:
    """The endpoint that is named, or a model of this deployment."""
    data: Section | None = source.data.get("llm")
    if data is None:
        return None
    if ("served" in data) is ("base_url" in data):
        what = "write base_url and model of an endpoint, or served with a model of this deployment"
        raise source.error(("llm",), what)
    if "served" not in data:
        return LlmEndpoint(data["base_url"], data["model"], data.get("key_variable"), data.get("timeout_s", 20.0))
    served = data["served"]
    model = next((model for model in models if model.name == served), None)
    if model is None:
        known = ", ".join(model.name for model in models)
        raise source.error(("llm", "served"), f"no model {served!r} in this deployment; it has {known}")
    if not model.speaks:
        raise source.error(
            ("llm", "served"),
            f"{served} speaks no language, as its config.json says; name a model that does, or an endpoint by base_url",
        )
    return LlmEndpoint(None, served, None, data.get("timeout_s", 20.0))


def _profiles(source: LocatedYaml, cluster: Cluster) -> dict[str, str]:
    data: dict[str, str] = source.data.get("profiles", {})
    for kind in data:
        if kind not in cluster.kinds:
            raise source.error(["profiles", kind], f"no {kind} in the cluster; it has {', '.join(cluster.kinds)}")
    folder = source.file.parent
    return {kind: str(folder / Path(name).expanduser()) if is_file(name) else name for kind, name in data.items()}
