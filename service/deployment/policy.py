"""What the deployment says of keys, plans that need a yes, patience, and clients. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Literal, get_args
from urllib.parse import urlsplit

from selector.models import Plan
from service.deployment.located_yaml import LocatedYaml, Section

By = Literal["person", "another", "nobody"]


@dataclass(frozen=True, slots=True)
class PolicyBounds:
    """What may be applied without anybody's yes; what is None or empty bounds nothing."""

    most_stop_ms: float | None = None
    """Predicted."""
    per_hour: int | None = None
    """Plans of a model that are applied, without those whose switch was given up."""
    per_day: int | None = None
    windows: tuple[str, ...] = ()
    """That plans may be for."""
    devices: int | None = None
    """Of the target."""
    quality_loss: float | None = None
    """Of the target; a share."""


@dataclass(frozen=True, slots=True)
class Approval:
    """Who has to say yes to a plan."""

    by: By = "person"
    """``another``: not the one who had the plan made. ``nobody``: plans cannot be applied."""
    within: PolicyBounds | None = None
    """None: always somebody."""


@dataclass(frozen=True, slots=True)
class Applied:
    """Plans of a model that were applied lately, without those whose switch was given up."""

    last_hour: int
    last_day: int


def beyond(plan: Plan, within: PolicyBounds, applied: Applied) -> tuple[str, ...]:
    """Why a plan is not within what needs no yes; empty: it is."""
    found = list[str]()
    stop_ms = plan.switch.stop_s * 1000 if plan.switch else math.inf
    if within.most_stop_ms is not None and stop_ms > within.most_stop_ms:
        stop = "not predicted" if math.isinf(stop_ms) else f"{stop_ms:.1f} ms"
        found.append(f"its stop is {stop}, over {within.most_stop_ms:g} ms (most_stop_ms)")
    if within.per_hour is not None and applied.last_hour >= within.per_hour:
        found.append(f"{applied.last_hour} plans were applied in the last hour (per_hour: {within.per_hour})")
    if within.per_day is not None and applied.last_day >= within.per_day:
        found.append(f"{applied.last_day} plans were applied in the last day (per_day: {within.per_day})")
    if within.windows and plan.window not in within.windows:
        found.append(f"it is for {plan.window} (windows: {', '.join(within.windows)})")
    num_devices = len(plan.target.devices)
    if within.devices is not None and num_devices > within.devices:
        found.append(f"it takes {num_devices} devices (devices: {within.devices})")
    loss = plan.prediction.quality_loss
    if within.quality_loss is not None and loss > within.quality_loss:
        found.append(
            f"it loses {loss:.1%} of quality, {plan.prediction.quality_source} (quality_loss: {within.quality_loss:g})"
        )
    if plan.to_acknowledge:
        codes = ", ".join(sorted({finding.code for finding in plan.to_acknowledge}))
        found.append(f"a person has to see its findings ({codes})")
    return tuple(found)


def read_approval(source: LocatedYaml) -> Approval:
    """What the file says under ``approval``.

    Raises:
        DeploymentError: a window is none of this deployment's, or two people are asked for where nobody is known.
    """
    fields: Section = source.get(("approval",)) or {"by": "person"}
    if fields["by"] == "another" and source.get(("auth",)) == "none":
        raise source.error(["approval", "by"], "without keys (`auth: none`) no person is told from another")
    rules: Section | None = fields.get("within")
    if rules is None:
        return Approval(fields["by"])
    windows = tuple(rules.get("windows", ()))
    known = source.data.get("windows", {})
    for place, name in enumerate(windows):
        if name not in known:
            words = f"no window {name!r} in this deployment; it has {', '.join(known) or 'none'}"
            raise source.error(["approval", "within", "windows", place], words)
    return Approval(fields["by"], PolicyBounds(**{**rules, "windows": windows}))


@dataclass(frozen=True, slots=True)
class Auth:
    """Whether keys are asked for, and how many requests one may send."""

    has_keys: bool = True
    """Without, anybody who reaches the port may do everything; then it has to be a loopback address."""
    control_per_minute: int = 3000
    """Requests to the control API with one key."""
    inference_per_minute: int | None = None
    """Requests to the inference API with one key; None: any number."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How patient the controller is. In seconds."""

    tick_s: float = 5
    """Between two looks."""
    dwell_s: float = 300
    """Between two switches that undo each other, and between two rescues."""
    stay_s: float = 1800
    """That the agenda stays where a switch leads, as far as no goal is missed by that."""
    least_gain: float = 0.05
    """Share of what staying costs that a round trip has to save, its own cost counted."""
    calm_s: float = 300
    """That nothing is missed and the load is as declared before what a rescue did is taken back, or anything is saved."""
    patience_s: float = 15
    """That a goal is missed before it is acted on."""
    lookback_s: float = 60
    """Over which load and latencies are measured."""
    probation_s: float = 120
    """At most until a switch has its verdict."""
    probation_requests: int = 50
    """That are enough for a verdict."""
    margin: float = 1.5
    """Of the time that a switch is predicted to take, before a window begins."""
    retry_s: float = 30
    """After a switch that was given up; twice as long after the second, and so on."""
    data_s: float = 20
    """That the newest measurement may be old."""
    tolerance: float = 0.1
    """Share by which a load may exceed what was planned for."""

    @property
    def span_s(self) -> float:
        """Of what is looked at as what goes on just now: a patience, and a tick at least."""
        return max(self.patience_s, self.tick_s)


Topic = Literal["approval", "promise", "verdict", "switch", "device", "lease", "ends"]
TOPICS: tuple[Topic, ...] = get_args(Topic)
METADATA = frozenset({"169.254.169.254", "fd00:ec2::254", "100.100.100.200"})
"""Where clouds tell a machine who it is, keys included."""
NAT64 = IPv6Network("64:ff9b::/96")
"""IPv6 addresses of IPv4 ones."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where somebody is told what happened."""

    url: str
    form: Literal["json", "slack"] = "json"
    about: tuple[Topic, ...] = TOPICS
    secret_variable: str = ""
    """Of the environment, whose value signs; empty: nothing does."""

    @property
    def shown(self) -> str:
        """What it is called in the log: the rest of its URL may be a secret."""
        return f"the webhook at {urlsplit(self.url).hostname}"


def is_metadata(host: str) -> bool:
    """Whether an address is one where a cloud tells a machine who it is; a name is none."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and (address.ipv4_mapped or address in NAT64):
        address = IPv4Address(int(address) & 0xFFFF_FFFF)
    return str(address) in METADATA or address.is_link_local


def read_webhooks(source: LocatedYaml) -> tuple[Webhook, ...]:
    """What the file says under ``notify``.

    Raises:
        DeploymentError: an address that nobody is told at.
    """
    given: list[Section] = source.get(("notify",)) or []
    hooks = tuple(Webhook(**{**hook, "about": tuple(hook.get("about", TOPICS))}) for hook in given)
    for number, hook in enumerate(hooks):
        try:
            place = urlsplit(hook.url)
            host = (place.hostname or "").encode("idna").decode()
            _ = place.port  # raises where it is none
        except ValueError as error:
            raise source.error(["notify", number, "url"], f"is no URL: {error}") from error
        if is_metadata(host):
            raise source.error(
                ["notify", number, "url"], f"{host} is an address of this machine's metadata; name another"
            )
    return hooks


@dataclass(frozen=True, slots=True)
class Retention:
    """For how long records are kept."""

    plans_days: float = 90
    """Plans that nobody applied, and intents without a plan that were never activated."""
    history_days: float = 400
    """Operations that have ended, with their plans, journal, verdicts and topologies; and how far goals were kept."""
    audit_days: float = 1_095
    """Entries of the audit; older ones are exported first."""


def read_auth(source: LocatedYaml) -> Auth:
    """What the file says under ``auth``."""
    fields: Section | str = source.get(("auth",)) or {}
    return Auth(has_keys=False) if isinstance(fields, str) else Auth(**fields)


BYTES_PER_TOKEN = 16
"""Of the longest prompt, as JSON: four times what a token has, for other scripts, token ids and what is said around it."""
LEAST_BODY_BYTES = 262_144
SHARE = 0.75
"""Of the connections, which one address may have, and of the requests under way, which one key may have."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Bounds on requests, connections and patience."""

    max_body_bytes: int = LEAST_BODY_BYTES
    """Of a request; JSON of that size is read in some 10 ms."""
    max_connections: int = 800
    """At once; every one is an open file of this process."""
    max_connections_per_address: int = 600
    """Of them from one address; a proxy's counts as one."""
    max_requests_per_key: int = 600
    """Under way at once with one key, event streams among them."""
    head_timeout_s: float = 10.0
    """From the first byte of a request, or a new connection, to the end of its headers."""
    body_timeout_s: float = 30.0
    """From there to the end of its body."""
    unread_timeout_s: float = 30.0
    """For a client that takes nothing of its answer, or is not there any more."""
    keep_alive_s: float = 120.0
    """For the next request on a connection; proxies keep theirs for 60 to 90 s, and have to be the first to close."""
    recovery_timeout_s: float = 60.0
    """For a stream whose engine was lost, until it goes on; with 0 it ends with an error at once."""
    stop_timeout_s: float = 25.0
    """For what is under way when the service is told to stop; less than Kubernetes waits."""


def read_clients(source: LocatedYaml, contexts_tokens: Sequence[int]) -> ClientLimits:
    """What the file says under ``clients``.

    Where it does not, the size of a body follows the longest context, and what one client may have the number
    of connections.
    """
    longest = BYTES_PER_TOKEN * max(contexts_tokens, default=0)
    given: Section = source.get(("clients",)) or {}
    share = math.ceil(SHARE * given.get("max_connections", ClientLimits().max_connections))
    usual = ClientLimits(
        max_body_bytes=max(LEAST_BODY_BYTES, longest),
        max_connections_per_address=share,
        max_requests_per_key=share,
    )
    bounds = {key: value for key, value in given.items() if key != "max_body_mb"}
    body_bytes = round(given["max_body_mb"] * 1e6) if "max_body_mb" in given else usual.max_body_bytes
    return replace(usual, max_body_bytes=body_bytes, **bounds)
